//! Leader hints, and leadership transfer.

use holdoff_paxos::log::{self, Term, VoteRequest};

use super::*;

/// Returns the time from the failure of a leader until the ledger serves again. The failure occurs `moment_us` after a
/// fixed time, between two heartbeats.
fn time_without_leader_us(hinted: bool, moment_us: u64) -> u64 {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000 + moment_us);
    let leader = cluster.leader();
    let next = leader % 3 + 1;
    cluster.cut_off = vec![id(leader)];
    let gone_us = cluster.now_us;
    for number in (1..=3).filter(|number| hinted && *number != leader) {
        cluster.step(number, Input::ShouldLead(id(next)));
    }
    while !(1..=3).any(|number| number != leader && cluster.node(number).is_ready()) {
        cluster.pass(10_000);
        assert!(cluster.now_us < gone_us + 3_000_000, "no leader within 3 s");
    }
    cluster.now_us - gone_us
}

#[test]
fn a_hint_shortens_the_time_without_a_leader() {
    let moments = || (0..12).map(|tens| tens * 10_000);
    let [with, without] = [true, false]
        .map(|hinted| moments().map(|moment_us| time_without_leader_us(hinted, moment_us)).sum::<u64>());
    println!("with hints {} us, without {} us", with / 12, without / 12);
    assert!(with < without);
}

/// Each node receives the hint that it should lead, at every tick.
#[test]
fn one_node_leads_when_the_hint_names_every_node() {
    let mut cluster = TestCluster::new(3, 3);
    let hint_all = |cluster: &mut TestCluster, us: u64| {
        for _ in 0..us / 10_000 {
            for number in 1..=3 {
                cluster.step(number, Input::ShouldLead(id(number)));
            }
            cluster.pass(10_000);
        }
    };
    hint_all(&mut cluster, 2_000_000);
    let (leader, term) = (cluster.leader(), cluster.node(cluster.leader()).leads());
    cluster.submit(leader, 1);
    hint_all(&mut cluster, 1_000_000);
    assert_eq!(cluster.node(leader).leads(), term, "a reachable leader stays");
    assert!(matches!(cluster.ended[..], [(TxId(1), Outcome::Committed { .. })]));
    cluster.cut_off = vec![id(leader)];
    hint_all(&mut cluster, 2_000_000);
    let next = (1..=3).find(|number| *number != leader && cluster.node(*number).is_ready());
    assert!(next.is_some(), "an unreachable leader is replaced");
}

#[test]
fn the_target_of_a_transfer_serves_at_once_and_receives_pending_transactions() {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000);
    let leader = cluster.leader();
    let next = leader % 3 + 1;
    cluster.submit(leader, 1);
    cluster.step(leader, Input::TransferLeadership(id(next)));
    assert_eq!(cluster.transfers, [Ok(id(next))]);
    assert!(!cluster.node(leader).is_ready());
    cluster.submit_goal(leader, tx(2), add());
    cluster.deliver();
    assert!(
        cluster.node(next).is_ready(),
        "the target leads at once: the voters are released from the lease"
    );
    cluster.pass(100_000);
    let committed = |(_, outcome): &&(TxId, Outcome<Values>)| matches!(outcome, Outcome::Committed { .. });
    assert_eq!(cluster.ended.iter().filter(committed).count(), 2, "{:?}", cluster.ended);
}

/// Transfers leadership from a leader that then receives no more messages. Returns true if it ever served a read by
/// its lease while the new leader already served.
fn serves_a_stale_read() -> bool {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000);
    let leader = cluster.leader();
    let next = leader % 3 + 1;
    let read = |cluster: &mut TestCluster, read| {
        let goal = vec![Command::Get(key(0))];
        cluster.step(leader, Input::Read { read: ReadId(read), goal, consistency: Consistency::Lease });
        cluster.answered.contains(&ReadId(read))
    };
    assert!(read(&mut cluster, 1), "the leader has a lease");
    cluster.step(leader, Input::TransferLeadership(id(next)));
    assert_eq!(cluster.transfers, [Ok(id(next))]);
    let messages: Vec<_> = cluster.post.drain(..).collect();
    cluster.cut_off = vec![id(leader)];
    for (from, to, message) in messages {
        cluster.step(usize::try_from(to.0).unwrap(), Input::Message(from, message));
    }
    cluster.deliver();
    assert!(cluster.node(next).is_ready(), "the target leads at once");
    read(&mut cluster, 2)
}

#[test]
fn a_leader_serves_no_lease_reads_after_a_transfer() {
    assert!(!serves_a_stale_read());
    assert!(inject(LedgerFault::ReadOn, serves_a_stale_read), "the injected fault was not found");
}

/// A late message from a former leader does not release a voter that has confirmed the term of the next leader.
#[test]
fn a_late_timeout_now_of_a_former_leader_does_not_end_the_lease_of_the_next() {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000);
    let (leader, voter) = (cluster.leader(), (cluster.leader() + 1) % 3 + 1);
    let next = leader % 3 + 1;
    cluster.step(leader, Input::TransferLeadership(id(next)));
    let is_for_voter = |(_, to, message): &&Delivery| {
        *to == id(voter) && matches!(message, Message::Log(log::Message::TimeoutNow { .. }))
    };
    let late = cluster.post.iter().find(is_for_voter).cloned().unwrap().2;
    cluster.deliver();
    cluster.pass(200_000);
    let before = cluster.node(voter).lease_granted_until_us();
    assert!(before > cluster.now_us, "the voter has confirmed the term of the next leader");
    cluster.step(voter, Input::Message(id(leader), late));
    assert_eq!(cluster.node(voter).lease_granted_until_us(), before);
    assert_eq!(cluster.node(voter).leader(), Some(id(next)));
}

#[test]
fn a_leader_continues_at_once_after_a_configuration_change() {
    let mut cluster = TestCluster::new(3, 4);
    cluster.pass(1_000_000);
    let leader = cluster.leader();
    assert!(
        cluster.node(leader % 3 + 1).lease_granted_until_us() > cluster.now_us,
        "the other voters have confirmed its term"
    );
    cluster.step(leader, Input::ChangeConfiguration(Configuration::new((1..=4).map(id)).unwrap()));
    cluster.deliver();
    assert!(cluster.node(leader).is_ready(), "the leader of the confirmed term leads again at once");
    assert_eq!(cluster.node(leader).store().configuration().acceptors().len(), 4);
}

/// A pre-vote may arrive late, from an earlier incarnation, and its sender has promised nothing.
#[test]
fn a_pre_vote_does_not_release_the_leader_lease() {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000);
    let leader = cluster.leader();
    let (voter, store) = (leader % 3 + 1, cluster.node(leader).store());
    let later = Term::new(store.start(), 9, id(leader));
    let ask = |is_pre_vote| {
        let asked = VoteRequest { is_pre_vote, term: later, accepted: store.accepted(), last: store.last() };
        Input::Message(id(leader), Message::Log(log::Message::RequestVote(asked)))
    };
    let (is_pre_vote, vote) = (ask(true), ask(false));
    let before = cluster.node(voter).lease_granted_until_us();
    assert!(before > cluster.now_us);
    cluster.step(voter, is_pre_vote);
    assert_eq!(cluster.node(voter).lease_granted_until_us(), before);
    cluster.step(voter, vote);
    assert_eq!(
        cluster.node(voter).lease_granted_until_us(),
        cluster.now_us,
        "a vote request of the leader itself releases the lease"
    );
}

#[test]
fn a_transfer_to_an_unreachable_voter_fails() {
    let mut cluster = TestCluster::new(3, 3);
    cluster.pass(1_000_000);
    let leader = cluster.leader();
    let away = leader % 3 + 1;
    cluster.cut_off = vec![id(away)];
    cluster.submit(leader, 1);
    cluster.step(leader, Input::TransferLeadership(id(away)));
    cluster.submit(leader, 2);
    assert!(!cluster.node(leader).is_ready(), "the leader accepts nothing during a transfer");
    cluster.pass(500_000);
    assert_eq!(cluster.transfers, [Err(Rejection::TransferTimedOut)]);
    assert!(cluster.node(leader).is_ready());
    let committed = |(_, outcome): &&(TxId, Outcome<Values>)| matches!(outcome, Outcome::Committed { .. });
    assert_eq!(cluster.ended.iter().filter(committed).count(), 2, "{:?}", cluster.ended);
}
