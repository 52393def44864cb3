//! Scenarios in which the source document's algorithm is known to fail.

use holdoff_sim::kernel::{Incident, LinkModel, NodeId, World};

use super::cluster::between_ms;
use super::node::{self, Common, FIRST_DEVICE, Machine, acceptor_of, device_of, key};
use crate::machine::CouncilChange;
use crate::{Device, OperationEnd, OperationId, Slot};

const SECOND: u64 = 1_000_000;

fn world(seed: u64, devices: u32) -> World<Machine> {
    Common { seed, devices, ..Common::default() }.begin();
    let link = LinkModel { latency: between_ms(10, 40), ..LinkModel::default() };
    let mut world = World::new(seed, FIRST_DEVICE + devices, link);
    world.run_until(SECOND);
    world
}

fn submit(world: &mut World<Machine>, device: u32, number: u64, change: CouncilChange) {
    let id = OperationId(u128::from(number).to_be_bytes());
    node::submit(world, FIRST_DEVICE + device, id, change, None, 30 * SECOND);
}

fn device(world: &World<Machine>, number: u32) -> &Device<crate::machine::Members> {
    world.node(FIRST_DEVICE + number).and_then(device_of).unwrap()
}

fn add(number: u64) -> CouncilChange {
    CouncilChange::Add { key: key(1_000 + number), name: number.to_string() }
}

/// Devices on both sides of a partition have pending operations. After the partition heals, all operations are
/// committed.
#[test]
fn a_partition_heals_with_operations_queued_on_both_sides() {
    for seed in 0..100 {
        let mut world = world(seed, 6);
        // One acceptor is on each side, and the third is unreachable, so neither side has a majority.
        let side = |nodes: &[NodeId]| nodes.to_vec();
        let [one, other, unreachable] = [side(&[0, 5, 6, 7]), side(&[1, 8, 9, 10]), side(&[2, 3, 4])];
        world.partition(&one, &other);
        world.partition(&unreachable, &[one, other].concat());
        for device in 0..6 {
            for number in 0..3 {
                submit(
                    &mut world,
                    device,
                    u64::from(device) * 10 + number,
                    add(u64::from(device) * 10 + number),
                );
            }
        }
        world.run_until(world.now_us() + 10 * SECOND);
        assert!((0..6).all(|number| device(&world, number).state().applied() == Slot(0)), "seed {seed}");
        world.inject(Incident::Heal);
        world.run_until(world.now_us() + 10 * SECOND);
        for number in 0..6 {
            let device = device(&world, number);
            assert_eq!(device.pending().count(), 0, "seed {seed}, device {number}");
            assert_eq!(device.state().machine().members().len(), 6 + 18, "seed {seed}, device {number}");
        }
    }
}

/// Several devices that request a compaction at the same moment get a single snapshot.
#[test]
fn simultaneous_compactions_yield_one_snapshot() {
    for seed in 0..100 {
        let mut world = world(seed, 5);
        for number in 0..4 {
            submit(&mut world, 0, number, add(number));
            world.run_until(world.now_us() + SECOND);
        }
        let before = device(&world, 0).state().applied();
        for number in 0..5 {
            let since = device(&world, number).state().applied();
            submit(&mut world, number, 100 + u64::from(number), CouncilChange::Compact { since });
        }
        world.run_until(world.now_us() + 10 * SECOND);
        let compacted = device(&world, 0).state().compacted();
        assert!(compacted > before, "seed {seed}");
        for number in 0..5 {
            let device = device(&world, number);
            assert_eq!((device.pending().count(), device.state().compacted()), (0, compacted), "seed {seed}");
        }
        // One of the compactions took the snapshot. Those in later slots found the requested state and took no
        // other.
        let state = device(&world, 0).state();
        let id = |number: u64| OperationId(u128::from(100 + number).to_be_bytes());
        let applied = (0..5).filter_map(|number| match state.operation_end(&id(number)) {
            Some(OperationEnd::Applied(slot)) => Some(slot),
            _ => None,
        });
        assert_eq!(applied.min(), Some(compacted), "seed {seed}");
        let floors = (0..3).map(|node| world.node(node).and_then(acceptor_of).unwrap().floor());
        assert!(floors.into_iter().all(|floor| floor == compacted), "seed {seed}");
    }
}

/// A device that was down while the acceptors deleted the slots installs the snapshot and continues.
#[test]
fn a_device_that_was_down_during_a_compaction_installs_the_snapshot() {
    for seed in 0..50 {
        let mut world = world(seed, 3);
        let away = FIRST_DEVICE + 2;
        world.inject(Incident::Crash(away));
        for number in 0..20 {
            let change = if number % 2 == 0 { add(0) } else { CouncilChange::Remove { key: key(1_000) } };
            submit(&mut world, u32::try_from(number % 2).unwrap(), number, change);
            world.run_until(world.now_us() + SECOND);
        }
        let since = device(&world, 0).state().applied();
        submit(&mut world, 0, 100, CouncilChange::Compact { since });
        world.run_until(world.now_us() + 3 * SECOND);
        world.inject(Incident::Restart(away));
        submit(&mut world, 2, 200, add(200));
        world.run_until(world.now_us() + 10 * SECOND);
        let floors = (0..3).map(|node| world.node(node).and_then(acceptor_of).unwrap().floor());
        assert_eq!(
            floors.min(),
            Some(Slot(21)),
            "seed {seed}: two of three members have endorsed the snapshot"
        );
        let [one, back] = [device(&world, 0), device(&world, 2)];
        assert_eq!(back.state().chain(), one.state().chain(), "seed {seed}");
        assert_eq!(back.state().machine().members().len(), 3 + 1, "seed {seed}");
    }
}
