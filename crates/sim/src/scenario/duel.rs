//! Duelling proposers.
//!
//! N members each have one operation, and no leader. The operations go into consecutive slots, each of
//! which the same few acceptors decide by Paxos: the real thing, [`holdoff_paxos::slot`]. A member asks
//! all acceptors to promise its ballot; promised by a majority, it proposes its operation, or whatever
//! was accepted there before. Acceptors tell every vote to every member, so a slot costs two round trips
//! and everybody learns who got it. All start within a moment.
//!
//! A rival's higher ballot ends a member's attempt: it is **preempted**, its next ballot jumps over the
//! rival's, and its [`Manner`](crate::Manner) says when that is. A slot in which it had a ballot and that
//! a rival got is **lost**. Who builds anew then proposes for the first slot that it does not know to be
//! decided. Who does not proposes for the same slot again, where Paxos gives it the rival's value back:
//! of N such members one succeeds.
//!
//! An attempt that is not answered by a majority in time has failed, too; the council asks the silent
//! acceptors again instead, with the same ballot. Messages can get lost. In a share of the runs the
//! **front-runner**, whose first ballot is higher than everybody's, is killed when its first prepare has
//! left, for good: it is in everybody's way, and does not count.
//!
//! Ids are the numbers from 1; the first slot's number is drawn for each run, as the luck of a ballot
//! depends on both.
//!
//! The run's time is when the last member was done or gave up; its calls are the prepares and accepts
//! that were sent. Who hears that its operation was decided after it gave up is done all the same.

mod contest;
mod member;
mod panel;
mod rank;
mod wire;
mod witness;

use serde::{Deserialize, Serialize};

use super::Measured;
use crate::kernel::Latency;
use crate::{Histogram, Micros, Series, Strategy};

pub use rank::{Rank, Ranks};

/// The duel's parameters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// How many members propose.
    pub clients: u32,
    /// How many acceptors decide.
    pub acceptors: u32,
    /// How long a message travels.
    pub hop: Latency,
    /// The share of messages that get lost.
    pub loss: f64,
    /// The share of runs in which the front-runner is killed after its first prepare.
    pub kill: f64,
    /// Over how long the members start, evenly at random.
    pub arrive_within: Micros,
    /// How many tries everybody has, in place of what its policy says; 0 leaves the policy its own.
    pub attempts: u32,
    /// What a lost slot is to who builds anew by a policy.
    pub lost_slot: LostSlot,
    /// How long a majority may take to answer before an attempt has failed.
    pub answer_within: Micros,
    /// How long a member tries.
    pub deadline: Micros,
}

impl Default for Params {
    /// Twenty members and three acceptors, 10 to 40 ms apart, all start within a millisecond.
    fn default() -> Self {
        Self {
            clients: 20,
            acceptors: 3,
            hop: Latency::Uniform { low: Micros::from_millis(10), high: Micros::from_millis(40) },
            loss: 0.0,
            kill: 0.0,
            arrive_within: Micros::from_millis(1),
            attempts: 0,
            lost_slot: LostSlot::Anew,
            answer_within: Micros::from_millis(200),
            deadline: Micros::from_secs(30),
        }
    }
}

/// What a lost slot is to who builds anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostSlot {
    /// A new beginning: it goes on at once, and its tries and waits begin anew.
    Anew,
    /// No failed try: it goes on at once, and its tries and waits go on as they were.
    GoOn,
    /// A failed try like any other: it waits, and learning does not end the wait.
    Failed,
}

/// What one run showed.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// When the last member was done or gave up.
    pub time_us: u64,
    /// Prepares and accepts that were sent.
    pub calls: u64,
    /// Ballots begun.
    pub ballots: u64,
    /// The most ballots one member began.
    pub most_ballots: u64,
    /// Members that were not killed.
    pub living: u64,
    /// Members that know their operation to be decided.
    pub done: u64,
    /// Members that were killed.
    pub killed: u64,
    /// Members whose tries were used up.
    pub gave_up: u64,
    /// Members whose deadline came.
    pub timed_out: u64,
    /// Members that had given up when they heard that their operation was decided all the same.
    pub done_after_all: u64,
    /// Attempts that a rival's ballot ended, in either phase.
    pub preempted: u64,
    /// Times a slot went to a rival of somebody who had a ballot in it.
    pub lost_slots: u64,
    /// Attempts, or askings of the council's, that no majority answered in time.
    pub unanswered: u64,
    /// Slots that somebody knows to be decided.
    pub slots: u64,
    /// Times two members disagreed about a slot, or an operation was decided twice: always zero.
    pub broken: u64,
    /// Messages that were lost.
    pub lost_messages: u64,
    /// Who was done in which order.
    pub ranks: Ranks,
    /// Members that are done, by the time they knew it.
    pub done_over_time: Series,
    /// Prepares and accepts by the time they were sent.
    pub calls_over_time: Series,
    /// The waits before another ballot, as they were decided on.
    pub delays: Histogram,
    /// Events the kernel handled.
    pub events: u64,
}

impl Outcome {
    #[expect(clippy::cast_precision_loss, reason = "counts of a simulation stay far below 2^52")]
    pub(super) fn measured(self) -> Measured {
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
        Measured::new(self.time_us, self.calls, self.living - self.done)
            .number("ballots_per_member", share(self.ballots, self.living + self.killed))
            .figure("most_ballots", self.most_ballots)
            .number("success_share", share(self.done, self.living))
            .figure("preempted", self.preempted)
            .figure("lost_slots", self.lost_slots)
            .figure("slots", self.slots)
            .figure("broken", self.broken)
            .figure("unanswered", self.unanswered)
            .figure("done_after_all", self.done_after_all)
            .figure("gave_up", self.gave_up)
            .figure("timed_out", self.timed_out)
            .figure("killed", self.killed)
            .figure("lost_messages", self.lost_messages)
            .done(self.ranks, self.done_over_time)
            .plots(self.calls_over_time, self.delays)
    }
}

/// Runs the duel once. Without acceptors, or with more than Paxos takes, nothing happens.
pub fn run(params: &Params, strategy: &Strategy, seed: u64) -> Outcome {
    contest::Contest::new(params, strategy, seed).map(contest::Contest::run).unwrap_or_default()
}
