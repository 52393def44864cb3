//! The acceptance limits of holdoff's algorithm, and the table of situations in which they are checked.

use super::{Fault, Params, View};
use crate::{Micros, Row};

/// All times in milliseconds.
const FIRST_LEADER: f64 = 1_500.0;
const RECOVERY_P50: f64 = 3_000.0;
const RECOVERY_P99: f64 = 6_000.0;
const HEALING: f64 = 2_000.0;
/// The percentage of time without a leader under churn, from ten nodes on.
const WITHOUT_PERCENT: f64 = 2.0;
const BYTES_PER_NODE_S: f64 = 2_000.0;

const HOUR: Micros = Micros::from_secs(60 * 60);
const TEN_MINUTES: Micros = Micros::from_secs(10 * 60);
const FAULTS: [Fault; 4] = [Fault::None, Fault::Crash, Fault::Partition, Fault::Churn];

/// Returns every situation of the table: three to a hundred nodes, in a mesh and with partial views, with no, little
/// and much loss, and each fault. A run takes an hour, or ten minutes above ten nodes, where leaders crash more often
/// instead.
pub fn table() -> Vec<Params> {
    let sizes = [(3, View::Mesh), (5, View::Mesh), (10, View::Mesh), (3, View::Partial), (5, View::Partial)];
    let sizes = sizes.into_iter().chain([10, 50, 100].map(|nodes| (nodes, View::Partial)));
    let of_size = |(nodes, view)| [0.0, 0.01, 0.05].map(|loss| (nodes, view, loss));
    let with_loss = |(nodes, view, loss)| FAULTS.map(|fault| situation(nodes, view, loss, fault));
    sizes.flat_map(of_size).flat_map(with_loss).collect()
}

fn situation(nodes: u32, view: View, loss: f64, fault: Fault) -> Params {
    let usual = Params { nodes, view, loss, fault, fault_every: Micros::from_secs(30), ..Params::default() };
    match fault {
        _ if nodes <= 10 => Params { duration: HOUR, ..usual },
        Fault::Crash => {
            let (fault_every, down_for) = (Micros::from_secs(11), Micros::from_secs(8));
            Params { fault_every, down_for, duration: TEN_MINUTES, ..usual }
        }
        _ => Params { duration: TEN_MINUTES, ..usual },
    }
}

/// Describes the limits that a row of holdoff's algorithm misses in this situation; empty if it keeps them all.
pub fn missed(params: &Params, row: &Row) -> Vec<String> {
    let figure = |name: &str| row.figures.get(name).copied().unwrap_or_default();
    let pooled = |name: &str| row.pooled.get(name).cloned().unwrap_or_default();
    let (recovery, healing) = (pooled("recovery"), pooled("healing"));
    let mut held = vec![
        ("faults not got over, or no first leader", row.failed.mean, 0.0),
        ("two leaders at once", figure("two_at_once").mean, 0.0),
        ("places with two histories", figure("torn").mean, 0.0),
        ("ms to the first leader, p99", row.time_ms.p99, FIRST_LEADER),
    ];
    match params.fault {
        Fault::None => held.push(("changes", figure("changes").mean, 0.0)),
        Fault::Crash => held.extend([
            ("ms to recover, p50", recovery.ms.p50, RECOVERY_P50),
            ("ms to recover, p99", recovery.ms.p99, RECOVERY_P99),
        ]),
        Fault::Partition => held.push(("ms to heal, at most", healing.worst_ms, HEALING)),
        Fault::Churn if params.nodes >= 10 => {
            held.push(("percent without a leader, p99", figure("without_percent").p99, WITHOUT_PERCENT));
        }
        Fault::Churn => {}
    }
    // Elections cost more messages, and crash runs have the most elections.
    if params.nodes >= 100 && params.fault != Fault::Crash {
        held.push(("bytes per node and second, p99", figure("bytes_per_node_s").p99, BYTES_PER_NODE_S));
    }
    let mut missed: Vec<String> = (held.into_iter())
        .filter(|(_, is, bar)| is > bar)
        .map(|(what, is, bar)| format!("{what}: {is:.1} instead of {bar}"))
        .collect();
    // A run in which no fault struck proves nothing.
    if params.fault != Fault::None && figure("faults").mean == 0.0 {
        missed.push("no fault has struck".to_owned());
    }
    missed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn every_situation_makes_sense() {
        let table = table();
        assert_eq!(table.len(), 8 * 3 * 4);
        for params in table {
            assert_eq!(Scenario::Election(params.clone()).check(), Ok(()), "{params:?}");
        }
    }
}
