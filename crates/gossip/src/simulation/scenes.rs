//! What must hold, in virtual time.

use holdoff_sim::kernel::Incident;

use super::machine::Setup;
use super::town::Town;

const SECOND_US: u64 = 1_000_000;
const SIZES: [u32; 3] = [3, 10, 50];
const LOSSES: [f64; 3] = [0.0, 0.01, 0.05];

fn percentile(sorted: &[u64], percent: usize) -> u64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

#[test]
fn the_first_hint_is_agreed_on_within_a_second_and_a_half() {
    for nodes in SIZES {
        for loss in LOSSES {
            let mut times = Vec::new();
            for seed in 0..20 {
                let mut town = Town::sized(seed, nodes, loss);
                let took = town.until(10 * SECOND_US, |town| town.agreed(&town.up()).is_some());
                times.push(took.unwrap_or_else(|| panic!("seed {seed}: {nodes} nodes do not agree")));
            }
            times.sort_unstable();
            let [median, worst] = [50, 100].map(|percent| percentile(&times, percent) / 1000);
            println!("first hint, {nodes} nodes, loss {loss}: median {median} ms, worst {worst} ms");
            assert!(worst <= 1500, "{nodes} nodes, loss {loss}: {times:?}");
        }
    }
}
