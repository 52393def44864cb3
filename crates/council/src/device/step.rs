//! The result of a step: the outputs to perform at once, the records to store, and the outputs to perform
//! afterwards.

use std::time::Duration;

use holdoff_paxos::{Deferred, NodeId};
use holdoff_policy::{Failure, Policy, SoFar};

use super::{Device, Outcome, Output, Record};
use crate::machine::Machine;
use crate::{AcceptorRequest, OperationId};

/// The source of random numbers.
pub type Roll<'a> = &'a mut dyn FnMut() -> u32;

/// The result of a step.
///
/// The disk is slow, and only three kinds of outputs need it. They wait until their records are stored: a ballot
/// that was not [reserved](Record::Reserved), an operation with a mail message, and the outcome that an operation
/// will never be applied. All other outputs stay true or harmless if the device forgets them in a crash, because
/// the acceptors store the decisions.
#[derive(Debug)]
#[must_use = "the outputs of a step must be performed and its records stored"]
pub struct DeviceStep<W> {
    /// The outputs to perform at once, in this order, before any record is stored.
    pub at_once: Vec<Output>,
    /// The records to store after all earlier records, and the outputs to perform afterwards.
    pub deferred: Deferred<Vec<Record<W>>, Vec<Output>>,
    /// Whether the records must be stored now. Otherwise the caller may store them together with the next ones.
    pub is_urgent: bool,
}

/// Collects the result of a step.
pub(crate) struct Out<'a, W> {
    pub(super) now_us: u64,
    pub(super) roll: Roll<'a>,
    at_once: Vec<Output>,
    records: Vec<Record<W>>,
    held: Vec<Output>,
    is_urgent: bool,
}

impl<'a, W> Out<'a, W> {
    pub(super) fn new(now_us: u64, roll: Roll<'a>) -> Self {
        Self { now_us, roll, at_once: Vec::new(), records: Vec::new(), held: Vec::new(), is_urgent: false }
    }

    /// Adds a record that must be stored now.
    pub(super) fn store(&mut self, record: Record<W>) {
        self.records.push(record);
        self.is_urgent = true;
    }

    /// Adds a record that may be stored later. If the device loses it in a crash, it learns the content again.
    pub(super) fn store_later(&mut self, record: Record<W>) {
        self.records.push(record);
    }

    /// Adds an output to perform at once.
    pub(super) fn emit(&mut self, output: Output) {
        self.at_once.push(output);
    }

    pub(super) fn request(&mut self, to: NodeId, request: AcceptorRequest) {
        self.emit(Output::Send { to, request });
    }

    /// Adds a request to send when all records of this step and of all earlier steps are stored.
    pub(super) fn request_when_stored(&mut self, to: NodeId, request: AcceptorRequest) {
        self.held.push(Output::Send { to, request });
    }

    pub(super) fn end(&mut self, id: OperationId, outcome: Outcome) {
        self.emit(Output::Ended { id, outcome });
    }

    pub(super) fn end_when_stored(&mut self, id: OperationId, outcome: Outcome) {
        self.held.push(Output::Ended { id, outcome });
    }

    pub(super) fn into_step(self) -> DeviceStep<W> {
        let Self { at_once, records, held, is_urgent, .. } = self;
        // The outputs may wait for records of an earlier step, so the disk must be flushed even without new
        // records.
        let is_urgent = is_urgent || !held.is_empty();
        let deferred =
            if records.is_empty() { Deferred::ready(held) } else { Deferred::until_stored(records, held) };
        DeviceStep { at_once, deferred, is_urgent }
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
