//! Tests of one member with scripted acceptors.

use super::*;

/// A member, the current time, and its requests so far.
struct Stage<'a> {
    rules: Rules<'a>,
    member: Member,
    now_us: u64,
    orders: Vec<Order>,
    outcome: Outcome,
    witness: Witness,
}

impl<'a> Stage<'a> {
    /// Creates a member that has asked three acceptors for its first promise.
    fn of(params: &'a Params, strategy: &str) -> Self {
        let configuration = Configuration::new([0, 1, 2].map(NodeId)).unwrap();
        let strategy = Strategy::named(strategy).unwrap();
        let mut stage = Self {
            rules: Rules { params, strategy, configuration, first_slot: 5 },
            member: Member::new(0, 1),
            now_us: 0,
            orders: Vec::new(),
            outcome: Outcome::default(),
            witness: Witness::default(),
        };
        stage.turn(Member::begin);
        stage
    }

    /// Returns the member's requests in this turn: the slot and ballot of its prepare, if any, and its timer.
    fn turn(&mut self, turn: impl FnOnce(&mut Member, &mut Around<'_>)) -> Wants {
        let Self { rules, member, now_us, orders, outcome, witness } = self;
        turn(member, &mut Around { now_us: *now_us, rules, orders, outcome, witness });
        let mut wants = Wants::default();
        for order in orders.drain(..) {
            match order {
                Order::Ask { slot, ask: Ask::Prepare(ballot), .. } => {
                    wants.prepare = Some((slot, ballot.attempt()));
                }
                Order::Ask { .. } => {}
                Order::Remind { after_us, turn } => wants.timer = Some((after_us, turn)),
            }
        }
        wants
    }

    fn hear(&mut self, from: u128, slot: usize, said: Said) -> Wants {
        self.turn(|member, around| member.hear(NodeId(from), slot, said, around))
    }

    /// After a round trip of 20 ms two acceptors refuse the member's first ballot because of this rival's attempt.
    fn preempt(&mut self, attempt: u64) -> Wants {
        self.now_us += 20_000;
        let ballot = self.ballot(1, 0);
        let promised = self.ballot(attempt, 9);
        let nack = Said::Promise(PromiseReply::Nack { ballot, promised });
        self.hear(0, 0, nack.clone());
        self.hear(1, 0, nack)
    }

    /// Two acceptors vote for this rival.
    fn lose(&mut self, rival: u32) -> Wants {
        let vote = Said::Accepted(self.ballot(7, rival), rival);
        self.hear(0, 0, vote.clone());
        self.hear(1, 0, vote)
    }

    fn ballot(&self, attempt: u64, member: u32) -> Ballot {
        Ballot::new(self.rules.slot(0), attempt, Member::id(member))
    }
}

#[derive(PartialEq, Debug, Default)]
struct Wants {
    prepare: Option<(usize, u64)>,
    timer: Option<(u64, u32)>,
}

#[test]
fn the_next_ballot_jumps_over_the_rivals() {
    for (strategy, shortest_us, longest_us) in
        [("council", 40_000, 60_000), ("linear", 10_000, 10_000), ("linear-stale", 10_000, 10_000)]
    {
        let params = Params::default();
        let mut stage = Stage::of(&params, strategy);
        let waits = stage.preempt(7);
        let (after_us, turn) = waits.timer.unwrap();
        assert_eq!(waits.prepare, None, "{strategy}");
        assert!((shortest_us..=longest_us).contains(&after_us), "{strategy} waits {after_us}");
        let woken = stage.turn(|member, around| member.wake(turn, around));
        assert_eq!(woken.prepare, Some((0, 8)), "{strategy}");
    }
}

#[test]
fn what_it_learns_ends_the_wait() {
    let [anew, failed] =
        [LostSlot::Anew, LostSlot::Failed].map(|lost_slot| Params { lost_slot, ..Params::default() });
    for (params, strategy, goes_on) in [
        (&anew, "council", true),
        (&failed, "council", true),
        (&anew, "linear", true),
        (&failed, "linear", false),
        (&anew, "linear-stale", false),
    ] {
        let mut stage = Stage::of(params, strategy);
        let (_, turn) = stage.preempt(7).timer.unwrap();
        let learned = stage.lose(3);
        assert_eq!(learned.prepare, goes_on.then_some((1, 1)), "{strategy}");
        let woken = stage.turn(|member, around| member.wake(turn, around));
        let later = match strategy {
            _ if goes_on => None,
            "linear-stale" => Some((0, 8)),
            _ => Some((1, 1)),
        };
        assert_eq!(woken.prepare, later, "{strategy}");
    }
}

#[test]
fn the_silent_are_asked_again_by_the_council_alone() {
    let params = Params::default();
    let unanswered = |strategy| {
        let mut stage = Stage::of(&params, strategy);
        stage.now_us = params.answer_within.0;
        let turn = stage.member.turn;
        stage.turn(|member, around| member.wake(turn, around))
    };
    assert_eq!(unanswered("council").prepare, Some((0, 1)), "the same ballot");
    let waits = unanswered("linear");
    assert_eq!((waits.prepare, waits.timer.map(|(after_us, _)| after_us)), (None, Some(10_000)));
}

/// An answer may belong to the first request or to the second, so it gives no measurement.
#[test]
fn who_has_measured_nothing_waits_as_usual() {
    let params = Params::default();
    let mut stage = Stage::of(&params, "council");
    let turn = stage.member.turn;
    stage.turn(|member, around| member.wake(turn, around));
    let (after_us, _) = stage.preempt(7).timer.unwrap();
    assert!((100_000..=150_000).contains(&after_us), "{after_us}");
}
