//! Simulation of nodes on unreliable links, with disks that lose unflushed data: first faults, then recovery.
//!
//! Messages are lost, duplicated and delayed. Links are cut, also in one direction. Nodes crash and lose their unstored
//! records, and one may be lost for good. Voters are added and removed, nodes learn decided entries and snapshots from
//! a proof, leaders transfer leadership, and logs are compacted. In every other run leaders send entries that they have
//! not stored. Every decision of a node is compared with the decisions and the
//! disks of the others. After all faults are healed, all voters must reach the same state and continue to decide.
//!
//! A failing seed is printed with the command that replays it. `HOLDOFF_PAXOS_SEEDS` sets the number of seeds.

mod machine;
mod oracle;

use holdoff_sim::Micros;
use holdoff_sim::kernel::{FaultCounters, Incident, Latency, LinkModel, SimRng, World};
use holdoff_testbed::fault::inject;

use super::faults::LogFault;
use machine::Machine;
use oracle::{Oracle, Plan, RunReport};

/// The end of the fault phase, and the end of the run, by which all voters must have recovered.
const FAULTS_US: u64 = 6_000_000;
const HEALED_US: u64 = 12_000_000;
/// The time after which no client proposes.
const QUIET_US: u64 = 10_000_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|number| number.parse().ok())
}

/// Returns whether leaders send entries that they have not stored.
fn is_early(seed: u64) -> bool {
    seed % 2 == 1
}

fn run(seed: u64) -> Result<(FaultCounters, RunReport), String> {
    let mut rng = SimRng::of(seed, u64::MAX);
    let nodes = u32::try_from(rng.between(3, 7)).unwrap();
    let all_vote = rng.happens(0.35);
    let some = u32::try_from(rng.between(3, u64::from(nodes))).unwrap();
    let voters = if all_vote { nodes } else { some };
    Oracle::begin(Plan {
        voters,
        may_change: rng.happens(0.7),
        may_learn: rng.happens(0.5),
        early: is_early(seed),
    });
    Oracle::with(|oracle| oracle.ran.many_voters += u64::from(voters >= 5));
    let mut world: World<Machine> = World::new(seed, nodes, bad_link(&mut rng));
    let lost = rng.happens(0.5).then(|| u32::try_from(rng.between(0, u64::from(nodes - 1))).unwrap());
    plan(&mut world, &mut rng, lost);
    crash_leaders(&mut world, &mut rng, lost);
    world.run_until(FAULTS_US);
    heal(&mut world, lost);
    world.run_until(HEALED_US);
    let faults = *world.faults();
    let ran = Oracle::end(&world)?;
    Ok((faults, ran))
}

fn bad_link(rng: &mut SimRng) -> LinkModel {
    let mut share = |most: f64| if rng.happens(0.7) { rng.unit() * most } else { 0.0 };
    let delayed_by = Latency::Exponential { mean: Micros::from_millis(100) };
    LinkModel {
        loss: share(0.2),
        duplication: share(0.2),
        delay: share(0.2),
        delayed_by,
        ..LinkModel::default()
    }
}

/// Plans crashes and cuts, as many as the seed determines. One node may be lost for good.
fn plan(world: &mut World<Machine>, rng: &mut SimRng, lost: Option<u32>) {
    let last = u64::from(world.nodes() - 1);
    let some_node = |rng: &mut SimRng| u32::try_from(rng.between(0, last)).unwrap();
    for _ in 0..rng.between(0, 4) {
        let (node, at_us) = (some_node(rng), rng.between(0, FAULTS_US));
        world.schedule(at_us, Incident::Crash(node));
        let again_us = at_us + rng.between(10_000, 2_000_000);
        if Some(node) != lost {
            world.schedule(again_us, Incident::Restart(node));
        }
    }
    if let Some(node) = lost {
        world.schedule(rng.between(0, FAULTS_US), Incident::Crash(node));
        Oracle::with(|oracle| oracle.ran.lost_for_good += 1);
    }
    for _ in 0..rng.between(0, 4) {
        let (node, at_us) = (some_node(rng), rng.between(0, FAULTS_US));
        let until_us = at_us + rng.between(50_000, 2_000_000);
        let [deaf, mute] = [rng.happens(0.8), rng.happens(0.8)];
        for other in (0..=u32::try_from(last).unwrap()).filter(|other| *other != node) {
            for (from, to, cut) in [(other, node, deaf), (node, other, mute)] {
                if cut {
                    world.schedule(at_us, Incident::Cut { from, to });
                    world.schedule(until_us, Incident::Mend { from, to });
                }
            }
        }
    }
}

/// Crashes up to two leaders at a moment when others have received entries that are not on the leader's disk.
fn crash_leaders(world: &mut World<Machine>, rng: &mut SimRng, lost: Option<u32>) {
    for _ in 0..rng.between(0, 2) {
        let at_us = world.now_us() + rng.between(0, FAULTS_US / 2);
        world.run_until(at_us.min(FAULTS_US));
        while world.now_us() < FAULTS_US {
            let is_ahead = |node: &u32| {
                world.node(*node).is_some() && world.disk(*node).is_some_and(|disk| disk.overtaken > 0)
            };
            if let Some(leader) = (0..world.nodes()).find(is_ahead) {
                world.inject(Incident::Crash(leader));
                let again_us = world.now_us() + rng.between(10_000, 2_000_000);
                if Some(leader) != lost {
                    world.schedule(again_us, Incident::Restart(leader));
                }
                break;
            }
            world.run_until(world.now_us() + 1_000);
        }
    }
}

fn heal(world: &mut World<Machine>, lost: Option<u32>) {
    Oracle::with(|oracle| oracle.healed_us = Some(world.now_us()));
    world.inject(Incident::Heal);
    for from in 0..world.nodes() {
        if world.node(from).is_none() && Some(from) != lost {
            world.inject(Incident::Restart(from));
        }
        for to in (0..world.nodes()).filter(|to| *to != from) {
            world.set_link(from, to, LinkModel::default());
        }
    }
}

#[test]
fn nodes_agree_on_one_history_under_any_seed() {
    let seeds = match number("HOLDOFF_PAXOS_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..holdoff_testbed::scaled("HOLDOFF_PAXOS_SEEDS", 150, 600),
    };
    let count = seeds.end - seeds.start;
    let (mut total, mut struck) = (RunReport::default(), FaultStatistics::default());
    for seed in seeds {
        match run(seed) {
            Ok((faults, ran)) => {
                struck.add(&faults, &ran);
                total.add(&ran);
            }
            Err(broken) => panic!(
                "seed {seed}: {broken}\nreplay: HOLDOFF_PAXOS_SEED={seed} cargo test -p holdoff-paxos --lib one_history_under"
            ),
        }
    }
    println!("{count} seeds: {total:?}\nruns in which it struck: {struck:?}");
    if count >= 100 {
        struck.assert_each_in_a_third_of(count);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..5 {
        let [one, other] = [(), ()].map(|()| format!("{:?}", run(seed)));
        assert_eq!(one, other, "seed {seed}");
    }
}

#[test]
fn counting_unstored_entries_is_found() {
    let found = (0..400).find_map(|seed| Some((seed, inject(LogFault::CountUnstored, || run(seed)).err()?)));
    println!("{found:?}");
    assert!(found.is_some());
}

/// The log's other defect takes some thousand seeds to appear here; the model finds it at once.
#[test]
fn appending_without_a_log_match_is_found() {
    let found =
        (0..400).find_map(|seed| Some((seed, inject(LogFault::AppendWithoutMatch, || run(seed)).err()?)));
    println!("{found:?}");
    assert!(found.is_some());
}

#[test]
fn comparing_terms_across_configurations_is_found() {
    let fault = LogFault::CompareAcrossConfigurations;
    let found = (0..4000).find_map(|seed| Some((seed, inject(fault, || run(seed)).err()?)));
    println!("{found:?}");
    assert!(found.is_some());
}

/// The number of runs in which each fault occurred.
#[derive(Default, Debug)]
struct FaultStatistics {
    lost: u64,
    duplicated: u64,
    reordered: u64,
    partitioned: u64,
    crashed: u64,
    unstored: u64,
    led_again: u64,
    changed: u64,
    installed: u64,
    transferred: u64,
    lost_for_good: u64,
    many_voters: u64,
    learned: u64,
    restored: u64,
    /// Counted in the runs in which leaders send early.
    overtaken: u64,
}

impl FaultStatistics {
    fn add(&mut self, faults: &FaultCounters, ran: &RunReport) {
        let Self {
            lost,
            duplicated,
            reordered,
            partitioned,
            crashed,
            unstored,
            led_again,
            changed,
            installed,
            transferred,
            lost_for_good,
            many_voters,
            learned,
            restored,
            overtaken,
        } = self;
        let struck = [
            (lost, faults.lost),
            (duplicated, faults.duplicated),
            (reordered, faults.reordered),
            (partitioned, faults.partitioned),
            (crashed, faults.crashed),
            (unstored, ran.unstored),
            (led_again, ran.leaders.saturating_sub(1)),
            (changed, ran.changes),
            (installed, ran.installed),
            (transferred, ran.transferred),
            (lost_for_good, ran.lost_for_good),
            (many_voters, ran.many_voters),
            (learned, ran.learned),
            (restored, ran.restored),
            (overtaken, ran.overtaken),
        ];
        for (runs, count) in struck {
            *runs += u64::from(count > 0);
        }
    }

    fn assert_each_in_a_third_of(&self, runs: u64) {
        let Self {
            lost,
            duplicated,
            reordered,
            partitioned,
            crashed,
            unstored,
            led_again,
            changed,
            installed,
            transferred,
            lost_for_good,
            many_voters,
            learned,
            restored,
            overtaken,
        } = self;
        let everywhere = [
            lost,
            duplicated,
            reordered,
            partitioned,
            crashed,
            unstored,
            led_again,
            changed,
            installed,
            transferred,
            lost_for_good,
            many_voters,
            learned,
            restored,
        ];
        for struck in everywhere {
            assert!(struck * 10 >= runs * 3, "{self:?} of {runs}");
        }
        assert!(overtaken * 10 >= runs / 2 * 3, "{self:?} of {}", runs / 2);
    }
}
