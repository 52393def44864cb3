//! Property tests: nodes merge hints by maximum, and no voter can skip epochs.

use fastrand::Rng;
use proptest::prelude::*;

use super::{HONEST, VOTERS, beat, certificate, over, proof, watch};
use crate::simulation::keys::{GROUP, Pen, key, number};
use crate::{Beat, Certificate, Claim, Hint, Message, Next, Say, Signature, Standing, Vote};

/// `PROPTEST_CASES` sets the number of cases.
fn cases() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(512), failure_persistence: None, ..ProptestConfig::default() }
}

/// Returns proofs of some epochs by arbitrary majorities, each with some heartbeats of its leader.
fn true_news(rng: &mut Rng) -> Vec<Message> {
    let mut news = Vec::new();
    for _ in 0..rng.usize(1..8) {
        let mut voters: Vec<_> = (0..VOTERS).collect();
        rng.shuffle(&mut voters);
        let wish = rng.bool().then_some(voters[0]);
        let certificate = certificate(rng.u64(1..5), &voters[..3], wish);
        let claim = certificate.claim().unwrap();
        for _ in 0..rng.usize(0..3) {
            let beat = Some(beat(claim, rng.u64(1..9), number(&claim.leader)));
            news.push(Message::Proof { certificate: certificate.clone(), beat });
        }
        news.push(proof(certificate));
    }
    news
}

fn what_it_says(news: &Message) -> Option<Hint> {
    let Message::Proof { certificate, beat } = news else { return None };
    let claim = certificate.claim()?;
    Some(Hint { claim, heartbeat: beat.map_or(0, |beat| beat.hint.heartbeat) })
}

/// Returns a message that two lying voters of five can sign or forge. The honest voters have signed up to this epoch.
fn lie(rng: &mut Rng, honest_epoch: u64) -> Message {
    let epochs = [honest_epoch, honest_epoch + 1, honest_epoch + 2, u64::MAX, rng.u64(..)];
    let epoch = epochs[rng.usize(..epochs.len())];
    let liar = rng.u32(HONEST..VOTERS);
    let over = rng.bool().then_some(key(1));
    let claim = Claim { epoch, rank: rng.u32(..), leader: key(rng.u32(0..VOTERS)) };
    let signed = |rng: &mut Rng| {
        let wish = rng.bool().then_some(key(liar));
        let (by, for_epoch) = (rng.u32(0..VOTERS), rng.u64(1..=honest_epoch));
        match rng.u8(0..3) {
            0 => Vote::sign(GROUP, Next { epoch, over }, wish, &Pen(key(rng.u32(HONEST..VOTERS)))),
            1 => Vote::sign(GROUP, Next { epoch: for_epoch, over }, wish, &Pen(key(by))),
            _ => Vote { by: key(by), wish, signature: Signature::from_bytes([rng.u8(..); 64]) },
        }
    };
    let mut votes: Vec<_> = (0..rng.usize(0..6)).map(|_| signed(rng)).collect();
    if rng.bool() {
        votes.sort_by_key(|vote| vote.by);
    }
    let heartbeat = [1, u64::MAX, rng.u64(..)][rng.usize(..3)];
    let beat = Beat::sign(GROUP, Hint { claim, heartbeat }, rng.bool().then_some(key(liar)), &Pen(key(liar)));
    match rng.u8(0..4) {
        0 => Message::Beat(beat),
        1 => Message::Ask(rng.bool().then_some(claim)),
        2 => Message::Votes { next: Next { epoch, over }, votes },
        _ => Message::Proof {
            certificate: Certificate { next: Next { epoch, over }, votes },
            beat: rng.bool().then_some(beat),
        },
    }
}

/// Returns the epoch that a node votes for in these messages, if it votes.
fn voted(says: &[Say], me: u32) -> Option<u64> {
    says.iter().find_map(|say| match say {
        Say::Spread(Message::Votes { next, votes }) if votes.iter().any(|vote| vote.by == key(me)) => {
            Some(next.epoch)
        }
        _ => None,
    })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn in_any_order_and_however_often_the_greatest_hint_is_held(seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let mut news = true_news(&mut rng);
        let greatest = news.iter().filter_map(what_it_says).max();
        for _ in 0..3 {
            rng.shuffle(&mut news);
            let mut watch = watch(0);
            for piece in news.iter().chain(&news) {
                let before = watch.hint();
                watch.hear(1, piece.clone());
                prop_assert!(watch.hint() >= before);
                watch.tick(2);
            }
            prop_assert_eq!(watch.hint(), greatest);
        }
    }

    #[test]
    fn fewer_liars_than_a_majority_raise_no_epoch(seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let epoch = rng.u64(1..4);
        let mut watch = watch(0);
        watch.hear(0, proof(certificate(epoch, &[0, 1, 2], Some(1))));
        let hint = watch.hint();
        for _ in 0..100 {
            let lie = lie(&mut rng, epoch);
            watch.hear(1, lie);
            // A unanimous nomination outranks every tie-breaker: no certificate with an added vote outranks it either.
            prop_assert_eq!(watch.hint(), hint);
        }
    }

    #[test]
    fn a_voter_votes_for_the_next_epoch_alone(seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let mut watch = watch(0);
        let mut now_us = 0;
        for _ in 0..200 {
            now_us += rng.u64(0..1_000_000);
            let epoch = watch.hint().map_or(0, |hint| hint.claim.epoch);
            let says = match rng.u8(0..3) {
                0 => watch.tick(now_us),
                1 => watch.hear(now_us, lie(&mut rng, epoch.max(1))),
                _ => {
                    let news = true_news(&mut rng);
                    watch.hear(now_us, news[0].clone())
                }
            };
            if let Some(voted) = voted(&says, 0) {
                prop_assert_eq!(voted, watch.hint().map_or(0, |hint| hint.claim.epoch) + 1);
            }
        }
    }

    #[test]
    fn a_heart_beats_only_where_the_log_has_a_quorum(seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let me = rng.u32(0..2);
        let mut watch = watch(me);
        watch.hear(0, proof(certificate(1, &[0, 1, 2], Some(1))));
        for round in 1..20 {
            let standing = [Standing::Leads, Standing::Follows(key(2)), Standing::Nobody][rng.usize(..3)];
            watch.stand(round * 1000, standing);
            let before = watch.hint().unwrap().heartbeat;
            watch.tick(round * 1000);
            let raised = watch.hint().unwrap().heartbeat - before;
            prop_assert_eq!(raised, u64::from(me == 1 && standing == Standing::Leads));
        }
    }

    #[test]
    fn a_flood_is_answered_and_passed_on_within_limits(seed: u64) {
        let mut rng = Rng::with_seed(seed);
        let mut watch = watch(0);
        watch.hear(0, proof(certificate(1, &[0, 1, 3], Some(3))));
        watch.tick(1);
        let claim = watch.hint().unwrap().claim;
        let mut said = 0;
        for heartbeat in 1..500 {
            let message = if rng.bool() { lie(&mut rng, 1) } else { Message::Beat(beat(claim, heartbeat, 3)) };
            said += watch.hear(2, message).len();
        }
        prop_assert!(said <= 8 + 16, "{}", said);
        prop_assert!(watch.counts().kept_back > 0);
    }
}

#[test]
fn a_heartbeat_at_the_end_of_numbers_ends_with_its_epoch() {
    let mut watch = watch(0);
    watch.hear(0, proof(certificate(1, &[0, 1, 4], Some(4))));
    let claim = watch.hint().unwrap().claim;
    watch.hear(1, Message::Beat(beat(claim, u64::MAX, 4)));
    assert_eq!(watch.hint().map(|hint| hint.heartbeat), Some(u64::MAX));
    watch.hear(2_000_000, Message::Ask(None));
    assert_eq!(voted(&watch.tick(2_000_001), 0), Some(2), "it cannot rise any more: silence");
    watch.hear(3, proof(certificate(2, &[0, 1, 2], None)));
    assert_eq!(watch.hint().map(|hint| (hint.claim.epoch, hint.heartbeat)), Some((2, 0)));
}

#[test]
fn who_beats_without_the_log_is_replaced_by_whom_the_log_follows() {
    let mut watch = watch(0);
    watch.hear(0, proof(certificate(1, &[0, 1, 4], Some(4))));
    let claim = watch.hint().unwrap().claim;
    let next = Next { epoch: 2, over: Some(key(4)) };
    let mut says = Vec::new();
    for round in 1..14_u64 {
        watch.stand(round * 300_000, Standing::Follows(key(1)));
        watch.hear(round * 300_000, Message::Beat(beat(claim, round, 4)));
        watch.hear(round * 300_000, Message::Votes { next, votes: over(2, Some(4), &[1], Some(1)).votes });
        says = watch.tick(round * 300_000);
    }
    let wishes = says.iter().find_map(|say| match say {
        Say::Spread(Message::Votes { votes, .. }) => {
            Some(votes.iter().map(|vote| vote.wish).collect::<Vec<_>>())
        }
        _ => None,
    });
    assert_eq!(wishes, Some(vec![Some(key(1)); 2]));
}

#[test]
fn doubts_of_different_days_do_not_add_up() {
    let mut watch = watch(0);
    watch.hear(0, proof(certificate(1, &[0, 1, 4], Some(4))));
    let claim = watch.hint().unwrap().claim;
    let next = Next { epoch: 2, over: Some(key(4)) };
    let doubt = |voter| Message::Votes { next, votes: over(2, Some(4), &[voter], None).votes };
    for (day, voter) in (1..).zip([1, 2, 3]) {
        watch.hear(day * 2, doubt(voter));
        watch.hear(day * 2 + 1, Message::Beat(beat(claim, day, 4)));
    }
    assert_eq!(watch.hint().map(|hint| hint.claim), Some(claim), "each of them was wrong");
    for voter in [1, 2, 3] {
        watch.hear(10, doubt(voter));
    }
    assert_eq!(watch.hint().map(|hint| hint.claim.epoch), Some(2), "at one time they are a majority");
}

#[test]
fn who_hears_nobody_does_not_vote() {
    let mut watch = watch(0);
    watch.hear(0, proof(certificate(1, &[0, 1, 4], Some(4))));
    let claim = watch.hint().unwrap().claim;
    watch.hear(1, Message::Beat(beat(claim, 1, 4)));
    for round in 1..100 {
        assert_eq!(voted(&watch.tick(round * 300_000), 0), None, "after {round} rounds");
    }
    watch.hear(30_000_000, Message::Ask(None));
    assert_eq!(voted(&watch.tick(30_000_001), 0), Some(2), "somebody is there, and it is not the leader");
}

#[test]
fn who_is_new_listens_first() {
    let mut watch = watch(0);
    watch.hear(1, Message::Ask(None));
    assert_eq!(voted(&watch.tick(599_999), 0), None);
    assert_eq!(voted(&watch.tick(600_000), 0), Some(1));
}

/// Two votes cast during a partition lack one more vote when it heals. A voter whose log follows the leader does not
/// cast it.
#[test]
fn a_heart_that_is_not_heard_beats_where_the_log_follows() {
    let certificate = certificate(1, &[0, 1, 2], Some(1));
    let claim = certificate.claim().unwrap();
    let next = Next { epoch: 2, over: Some(key(1)) };
    let behind_a_cut = [3, 4].map(|voter| Vote::sign(GROUP, next, None, &Pen(key(voter))));
    for (standing, epoch) in [(Standing::Follows(key(1)), 1), (Standing::Nobody, 2)] {
        let mut voter = watch(0);
        let beat = Some(beat(claim, 1, 1));
        voter.hear(0, Message::Proof { certificate: certificate.clone(), beat });
        voter.stand(0, standing);
        voter.tick(2_000_000);
        voter.hear(2_000_000, Message::Votes { next, votes: behind_a_cut.to_vec() });
        voter.tick(2_300_000);
        assert_eq!(voter.hint().unwrap().claim.epoch, epoch, "{standing:?}");
        assert_eq!(voter.counts().suspected > 0, epoch == 2, "{standing:?}");
    }
}
