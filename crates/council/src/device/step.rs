//! The result of a step: the outputs to perform at once, the records to store, and the outputs to perform
//! afterwards.

use holdoff_paxos::{Held, NodeId};

use super::{Outcome, Output, Record};
use crate::{Ask, OperationId};

/// The source of random numbers.
pub type Roll<'a> = &'a mut dyn FnMut() -> u32;

/// The result of a step.
///
/// The disk is slow, and only three kinds of outputs need it. They wait until their records are stored: a ballot
/// that was not [reserved](Record::Reserved), an operation with a mail message, and the outcome that an operation
/// will never be applied. All other outputs stay true or harmless if the device forgets them in a crash, because
/// the acceptors store the decisions.
#[derive(Debug)]
#[must_use = "a step is taken when its outputs are done and its records stored"]
pub struct Step<W> {
    /// The outputs to perform at once, in this order, before any record is stored.
    pub at_once: Vec<Output>,
    /// The records to store after all earlier records, and the outputs to perform afterwards.
    pub held: Held<Vec<Record<W>>, Vec<Output>>,
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
    pub(super) fn tell(&mut self, output: Output) {
        self.at_once.push(output);
    }

    pub(super) fn ask(&mut self, to: NodeId, ask: Ask) {
        self.tell(Output::Ask { to, ask });
    }

    /// Adds a request to send when all records of this step and of all earlier steps are stored.
    pub(super) fn ask_when_stored(&mut self, to: NodeId, ask: Ask) {
        self.held.push(Output::Ask { to, ask });
    }

    pub(super) fn end(&mut self, id: OperationId, outcome: Outcome) {
        self.tell(Output::Ended { id, outcome });
    }

    pub(super) fn end_when_stored(&mut self, id: OperationId, outcome: Outcome) {
        self.held.push(Output::Ended { id, outcome });
    }

    pub(super) fn into_step(self) -> Step<W> {
        let Self { at_once, records, held, is_urgent, .. } = self;
        // The outputs may wait for records of an earlier step, so the disk must be flushed even without new
        // records.
        let is_urgent = is_urgent || !held.is_empty();
        let held = if records.is_empty() { Held::free(held) } else { Held::behind(records, held) };
        Step { at_once, held, is_urgent }
    }
}
