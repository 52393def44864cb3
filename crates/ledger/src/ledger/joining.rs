//! Combines the entries of many steps into few messages, for the runtime of a node.

use holdoff_paxos::log::{self, Message};

use super::{Letter, Output};

/// Combines consecutive entries of the log for the same node, up to `batch` in one message.
///
/// The order of the messages to a node does not change.
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
