//! What a device has done, for metrics and for the lab.

/// What a device has done since it was started.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Ballots begun.
    pub ballots: u64,
    /// Operations built again for another slot, because somebody else's value was first.
    pub rebuilds: u64,
    /// Slots lost that an own value was proposed in.
    pub lost_slots: u64,
    /// Attempts ended by a higher ballot, before anything was proposed.
    pub preempted_preparing: u64,
    /// Attempts ended by a higher ballot, after something was proposed.
    pub preempted_accepting: u64,
    /// Waits begun, and their sum.
    pub waits: u64,
    /// Microseconds waited for, if nothing ended the waiting.
    pub waited_us: u64,
    /// Questions asked again because nobody answered.
    pub asked_again: u64,
    /// Slots carried out.
    pub slots: u64,
    /// Slots whose value this device put together.
    pub own_slots: u64,
    /// Operations ended as unknown.
    pub unknown: u64,
    /// What acceptors said that is not signed or cannot be.
    pub forged: u64,
    /// What acceptors refused.
    pub refused: u64,
    /// Compactions that this device wanted of its own accord.
    pub compactions: u64,
    /// Times that it handed in a snapshot.
    pub handed_in: u64,
}
