//! The core in memory: three nodes, one thread, one value at a time.
//!
//! A decision of the slot machine is a prepare and an accept, each sent to all three acceptors. A decision of
//! the log is one value that the leader appends, and the delivery of all messages until no node has any left;
//! the same holds for `OmniPaxos`. Our followers learn of a decision with the next entry, those of
//! `OmniPaxos` at once: a decision counts when the leader knows it. After a round all nodes discard the
//! decided entries, so that logs are no longer than a round.

mod log;
mod omni;
mod slot;

use crate::measure::{CALLS, Contestant, contest};
use crate::row::Row;

/// The required number of decisions a second.
const BAR: f64 = 1_000_000.0;

/// Three nodes that decide values one after the other.
trait Three {
    /// Decides one value; returns whether it was decided.
    fn decide(&mut self, value: u64) -> bool;

    /// Discards the decided values.
    fn forget(&mut self);
}

pub(super) fn rows() -> Vec<Row> {
    let (Some(slot), Some(log), Some(omni)) = (slot::Slots::new(), log::Log::new(), omni::Omni::new()) else {
        eprintln!("council: core: not measured, there is no leader");
        return vec![Row::beside("core", "/s", f64::NAN, ("", f64::NAN)).bar("measured", false)];
    };
    let figures =
        contest(vec![contestant("slot", slot), contestant("log", log), contestant("OmniPaxos", omni)]);
    let [slot, log, omni] = ["slot", "log", "OmniPaxos"].map(|wanted| {
        let found = figures.iter().find(|(name, _)| *name == wanted);
        found.map_or(f64::NAN, |(_, nanoseconds)| 1e9 / nanoseconds)
    });
    let row = |name, ours| Row::beside(name, "/s", ours, ("OmniPaxos, unbatched", omni));
    vec![
        row("core: log, one by one", log).bar("≥ 1 M/s", log >= BAR),
        row("core: slot, prepare and accept", slot).bar("≥ 1 M/s", slot >= BAR),
    ]
}

fn contestant(name: &'static str, mut three: impl Three + 'static) -> Contestant<'static> {
    let mut value = 0;
    let round = move || {
        for _ in 0..CALLS {
            value += 1;
            assert!(three.decide(value), "{name} has decided nothing");
        }
        three.forget();
    };
    (name, Box::new(round))
}
