//! Leader hints, and leadership transfer.

use holdoff_paxos::log::{Candidacy, Message, Term};

use super::*;

/// Returns the time from the failure of a leader until the ledger serves again. The failure occurs `moment_us` after a
/// fixed time, between two heartbeats.
fn healed_after_us(hinted: bool, moment_us: u64) -> u64 {
    let mut room = Room::new(3, 3);
    room.pass(1_000_000 + moment_us);
    let leader = room.leader();
    let next = leader % 3 + 1;
    room.cut_off = vec![id(leader)];
    let gone_us = room.now_us;
    for number in (1..=3).filter(|number| hinted && *number != leader) {
        room.step(number, Input::ShouldLead(id(next)));
    }
    while !(1..=3).any(|number| number != leader && room.node(number).is_ready()) {
        room.pass(10_000);
        assert!(room.now_us < gone_us + 3_000_000, "nobody leads");
    }
    room.now_us - gone_us
}

#[test]
fn a_hint_heals_sooner() {
    let moments = || (0..12).map(|tens| tens * 10_000);
    let [with, without] = [true, false]
        .map(|hinted| moments().map(|moment_us| healed_after_us(hinted, moment_us)).sum::<u64>());
    println!("with hints {} us, without {} us", with / 12, without / 12);
    assert!(with < without);
}

/// Each node receives the hint that it should lead, at every tick.
#[test]
fn when_everybody_is_to_lead_one_does() {
    let mut room = Room::new(3, 3);
    let urge = |room: &mut Room, us: u64| {
        for _ in 0..us / 10_000 {
            for number in 1..=3 {
                room.step(number, Input::ShouldLead(id(number)));
            }
            room.pass(10_000);
        }
    };
    urge(&mut room, 2_000_000);
    let (leader, term) = (room.leader(), room.node(room.leader()).leads());
    room.submit(leader, 1);
    urge(&mut room, 1_000_000);
    assert_eq!(room.node(leader).leads(), term, "who is heard stays");
    assert!(matches!(room.ended[..], [(TxId(1), Outcome::Committed { .. })]));
    room.cut_off = vec![id(leader)];
    urge(&mut room, 2_000_000);
    let next = (1..=3).find(|number| *number != leader && room.node(*number).is_ready());
    assert!(next.is_some(), "and who is gone is replaced");
}

#[test]
fn another_serves_at_once_and_what_was_pending_goes_there() {
    let mut room = Room::new(3, 3);
    room.pass(1_000_000);
    let leader = room.leader();
    let next = leader % 3 + 1;
    room.submit(leader, 1);
    room.step(leader, Input::HandOver(id(next)));
    assert_eq!(room.handed_over, [Ok(id(next))]);
    assert!(!room.node(leader).is_ready());
    room.step(leader, Input::Submit { tx_id: TxId(2), goal: add() });
    room.deliver();
    assert!(room.node(next).is_ready(), "no time has passed: whoever has vouched is free");
    room.pass(100_000);
    let committed = |(_, outcome): &&(TxId, Outcome<Values>)| matches!(outcome, Outcome::Committed { .. });
    assert_eq!(room.ended.iter().filter(committed).count(), 2, "{:?}", room.ended);
}

/// Transfers leadership from a leader that then receives no more messages. Returns true if it ever served a read by
/// its lease while the new leader already served.
fn reads_what_is_old() -> bool {
    let mut room = Room::new(3, 3);
    room.pass(1_000_000);
    let leader = room.leader();
    let next = leader % 3 + 1;
    let read = |room: &mut Room, read| {
        let goal = vec![Command::Get(key(0))];
        room.step(leader, Input::Read { read: ReadId(read), goal, how: How::Lease });
        room.answered.contains(&ReadId(read))
    };
    assert!(read(&mut room, 1), "it has a lease");
    room.step(leader, Input::HandOver(id(next)));
    assert_eq!(room.handed_over, [Ok(id(next))]);
    let told: Vec<_> = room.post.drain(..).collect();
    room.cut_off = vec![id(leader)];
    for (from, to, letter) in told {
        room.step(usize::try_from(to.0).unwrap(), Input::Message(from, letter));
    }
    room.deliver();
    assert!(room.node(next).is_ready(), "no time has passed");
    read(&mut room, 2)
}

#[test]
fn who_hands_over_reads_no_more_by_its_lease() {
    assert!(!reads_what_is_old());
    assert!(Flaw::ReadOn.plant(reads_what_is_old), "the case is none");
}

/// A late message from a former leader does not release a voter that has confirmed the term of the next leader.
#[test]
fn an_old_word_frees_nobody_of_a_new_one() {
    let mut room = Room::new(3, 3);
    room.pass(1_000_000);
    let (leader, voter) = (room.leader(), (room.leader() + 1) % 3 + 1);
    let next = leader % 3 + 1;
    room.step(leader, Input::HandOver(id(next)));
    let is_for_voter = |(_, to, letter): &&Post| {
        *to == id(voter) && matches!(letter, Letter::Log(holdoff_paxos::log::Message::Lead { .. }))
    };
    let word = room.post.iter().find(is_for_voter).cloned().unwrap().2;
    room.deliver();
    room.pass(200_000);
    let before = room.node(voter).vouched_until_us();
    assert!(before > room.now_us, "it has vouched for the next one");
    room.step(voter, Input::Message(id(leader), word));
    assert_eq!(room.node(voter).vouched_until_us(), before);
    assert_eq!(room.node(voter).leader(), Some(id(next)));
}

#[test]
fn with_other_voters_the_leader_leads_on_at_once() {
    let mut room = Room::new(3, 4);
    room.pass(1_000_000);
    let leader = room.leader();
    assert!(room.node(leader % 3 + 1).vouched_until_us() > room.now_us, "the others have vouched for it");
    room.step(leader, Input::Change(Configuration::new((1..=4).map(id)).unwrap()));
    room.deliver();
    assert!(
        room.node(leader).is_ready(),
        "no time has passed: whom they have vouched for they let lead again"
    );
    assert_eq!(room.node(leader).store().configuration().acceptors().len(), 4);
}

/// A pre-vote may arrive late, from an earlier incarnation, and its sender has promised nothing.
#[test]
fn a_trial_frees_nobody() {
    let mut room = Room::new(3, 3);
    room.pass(1_000_000);
    let leader = room.leader();
    let (voter, store) = (leader % 3 + 1, room.node(leader).store());
    let later = Term::new(store.start(), 9, id(leader));
    let ask = |trial| {
        let asked = Candidacy { trial, term: later, accepted: store.accepted(), last: store.last() };
        Input::Message(id(leader), Letter::Log(Message::Vote(asked)))
    };
    let (trial, vote) = (ask(true), ask(false));
    let before = room.node(voter).vouched_until_us();
    assert!(before > room.now_us);
    room.step(voter, trial);
    assert_eq!(room.node(voter).vouched_until_us(), before);
    room.step(voter, vote);
    assert_eq!(room.node(voter).vouched_until_us(), room.now_us, "and who has, does");
}

#[test]
fn who_is_away_is_not_handed_over_to() {
    let mut room = Room::new(3, 3);
    room.pass(1_000_000);
    let leader = room.leader();
    let away = leader % 3 + 1;
    room.cut_off = vec![id(away)];
    room.submit(leader, 1);
    room.step(leader, Input::HandOver(id(away)));
    room.submit(leader, 2);
    assert!(!room.node(leader).is_ready(), "it takes nothing in the meantime");
    room.pass(500_000);
    assert_eq!(room.handed_over, [Err(Refusal::TooLate)]);
    assert!(room.node(leader).is_ready());
    let committed = |(_, outcome): &&(TxId, Outcome<Values>)| matches!(outcome, Outcome::Committed { .. });
    assert_eq!(room.ended.iter().filter(committed).count(), 2, "{:?}", room.ended);
}
