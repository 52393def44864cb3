//! The kernel: the event queue, and the simulated world under every fault.

use std::collections::{BTreeMap, BTreeSet};

use holdoff_sim::kernel::{
    EventQueue, Incident, LinkModel, NodeContext, NodeId, SimNode, SimRng, Skew, StepOutcome, World,
};
use proptest::prelude::*;

const NODES: u32 = 4;

fn cases() -> ProptestConfig {
    ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() }
}

/// A message with the facts from which its receiver can check it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TestMessage {
    number: u64,
    /// The receiver's incarnation when the message was sent.
    addressed: u32,
}

/// Records all events on a disk that survives crashes.
#[derive(Default, Debug, PartialEq, Eq)]
struct WriterDisk {
    boots: u32,
    messages: Vec<(NodeId, TestMessage)>,
    wrong_timers: u32,
    wrong_messages: u32,
    timers: u32,
}

/// Knows only its incarnation: the memory that a crash drops.
struct Writer {
    boot: u32,
}

impl SimNode for Writer {
    type Message = TestMessage;
    type Timer = u32;
    type Disk = WriterDisk;

    fn start(disk: &mut WriterDisk, context: &mut NodeContext<'_, Self>) -> Self {
        disk.boots += 1;
        context.set_timer(20_000, disk.boots);
        Self { boot: disk.boots }
    }

    fn receive(
        &mut self,
        disk: &mut WriterDisk,
        from: NodeId,
        message: TestMessage,
        _: &mut NodeContext<'_, Self>,
    ) {
        disk.wrong_messages += u32::from(message.addressed != self.boot);
        disk.messages.push((from, message));
    }

    fn wake(&mut self, disk: &mut WriterDisk, boot: u32, _: &mut NodeContext<'_, Self>) {
        disk.wrong_timers += u32::from(boot != self.boot);
        disk.timers += 1;
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Send { from: NodeId, to: NodeId },
    Inject(Incident),
    Steps(u32),
}

fn action() -> impl Strategy<Value = Action> {
    let node = || 0..NODES;
    prop_oneof![
        8 => (node(), node()).prop_map(|(from, to)| Action::Send { from, to }),
        1 => node().prop_map(|node| Action::Inject(Incident::Crash(node))),
        1 => node().prop_map(|node| Action::Inject(Incident::Restart(node))),
        1 => (node(), node()).prop_map(|(from, to)| Action::Inject(Incident::Cut { from, to })),
        1 => (node(), node()).prop_map(|(from, to)| Action::Inject(Incident::Mend { from, to })),
        1 => Just(Action::Inject(Incident::Heal)),
        3 => (1..10_u32).prop_map(Action::Steps),
    ]
}

/// Counts by an observer that does not use the world's counters.
#[derive(Default, Debug)]
struct Observer {
    sent: BTreeMap<(NodeId, NodeId), Vec<u64>>,
    crashed: u64,
    restarted: u64,
    delivered: u64,
    over_cut_links: u64,
    time_went_back: bool,
}

struct Scene {
    world: World<Writer>,
    seen: Observer,
    next_number: u64,
}

impl Scene {
    fn new(seed: u64, link: LinkModel) -> Self {
        Self { world: World::new(seed, NODES, link), seen: Observer::default(), next_number: 1 }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Send { from, to } => self.send(from, to),
            Action::Inject(incident) => {
                let is_up = |node| self.world.node(node).is_some();
                match incident {
                    Incident::Crash(node) => self.seen.crashed += u64::from(is_up(node)),
                    Incident::Restart(node) => self.seen.restarted += u64::from(!is_up(node)),
                    _ => {}
                }
                self.world.inject(incident);
            }
            Action::Steps(steps) => (0..steps).for_each(|_| {
                self.step();
            }),
        }
    }

    fn send(&mut self, from: NodeId, to: NodeId) {
        let message = TestMessage { number: self.next_number, addressed: self.world.incarnation(to) };
        if self.world.act(from, |_, _, context| context.send(to, message)).is_some() {
            self.seen.sent.entry((from, to)).or_default().push(self.next_number);
            self.next_number += 1;
        }
    }

    fn step(&mut self) -> bool {
        let before_us = self.world.now_us();
        let Some(step) = self.world.step() else { return false };
        self.seen.time_went_back |= self.world.now_us() < before_us;
        if let StepOutcome::Delivered { from, to } = step {
            self.seen.delivered += 1;
            self.seen.over_cut_links += u64::from(self.world.is_cut(from, to));
        }
        true
    }

    fn drain(&mut self) {
        while self.step() {}
    }

    fn messages(&self, to: NodeId) -> &[(NodeId, TestMessage)] {
        &self.world.disk(to).unwrap().messages
    }

    /// Counts, from the disks, deliveries after a message that was sent later over the same link.
    fn reordered(&self) -> u64 {
        let mut latest: BTreeMap<(NodeId, NodeId), u64> = BTreeMap::new();
        let mut reordered = 0;
        for to in 0..NODES {
            for (from, message) in self.messages(to) {
                let latest = latest.entry((*from, to)).or_default();
                reordered += u64::from(message.number < *latest);
                *latest = message.number.max(*latest);
            }
        }
        reordered
    }
}

fn rough() -> LinkModel {
    LinkModel { loss: 0.2, duplication: 0.2, delay: 0.2, ..LinkModel::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn the_counters_match_every_fault(
        seed in any::<u64>(),
        actions in prop::collection::vec(action(), 1..200),
    ) {
        let mut scene = Scene::new(seed, rough());
        for action in actions {
            scene.perform(action);
        }
        scene.drain();
        let (seen, faults) = (&scene.seen, *scene.world.faults());
        prop_assert!(!seen.time_went_back);
        prop_assert_eq!(seen.over_cut_links, 0, "a partition means no delivery");
        prop_assert_eq!((faults.crashed, faults.restarted), (seen.crashed, seen.restarted));
        prop_assert_eq!(faults.sent, scene.next_number - 1);
        let disks = || (0..NODES).map(|node| scene.world.disk(node).unwrap());
        prop_assert_eq!(faults.delivered, seen.delivered);
        prop_assert_eq!(faults.delivered, disks().map(|disk| disk.messages.len() as u64).sum::<u64>());
        prop_assert_eq!(faults.reordered, scene.reordered());
        prop_assert_eq!(disks().map(|disk| disk.wrong_messages + disk.wrong_timers).sum::<u32>(), 0);
        let boots: u32 = disks().map(|disk| disk.boots).sum();
        let timers: u32 = disks().map(|disk| disk.timers).sum();
        prop_assert_eq!(u64::from(boots - timers), faults.timers_outlived);
        let (came, went) = (faults.sent + faults.duplicated, faults.delivered);
        let dropped = faults.lost + faults.partitioned + faults.unreachable + faults.outlived;
        prop_assert_eq!(came, went + dropped, "each copy is either delivered or dropped");
    }

    /// Without crashes and cuts, every missing message was lost, and every second copy was duplicated.
    #[test]
    fn losses_and_duplicates_match_an_outside_count(seed in any::<u64>(), messages in 1..150_u32) {
        let mut scene = Scene::new(seed, rough());
        for message in 0..messages {
            scene.send(message % NODES, (message / NODES) % NODES);
            scene.perform(Action::Steps(message % 2));
        }
        scene.drain();
        let arrived: Vec<u64> =
            (0..NODES).flat_map(|to| scene.messages(to)).map(|(_, message)| message.number).collect();
        let distinct: BTreeSet<u64> = arrived.iter().copied().collect();
        let faults = scene.world.faults();
        prop_assert_eq!(faults.lost, u64::from(messages) - distinct.len() as u64);
        prop_assert_eq!(faults.duplicated, (arrived.len() - distinct.len()) as u64);
        for to in 0..NODES {
            for (from, message) in scene.messages(to) {
                prop_assert!(scene.seen.sent[&(*from, to)].contains(&message.number), "invented");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_world(
        seed in any::<u64>(),
        actions in prop::collection::vec(action(), 1..80),
    ) {
        let play = || {
            let mut scene = Scene::new(seed, rough());
            for action in &actions {
                scene.perform(*action);
            }
            scene.drain();
            let disks: Vec<String> =
                (0..NODES).map(|node| format!("{:?}", scene.world.disk(node))).collect();
            (disks, *scene.world.faults(), scene.world.now_us())
        };
        prop_assert_eq!(play(), play());
    }
}

#[test]
fn every_kind_of_fault_is_counted() {
    let mut total = holdoff_sim::kernel::FaultCounters::default();
    for seed in 0..20 {
        let mut scene = Scene::new(seed, rough());
        scene.world.set_skew(1, Skew { offset_us: 1_000, drift_ppm: 50 });
        scene.world.schedule(30_000, Incident::Cut { from: 0, to: 1 });
        scene.world.schedule(60_000, Incident::Heal);
        scene.world.schedule(40_000, Incident::Crash(2));
        scene.world.schedule(70_000, Incident::Restart(2));
        scene.world.schedule(75_000, Incident::Crash(2));
        scene.world.schedule(10_000, Incident::Suspend { node: 3, for_us: 50_000 });
        for message in 0..100 {
            scene.send(message % NODES, (message / NODES) % NODES);
            scene.perform(Action::Steps(1));
        }
        scene.drain();
        total.add(scene.world.faults());
    }
    for (name, count) in total.named() {
        assert!(count > 0, "the fault {name} never occurred");
    }
}

#[test]
fn a_partition_holds_both_ways_until_it_heals() {
    let mut scene = Scene::new(1, LinkModel::default());
    scene.world.partition(&[0, 1], &[2, 3]);
    scene.world.schedule(50_000, Incident::Heal);
    let all = |scene: &mut Scene| {
        for from in 0..NODES {
            for to in (0..NODES).filter(|to| *to != from) {
                scene.send(from, to);
            }
        }
    };
    all(&mut scene);
    scene.world.run_until(50_000);
    assert_eq!((scene.world.faults().delivered, scene.world.faults().partitioned), (4, 8));
    all(&mut scene);
    scene.drain();
    assert_eq!((scene.world.faults().delivered, scene.world.faults().partitioned), (16, 8));
}

/// Returns the messages out of a hundred that arrive over a link that loses every fifth.
fn survivors(from: NodeId, to: NodeId, also: &[(NodeId, NodeId)]) -> Vec<u64> {
    let mut scene = Scene::new(5, LinkModel { loss: 0.2, ..LinkModel::default() });
    for _ in 0..100 {
        scene.send(from, to);
        for (from, to) in also {
            scene.send(*from, *to);
        }
        scene.next_number = (scene.next_number / 100 + 1) * 100;
    }
    scene.drain();
    let mut numbers: Vec<u64> =
        scene.messages(to).iter().filter(|(sender, _)| *sender == from).map(|(_, it)| it.number).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn every_link_has_its_own_random_stream() {
    let alone = survivors(0, 1, &[]);
    assert!((60..95).contains(&alone.len()), "{}", alone.len());
    assert_eq!(
        alone,
        survivors(0, 1, &[(1, 0), (2, 1), (0, 3)]),
        "traffic on other links does not affect the link"
    );
    for (from, to) in [(1, 0), (2, 1), (0, 2)] {
        assert_ne!(alone, survivors(from, to, &[]), "{from} to {to}");
    }
}

/// A disk that keeps only synced data over a crash.
#[derive(Default)]
struct Journal {
    written: u32,
    synced: u32,
}

struct JournalNode;

impl SimNode for JournalNode {
    type Message = ();
    type Timer = ();
    type Disk = Journal;

    fn start(_: &mut Journal, _: &mut NodeContext<'_, Self>) -> Self {
        Self
    }

    fn receive(&mut self, _: &mut Journal, _: NodeId, (): (), _: &mut NodeContext<'_, Self>) {}

    fn wake(&mut self, _: &mut Journal, (): (), _: &mut NodeContext<'_, Self>) {}

    fn crash(disk: &mut Journal, _: &mut SimRng) {
        disk.written = disk.synced;
    }
}

#[test]
fn a_crash_applies_the_disks_crash_function() {
    let mut world: World<JournalNode> = World::new(1, 1, LinkModel::default());
    world.act(0, |_, disk, _| (disk.written, disk.synced) = (5, 3));
    world.inject(Incident::Crash(0));
    assert_eq!(world.act(0, |_, _, _| ()), None, "a crashed node does not act");
    world.inject(Incident::Crash(0));
    world.inject(Incident::Restart(0));
    assert_eq!(world.disk(0).map(|disk| disk.written), Some(3));
    assert_eq!((world.faults().crashed, world.faults().restarted), (1, 1));
}

#[test]
fn a_node_sees_its_own_clock_only() {
    let mut world: World<Writer> = World::new(1, 2, LinkModel::default());
    world.set_skew(1, Skew { offset_us: 500_000, drift_ppm: 100_000 });
    world.schedule(1_000_000, Incident::Heal);
    world.run_until(1_000_000);
    let seen = |world: &mut World<Writer>, node| world.act(node, |_, _, context| context.now_us()).unwrap();
    assert_eq!(seen(&mut world, 0), Skew::EPOCH_US + 1_000_000);
    assert_eq!(seen(&mut world, 1), Skew::EPOCH_US + 1_600_000);
}

/// Records the times when a timer was set and when it fired, by the node's own clock.
struct Sleeper;

impl SimNode for Sleeper {
    type Message = ();
    type Timer = (u64, u64);
    type Disk = Vec<(u64, u64)>;

    fn start(_: &mut Self::Disk, _: &mut NodeContext<'_, Self>) -> Self {
        Self
    }

    fn receive(&mut self, _: &mut Self::Disk, _: NodeId, (): (), _: &mut NodeContext<'_, Self>) {}

    fn wake(
        &mut self,
        disk: &mut Self::Disk,
        (set_us, after_us): (u64, u64),
        context: &mut NodeContext<'_, Self>,
    ) {
        disk.push((context.now_us() - set_us, after_us));
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn no_timer_fires_early_by_the_nodes_own_clock(
        offset_s in -100_000..100_000_i64,
        drift_ppm in -900_000..1_000_000,
        start_us in 0..10_000_000_u64,
        naps in prop::collection::vec((0..5_000_000_u64, 0..5_000_000_u64), 1..20),
    ) {
        let mut world: World<Sleeper> = World::new(1, 1, LinkModel::default());
        world.run_until(start_us);
        world.set_skew(0, Skew { offset_us: offset_s * 1_000_000, drift_ppm });
        for (pause_us, after_us) in &naps {
            world.run_until(world.now_us() + pause_us);
            world.act(0, |_, _, context| context.set_timer(*after_us, (context.now_us(), *after_us)));
        }
        while world.step().is_some() {}
        let slept = world.disk(0).unwrap();
        prop_assert_eq!(slept.len(), naps.len());
        for (slept_us, after_us) in slept {
            prop_assert!((*after_us..after_us + 4).contains(slept_us), "{} {}", slept_us, after_us);
        }
    }
}

#[test]
fn time_advances_without_events() {
    let mut world: World<Writer> = World::new(1, 2, LinkModel::default());
    world.run_until(10_000);
    assert_eq!(world.now_us(), 10_000, "before the first timer");
    world.run_until(30_000);
    assert_eq!((world.now_us(), world.disk(0).unwrap().timers), (30_000, 1));
    world.act(0, |_, _, context| context.set_timer(5_000, 1));
    world.run_until(34_999);
    assert_eq!(world.disk(0).unwrap().timers, 1);
    world.run_until(35_000);
    assert_eq!((world.now_us(), world.disk(0).unwrap().timers), (35_000, 2));
    world.run_until(1_000);
    assert_eq!(world.now_us(), 35_000, "the clock never goes back");
}

/// Greets all other nodes while it starts, and counts the greetings that it receives.
struct Greeter {
    greeted: u32,
}

impl SimNode for Greeter {
    type Message = ();
    type Timer = ();
    type Disk = ();

    fn start((): &mut (), context: &mut NodeContext<'_, Self>) -> Self {
        let me = context.me();
        (0..context.nodes()).filter(|node| *node != me).for_each(|node| context.send(node, ()));
        Self { greeted: 0 }
    }

    fn receive(&mut self, (): &mut (), _: NodeId, (): (), _: &mut NodeContext<'_, Self>) {
        self.greeted += 1;
    }

    fn wake(&mut self, (): &mut (), (): (), _: &mut NodeContext<'_, Self>) {}
}

#[test]
fn a_message_sent_at_start_reaches_every_node() {
    let mut world: World<Greeter> = World::new(1, NODES, LinkModel::default());
    world.run_until(1_000_000);
    assert_eq!(world.faults().unreachable, 0);
    for node in 0..NODES {
        assert_eq!(world.node(node).map(|it| it.greeted), Some(NODES - 1), "node {node}");
    }
}

fn queue_cases() -> ProptestConfig {
    ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() }
}

#[derive(Clone, Debug)]
enum Operation {
    Push {
        after_us: u64,
    },
    PushAt {
        at_us: u64,
    },
    Pop,
    PopUntil {
        limit_us: u64,
    },
    Advance {
        by_us: u64,
    },
    /// Advances to the next event's time, or to one microsecond before it: the boundary of slots.
    AdvanceToNext {
        short_by_us: u64,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    let delay = || prop_oneof![0..4_u64, 0..100_u64, 0..100_000_u64, 0..(1_u64 << 40), any::<u64>()];
    prop_oneof![
        3 => delay().prop_map(|after_us| Operation::Push { after_us }),
        1 => (0..200_000_u64).prop_map(|at_us| Operation::PushAt { at_us }),
        2 => Just(Operation::Pop),
        1 => (0..200_000_u64).prop_map(|limit_us| Operation::PopUntil { limit_us }),
        1 => delay().prop_map(|by_us| Operation::Advance { by_us }),
        1 => (0..2_u64).prop_map(|short_by_us| Operation::AdvanceToNext { short_by_us }),
    ]
}

proptest! {
    #![proptest_config(queue_cases())]

    /// Compares with a sorted map of (time, insertion): no event is lost, invented or out of order.
    #[test]
    fn the_queue_is_a_stable_priority_queue(operations in prop::collection::vec(operation(), 1..400)) {
        let mut queue = EventQueue::new();
        let mut model = BTreeSet::new();
        let mut now_us = 0_u64;
        for (number, operation) in operations.into_iter().enumerate() {
            let limit_us = match operation {
                Operation::Push { after_us } => {
                    queue.push_after(after_us, number);
                    model.insert((now_us.saturating_add(after_us), number));
                    continue;
                }
                Operation::PushAt { at_us } => {
                    queue.push(at_us, number);
                    model.insert((at_us.max(now_us), number));
                    continue;
                }
                Operation::Advance { .. } | Operation::AdvanceToNext { .. } => {
                    let next_us = model.first().map_or(u64::MAX, |(at_us, _)| *at_us);
                    let at_us = match operation {
                        Operation::AdvanceToNext { .. } if model.is_empty() => continue,
                        Operation::AdvanceToNext { short_by_us } => next_us.saturating_sub(short_by_us),
                        Operation::Advance { by_us } => now_us.saturating_add(by_us),
                        _ => now_us,
                    };
                    queue.advance_to(at_us);
                    now_us = at_us.min(next_us).max(now_us);
                    prop_assert_eq!((queue.len(), queue.now_us()), (model.len(), now_us));
                    continue;
                }
                Operation::Pop => u64::MAX,
                Operation::PopUntil { limit_us } => limit_us,
            };
            let due = model.first().copied().filter(|(at_us, _)| *at_us <= limit_us);
            prop_assert_eq!(queue.next_at_us(), model.first().map(|(at_us, _)| *at_us));
            prop_assert_eq!(queue.pop_until(limit_us), due);
            if let Some(due) = due {
                prop_assert!(due.0 >= now_us, "time went back");
                now_us = due.0;
                model.remove(&due);
            }
            prop_assert_eq!((queue.len(), queue.now_us()), (model.len(), now_us));
        }
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        prop_assert_eq!(rest, model.into_iter().collect::<Vec<_>>());
        prop_assert!(queue.is_empty());
    }
}

/// Timers stand still while a machine is suspended, messages to it are lost, and it may read either clock.
#[test]
fn a_suspended_machine_stands_still_and_one_of_its_clocks_runs_on() {
    struct Sleeper;

    impl SimNode for Sleeper {
        type Message = ();
        type Timer = ();
        /// The times of its timers on both clocks, and the number of messages.
        type Disk = (Vec<(u64, u64)>, u32);

        fn start(_: &mut Self::Disk, context: &mut NodeContext<'_, Self>) -> Self {
            context.set_timer(100_000, ());
            Self
        }

        fn receive(&mut self, disk: &mut Self::Disk, _: NodeId, (): (), _: &mut NodeContext<'_, Self>) {
            disk.1 += 1;
        }

        fn wake(&mut self, disk: &mut Self::Disk, (): (), context: &mut NodeContext<'_, Self>) {
            let times = (context.now_us() - Skew::EPOCH_US, context.awake_us() - Skew::EPOCH_US);
            disk.0.push(times);
            context.set_timer(100_000, ());
        }
    }

    let mut world: World<Sleeper> = World::new(1, 2, LinkModel::default());
    world.schedule(150_000, Incident::Suspend { node: 1, for_us: 1_000_000 });
    world.run_until(200_000);
    assert!(world.act(1, |_, _, _| ()).is_none(), "the processor stands still");
    world.act(0, |_, _, context| context.send(1, ()));
    world.run_until(1_149_999);
    assert_eq!(world.disk(1).unwrap().0.len(), 1);
    world.run_until(1_400_000);
    let (times, messages) = world.disk(1).unwrap();
    assert_eq!(
        *times,
        [(100_000, 100_000), (1_200_000, 200_000), (1_300_000, 300_000), (1_400_000, 400_000)]
    );
    assert_eq!((*messages, world.faults().suspended, world.faults().slept_through), (0, 1, 1));
}
