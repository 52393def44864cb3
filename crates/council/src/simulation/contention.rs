//! Contention: all devices submit at once. The tests check when each device finishes, and after how many ballots.

use holdoff_paxos::Ballot;
use holdoff_sim::kernel::{Incident, LinkModel, NodeId, SimRng, World, mix};

use super::cluster::between_ms;
use super::node::{Common, FIRST_DEVICE, Machine, device_id, device_of, key, submit};
use crate::machine::CouncilChange;
use crate::{OperationId, Options, Outcome, Output, Slot};

const SEEDS: u64 = 200;
/// The mean one-way latency.
const WAY_US: u64 = 25_000;
const DEADLINE_US: u64 = 30_000_000;

/// The result of a race.
struct Race {
    /// The time at which each device finished, in microseconds; `None` if it did not.
    finished_us: Vec<Option<u64>>,
    ballots: Vec<u64>,
    slots: u64,
}

struct Start {
    seed: u64,
    devices: u32,
    loss: f64,
    kills: bool,
    shares: bool,
}

fn race(start: &Start) -> Race {
    let options = Options { shares: start.shares, ..Options::default() };
    Common { seed: start.seed, devices: start.devices, options, ..Common::default() }.begin();
    let link = LinkModel { latency: between_ms(10, 40), loss: start.loss, ..LinkModel::default() };
    let mut world: World<Machine> = World::new(start.seed, FIRST_DEVICE + start.devices, link);
    let mut rng = SimRng::of(mix(start.seed, 5), 0);
    // By now all devices have connected.
    world.run_until(1_000_000);
    let begun_us = world.now_us();
    let mut begins: Vec<_> =
        (0..start.devices).map(|device| (begun_us + rng.between(0, 1_000), device)).collect();
    begins.sort_unstable();
    for (at_us, device) in begins {
        world.run_until(at_us);
        let change = CouncilChange::Add { key: key(1_000 + u64::from(device)), name: device.to_string() };
        let id = OperationId(u128::from(device).to_be_bytes());
        submit(&mut world, FIRST_DEVICE + device, id, change, None, DEADLINE_US);
    }
    if start.kills {
        // By now the last operation is on disk as well.
        world.run_until(world.now_us() + 10);
        let slot = Slot(1);
        let ballot = |device: &u32| Ballot::new(slot, 1, device_id(FIRST_DEVICE + device));
        let front_runner = FIRST_DEVICE + (0..start.devices).max_by_key(ballot).unwrap();
        world.inject(Incident::Crash(front_runner));
        world.schedule(world.now_us() + 2_000_000, Incident::Restart(front_runner));
    }
    let mut finished_us = vec![None; start.devices as usize];
    while world.now_us() < begun_us + DEADLINE_US && finished_us.iter().any(Option::is_none) {
        world.step();
        for device in 0..start.devices {
            let has_committed = has_committed(&world, FIRST_DEVICE + device);
            if has_committed && finished_us[device as usize].is_none() {
                finished_us[device as usize] = Some(world.now_us() - begun_us);
            }
        }
    }
    let devices = || (0..start.devices).filter_map(|device| device_of(world.node(FIRST_DEVICE + device)?));
    Race {
        finished_us,
        ballots: devices().map(|device| device.counts().ballots).collect(),
        slots: devices().map(|device| device.state().applied().0).max().unwrap_or(0),
    }
}

fn has_committed(world: &World<Machine>, node: NodeId) -> bool {
    let outputs = world.disk(node).map_or(&[][..], |disk| &disk.store.outputs);
    let reported =
        outputs.iter().any(|output| matches!(output, Output::Ended { outcome: Outcome::Committed(_), .. }));
    // A device that was killed has finished when it is back and its operation is not pending any more.
    let device = world.node(node).and_then(device_of);
    reported
        || device.is_some_and(|device| {
            device.pending().count() == 0
                && device
                    .state()
                    .operation_end(&OperationId(u128::from(node - FIRST_DEVICE).to_be_bytes()))
                    .is_some()
        })
}

fn races(devices: u32, loss: f64, kills: bool, shares: bool) -> Vec<Race> {
    let start = |seed| Start { seed, devices, loss, kills: kills && seed % 2 == 0, shares };
    (0..SEEDS).map(|seed| race(&start(seed))).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a mean need not be exact")]
fn mean(numbers: impl IntoIterator<Item = u64>) -> f64 {
    let numbers: Vec<_> = numbers.into_iter().collect();
    numbers.iter().sum::<u64>() as f64 / numbers.len() as f64
}

fn median(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

fn last_us(race: &Race) -> u64 {
    race.finished_us.iter().map(|at_us| at_us.expect("every device has committed")).max().unwrap()
}

#[test]
fn all_devices_commit_despite_loss_and_a_dead_front_runner() {
    for shares in [false, true] {
        for devices in [5, 10, 20] {
            let races = races(devices, 0.05, true, shares);
            let missing =
                races.iter().flat_map(|race| &race.finished_us).filter(|at_us| at_us.is_none()).count();
            let ballots = mean(races.iter().flat_map(|race| race.ballots.clone()));
            let last_ms = median(
                races
                    .iter()
                    .filter(|race| race.finished_us.iter().all(Option::is_some))
                    .map(last_us)
                    .collect(),
            ) / 1000;
            println!(
                "{devices} devices, sharing {shares}: {missing} of {} not committed, {ballots:.1} ballots, last one after {last_ms} ms (median)",
                devices as usize * races.len()
            );
            assert_eq!(missing, 0);
        }
    }
}

#[test]
fn twenty_concurrent_devices_need_few_ballots_and_little_extra_time() {
    let races = races(20, 0.0, false, false);
    let ballots = mean(races.iter().flat_map(|race| race.ballots.clone()));
    let last = median(races.iter().map(last_us).collect());
    let serial = 20 * 2 * (2 * WAY_US);
    println!(
        "{ballots:.2} ballots for each device; last one after {} ms (median), one after the other {} ms",
        last / 1000,
        serial / 1000
    );
    assert!(ballots <= 13.5, "{ballots}");
    assert!(
        last * 100 <= serial * 125,
        "the last device finished after {last} us, one after the other takes {serial} us"
    );
    assert_no_device_is_favoured(&races);
}

/// Asserts that the mean rank of every device is within a fifth of the middle.
fn assert_no_device_is_favoured(races: &[Race]) {
    let rank = |race: &Race, device: usize| {
        let own = race.finished_us[device];
        race.finished_us.iter().filter(|other| **other < own).count() as u64
    };
    let middle = 9.5;
    for device in 0..20 {
        let rank = mean(races.iter().map(|race| rank(race, device)));
        println!("device {device}: mean rank {rank:.2}");
        assert!((rank - middle).abs() <= middle * 0.2, "device {device} finishes at {rank:.2} on average");
    }
}

#[test]
fn sharing_commits_twenty_operations_in_a_few_slots() {
    let races = races(20, 0.0, false, true);
    let slots = races.iter().map(|race| race.slots).max().unwrap();
    let last = median(races.iter().map(last_us).collect());
    println!(
        "at most {slots} slots, {:.2} on average; last one after {} ms (median)",
        mean(races.iter().map(|race| race.slots)),
        last / 1000
    );
    assert!(slots <= 4, "{slots}");
}
