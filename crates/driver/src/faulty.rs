//! A driver with injected defects, which the simulation of every core must find.

use std::ops::Deref;

use crate::{Core, Driver, Roll, Write, WriteOptions, Written};

/// A defect of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriverFault {
    /// Outputs leave before the records that they depend on are on disk.
    SendBeforeStore,
    /// The outputs of a write are released twice.
    ReleaseTwice,
    /// The node continues after a failed write. The records of the write, and the outputs that waited for it, are lost.
    ContinueAfterFailure,
}

/// A driver with at most one defect. Simulations use it in place of [`Driver`].
#[derive(Debug)]
pub struct FaultyDriver<C: Core> {
    driver: Driver<C>,
    fault: Option<DriverFault>,
}

impl<C: Core<Output: Clone>> FaultyDriver<C> {
    /// Creates the driver of a core, with this defect, if there is one.
    pub fn new(core: C, options: WriteOptions, fault: Option<DriverFault>) -> Self {
        Self { driver: Driver::new(core, options), fault }
    }

    /// As [`Driver::step`].
    pub fn step(&mut self, now_us: u64, roll: Roll<'_>, input: C::Input) {
        self.driver.step(now_us, roll, input);
        if self.fault == Some(DriverFault::SendBeforeStore) {
            let Driver { outputs, unwritten, in_progress, .. } = &mut self.driver;
            for waiting in in_progress.iter_mut().chain([&mut unwritten.waiting]) {
                outputs.append(&mut waiting.held);
            }
        }
    }

    /// As [`Driver::take_outputs`].
    pub fn take_outputs(&mut self) -> Vec<C::Output> {
        self.driver.take_outputs()
    }

    /// As [`Driver::begin_write`].
    pub fn begin_write(&mut self, now_us: u64) -> Option<Write<C::Record>> {
        self.driver.begin_write(now_us)
    }

    /// As [`Driver::finish_write`].
    pub fn finish_write(&mut self, now_us: u64, roll: Roll<'_>, written: Written) {
        if self.fault == Some(DriverFault::ReleaseTwice) {
            let again: Vec<_> =
                self.driver.in_progress.front().map_or(Vec::new(), |first| first.held.clone());
            self.driver.outputs.extend(again);
        }
        self.driver.finish_write(now_us, roll, written);
    }

    /// Handles the failure of the first write in progress. Returns true if the node stops, as it must.
    pub fn fail_write(&mut self) -> bool {
        let continues = self.fault == Some(DriverFault::ContinueAfterFailure);
        if continues {
            self.driver.lose_write();
        }
        !continues
    }
}

impl<C: Core> Deref for FaultyDriver<C> {
    type Target = Driver<C>;

    fn deref(&self) -> &Driver<C> {
        &self.driver
    }
}

impl<C: Core> Driver<C> {
    /// Forgets the first write in progress, and the outputs that wait for it.
    fn lose_write(&mut self) {
        drop(self.in_progress.pop_front());
    }
}
