//! The kit for simulations of cores: machines that run the driver of production, on disks that lose records and fail; storms;
//! and the coverage of a simulation.

mod coverage;
mod machine;
mod storm;

pub use coverage::{Coverage, TooRare};
pub use machine::{Boot, FailedWrite, LostRecords, MachineTimer, SimDisk, SimHost, SimMachine, Turn};
pub use storm::{Storm, StormPlan, bad_link, heal, stall_us};
