//! The result of a device's step, and the times of its next attempts.

use std::time::Duration;

use holdoff_driver::{Roll, Step};
use holdoff_paxos::NodeId;
use holdoff_policy::{Failure, Policy, SoFar};

use super::{Device, Input, Outcome, Output, Record};
use crate::machine::Machine;
use crate::{AcceptorRequest, OperationId};

/// The result of a step.
///
/// The disk is slow, and only three kinds of outputs wait for it: a ballot that was not [reserved](Record::Reserved), an
/// operation with a mail message, and the outcome that an operation will never be applied. All other outputs stay true or
/// harmless if the device forgets them in a crash, because the acceptors store the decisions.
pub type DeviceStep<W> = Step<Input<W>, Record<W>, Output>;

/// Collects the result of a step.
pub(crate) struct Out<'a, W> {
    pub(super) now_us: u64,
    pub(super) roll: Roll<'a>,
    pub(super) step: DeviceStep<W>,
}

impl<'a, W> Out<'a, W> {
    pub(super) fn new(now_us: u64, roll: Roll<'a>) -> Self {
        Self { now_us, roll, step: Step::default() }
    }

    /// Adds a record that must be stored now.
    pub(super) fn store(&mut self, record: Record<W>) {
        self.step.record(record);
    }

    /// Adds a record that may be stored later. If the device loses it in a crash, it learns the content again.
    pub(super) fn store_later(&mut self, record: Record<W>) {
        self.step.record_later(record);
    }

    /// Adds an output to perform at once.
    pub(super) fn emit(&mut self, output: Output) {
        self.step.at_once(output);
    }

    pub(super) fn request(&mut self, to: NodeId, request: AcceptorRequest) {
        self.emit(Output::Send { to, request });
    }

    /// Adds a request to send when all records of this step and of all earlier steps are stored.
    pub(super) fn request_when_stored(&mut self, to: NodeId, request: AcceptorRequest) {
        self.step.hold(Output::Send { to, request });
    }

    pub(super) fn end(&mut self, id: OperationId, outcome: Outcome) {
        self.emit(Output::Ended { id, outcome });
    }

    pub(super) fn end_when_stored(&mut self, id: OperationId, outcome: Outcome) {
        self.step.hold(Output::Ended { id, outcome });
    }
}

impl<W> Out<'_, W> {
    /// Returns the time for the next attempt after this many unsuccessful attempts. It is at least `floor` from
    /// now.
    pub(super) fn later(&mut self, policy: &Policy, times: u32, floor: Duration) -> u64 {
        let failure = Failure::transient().with_retry_after(floor);
        let decision = policy.decide(&SoFar::after(times), &failure, (self.roll)());
        // A decision to give up does not apply here: only success ends this.
        let after = decision.delay().unwrap_or(floor).max(LEAST);
        self.now_us.saturating_add(holdoff_policy::as_micros_u64(after))
    }
}

/// The minimum waiting time. A policy without any delay would make the device spin.
const LEAST: Duration = Duration::from_millis(1);

impl<M: Machine> Device<M> {
    /// Returns the time to repeat a request that was sent this many times. It is not before an answer can be
    /// expected.
    pub(super) fn retransmit_at(&self, times: u32, out: &mut Out<'_, M::Change>) -> u64 {
        let answer_timeout = Duration::from_micros(self.round_trip.answer_timeout_us());
        out.later(&self.options.asking, times, answer_timeout)
    }
}
