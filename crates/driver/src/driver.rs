//! The driver of a core: unstored records, held outputs, and writes in progress.

use std::collections::VecDeque;
use std::fmt;

use crate::{Core, Roll, Step, StepOf, Write, Written};

/// The options of a driver's writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteOptions {
    /// The maximum number of writes in progress, at least one. The disk takes all of them in one transaction.
    pub in_progress: usize,
    /// The maximum delay of records that may be stored later.
    pub delay_us: u64,
    /// The number of records after which they are written without further delay.
    pub records: usize,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { in_progress: 16, delay_us: 10_000, records: 1024 }
    }
}

/// Owns a core, and releases each output when the records that it depends on are on disk.
///
/// The caller passes events to [`step`](Driver::step), carries out the writes that
/// [`begin_write`](Driver::begin_write) returns, in order, and returns each result to [`finish_write`](Driver::finish_write).
/// After each of these calls it performs the outputs that [`take_outputs`](Driver::take_outputs) returns. If a write fails, the
/// caller drops the driver.
pub struct Driver<C: Core> {
    core: C,
    options: WriteOptions,
    pub(crate) outputs: Vec<C::Output>,
    pub(crate) unwritten: Unwritten<C>,
    pub(crate) in_progress: VecDeque<Waiting<C>>,
    /// The number of writes so far.
    writes: u64,
}

/// The content of the steps since the last write began.
pub(crate) struct Unwritten<C: Core> {
    records: Vec<C::Record>,
    pub(crate) waiting: Waiting<C>,
    /// The time at which the records are to be written; `None` without records.
    due_us: Option<u64>,
}

/// The outputs and the input that wait for a write.
pub(crate) struct Waiting<C: Core> {
    pub(crate) held: Vec<C::Output>,
    when_stored: Option<Box<C::Input>>,
}

impl<C: Core> Default for Waiting<C> {
    fn default() -> Self {
        Self { held: Vec::new(), when_stored: None }
    }
}

impl<C: Core> Waiting<C> {
    fn add(&mut self, held: Vec<C::Output>, when_stored: Option<Box<C::Input>>) {
        self.held.extend(held);
        self.when_stored = when_stored.or(self.when_stored.take());
    }
}

impl<C: Core> Driver<C> {
    /// Creates the driver of a core that continues from its disk.
    pub fn new(core: C, options: WriteOptions) -> Self {
        let unwritten = Unwritten { records: Vec::new(), waiting: Waiting::default(), due_us: None };
        Self { core, options, outputs: Vec::new(), unwritten, in_progress: VecDeque::new(), writes: 0 }
    }

    /// Returns the core.
    pub fn core(&self) -> &C {
        &self.core
    }

    /// Returns the core, for a change that creates no record and no output.
    pub fn core_mut(&mut self) -> &mut C {
        &mut self.core
    }

    /// Returns true if all records of all steps are on disk.
    pub fn is_stored(&self) -> bool {
        self.unwritten.records.is_empty() && self.in_progress.is_empty()
    }

    /// Returns the number of records that no write contains yet.
    pub fn unwritten(&self) -> usize {
        self.unwritten.records.len()
    }

    /// Returns the number of outputs that wait for the disk.
    pub fn held(&self) -> usize {
        let writes = self.in_progress.iter().chain([&self.unwritten.waiting]);
        writes.map(|waiting| waiting.held.len()).sum()
    }

    /// Passes an input to the core.
    pub fn step(&mut self, now_us: u64, roll: Roll<'_>, input: C::Input) {
        let mut next = Some(input);
        while let Some(input) = next.take() {
            let step = self.core.step(now_us, roll, input);
            next = self.accept(now_us, step);
        }
    }

    /// Queues the content of a step. Returns its input for the core, if all its records are on disk already.
    pub(crate) fn accept(&mut self, now_us: u64, step: StepOf<C>) -> Option<C::Input> {
        let Step { at_once, records, held, when_stored, is_urgent } = step;
        self.outputs.extend(at_once);
        let has_content = !records.is_empty() || !held.is_empty();
        if !records.is_empty() || !self.unwritten.records.is_empty() {
            let Unwritten { records: all, waiting, due_us } = &mut self.unwritten;
            all.extend(records);
            waiting.add(held, when_stored);
            let is_due = (is_urgent && has_content) || all.len() >= self.options.records;
            let delay_us = if is_due { 0 } else { self.options.delay_us };
            *due_us = Some(due_us.unwrap_or(u64::MAX).min(now_us.saturating_add(delay_us)));
            return None;
        }
        if let Some(waiting) = self.in_progress.back_mut() {
            waiting.add(held, when_stored);
            return None;
        }
        self.outputs.extend(held);
        when_stored.map(|input| *input)
    }

    /// Takes the outputs that may be performed now, in order.
    pub fn take_outputs(&mut self) -> Vec<C::Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Returns the time at which [`begin_write`](Driver::begin_write) returns a write; `None` if there are no records to write,
    /// or too many writes are in progress.
    pub fn write_at_us(&self) -> Option<u64> {
        let has_room = self.in_progress.len() < self.options.in_progress.max(1);
        self.unwritten.due_us.filter(|_| has_room)
    }

    /// Begins the next write, if it is due.
    pub fn begin_write(&mut self, now_us: u64) -> Option<Write<C::Record>> {
        self.write_at_us().filter(|at_us| *at_us <= now_us)?;
        self.unwritten.due_us = None;
        self.in_progress.push_back(std::mem::take(&mut self.unwritten.waiting));
        self.writes += 1;
        Some(Write { records: std::mem::take(&mut self.unwritten.records), through: self.writes })
    }

    /// Begins a write of all records, whether they are due or not: the node stops, or a caller waits for its disk.
    pub fn begin_write_now(&mut self) -> Option<Write<C::Record>> {
        self.begin_write(u64::MAX)
    }

    /// Carries out all due writes at once, on the thread of the caller. After an error the caller drops the driver.
    pub fn write_through<E>(
        &mut self,
        now_us: u64,
        roll: Roll<'_>,
        mut store: impl FnMut(Vec<C::Record>) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some(write) = self.begin_write(now_us) {
            let written = write.store(&mut store)?;
            self.finish_write(now_us, roll, written);
        }
        Ok(())
    }

    /// Releases the outputs that waited for a write.
    #[expect(clippy::needless_pass_by_value, reason = "a proof serves once")]
    pub fn finish_write(&mut self, now_us: u64, roll: Roll<'_>, written: Written) {
        let mut when_stored = None;
        while self.first_in_progress() <= written.through
            && let Some(waiting) = self.in_progress.pop_front()
        {
            self.outputs.extend(waiting.held);
            when_stored = waiting.when_stored.or(when_stored);
        }
        if let Some(input) = when_stored {
            self.step(now_us, roll, *input);
        }
    }

    /// Returns the number of the first write in progress.
    fn first_in_progress(&self) -> u64 {
        self.writes + 1 - self.in_progress.len() as u64
    }
}

impl<C: Core> fmt::Debug for Driver<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("unwritten", &self.unwritten.records.len())
            .field("in_progress", &self.in_progress.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core that returns the steps that a test has written down.
    struct Script;

    #[derive(Clone)]
    enum Line {
        AtOnce(&'static str),
        Record(&'static str),
        RecordLater(&'static str),
        Hold(&'static str),
        WhenStored(&'static str),
    }
    use Line::{AtOnce, Hold, Record, RecordLater, WhenStored};

    impl Core for Script {
        type Input = Vec<Line>;
        type Record = &'static str;
        type Output = &'static str;

        fn step(&mut self, _: u64, _: Roll<'_>, lines: Vec<Line>) -> StepOf<Self> {
            let mut step = Step::default();
            for line in lines {
                match line {
                    AtOnce(text) => step.at_once(text),
                    Record(text) => step.record(text),
                    RecordLater(text) => step.record_later(text),
                    Hold(text) => step.hold(text),
                    WhenStored(text) => step.return_when_stored(vec![AtOnce(text)]),
                }
            }
            step
        }
    }

    fn driver() -> Driver<Script> {
        Driver::new(Script, WriteOptions::default())
    }

    fn step(driver: &mut Driver<Script>, lines: &[Line]) {
        driver.step(0, &mut || 0, lines.to_vec());
    }

    /// Carries out a write.
    fn write(driver: &mut Driver<Script>, write: Write<&'static str>) -> Vec<&'static str> {
        let mut stored = Vec::new();
        let written = write.store(|records| {
            stored = records;
            Ok::<_, ()>(())
        });
        driver.finish_write(0, &mut || 0, written.unwrap());
        stored
    }

    #[test]
    fn an_output_waits_for_the_records_of_its_step_and_of_all_earlier_steps() {
        let mut driver = driver();
        step(&mut driver, &[Hold("free"), AtOnce("early")]);
        assert_eq!(driver.take_outputs(), ["early", "free"], "nothing is unstored");
        step(&mut driver, &[Record("a"), Hold("after a")]);
        step(&mut driver, &[Hold("also after a"), AtOnce("at once")]);
        assert_eq!(driver.take_outputs(), ["at once"]);
        let first = driver.begin_write(0).unwrap();
        step(&mut driver, &[Hold("while a is written")]);
        step(&mut driver, &[Record("b"), Hold("after b")]);
        assert!(driver.take_outputs().is_empty());
        assert_eq!(driver.held(), 4);
        let second = driver.begin_write(0).unwrap();
        assert_eq!(write(&mut driver, first), ["a"]);
        assert_eq!(driver.take_outputs(), ["after a", "also after a", "while a is written"]);
        assert!(!driver.is_stored());
        assert_eq!(write(&mut driver, second), ["b"]);
        assert_eq!(driver.take_outputs(), ["after b"]);
        assert!(driver.is_stored() && driver.begin_write(0).is_none());
        assert_eq!(driver.held(), 0);
    }

    #[test]
    fn writes_that_are_stored_together_release_their_outputs_in_order() {
        let mut driver = driver();
        let mut writes = Vec::new();
        for (record, output) in [("a", "1"), ("b", "2"), ("c", "3")] {
            step(&mut driver, &[Record(record), Hold(output), WhenStored(record)]);
            writes.extend(driver.begin_write(0));
        }
        let mut writes = writes.into_iter();
        let mut all = writes.next().unwrap();
        all.append(writes.next().unwrap());
        assert_eq!(write(&mut driver, all), ["a", "b"]);
        assert_eq!(driver.take_outputs(), ["1", "2", "b"], "the core receives the last input only");
        assert_eq!(write(&mut driver, writes.next().unwrap()), ["c"]);
        assert_eq!(driver.take_outputs(), ["3", "c"]);
    }

    #[test]
    fn a_failed_write_releases_nothing() {
        let mut driver = driver();
        step(&mut driver, &[Record("a"), Hold("after a")]);
        let write = driver.begin_write(0).unwrap();
        assert_eq!(write.store(|_| Err("disk full")), Err("disk full"));
        step(&mut driver, &[Hold("later")]);
        assert!(driver.take_outputs().is_empty() && !driver.is_stored());
    }

    #[test]
    fn records_for_later_wait_for_urgent_ones_or_for_their_time() {
        let options = WriteOptions { delay_us: 100, records: 3, ..WriteOptions::default() };
        let mut driver = Driver::new(Script, options);
        driver.step(50, &mut || 0, vec![RecordLater("a")]);
        assert_eq!((driver.write_at_us(), driver.begin_write(149)), (Some(150), None));
        driver.step(60, &mut || 0, vec![RecordLater("b")]);
        assert_eq!(driver.write_at_us(), Some(150), "the delay counts from the first record");
        driver.step(70, &mut || 0, vec![Hold("outcome")]);
        assert_eq!(driver.write_at_us(), Some(70), "an output is waiting");
        let first = driver.begin_write(70).unwrap();
        assert_eq!(write(&mut driver, first), ["a", "b"]);
        for (at_us, record) in [(80, "c"), (81, "d"), (82, "e")] {
            driver.step(at_us, &mut || 0, vec![RecordLater(record)]);
        }
        assert_eq!(driver.write_at_us(), Some(82), "there are enough records for a write");
        driver.step(83, &mut || 0, vec![RecordLater("f")]);
        let last = driver.begin_write_now().unwrap();
        assert_eq!(write(&mut driver, last), ["c", "d", "e", "f"]);
    }

    #[test]
    fn the_number_of_writes_in_progress_is_limited() {
        let mut driver = Driver::new(Script, WriteOptions { in_progress: 1, ..WriteOptions::default() });
        step(&mut driver, &[Record("a")]);
        let first = driver.begin_write(0).unwrap();
        step(&mut driver, &[Record("b")]);
        assert_eq!((driver.write_at_us(), driver.unwritten()), (None, 1));
        write(&mut driver, first);
        assert!(driver.begin_write(0).is_some());
    }
}
