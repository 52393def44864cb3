//! The acceptance limits of holdoff's algorithm, and the table of situations in which they are checked.

use super::{FaultKind, Params};
use crate::{Micros, ResultRow};

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
const FAULTS: [FaultKind; 4] = [FaultKind::None, FaultKind::Crash, FaultKind::Partition, FaultKind::Churn];

/// Returns every situation of the table: three to a hundred nodes, with no, little and much loss, and each fault. A run
/// takes an hour, or ten minutes above ten nodes, where leaders crash more often instead.
pub fn table() -> Vec<Params> {
    let of_size = |nodes| [0.0, 0.01, 0.05].map(|loss| (nodes, loss));
    let with_loss = |(nodes, loss)| FAULTS.map(|fault| situation(nodes, loss, fault));
    [3, 5, 10, 50, 100].into_iter().flat_map(of_size).flat_map(with_loss).collect()
}

fn situation(nodes: u32, loss: f64, fault: FaultKind) -> Params {
    let usual = Params { nodes, loss, fault, fault_every: Micros::from_secs(30), ..Params::default() };
    match fault {
        _ if nodes <= 10 => Params { duration: HOUR, ..usual },
        FaultKind::Crash => {
            let (fault_every, down_for) = (Micros::from_secs(11), Micros::from_secs(8));
            Params { fault_every, down_for, duration: TEN_MINUTES, ..usual }
        }
        _ => Params { duration: TEN_MINUTES, ..usual },
    }
}

/// Describes the limits that a row of holdoff's algorithm misses in this situation; empty if it keeps them all.
pub fn missed(params: &Params, row: &ResultRow) -> Vec<String> {
    let figure = |name: &str| row.figures.get(name).copied().unwrap_or_default();
    let pooled = |name: &str| row.pooled.get(name).cloned().unwrap_or_default();
    let (recovery, healing) = (pooled("recovery"), pooled("healing"));
    let mut held = vec![
        ("unrecovered faults, or no first leader", row.failed.mean, 0.0),
        ("two leaders at once", figure("two_at_once").mean, 0.0),
        ("indexes with two histories", figure("diverged").mean, 0.0),
        ("ms to the first leader, p99", row.time_ms.p99, FIRST_LEADER),
    ];
    match params.fault {
        FaultKind::None => held.push(("changes", figure("changes").mean, 0.0)),
        FaultKind::Crash => held.extend([
            ("ms to recover, p50", recovery.ms.p50, RECOVERY_P50),
            ("ms to recover, p99", recovery.ms.p99, RECOVERY_P99),
        ]),
        FaultKind::Partition => held.push(("ms to heal, at most", healing.worst_ms, HEALING)),
        FaultKind::Churn if params.nodes >= 10 => {
            held.push(("percent without a leader, p99", figure("without_percent").p99, WITHOUT_PERCENT));
        }
        FaultKind::Churn => {}
    }
    // Elections cost more messages, and crash runs have the most elections.
    if params.nodes >= 100 && params.fault != FaultKind::Crash {
        held.push(("bytes per node and second, p99", figure("bytes_per_node_s").p99, BYTES_PER_NODE_S));
    }
    let mut missed: Vec<String> = (held.into_iter())
        .filter(|(_, is, bar)| is > bar)
        .map(|(what, is, bar)| format!("{what}: {is:.1} instead of {bar}"))
        .collect();
    // A run in which no fault struck proves nothing.
    if params.fault != FaultKind::None && figure("faults").mean == 0.0 {
        missed.push("no fault was injected".to_owned());
    }
    missed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn every_situation_has_valid_parameters() {
        let table = table();
        assert_eq!(table.len(), 5 * 3 * 4);
        for params in table {
            assert_eq!(Scenario::Election(params.clone()).check(), Ok(()), "{params:?}");
        }
    }
}
