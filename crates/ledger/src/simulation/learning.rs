//! Nodes that are too far behind for entries, and nodes that do not vote.

use holdoff_paxos::log;
use holdoff_paxos::{Configuration, Slot};

use super::cases::{Room, add, id};
use super::machine::{key, options};
use crate::machine::{Command, KeyValue, Machine as _, Value, Values};
use crate::{Checkpoint, Input, Letter, MAX_VOTERS, NotChanged, TxId};

/// The number of indices after which no node keeps the first entries.
fn far() -> u64 {
    8 * options().kept as u64
}

fn voters(numbers: impl IntoIterator<Item = usize>) -> Configuration {
    Configuration::new(numbers.into_iter().map(id)).unwrap()
}

/// Asserts that all these nodes have the same head.
fn assert_one_head(room: &Room, numbers: impl IntoIterator<Item = usize>) {
    let head = room.node(room.leader()).state().head();
    for number in numbers {
        assert_eq!(room.node(number).state().head(), head, "node {number}");
    }
}

#[test]
fn a_learner_that_was_long_away_gets_a_state_and_keeps_it() {
    let mut room = Room::new(3, 4);
    room.pass(1_000_000);
    room.cut_off = vec![id(4)];
    room.fill(far());
    let behind = room.node(4).state().index();
    assert!(behind.next() < room.node(room.leader()).first_kept(), "entries would do");
    room.cut_off.clear();
    room.pass(2_000_000);
    assert_one_head(&room, 1..=4);
    assert_eq!(room.node(4).counts().states, 1);
    let done = room.node(4).state().done(TxId(1000 + u128::from(far()) - 2)).map(|(slot, _)| slot);
    assert!(done.is_some(), "it knows which transactions are done");

    room.cut_off = (1..=3).map(id).collect();
    let index = room.node(4).state().index();
    room.restart(4);
    assert_eq!(room.node(4).state().index(), index, "it begins where it was");
}

/// The leader, which has the entries, is unreachable, and other nodes have a state.
#[test]
fn a_voter_takes_a_state_from_whoever_has_it() {
    let mut room = Room::new(3, 3);
    room.pass(1_000_000);
    let leader = room.leader();
    let (behind, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    room.cut_off = vec![id(behind)];
    room.fill(far());
    room.step(other, Input::Message(id(behind), Letter::Fetch { after: Slot(1), or_state: true }));
    let (_, _, state) = room.post.pop_back().unwrap();
    room.post.clear();
    room.step(behind, Input::Message(id(other), state));
    assert_eq!(room.node(behind).counts().states, 1);
    room.cut_off.clear();
    room.pass(1_000_000);
    assert_one_head(&room, 1..=3);
}

#[test]
fn a_state_that_was_tampered_with_is_refused() {
    let mut room = Room::new(3, 4);
    room.pass(1_000_000);
    room.cut_off = vec![id(4)];
    room.fill(far());
    let before = room.node(4).state().index();
    room.step(1, Input::Message(id(4), Letter::Fetch { after: before, or_state: false }));
    assert!(room.post.is_empty(), "entries were asked for, and are not there");
    room.step(1, Input::Message(id(4), Letter::Fetch { after: before, or_state: true }));
    let (_, _, state) = room.post.pop_back().unwrap();
    let Letter::State(snapshot) = state else { panic!("{state:?}") };
    let lies: [fn(&mut log::Snapshot<Checkpoint<Values>>); 8] = [
        |lie| drop(lie.state.done.pop()),
        |lie| lie.state.done.swap(0, 1),
        |lie| lie.state.machine = KeyValue::default().snapshot(),
        |lie| lie.state.proof = None,
        |lie| lie.last.slot = lie.last.slot.next(),
        |lie| lie.start = Slot(2),
        |lie| lie.configuration = Configuration::new([id(1)]).unwrap(),
        |lie| lie.state.proof.iter_mut().for_each(|proof| proof.seals[0].1.0[0] ^= 1),
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let mut tampered = snapshot.clone();
        lie(&mut tampered);
        room.step(4, Input::Message(id(1), Letter::State(tampered)));
        assert_eq!(room.node(4).state().index(), before, "lie {number}");
    }
    assert_eq!((room.node(4).counts().refused, room.node(4).counts().forged_certificates), (8, 1));
    room.step(4, Input::Message(id(1), Letter::State(snapshot)));
    assert!(room.node(4).state().index() > before);
}

/// All voters that the learner knew have been replaced: it verifies one configuration certificate after another.
#[test]
fn a_learner_finds_its_way_to_voters_it_never_knew() {
    let mut room = Room::new(3, 7);
    room.pass(1_000_000);
    room.cut_off = vec![id(7)];
    let mut now: Vec<_> = (1..=3).collect();
    for (come, go) in [(4, 1), (5, 2), (6, 3)] {
        for to in [[&now[..], &[come]].concat(), [&now[1..], &[come]].concat()] {
            let index = room.node(room.leader()).state().index().0;
            room.fill(index + 2 * options().kept as u64);
            room.change(&voters(to));
        }
        assert_eq!(now.remove(0), go);
        now.push(come);
        room.cut_off.push(id(go));
    }
    room.fill(room.node(room.leader()).state().index().0 + far());
    assert_eq!(*room.node(room.leader()).state().voters(), voters(4..=6));
    let leader = room.leader();
    room.step(leader, Input::Message(id(7), Letter::Fetch { after: Slot(2), or_state: true }));
    let (_, _, state) = room.post.pop_back().unwrap();
    let Letter::State(mut snapshot) = state else { panic!("{state:?}") };
    assert_eq!(snapshot.state.stones.len(), 6);

    // With missing configuration certificates the learner rejects the state; with all of them it accepts it.
    snapshot.state.stones.drain(1..5);
    let before = room.node(7).state().index();
    room.step(7, Input::Message(id(leader), Letter::State(snapshot)));
    assert_eq!(room.node(7).state().index(), before);
    // The learner asks only the voters that it knows, so the test delivers the answer of a new voter.
    room.step(leader, Input::Message(id(7), Letter::Fetch { after: Slot(2), or_state: true }));
    let (_, _, state) = room.post.pop_back().unwrap();
    room.step(7, Input::Message(id(leader), state));
    assert_eq!(*room.node(7).state().voters(), voters(4..=6));
    room.cut_off.retain(|node| *node != id(7));
    room.pass(2_000_000);
    assert_one_head(&room, 4..=7);
}

#[test]
fn whoever_wants_other_voters_learns_what_became_of_it() {
    let mut room = Room::new(3, 4);
    room.pass(1_000_000);
    let leader = room.leader();
    let follower = leader % 3 + 1;
    let refused = [
        (follower, voters(1..=4), NotChanged::NotLeading(Some(id(leader)))),
        (leader, voters(1..=3), NotChanged::Same),
        (leader, voters(1..=5), NotChanged::TooFar),
        (leader, voters(1..=MAX_VOTERS + 1), NotChanged::TooMany(8)),
    ];
    for (at, to, why) in refused {
        room.step(at, Input::Change(to));
        assert_eq!(room.changed.pop(), Some(Err(why)));
    }
    room.step(leader, Input::Change(voters(1..=4)));
    room.step(leader, Input::Change(voters([1, 2])));
    assert_eq!(room.changed.pop(), Some(Err(NotChanged::Changing)));
    room.deliver();
    room.pass(500_000);
    let at = room.node(room.leader()).state().head().start;
    assert_eq!(room.changed.pop(), Some(Ok((voters(1..=4), Slot(at.0 - 1)))));

    let leader = room.leader();
    room.cut_off = vec![id(leader)];
    room.step(leader, Input::Change(voters(1..=3)));
    room.pass(2_000_000);
    assert_eq!(room.changed.pop(), Some(Err(NotChanged::Unknown)), "nobody has heard of it");
}

#[test]
fn a_change_that_another_leader_knew_nothing_of_is_overtaken() {
    let mut room = Room::new(3, 4);
    room.pass(1_000_000);
    let leader = room.leader();
    room.cut_off = vec![id(leader)];
    room.step(leader, Input::Change(voters(1..=4)));
    room.post.clear();
    room.pass(700_000);
    assert_eq!(room.changed, []);
    room.cut_off.clear();
    room.pass(150_000);
    assert_eq!(room.changed, [Err(NotChanged::Overtaken)]);
}

/// A message carries 4 MiB of entries; the later ones are sent as hashes.
#[test]
fn long_entries_come_a_few_at_a_time() {
    let mut room = Room::new(3, 4);
    room.pass(1_000_000);
    room.cut_off = vec![id(4)];
    let leader = room.leader();
    for tx_id in 0..14_u8 {
        let text = char::from(b'a' + tx_id).to_string().repeat(crate::machine::limits::TEXT_BYTES);
        let put = |number| Command::Put(key(number), Value::text(text.as_str()).unwrap());
        let (tx_id, goal) = (u128::from(tx_id), (0..7).map(put).collect());
        room.step(leader, Input::Submit { tx_id: TxId(tx_id), goal });
    }
    room.deliver();
    room.pass(100_000);
    let before = room.node(4).state().index();
    room.step(leader, Input::Message(id(4), Letter::Fetch { after: before, or_state: false }));
    let (_, _, history) = room.post.pop_back().unwrap();
    let Letter::History { entries, rest, .. } = &history else { panic!() };
    let bytes: usize = entries.iter().map(|entry| postcard::to_stdvec(entry).unwrap().len()).sum();
    assert!(
        bytes <= 4 << 20 && !entries.is_empty() && !rest.is_empty(),
        "{bytes} {} {}",
        entries.len(),
        rest.len()
    );
    let came = entries.len() as u64;
    room.step(4, Input::Message(id(leader), history));
    assert_eq!(room.node(4).state().index(), Slot(before.0 + came));
    room.cut_off.clear();
    room.pass(1_000_000);
    assert_one_head(&room, 1..=4);
}

#[test]
fn who_learns_submits_and_sees_what_came_of_it() {
    let mut room = Room::new(3, 4);
    room.pass(1_000_000);
    room.step(4, Input::Submit { tx_id: TxId(7), goal: add() });
    room.pass(500_000);
    assert!(matches!(room.ended[..], [(TxId(7), crate::Outcome::Committed { .. })]), "{:?}", room.ended);
}
