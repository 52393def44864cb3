//! **Store first, then send.** A driver runs a deterministic core: it steps the core, stores the returned records, and only
//! then releases the outputs that depend on them.
//!
//! - [`Core`]: a state machine whose time and random numbers are inputs. Its [`Step`] separates the outputs that may leave at
//!   once from those that wait for the disk.
//! - [`Driver`]: owns a core, its unstored records and its held outputs. It performs no I/O: the caller carries out each
//!   [`Write`] and each output.
//! - [`DiskThread`]: carries out writes on a thread of its own, all queued writes in one transaction.
//! - [`Deferred`]: one message that waits for one record, for cores that answer one request at a time.
//! - `faulty` (a feature): a driver with injected defects, which simulations must find.
//!
//! # Invariants
//!
//! - A held output is released once, when the records of its step and of all earlier steps are on disk. Only
//!   [`Write::store`] creates the [`Written`] that releases it, and only after the disk has reported success.
//! - After a failed write nothing is released any more: the node stops, and continues from its disk.
//! - The same code runs in production and in every simulation; they differ in the disk, the network, the clock and the random
//!   numbers.
//!
//! ```
//! use holdoff_driver::{Core, Driver, Roll, Step, StepOf, WriteOptions};
//!
//! /// Counts votes, and remembers the last one.
//! struct Voter;
//!
//! impl Core for Voter {
//!     type Input = &'static str;
//!     type Record = String;
//!     type Output = String;
//!
//!     fn step(&mut self, _: u64, _: Roll<'_>, candidate: &'static str) -> StepOf<Self> {
//!         let mut step = Step::default();
//!         step.at_once(format!("{candidate} has asked"));
//!         step.record(format!("voted for {candidate}"));
//!         step.hold(format!("a vote for {candidate}"));
//!         step
//!     }
//! }
//!
//! let mut driver = Driver::new(Voter, WriteOptions::default());
//! driver.step(0, &mut || 0, "alice");
//! assert_eq!(driver.take_outputs(), ["alice has asked"], "the vote waits for the disk");
//! let write = driver.begin_write(0).ok_or("there is a record")?;
//! let mut disk = Vec::new();
//! let written = write.store(|records| Ok::<_, &str>(disk.extend(records)))?;
//! driver.finish_write(1, &mut || 0, written);
//! assert_eq!((driver.take_outputs(), disk.len()), (vec!["a vote for alice".to_owned()], 1));
//! # Ok::<(), &str>(())
//! ```

mod core;
mod deferred;
mod disk;
mod driver;
#[cfg(feature = "faulty")]
pub mod faulty;
mod write;

pub use core::{Core, Inner, Roll, Step, StepOf};
pub use deferred::Deferred;
pub use disk::{Disk, DiskThread};
pub use driver::{Driver, WriteOptions};
pub use write::{Write, Written};
