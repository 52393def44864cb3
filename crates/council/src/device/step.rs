//! What a device gives out: what to do at once, what to store, and what to do then.

use holdoff_paxos::{Held, NodeId};

use super::{Outcome, Output, Record};
use crate::{Ask, OperationId};

/// What a device draws chance from.
pub type Roll<'a> = &'a mut dyn FnMut() -> u32;

/// What came out of a step.
///
/// The disk is slow, and not everything needs it. Held back until it has stored something are: a ballot that was not
/// [reserved](Record::Reserved), an operation with a letter, and the word that an operation will never happen. Everything
/// else is true or harmless whatever this device forgets in a crash: what was decided is kept by the acceptors.
#[derive(Debug)]
#[must_use = "a step is taken when its outputs are done and its records stored"]
pub struct Step<W> {
    /// To be done now, in this order, before anything is stored.
    pub at_once: Vec<Output>,
    /// To be stored after everything that was to be stored before, and to be done then.
    pub held: Held<Vec<Record<W>>, Vec<Output>>,
    /// Whether it must be stored now. Otherwise nothing is lost if it is stored together with what comes next.
    pub is_urgent: bool,
}

/// What a step has gathered so far.
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

    /// To be stored now.
    pub(super) fn store(&mut self, record: Record<W>) {
        self.records.push(record);
        self.is_urgent = true;
    }

    /// To be stored sometime: whoever has forgotten it finds it out again.
    pub(super) fn store_later(&mut self, record: Record<W>) {
        self.records.push(record);
    }

    /// To be done now.
    pub(super) fn tell(&mut self, output: Output) {
        self.at_once.push(output);
    }

    pub(super) fn ask(&mut self, to: NodeId, ask: Ask) {
        self.tell(Output::Ask { to, ask });
    }

    /// Asks when everything of this step and of those before is stored.
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
        // Who waits for the disk may do so for the sake of an earlier step.
        let is_urgent = is_urgent || !held.is_empty();
        let held = if records.is_empty() { Held::free(held) } else { Held::behind(records, held) };
        Step { at_once, held, is_urgent }
    }
}
