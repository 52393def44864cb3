//! Property tests: nodes merge hints by maximum, and no voter can skip epochs.

use fastrand::Rng;
use proptest::prelude::*;

use super::{HONEST, VOTERS, beat, certificate, certificate_after, proof, watch};
use crate::simulation::node::{GROUP, TestSigner, key, number};
use crate::{
    EpochCertificate, EpochVote, Heartbeat, Hint, LeaderClaim, LogRole, Message, NextEpoch, Outgoing,
    Signature,
};

/// `PROPTEST_CASES` sets the number of cases.
fn cases() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(512), failure_persistence: None, ..ProptestConfig::default() }
}

/// Returns proofs of some epochs by arbitrary majorities, each with some heartbeats of its leader.
fn valid_messages(rng: &mut Rng) -> Vec<Message> {
    let mut messages = Vec::new();
    for _ in 0..rng.usize(1..8) {
        let mut voters: Vec<_> = (0..VOTERS).collect();
        rng.shuffle(&mut voters);
        let nominee = rng.bool().then_some(voters[0]);
        let certificate = certificate(rng.u64(1..5), &voters[..3], nominee);
        let claim = certificate.claim().unwrap();
        for _ in 0..rng.usize(0..3) {
            let beat = Some(beat(claim, rng.u64(1..9), number(&claim.leader)));
            messages.push(Message::Proof { certificate: certificate.clone(), beat });
        }
        messages.push(proof(certificate));
    }
    messages
}

fn hint_of(message: &Message) -> Option<Hint> {
    let Message::Proof { certificate, beat } = message else { return None };
    let claim = certificate.claim()?;
    Some(Hint { claim, heartbeat: beat.map_or(0, |beat| beat.hint.heartbeat) })
}

/// Returns a message that two lying voters of five can sign or forge. The honest voters have signed up to this epoch.
fn lie(rng: &mut Rng, honest_epoch: u64) -> Message {
    let epochs = [honest_epoch, honest_epoch + 1, honest_epoch + 2, u64::MAX, rng.u64(..)];
    let epoch = epochs[rng.usize(..epochs.len())];
    let liar = rng.u32(HONEST..VOTERS);
    let previous_leader = rng.bool().then_some(key(1));
    let claim = LeaderClaim { epoch, rank: rng.u32(..), leader: key(rng.u32(0..VOTERS)) };
    let signed = |rng: &mut Rng| {
        let nominee = rng.bool().then_some(key(liar));
        let (by, for_epoch) = (rng.u32(0..VOTERS), rng.u64(1..=honest_epoch));
        match rng.u8(0..3) {
            0 => EpochVote::sign(
                GROUP,
                NextEpoch { epoch, previous_leader },
                nominee,
                &TestSigner(key(rng.u32(HONEST..VOTERS))),
            ),
            1 => EpochVote::sign(
                GROUP,
                NextEpoch { epoch: for_epoch, previous_leader },
                nominee,
                &TestSigner(key(by)),
            ),
            _ => EpochVote { by: key(by), nominee, signature: Signature::from_bytes([rng.u8(..); 64]) },
        }
    };
    let mut votes: Vec<_> = (0..rng.usize(0..6)).map(|_| signed(rng)).collect();
    if rng.bool() {
        votes.sort_by_key(|vote| vote.by);
    }
    let heartbeat = [1, u64::MAX, rng.u64(..)][rng.usize(..3)];
    let beat = Heartbeat::sign(
        GROUP,
        Hint { claim, heartbeat },
        rng.bool().then_some(key(liar)),
        &TestSigner(key(liar)),
    );
    match rng.u8(0..4) {
        0 => Message::Heartbeat(beat),
        1 => Message::Ask(rng.bool().then_some(claim)),
        2 => Message::Votes { next: NextEpoch { epoch, previous_leader }, votes },
        _ => Message::Proof {
            certificate: EpochCertificate { next: NextEpoch { epoch, previous_leader }, votes },
            beat: rng.bool().then_some(beat),
        },
    }
}

/// Returns the epoch that a node votes for in these messages, if it votes.
fn voted(outgoing: &[Outgoing], me: u32) -> Option<u64> {
    outgoing.iter().find_map(|message| match message {
        Outgoing::Spread(Message::Votes { next, votes }) if votes.iter().any(|vote| vote.by == key(me)) => {
            Some(next.epoch)
        }
        _ => None,
    })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn hints_merge_by_maximum_in_any_order(seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let mut messages = valid_messages(&mut rng);
        let greatest = messages.iter().filter_map(hint_of).max();
        for _ in 0..3 {
            rng.shuffle(&mut messages);
            let mut watch = watch(0);
            for piece in messages.iter().chain(&messages) {
                let before = watch.hint();
                watch.receive(1, piece.clone());
                prop_assert!(watch.hint() >= before);
                watch.tick(2);
            }
            prop_assert_eq!(watch.hint(), greatest);
        }
    }

    #[test]
    fn a_lying_minority_raises_no_epoch(seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let epoch = rng.u64(1..4);
        let mut watch = watch(0);
        watch.receive(0, proof(certificate(epoch, &[0, 1, 2], Some(1))));
        let hint = watch.hint();
        for _ in 0..100 {
            let lie = lie(&mut rng, epoch);
            watch.receive(1, lie);
            // A unanimous nomination outranks every tie-breaker: no certificate with an added vote outranks it either.
            prop_assert_eq!(watch.hint(), hint);
        }
    }

    #[test]
    fn a_voter_votes_only_for_the_next_epoch(seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let mut watch = watch(0);
        let mut now_us = 0;
        for _ in 0..200 {
            now_us += rng.u64(0..1_000_000);
            let epoch = watch.hint().map_or(0, |hint| hint.claim.epoch);
            let outgoing = match rng.u8(0..3) {
                0 => watch.tick(now_us),
                1 => watch.receive(now_us, lie(&mut rng, epoch.max(1))),
                _ => {
                    let messages = valid_messages(&mut rng);
                    watch.receive(now_us, messages[0].clone())
                }
            };
            if let Some(voted) = voted(&outgoing, 0) {
                prop_assert_eq!(voted, watch.hint().map_or(0, |hint| hint.claim.epoch) + 1);
            }
        }
    }

    #[test]
    fn a_leader_raises_its_heartbeat_only_with_a_quorum(seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let me = rng.u32(0..2);
        let mut watch = watch(me);
        watch.receive(0, proof(certificate(1, &[0, 1, 2], Some(1))));
        for round in 1..20 {
            let log_role = [LogRole::Leader, LogRole::Follower(key(2)), LogRole::Unknown][rng.usize(..3)];
            watch.set_log_role(round * 1000, log_role);
            let before = watch.hint().unwrap().heartbeat;
            watch.tick(round * 1000);
            let raised = watch.hint().unwrap().heartbeat - before;
            prop_assert_eq!(raised, u64::from(me == 1 && log_role == LogRole::Leader));
        }
    }

    #[test]
    fn messages_sent_during_a_flood_are_limited(seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let mut watch = watch(0);
        watch.receive(0, proof(certificate(1, &[0, 1, 3], Some(3))));
        watch.tick(1);
        let claim = watch.hint().unwrap().claim;
        let mut sent = 0;
        for heartbeat in 1..500 {
            let message = if rng.bool() { lie(&mut rng, 1) } else { Message::Heartbeat(beat(claim, heartbeat, 3)) };
            sent += watch.receive(2, message).len();
        }
        prop_assert!(sent <= 8 + 16, "{}", sent);
        prop_assert!(watch.counts().suppressed > 0);
    }
}

#[test]
fn a_heartbeat_at_the_maximum_ends_its_epoch() {
    let mut watch = watch(0);
    watch.receive(0, proof(certificate(1, &[0, 1, 4], Some(4))));
    let claim = watch.hint().unwrap().claim;
    watch.receive(1, Message::Heartbeat(beat(claim, u64::MAX, 4)));
    assert_eq!(watch.hint().map(|hint| hint.heartbeat), Some(u64::MAX));
    watch.receive(2_000_000, Message::Ask(None));
    assert_eq!(voted(&watch.tick(2_000_001), 0), Some(2), "a heartbeat that cannot rise counts as silence");
    watch.receive(3, proof(certificate(2, &[0, 1, 2], None)));
    assert_eq!(watch.hint().map(|hint| (hint.claim.epoch, hint.heartbeat)), Some((2, 0)));
}

#[test]
fn a_hinted_leader_without_the_log_is_replaced_by_the_leader_of_the_log() {
    let mut watch = watch(0);
    watch.receive(0, proof(certificate(1, &[0, 1, 4], Some(4))));
    let claim = watch.hint().unwrap().claim;
    let next = NextEpoch { epoch: 2, previous_leader: Some(key(4)) };
    let mut outgoing = Vec::new();
    for round in 1..14_u64 {
        watch.set_log_role(round * 300_000, LogRole::Follower(key(1)));
        watch.receive(round * 300_000, Message::Heartbeat(beat(claim, round, 4)));
        watch.receive(
            round * 300_000,
            Message::Votes { next, votes: certificate_after(2, Some(4), &[1], Some(1)).votes },
        );
        outgoing = watch.tick(round * 300_000);
    }
    let nominees = outgoing.iter().find_map(|message| match message {
        Outgoing::Spread(Message::Votes { votes, .. }) => {
            Some(votes.iter().map(|vote| vote.nominee).collect::<Vec<_>>())
        }
        _ => None,
    });
    assert_eq!(nominees, Some(vec![Some(key(1)); 2]));
}

#[test]
fn votes_before_and_after_a_heartbeat_do_not_add_up() {
    let mut watch = watch(0);
    watch.receive(0, proof(certificate(1, &[0, 1, 4], Some(4))));
    let claim = watch.hint().unwrap().claim;
    let next = NextEpoch { epoch: 2, previous_leader: Some(key(4)) };
    let vote_of = |voter| Message::Votes { next, votes: certificate_after(2, Some(4), &[voter], None).votes };
    for (number, voter) in (1..).zip([1, 2, 3]) {
        watch.receive(number * 2, vote_of(voter));
        watch.receive(number * 2 + 1, Message::Heartbeat(beat(claim, number, 4)));
    }
    assert_eq!(watch.hint().map(|hint| hint.claim), Some(claim), "a heartbeat withdraws the votes");
    for voter in [1, 2, 3] {
        watch.receive(10, vote_of(voter));
    }
    assert_eq!(
        watch.hint().map(|hint| hint.claim.epoch),
        Some(2),
        "votes without a heartbeat between them are a majority"
    );
}

#[test]
fn an_isolated_voter_does_not_vote() {
    let mut watch = watch(0);
    watch.receive(0, proof(certificate(1, &[0, 1, 4], Some(4))));
    let claim = watch.hint().unwrap().claim;
    watch.receive(1, Message::Heartbeat(beat(claim, 1, 4)));
    for round in 1..100 {
        assert_eq!(voted(&watch.tick(round * 300_000), 0), None, "after {round} rounds");
    }
    watch.receive(30_000_000, Message::Ask(None));
    assert_eq!(voted(&watch.tick(30_000_001), 0), Some(2), "a message of another node allows the vote");
}

#[test]
fn a_new_node_listens_before_it_votes() {
    let mut watch = watch(0);
    watch.receive(1, Message::Ask(None));
    assert_eq!(voted(&watch.tick(599_999), 0), None);
    assert_eq!(voted(&watch.tick(600_000), 0), Some(1));
}

/// Two votes cast during a partition lack one more vote when it heals. A voter whose log follows the leader does not
/// cast it.
#[test]
fn a_voter_whose_log_follows_the_leader_does_not_vote() {
    let certificate = certificate(1, &[0, 1, 2], Some(1));
    let claim = certificate.claim().unwrap();
    let next = NextEpoch { epoch: 2, previous_leader: Some(key(1)) };
    let behind_a_cut = [3, 4].map(|voter| EpochVote::sign(GROUP, next, None, &TestSigner(key(voter))));
    for (log_role, epoch) in [(LogRole::Follower(key(1)), 1), (LogRole::Unknown, 2)] {
        let mut voter = watch(0);
        let beat = Some(beat(claim, 1, 1));
        voter.receive(0, Message::Proof { certificate: certificate.clone(), beat });
        voter.set_log_role(0, log_role);
        voter.tick(2_000_000);
        voter.receive(2_000_000, Message::Votes { next, votes: behind_a_cut.to_vec() });
        voter.tick(2_300_000);
        assert_eq!(voter.hint().unwrap().claim.epoch, epoch, "{log_role:?}");
        assert_eq!(voter.counts().suspected > 0, epoch == 2, "{log_role:?}");
    }
}
