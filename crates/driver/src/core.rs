//! A core, and the result of its step.

use crate::Deferred;

/// The source of random numbers of a step.
pub type Roll<'a> = &'a mut dyn FnMut() -> u32;

/// A deterministic state machine. It reads no clock, draws no random numbers and performs no I/O.
///
/// The same stored records and the same inputs, at the same times and with the same random numbers, give the same steps.
pub trait Core {
    /// An event: a message, a request of a caller, the passing of time.
    type Input;
    /// A record that must be on disk before the outputs that depend on it leave the node.
    type Record;
    /// An action: a message to send, an answer to a caller.
    type Output;

    /// Processes one input. The time never goes back.
    fn step(&mut self, now_us: u64, roll: Roll<'_>, input: Self::Input) -> StepOf<Self>;
}

/// The step of a core.
pub type StepOf<C> = Step<<C as Core>::Input, <C as Core>::Record, <C as Core>::Output>;

/// The result of a step: outputs that may leave at once, records to store, and outputs that wait until these records and
/// those of all earlier steps are on disk.
///
/// A [`Driver`](crate::Driver) releases the outputs. Model checkers, which explore every order of events, release them with
/// [`take_at_once`](Step::take_at_once) and [`store`](Step::store).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[must_use = "a driver must store the records and release the outputs"]
pub struct Step<I, R, O> {
    pub(crate) at_once: Vec<O>,
    pub(crate) records: Vec<R>,
    pub(crate) held: Vec<O>,
    /// Boxed, because an input may be large and few steps have one.
    pub(crate) when_stored: Option<Box<I>>,
    /// True if the records, or the outputs that wait for them, must not wait for later records.
    pub(crate) is_urgent: bool,
}

/// An output of an inner core, for the outer core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inner<O, E> {
    /// It leaves the node.
    Output(O),
    /// The outer core handles it.
    Event(E),
}

impl<I, R, O> Default for Step<I, R, O> {
    fn default() -> Self {
        Self {
            at_once: Vec::new(),
            records: Vec::new(),
            held: Vec::new(),
            when_stored: None,
            is_urgent: false,
        }
    }
}

impl<I, R, O> Step<I, R, O> {
    /// Adds an output that depends on no record: it stays true, or harmless, if the node forgets the step in a crash.
    pub fn at_once(&mut self, output: O) {
        self.at_once.push(output);
    }

    /// Adds an output that waits for the records of this step and of all earlier steps.
    pub fn hold(&mut self, output: O) {
        self.held.push(output);
        self.is_urgent = true;
    }

    /// Adds a record to store now.
    pub fn record(&mut self, record: R) {
        self.records.push(record);
        self.is_urgent = true;
    }

    /// Adds a record that may be stored later, together with others: if the node loses it in a crash, it learns the content
    /// again.
    pub fn record_later(&mut self, record: R) {
        self.records.push(record);
    }

    /// Adds records, and outputs that wait for them and for those of all earlier steps.
    pub fn hold_all(&mut self, records: Vec<R>, outputs: Vec<O>) {
        self.is_urgent |= !(records.is_empty() && outputs.is_empty());
        append(&mut self.records, records);
        append(&mut self.held, outputs);
    }

    /// Adds a message and the records that it waits for.
    pub fn hold_until_stored(&mut self, deferred: Deferred<Vec<R>, O>) {
        let (records, output) = deferred.into_parts();
        self.records.extend(records.into_iter().flatten());
        self.hold(output);
    }

    /// Requests this input when the records of this step and of all earlier steps are on disk. It replaces an earlier input
    /// of this step. If the records of several steps reach the disk together, the core receives the last input only.
    pub fn return_when_stored(&mut self, input: I) {
        self.when_stored = Some(Box::new(input));
    }

    /// Adds the content of the next step behind the content of this one.
    pub fn append(&mut self, next: Self) {
        append(&mut self.at_once, next.at_once);
        append(&mut self.records, next.records);
        append(&mut self.held, next.held);
        self.when_stored = next.when_stored.or(self.when_stored.take());
        self.is_urgent |= next.is_urgent;
    }

    /// Adds the step of an inner core. `sort` converts each output. What leaves the node leaves at once or held, as the inner
    /// core has decided. Returns the events for the outer core, in order.
    pub fn absorb<J, P, E>(
        &mut self,
        inner: Step<J, R, P>,
        mut sort: impl FnMut(P) -> Inner<O, E>,
        input: impl FnOnce(J) -> I,
    ) -> Vec<E> {
        let mut events = Vec::new();
        for (outputs, to) in [(inner.at_once, &mut self.at_once), (inner.held, &mut self.held)] {
            for output in outputs {
                match sort(output) {
                    Inner::Output(output) => to.push(output),
                    Inner::Event(event) => events.push(event),
                }
            }
        }
        append(&mut self.records, inner.records);
        self.when_stored = inner.when_stored.map(|inner| Box::new(input(*inner))).or(self.when_stored.take());
        self.is_urgent |= inner.is_urgent;
        events
    }

    /// Converts the content of a step, for a core that contains this one among others.
    pub fn map<J, S, P>(
        self,
        input: impl FnOnce(I) -> J,
        record: impl FnMut(R) -> S,
        mut output: impl FnMut(O) -> P,
    ) -> Step<J, S, P> {
        Step {
            at_once: self.at_once.into_iter().map(&mut output).collect(),
            records: self.records.into_iter().map(record).collect(),
            held: self.held.into_iter().map(&mut output).collect(),
            when_stored: self.when_stored.map(|inner| Box::new(input(*inner))),
            is_urgent: self.is_urgent,
        }
    }

    /// Takes the outputs that may leave at once. A model checker explores every order of events; a node leaves this to its
    /// driver.
    pub fn take_at_once(&mut self) -> Vec<O> {
        std::mem::take(&mut self.at_once)
    }

    /// Stores the records. Returns the outputs that waited for them, those that were not taken before included, and the
    /// input for the core. A model checker explores every order of events; a node leaves this to its driver.
    pub fn store<E>(self, store: impl FnOnce(Vec<R>) -> Result<(), E>) -> Result<(Vec<O>, Option<I>), E> {
        store(self.records)?;
        let mut outputs = self.at_once;
        append(&mut outputs, self.held);
        Ok((outputs, self.when_stored.map(|input| *input)))
    }

    /// Returns the outputs that may leave at once.
    pub fn outputs_at_once(&self) -> &[O] {
        &self.at_once
    }

    /// Returns the records to store.
    pub fn records(&self) -> &[R] {
        &self.records
    }

    /// Returns true if the records of the step must be stored now.
    pub fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    /// Returns true if the step has no content.
    pub fn is_empty(&self) -> bool {
        self.at_once.is_empty()
            && self.records.is_empty()
            && self.held.is_empty()
            && self.when_stored.is_none()
    }
}

/// Appends the elements. An empty vector is replaced, because most steps fill each of theirs once.
fn append<T>(to: &mut Vec<T>, more: Vec<T>) {
    if to.is_empty() {
        *to = more;
    } else {
        to.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type TextStep = Step<u8, &'static str, String>;

    #[test]
    fn an_inner_step_keeps_its_hold() {
        let mut inner: Step<(), _, &str> = Step::default();
        inner.at_once("request");
        inner.record("promise");
        inner.hold("vote");
        inner.hold("decided");
        inner.return_when_stored(());
        let mut outer = TextStep::default();
        outer.hold("before".to_owned());
        let sort = |output: &'static str| match output {
            "decided" => Inner::Event(output),
            sent => Inner::Output(sent.to_owned()),
        };
        assert_eq!(outer.absorb(inner, sort, |()| 7), ["decided"]);
        assert_eq!(outer.at_once, ["request"]);
        assert_eq!(
            (outer.records(), &outer.held[..]),
            (&["promise"][..], &["before".to_owned(), "vote".to_owned()][..])
        );
        assert_eq!((outer.when_stored, outer.is_urgent), (Some(Box::new(7)), true));
    }

    #[test]
    fn a_record_for_later_is_not_urgent() {
        let mut step = TextStep::default();
        step.record_later("applied");
        assert!(!step.is_urgent && !step.is_empty());
        let mut next = TextStep::default();
        next.hold("outcome".to_owned());
        step.append(next);
        assert!(step.is_urgent, "an output must not wait for a later record");
    }
}
