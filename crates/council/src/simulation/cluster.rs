//! A simulated cluster: devices and acceptors, their operations, and the faults.

use holdoff_sim::Micros;
use holdoff_sim::kernel::{Incident, Latency, LinkModel, NodeId, SimRng, Skew, World, mix};
use holdoff_testbed::Seeds;

use super::hostile::Attacker;
use super::node::{
    ACCEPTORS, Common, FIRST_DEVICE, Hostile, Machine, SPARE, acceptor, acceptor_of, counts, device_of, key,
    key_of, submit,
};
use super::oracle::Oracle;
use super::properties::{Checked, Violation, check_mail, check_recovery};
use crate::machine::CouncilChange;
use crate::{DeviceCounters, Mail, OperationEnd, OperationId, Options, Quota, Record, Slot};

const MS: u64 = 1_000;
const SECOND: u64 = 1_000 * MS;
/// The duration of the phase with faults. After it all faults are healed.
const FAULTS_US: u64 = 20 * SECOND;
/// The time after the healing by which all operations must have ended.
const RECOVERY_US: u64 = 120 * SECOND;

/// The minimum and the maximum duration of a write.
const WRITE_US: (u64, u64) = (500, 5_000);

/// A latency with a uniform distribution between these limits.
pub(super) fn between_ms(low: u64, high: u64) -> Latency {
    Latency::Uniform { low: Micros::from_millis(low), high: Micros::from_millis(high) }
}

/// The parameters of a run, drawn from the seed.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fault of its own")]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) devices: u32,
    pub(super) options: Options,
    /// The quota of the acceptors. In many runs it is so small that the acceptors are full again and again.
    pub(super) quota: Quota,
    pub(super) link: LinkModel,
    pub(super) operations: u32,
    /// The kinds of faults that may strike.
    pub(super) partitions: bool,
    pub(super) crashes: bool,
    pub(super) skews: bool,
    pub(super) wipes: bool,
    pub(super) reconfigures: bool,
    /// Whether acceptors lose power during a write.
    pub(super) tears: bool,
    /// Whether some writes of the disks take long.
    pub(super) slow_disks: bool,
    /// Whether one direction of links is cut.
    pub(super) one_way_cuts: bool,
    pub(super) hostile: Hostile,
    /// Whether nodes are down for a moment again and again.
    pub(super) frequent_outages: bool,
}

impl Plan {
    pub(super) fn faulty(seed: u64) -> Self {
        let mut rng = SimRng::of(mix(seed, 77), 0);
        let often = |rng: &mut SimRng| rng.happens(0.6);
        let mut link = LinkModel { latency: between_ms(5, 40), ..LinkModel::default() };
        link.loss = if often(&mut rng) { 0.1 } else { 0.0 };
        link.duplication = if often(&mut rng) { 0.1 } else { 0.0 };
        link.delay = if often(&mut rng) { 0.1 } else { 0.0 };
        link.delayed_by = between_ms(20, 2_000);
        let mut options = Options { shares: rng.happens(0.5), store_every: 3, ..Options::default() };
        let mut quota = Quota::default();
        if rng.happens(0.7) {
            quota.slots = usize::try_from(rng.between(3, 8)).unwrap_or(3);
        }
        if rng.happens(0.3) {
            options.compact_slots = rng.between(4, 20);
        }
        let hostile = [Hostile::Stranger, Hostile::Removed, Hostile::Lying];
        let hostile = hostile.into_iter().cycle().nth((seed % 3) as usize).unwrap_or(Hostile::Stranger);
        let fewest = if hostile == Hostile::Lying { 3 } else { 2 };
        Self {
            seed,
            devices: u32::try_from(rng.between(fewest, 5)).unwrap_or(2),
            options,
            quota,
            link,
            operations: 20,
            partitions: often(&mut rng),
            crashes: often(&mut rng),
            skews: often(&mut rng),
            wipes: often(&mut rng),
            reconfigures: often(&mut rng),
            frequent_outages: rng.happens(0.4),
            tears: rng.happens(0.5),
            slow_disks: rng.happens(0.5),
            one_way_cuts: often(&mut rng),
            hostile,
        }
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RunReport {
    pub(super) faults: Vec<(&'static str, u64)>,
    pub(super) counts: Vec<(&'static str, u64)>,
}

/// A submitted operation.
struct SubmittedOperation {
    id: OperationId,
    by: NodeId,
    mail: bool,
}

pub(super) struct Cluster {
    plan: Plan,
    world: World<Machine>,
    rng: SimRng,
    oracle: Oracle,
    submitted: Vec<SubmittedOperation>,
    /// The number of outputs of each device that were checked.
    seen: Vec<usize>,
    wiped: u64,
    brief_outages: u64,
    one_way_cuts: u64,
    reconfigured: u64,
    compacted: u64,
    attacker: Attacker,
}

impl Cluster {
    pub(super) fn new(plan: Plan) -> Self {
        let Plan { seed, devices, quota, tears, .. } = plan;
        let (options, write_us, hostile) = (plan.options.clone(), WRITE_US, Some(plan.hostile));
        let slow_writes = if plan.slow_disks { 0.1 } else { 0.0 };
        let common = Common { seed, devices, hostile, options, quota, tears, write_us, ..Common::default() };
        Common { slow_writes, ..common }.begin();
        let attacker = Attacker::new(FIRST_DEVICE + devices, plan.hostile);
        let nodes = FIRST_DEVICE + plan.devices + 1;
        let world = World::new(plan.seed, nodes, plan.link);
        Self {
            rng: SimRng::of(mix(plan.seed, 99), 1),
            plan,
            world,
            oracle: Oracle::default(),
            submitted: Vec::new(),
            seen: vec![0; nodes as usize],
            wiped: 0,
            brief_outages: 0,
            one_way_cuts: 0,
            reconfigured: 0,
            compacted: 0,
            attacker,
        }
    }

    /// Runs the phase with faults, then the phase without. Checks the invariants after every event.
    pub(super) fn run(mut self) -> Result<RunReport, Violation> {
        let mut next_submission = 0;
        let mut next_fault = SECOND;
        let mut next_attack = SECOND;
        if self.plan.hostile == Hostile::Removed {
            let key = key_of(FIRST_DEVICE + self.plan.devices);
            self.submit(FIRST_DEVICE, CouncilChange::Remove { key });
        }
        let mut next_outage = if self.plan.frequent_outages { SECOND } else { u64::MAX };
        while self.world.now_us() < FAULTS_US {
            if self.world.now_us() >= next_submission {
                // Often several operations at once, because contention is the purpose of this test.
                for _ in 0..self.rng.between(1, 4) {
                    self.change();
                }
                next_submission =
                    self.world.now_us() + self.rng.between(1, FAULTS_US / u64::from(self.plan.operations));
            }
            if self.world.now_us() >= next_fault {
                self.inject_fault();
                next_fault = self.world.now_us() + self.rng.between(200 * MS, 3 * SECOND);
            }
            if self.world.now_us() >= next_outage {
                self.brief_outage();
                next_outage = self.world.now_us() + self.rng.between(20 * MS, 400 * MS);
            }
            if self.world.now_us() >= next_attack {
                self.attacker.attack(&mut self.world, &mut self.rng);
                next_attack = self.world.now_us() + self.rng.between(20 * MS, 500 * MS);
            }
            self.run_until(next_submission.min(next_fault).min(next_outage).min(next_attack))?;
        }
        self.heal();
        self.replace_wiped();
        let devices = self.plan.devices;
        while self.world.now_us() < FAULTS_US + RECOVERY_US && check_recovery(&self.world, devices).is_err() {
            self.attacker.attack(&mut self.world, &mut self.rng);
            let until_us = self.world.now_us() + SECOND;
            self.run_until(until_us)?;
        }
        let recovered = check_recovery(&self.world, devices);
        if recovered.is_err() && Seeds::new(0, 0).is_replay() {
            self.describe();
        }
        recovered?;
        self.read_states()?;
        self.oracle.outcomes.check(&self.oracle.at_most_once)?;
        let with_mail =
            self.submitted.iter().filter(|submitted| submitted.mail).map(|submitted| submitted.id);
        check_mail(&self.world, with_mail, &self.oracle.at_most_once)?;
        Ok(self.report())
    }

    fn run_until(&mut self, until_us: u64) -> Checked {
        while self.world.now_us() < until_us {
            if self.world.step().is_none() {
                self.world.run_until(until_us);
            }
            self.check_outputs()?;
        }
        Ok(())
    }

    /// Checks the new outputs of every device.
    fn check_outputs(&mut self) -> Checked {
        for node in 0..self.world.nodes() {
            let index = node as usize;
            let outputs = self.world.disk(node).map_or(&[][..], |disk| &disk.store.outputs);
            for output in outputs.iter().skip(self.seen[index]) {
                self.oracle.observe(node, output)?;
            }
            let is_news = outputs.len() > self.seen[index];
            self.seen[index] = outputs.len();
            let Some(machine) = self.world.node(node) else { continue };
            if let Some(device) = device_of(machine).filter(|_| is_news) {
                self.oracle.agreement.reached(node, device.state().applied(), device.state().chain())?;
            }
        }
        counts().ended_twice.map_or(Ok(()), |id| Err(Violation::EndedTwice(id)))
    }

    fn random_device(&mut self) -> NodeId {
        let last = FIRST_DEVICE + self.plan.devices - 1;
        NodeId::try_from(self.rng.between(u64::from(FIRST_DEVICE), u64::from(last))).unwrap_or(last)
    }

    /// Submits a random change on a random device.
    fn change(&mut self) {
        let by = self.random_device();
        let number = self.submitted.len() as u64;
        // So few members have no device that those with one are a majority, which a compaction needs.
        let most = u64::from(self.plan.devices) - u64::from(self.plan.hostile == Hostile::Lying) - 1;
        let member = key(1_000 + self.rng.between(1, most));
        let compacts = self.rng.happens(0.1);
        let change = match self.rng.between(0, 9) {
            _ if compacts => CouncilChange::Compact { since: self.applied_by(by) },
            0..=2 => CouncilChange::Remove { key: member },
            _ => CouncilChange::Add { key: member, name: format!("m{number}") },
        };
        self.compacted += u64::from(compacts);
        self.submit(by, change);
    }

    fn applied_by(&self, node: NodeId) -> Slot {
        let device = self.world.node(node).and_then(device_of);
        device.map_or(Slot(0), |device| device.state().applied())
    }

    fn submit(&mut self, by: NodeId, change: CouncilChange) {
        let id = OperationId((u128::from(self.plan.seed) << 64 | self.submitted.len() as u128).to_be_bytes());
        let mail = match &change {
            CouncilChange::Add { key, .. } => Some(Mail { to: *key, message: "welcome".into() }),
            _ => None,
        };
        let timeout_us = self.rng.between(SECOND, 30 * SECOND);
        let has_mail = mail.is_some();
        submit(&mut self.world, by, id, change, mail, timeout_us);
        self.submitted.push(SubmittedOperation { id, by, mail: has_mail });
    }

    /// Lets a random fault strike.
    fn inject_fault(&mut self) {
        let (now_us, last) = (self.world.now_us(), u64::from(self.world.nodes() - 1));
        let node = |number: u64| NodeId::try_from(number).unwrap_or(0);
        match self.rng.between(0, 7) {
            0 if self.plan.partitions => {
                let one_side: Vec<_> = (0..=last).map(node).filter(|_| self.rng.happens(0.4)).collect();
                let other: Vec<_> = (0..=last).map(node).filter(|node| !one_side.contains(node)).collect();
                self.world.partition(&one_side, &other);
                self.world.schedule(now_us + self.rng.between(SECOND, 4 * SECOND), Incident::Heal);
            }
            1 if self.plan.crashes => {
                let victim = node(self.rng.between(0, last));
                self.world.inject(Incident::Crash(victim));
                self.world
                    .schedule(now_us + self.rng.between(100 * MS, 4 * SECOND), Incident::Restart(victim));
            }
            2 if self.plan.crashes => {
                let victim = node(self.rng.between(0, last));
                self.world.act(victim, |_, disk, _| disk.store.write_fails = true);
            }
            3 if self.plan.skews => {
                let victim = self.random_device();
                let offset_us = i64::try_from(self.rng.between(0, 60)).unwrap_or(0) * 1_000_000 - 30_000_000;
                let drift_ppm = i32::try_from(self.rng.between(0, 200_000)).unwrap_or(0) - 100_000;
                self.world.set_skew(victim, Skew { offset_us, drift_ppm });
            }
            7 if self.plan.one_way_cuts => {
                let victim = node(self.rng.between(0, last));
                let is_deaf = self.rng.happens(0.5);
                for other in (0..=last).map(node).filter(|other| *other != victim) {
                    let (from, to) = if is_deaf { (other, victim) } else { (victim, other) };
                    self.world.inject(Incident::Cut { from, to });
                }
                self.one_way_cuts += 1;
                self.world.schedule(now_us + self.rng.between(SECOND, 4 * SECOND), Incident::Heal);
            }
            4 if self.plan.wipes && self.wiped == 0 => self.wipe(),
            6 if self.plan.tears => self.tear(),
            5 if self.plan.reconfigures && self.reconfigured < 2 => self.reconfigure(),
            _ => {}
        }
    }

    /// Lets an acceptor lose power during one of its next writes.
    fn tear(&mut self) {
        let victim = NodeId::try_from(self.rng.between(0, u64::from(ACCEPTORS) - 1)).unwrap_or(0);
        let steps = self.rng.between(0, 12);
        self.world.act(victim, |machine, disk, _| {
            // Not while the process has stopped: its next start would find no power.
            if machine.host().is_some() {
                disk.store.platter.lose_power_after(steps);
            }
        });
    }

    /// Lets a node be down for a moment.
    fn brief_outage(&mut self) {
        let last = u64::from(self.world.nodes() - 1);
        let victim = NodeId::try_from(self.rng.between(0, last)).unwrap_or(0);
        if self.world.node(victim).is_some() {
            self.brief_outages += 1;
            self.world.inject(Incident::Crash(victim));
            let back_us = self.world.now_us() + self.rng.between(1, 60 * MS);
            self.world.schedule(back_us, Incident::Restart(victim));
        }
    }

    /// Wipes the disk of one of the first acceptors, once in a run. With more wipes a majority could forget its
    /// votes.
    fn wipe(&mut self) {
        let victim = NodeId::try_from(self.rng.between(0, u64::from(ACCEPTORS) - 1)).unwrap_or(0);
        let Some(()) = self.world.act(victim, |_, disk, _| disk.store.wipe = true) else { return };
        self.wiped += 1;
        self.world.inject(Incident::Crash(victim));
        self.world.schedule(self.world.now_us() + SECOND, Incident::Restart(victim));
    }

    /// Adds a spare acceptor.
    fn reconfigure(&mut self) {
        let spare = ACCEPTORS + u32::try_from(self.reconfigured).unwrap_or(0);
        debug_assert!(spare < ACCEPTORS + SPARE);
        let by = self.random_device();
        if self.world.node(by).is_some() {
            self.reconfigured += 1;
            self.submit(by, CouncilChange::AddAcceptor(acceptor(spare, 0)));
        }
    }

    fn heal(&mut self) {
        self.world.inject(Incident::Heal);
        for node in 0..self.world.nodes() {
            self.world.inject(Incident::Restart(node));
            self.world.act(node, |_, disk, _| disk.store.write_fails = false);
        }
        let good = LinkModel { loss: 0.0, duplication: 0.0, delay: 0.0, ..self.plan.link };
        let nodes = self.world.nodes();
        for (from, to) in (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to))) {
            self.world.set_link(from, to, good);
        }
    }

    /// Removes and adds the acceptors that have lost their disks, as an operator would.
    fn replace_wiped(&mut self) {
        for node in 0..ACCEPTORS {
            let wiped = self.world.disk(node).map_or(0, |disk| disk.store.wiped);
            if wiped > 0 {
                self.submit(FIRST_DEVICE, CouncilChange::RemoveAcceptor(acceptor(node, wiped - 1).id()));
                self.submit(FIRST_DEVICE, CouncilChange::AddAcceptor(acceptor(node, wiped)));
            }
        }
    }

    /// Prints the state of all nodes, for the replay of a seed.
    fn describe(&self) {
        for node in 0..self.world.nodes() {
            let Some(machine) = self.world.node(node) else {
                println!("{node}: down");
                continue;
            };
            if let Some(acceptor) = acceptor_of(machine) {
                println!("{node}: {acceptor:?}");
            }
            if let Some(device) = device_of(machine) {
                println!("{node}: {device:?}");
            }
        }
    }

    /// Reads the applied operations from the states of the devices. A device may have died after it applied a slot
    /// and before it reported the slot; the states contain all of them.
    fn read_states(&mut self) -> Checked {
        for node in FIRST_DEVICE..self.world.nodes() {
            let Some(device) = self.world.node(node).and_then(device_of) else { continue };
            for submitted in &self.submitted {
                if let Some(OperationEnd::Applied(slot)) = device.state().operation_end(&submitted.id) {
                    self.oracle.at_most_once.applied(submitted.id, slot)?;
                }
            }
        }
        Ok(())
    }

    fn report(&self) -> RunReport {
        let faults = self.world.faults();
        let devices = (FIRST_DEVICE..self.world.nodes()).filter_map(|node| device_of(self.world.node(node)?));
        let sum =
            |count: fn(&DeviceCounters) -> u64| devices.clone().map(|device| count(device.counts())).sum();
        let outcomes = &self.oracle.outcomes;
        let ended = self.submitted.iter().filter(|submitted| outcomes.has_ended(&submitted.id)).count();
        let applied = &self.oracle.at_most_once;
        let applied_operations =
            self.submitted.iter().filter(|submitted| applied.slot_of(&submitted.id).is_some());
        let is_stored = |submitted: &&SubmittedOperation| {
            let records = self.world.disk(submitted.by).map_or(&[][..], |disk| &disk.store.records);
            records.iter().any(|record| matches!(record, Record::Submitted { id, .. } if *id == submitted.id))
        };
        let lost = self.submitted.len() - self.submitted.iter().filter(is_stored).count();
        let counts = counts();
        RunReport {
            faults: vec![
                ("lost", faults.lost),
                ("duplicated", faults.duplicated),
                ("reordered", faults.reordered),
                ("partitioned", faults.partitioned),
                ("crashed", faults.crashed),
                ("failed writes", counts.failed_writes),
                ("brief outages", self.brief_outages),
                ("torn writes", counts.torn),
                ("skewed", faults.skewed),
                ("slow writes", counts.slow_writes),
                ("one-way cuts", self.one_way_cuts),
                (self.attacker.name(), self.attacker.requests),
                ("wiped", self.wiped),
                ("reconfigured", self.reconfigured),
                ("compacted", self.compacted),
                ("refused requests", sum(|counts| counts.refused)),
            ],
            counts: vec![
                ("operations", self.submitted.len() as u64),
                ("operations applied", applied_operations.count() as u64),
                ("operations answered", ended as u64),
                ("not stored", lost as u64),
                ("slots", self.oracle.agreement.slots() as u64),
                ("unknown", sum(|counts| counts.unknown)),
                ("preempted", sum(|counts| counts.preempted_preparing + counts.preempted_accepting)),
                ("lost slots", sum(|counts| counts.lost_slots)),
                ("rebuilds", sum(|counts| counts.rebuilds)),
                ("automatic compactions", sum(|counts| counts.compactions)),
                ("snapshots sent", sum(|counts| counts.snapshots_sent)),
            ],
        }
    }
}
