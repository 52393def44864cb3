//! Tests of one member with scripted acceptors.

use super::*;

/// A member, the current time, and its requests so far.
struct MemberHarness<'a> {
    rules: Rules<'a>,
    member: Member,
    now_us: u64,
    effects: Vec<Effect>,
    outcome: Outcome,
    checker: SafetyChecker,
}

impl<'a> MemberHarness<'a> {
    /// Creates a member that has asked three acceptors for its first promise.
    fn of(params: &'a Params, strategy: &str) -> Self {
        let configuration = Configuration::new([0, 1, 2].map(NodeId)).unwrap();
        let strategy = Strategy::named(strategy).unwrap();
        let mut harness = Self {
            rules: Rules { params, strategy, configuration, first_slot: 5 },
            member: Member::new(0, 1),
            now_us: 0,
            effects: Vec::new(),
            outcome: Outcome::default(),
            checker: SafetyChecker::default(),
        };
        harness.turn(Member::begin);
        harness
    }

    /// Returns the member's requests in this turn: the slot and ballot of its prepare, if any, and its timer.
    fn turn(&mut self, turn: impl FnOnce(&mut Member, &mut MemberContext<'_>)) -> Requested {
        let Self { rules, member, now_us, effects, outcome, checker } = self;
        turn(member, &mut MemberContext { now_us: *now_us, rules, effects, outcome, checker });
        let mut requested = Requested::default();
        for effect in effects.drain(..) {
            match effect {
                Effect::Send { slot, request: AcceptorRequest::Prepare(ballot), .. } => {
                    requested.prepare = Some((slot, ballot.attempt()));
                }
                Effect::Send { .. } => {}
                Effect::SetTimer { after_us, turn } => requested.timer = Some((after_us, turn)),
            }
        }
        requested
    }

    fn hear(&mut self, from: u128, slot: usize, message: AcceptorMessage) -> Requested {
        self.turn(|member, context| member.hear(NodeId(from), slot, message, context))
    }

    /// After a round trip of 20 ms two acceptors refuse the member's first ballot because of this rival's attempt.
    fn preempt(&mut self, attempt: u64) -> Requested {
        self.now_us += 20_000;
        let ballot = self.ballot(1, 0);
        let promised = self.ballot(attempt, 9);
        let nack = AcceptorMessage::Promise(PromiseReply::Nack { ballot, promised });
        self.hear(0, 0, nack.clone());
        self.hear(1, 0, nack)
    }

    /// Two acceptors vote for this rival.
    fn lose(&mut self, rival: u32) -> Requested {
        let vote = AcceptorMessage::Accepted(self.ballot(7, rival), rival);
        self.hear(0, 0, vote.clone());
        self.hear(1, 0, vote)
    }

    fn ballot(&self, attempt: u64, member: u32) -> Ballot {
        Ballot::new(self.rules.slot(0), attempt, Member::id(member))
    }
}

#[derive(PartialEq, Debug, Default)]
struct Requested {
    prepare: Option<(usize, u64)>,
    timer: Option<(u64, u32)>,
}

#[test]
fn the_next_ballot_exceeds_the_rivals() {
    for (strategy, shortest_us, longest_us) in
        [("council", 40_000, 60_000), ("linear", 10_000, 10_000), ("linear-stale", 10_000, 10_000)]
    {
        let params = Params::default();
        let mut harness = MemberHarness::of(&params, strategy);
        let waits = harness.preempt(7);
        let (after_us, turn) = waits.timer.unwrap();
        assert_eq!(waits.prepare, None, "{strategy}");
        assert!((shortest_us..=longest_us).contains(&after_us), "{strategy} waits {after_us}");
        let woken = harness.turn(|member, context| member.wake(turn, context));
        assert_eq!(woken.prepare, Some((0, 8)), "{strategy}");
    }
}

#[test]
fn a_learned_decision_ends_the_wait() {
    let [anew, failed] =
        [LostSlot::Restart, LostSlot::Failed].map(|lost_slot| Params { lost_slot, ..Params::default() });
    for (params, strategy, goes_on) in [
        (&anew, "council", true),
        (&failed, "council", true),
        (&anew, "linear", true),
        (&failed, "linear", false),
        (&anew, "linear-stale", false),
    ] {
        let mut harness = MemberHarness::of(params, strategy);
        let (_, turn) = harness.preempt(7).timer.unwrap();
        let learned = harness.lose(3);
        assert_eq!(learned.prepare, goes_on.then_some((1, 1)), "{strategy}");
        let woken = harness.turn(|member, context| member.wake(turn, context));
        let later = match strategy {
            _ if goes_on => None,
            "linear-stale" => Some((0, 8)),
            _ => Some((1, 1)),
        };
        assert_eq!(woken.prepare, later, "{strategy}");
    }
}

#[test]
fn only_the_council_asks_silent_acceptors_again() {
    let params = Params::default();
    let unanswered = |strategy| {
        let mut harness = MemberHarness::of(&params, strategy);
        harness.now_us = params.answer_timeout.0;
        let turn = harness.member.turn;
        harness.turn(|member, context| member.wake(turn, context))
    };
    assert_eq!(unanswered("council").prepare, Some((0, 1)), "the same ballot");
    let waits = unanswered("linear");
    assert_eq!((waits.prepare, waits.timer.map(|(after_us, _)| after_us)), (None, Some(10_000)));
}

/// An answer may belong to the first request or to the second, so it gives no measurement.
#[test]
fn without_a_measurement_the_council_uses_the_default_round_trip() {
    let params = Params::default();
    let mut harness = MemberHarness::of(&params, "council");
    let turn = harness.member.turn;
    harness.turn(|member, context| member.wake(turn, context));
    let (after_us, _) = harness.preempt(7).timer.unwrap();
    assert!((100_000..=150_000).contains(&after_us), "{after_us}");
}
