//! Batching of append messages.

use super::table::term_of_one;
use crate::log::{Append, Entry, Mark, Message, Output, Payload, join};
use crate::{NodeId, Slot};

type Said = Output<u64, ()>;

fn append(to: u128, before: u64, entries: u64, decided: u64) -> Said {
    let term = term_of_one();
    let mut entries = (1..=entries).map(|more| Entry { term, payload: Payload::Value(before + more) });
    let (entry, more) = (entries.next(), entries.collect());
    let before = Mark { slot: Slot(before), term };
    let append = Append { term, before, entry, more, inherited: Slot(1), decided: Slot(decided) };
    Output::Send(NodeId(to), Message::Append(append))
}

fn joined(mut outputs: Vec<Said>, batch: usize) -> Vec<Said> {
    let to = |output: &Said| match output {
        Output::Send(to, _) => Some(*to),
        _ => None,
    };
    join(&mut outputs, batch, to, |output| match output {
        Output::Send(_, Message::Append(append)) => Some(append),
        _ => None,
    });
    outputs
}

#[test]
fn what_follows_on_goes_in_one_message_to_each() {
    let entries = (5..1029).flat_map(|before| [append(2, before, 1, 3), append(3, before, 1, before)]);
    let few = joined(entries.collect(), 256);
    let expected = [5, 261, 517, 773]
        .into_iter()
        .flat_map(|before| [append(2, before, 256, 3), append(3, before, 256, before + 255)]);
    assert_eq!(few, expected.collect::<Vec<_>>());
}

#[test]
fn a_heartbeat_goes_with_what_comes_next() {
    assert_eq!(joined(vec![append(2, 5, 0, 4), append(2, 5, 2, 3)], 8), [append(2, 5, 2, 4)]);
}

#[test]
fn what_does_not_follow_on_stays_as_it_is() {
    for apart in [
        vec![append(2, 5, 1, 0), append(2, 7, 1, 0)],
        vec![append(2, 5, 2, 0), append(2, 6, 1, 0)],
        vec![append(2, 5, 3, 0), append(2, 8, 2, 0)],
    ] {
        assert_eq!(joined(apart.clone(), 4), apart);
    }
    let mut of_another_term = append(2, 6, 1, 0);
    if let Output::Send(_, Message::Append(append)) = &mut of_another_term {
        append.before.term = crate::log::Term::none();
    }
    let apart = vec![append(2, 5, 1, 0), of_another_term];
    assert_eq!(joined(apart.clone(), 4), apart);
}

/// Entries do not overtake another message to the same node; an output in between that is not a message does not
/// matter.
#[test]
fn the_order_stays() {
    let term = term_of_one();
    let lead = Output::Send(NodeId(2), Message::Lead { term, to: NodeId(3) });
    let apart = vec![append(2, 5, 1, 0), lead, append(2, 6, 1, 0)];
    assert_eq!(joined(apart.clone(), 4), apart);
    let between = vec![append(2, 5, 1, 0), Output::Decided(Slot(5)), append(2, 6, 1, 0)];
    assert_eq!(joined(between, 4), [append(2, 5, 2, 0), Output::Decided(Slot(5))]);
}
