//! Many entries in few messages: whoever runs a node puts together what it says in many steps.

use holdoff_paxos::log::{self, Message};

use super::{Letter, Output};

/// Joins the log's entries for the same node that follow on, up to so many in one message.
///
/// Nothing that is said to a node in between is overtaken.
pub fn join<G, D, A>(outputs: &mut Vec<Output<G, D, A>>, batch: usize) {
    let to = |output: &Output<G, D, A>| match output {
        Output::Send(to, _) => Some(*to),
        _ => None,
    };
    log::join(outputs, batch, to, |output| match output {
        Output::Send(_, Letter::Log(Message::Append(append))) => Some(append),
        _ => None,
    });
}
