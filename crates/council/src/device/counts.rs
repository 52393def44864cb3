//! The counters of a device, for metrics and for the lab.

/// The counters of a device since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Ballots started.
    pub ballots: u64,
    /// Operations rebuilt for another slot, because the value of another device has won the slot.
    pub rebuilds: u64,
    /// Slots for which this device proposed a value of its own and lost.
    pub lost_slots: u64,
    /// Attempts that a higher ballot ended before the device proposed a value.
    pub preempted_preparing: u64,
    /// Attempts that a higher ballot ended after the device proposed a value.
    pub preempted_accepting: u64,
    /// Waits started.
    pub waits: u64,
    /// The sum of the planned waiting times in microseconds. A wait that ends early counts in full.
    pub waited_us: u64,
    /// Requests repeated because too few acceptors answered.
    pub asked_again: u64,
    /// Slots applied.
    pub slots: u64,
    /// Slots whose value this device created.
    pub own_slots: u64,
    /// Operations that ended as unknown.
    pub unknown: u64,
    /// Reports of acceptors that are unsigned or impossible.
    pub forged: u64,
    /// Requests that acceptors refused.
    pub refused: u64,
    /// Compactions that this device started by itself.
    pub compactions: u64,
    /// Snapshots sent to acceptors, counted once for each occasion.
    pub handed_in: u64,
}
