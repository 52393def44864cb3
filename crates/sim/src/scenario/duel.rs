//! Duelling proposers.
//!
//! N members each have one operation, and there is no leader. The operations go into consecutive slots. The same few
//! acceptors decide each slot by Paxos, with the production code in [`holdoff_paxos::slot`]. A member asks all
//! acceptors to promise its ballot. With the promises of a majority, it proposes its operation, or the value that was
//! accepted there before. Acceptors send every vote to every member, so a slot costs two round trips and every member
//! learns whose operation it holds. All members start within a moment.
//!
//! A rival's higher ballot ends a member's attempt: the member is **preempted**, its next ballot exceeds the rival's,
//! and its [`ProposerRule`](crate::ProposerRule) determines the time of that ballot. If a member had a ballot in a slot that a
//! rival got, the slot is **lost** for the member. A member that rebuilds its proposal then proposes for the first slot
//! that it does not know to be decided. A member that does not rebuild proposes for the same slot again, where Paxos
//! returns the rival's value: of N such members one succeeds.
//!
//! An attempt that a majority does not answer in time has failed as well; the council instead asks the silent acceptors
//! again, with the same ballot. Messages can be lost. In a share of the runs the **front-runner**, whose first ballot
//! is higher than all others, is killed permanently as soon as its first prepare has left. Its ballot obstructs every
//! other member, and it does not count.
//!
//! Ids are the numbers from 1. The number of the first slot is drawn for each run, because the tie-breaker of a ballot
//! depends on the id and on the slot.
//!
//! The time of a run is when the last member was done or gave up; its calls are the prepares and accepts that were
//! sent. A member that learns after giving up that its operation was decided counts as done.

mod duel_run;
mod member;
mod network;
mod rank;

use serde::{Deserialize, Serialize};

use super::RunResult;
use crate::kernel::Latency;
use crate::{Histogram, Micros, Series, Strategy};

pub use rank::{Rank, Ranks};

/// The parameters of the duel.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// The number of members that propose.
    pub clients: u32,
    /// The number of acceptors.
    pub acceptors: u32,
    /// The travel time of a message.
    pub hop: Latency,
    /// The share of messages that are lost.
    pub loss: f64,
    /// The share of runs in which the front-runner is killed after its first prepare.
    pub kill: f64,
    /// The interval in which the members start, uniformly at random.
    pub arrive_within: Micros,
    /// The limit of attempts of every member, instead of its policy's limit; 0 keeps the policy's limit.
    pub attempts: u32,
    /// The effect of a lost slot on a member that rebuilds its proposal by a policy.
    pub lost_slot: LostSlot,
    /// The time in which a majority must answer before an attempt fails.
    pub answer_timeout: Micros,
    /// The deadline of a member.
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
            lost_slot: LostSlot::Restart,
            answer_timeout: Micros::from_millis(200),
            deadline: Micros::from_secs(30),
        }
    }
}

/// The effect of a lost slot on a member that rebuilds its proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostSlot {
    /// A restart: the member continues at once, and its attempts and delays start over.
    Restart,
    /// Not a failed attempt: the member continues at once, and keeps its count of attempts and its delays.
    Continue,
    /// A failed attempt like any other: the member waits, and learning a decision does not end the wait.
    Failed,
}

/// The outcome of one run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The time when the last member was done or gave up.
    pub time_us: u64,
    /// Prepares and accepts that were sent.
    pub calls: u64,
    /// Ballots begun.
    pub ballots: u64,
    /// The most ballots that one member began.
    pub most_ballots: u64,
    /// Members that were not killed.
    pub living: u64,
    /// Members that know their operation to be decided.
    pub done: u64,
    /// Members that were killed.
    pub killed: u64,
    /// Members whose attempts were exhausted.
    pub gave_up: u64,
    /// Members that reached their deadline.
    pub timed_out: u64,
    /// Members that had given up when they learned that their operation was decided.
    pub done_after_all: u64,
    /// Attempts that a rival's ballot ended, in either phase.
    pub preempted: u64,
    /// Times a slot in which a member had a ballot went to a rival.
    pub lost_slots: u64,
    /// Attempts, or requests of the council, that no majority answered in time.
    pub unanswered: u64,
    /// Slots that at least one member knows to be decided.
    pub slots: u64,
    /// Times two members disagreed about a slot, or an operation was decided twice: always zero.
    pub broken: u64,
    /// Messages that were lost.
    pub lost_messages: u64,
    /// The order in which the members were done.
    pub ranks: Ranks,
    /// Members that are done, by the time they learned it.
    pub done_over_time: Series,
    /// Prepares and accepts by the time they were sent.
    pub calls_over_time: Series,
    /// The delays before another ballot, as decided.
    pub delays: Histogram,
    /// Events that the kernel handled.
    pub events: u64,
}

impl Outcome {
    #[expect(clippy::cast_precision_loss, reason = "counts of a simulation stay far below 2^52")]
    pub(super) fn run_result(self) -> RunResult {
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
        RunResult::new(self.time_us, self.calls, self.living - self.done)
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

/// Runs the duel once. Without acceptors, or with more than Paxos accepts, nothing happens.
pub fn run(params: &Params, strategy: &Strategy, seed: u64) -> Outcome {
    duel_run::DuelRun::new(params, strategy, seed).map(duel_run::DuelRun::run).unwrap_or_default()
}
