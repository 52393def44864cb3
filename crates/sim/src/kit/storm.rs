//! Storms: bad links, crashes and cuts, drawn from a seed, and the healing afterwards.

use crate::Micros;
use crate::kernel::{Incident, Latency, LinkModel, NodeId, SimNode, SimRng, Skew, World};

/// Draws a link that loses, duplicates and delays messages, or does only some of this.
pub fn bad_link(rng: &mut SimRng) -> LinkModel {
    let mut share = |most: f64| if rng.happens(0.7) { rng.unit() * most } else { 0.0 };
    let (loss, duplication, delay) = (share(0.2), share(0.2), share(0.2));
    let delayed_by = Latency::Exponential { mean: Micros::from_millis(100) };
    LinkModel { loss, duplication, delay, delayed_by, ..LinkModel::default() }
}

/// Draws the duration of a stall of a disk, which strikes one write in 125 before `until_us` and ends by then. The time is
/// that of the machine's clock.
pub fn stall_us(now_us: u64, until_us: u64, rng: &mut SimRng) -> Option<u64> {
    let left_us = until_us.saturating_sub(now_us.saturating_sub(Skew::EPOCH_US));
    (rng.happens(0.008) && left_us > 0).then(|| rng.between(400_000, 1_500_000).min(left_us))
}

/// The limits of a storm.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Storm {
    /// The time of the first crash, at the earliest.
    pub from_us: u64,
    /// The end of the storm.
    pub until_us: u64,
    /// The number of crashes.
    pub crashes: (u64, u64),
    /// The number of cuts: a node is deaf, mute, or both.
    pub cuts: (u64, u64),
    /// The probability of each direction of a cut.
    pub cut_share: f64,
    /// The number of suspensions.
    pub suspensions: (u64, u64),
    /// The maximum time that a node is down or suspended, or a link is cut.
    pub longest_us: u64,
}

/// What is to happen in a run, and when.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct StormPlan {
    /// The node that is lost for good.
    pub lost: Option<NodeId>,
    /// The number of cuts of one direction only.
    pub one_way_cuts: u64,
    incidents: Vec<(u64, Incident)>,
}

impl Storm {
    /// Draws the incidents of a run. A node may be lost for good.
    pub fn draw(&self, rng: &mut SimRng, nodes: u32, lost: Option<NodeId>) -> StormPlan {
        let some_node =
            |rng: &mut SimRng| u32::try_from(rng.between(0, u64::from(nodes.saturating_sub(1)))).unwrap_or(0);
        let mut plan = StormPlan { lost, one_way_cuts: 0, incidents: Vec::new() };
        for _ in 0..rng.between(self.crashes.0, self.crashes.1) {
            let (node, at_us) = (some_node(rng), rng.between(self.from_us, self.until_us));
            plan.incidents.push((at_us, Incident::Crash(node)));
            let again_us = at_us + self.down_us(rng);
            if Some(node) != lost {
                plan.incidents.push((again_us, Incident::Restart(node)));
            }
        }
        if let Some(node) = lost {
            plan.incidents.push((rng.between(self.from_us, self.until_us), Incident::Crash(node)));
        }
        for _ in 0..rng.between(self.cuts.0, self.cuts.1) {
            let (node, at_us) = (some_node(rng), rng.between(0, self.until_us));
            let until_us = at_us + rng.between(50_000, self.longest_us);
            let [deaf, mute] = [rng.happens(self.cut_share), rng.happens(self.cut_share)];
            plan.one_way_cuts += u64::from(deaf != mute);
            for other in (0..nodes).filter(|other| *other != node) {
                for (from, to, is_cut) in [(other, node, deaf), (node, other, mute)] {
                    if is_cut {
                        plan.incidents.push((at_us, Incident::Cut { from, to }));
                        plan.incidents.push((until_us, Incident::Mend { from, to }));
                    }
                }
            }
        }
        // A storm without suspensions draws no numbers for them.
        for _ in
            0..if self.suspensions.1 > 0 { rng.between(self.suspensions.0, self.suspensions.1) } else { 0 }
        {
            let (node, at_us) = (some_node(rng), rng.between(self.from_us, self.until_us));
            let for_us = rng.between(100_000, self.longest_us).min(self.until_us - at_us);
            plan.incidents.push((at_us, Incident::Suspend { node, for_us }));
        }
        plan
    }

    /// Crashes a node up to `times` times, each at a moment at which `is_exposed` finds one, such as a leader whose entries
    /// are not on its disk.
    pub fn crash_exposed<N: SimNode>(
        &self,
        world: &mut World<N>,
        rng: &mut SimRng,
        lost: Option<NodeId>,
        times: u64,
        is_exposed: impl Fn(&World<N>, NodeId) -> bool,
    ) {
        for _ in 0..times {
            let at_us = world.now_us() + rng.between(self.from_us, self.until_us / 2);
            if let Some(node) = self.find_exposed(world, at_us, &is_exposed) {
                world.inject(Incident::Crash(node));
                let again_us = world.now_us() + self.down_us(rng);
                if Some(node) != lost {
                    world.schedule(again_us, Incident::Restart(node));
                }
            }
        }
    }

    /// Suspends a machine at a moment at which `is_exposed` finds one, such as a leader with a lease.
    pub fn suspend_exposed<N: SimNode>(
        &self,
        world: &mut World<N>,
        rng: &mut SimRng,
        is_exposed: impl Fn(&World<N>, NodeId) -> bool,
    ) {
        let at_us = world.now_us() + rng.between(self.from_us, self.until_us / 4);
        if let Some(node) = self.find_exposed(world, at_us, &is_exposed) {
            let for_us = rng.between(100_000, self.longest_us).min(self.until_us - world.now_us());
            world.inject(Incident::Suspend { node, for_us });
        }
    }

    /// Runs until this time, and on until a node is exposed.
    fn find_exposed<N: SimNode>(
        &self,
        world: &mut World<N>,
        at_us: u64,
        is_exposed: &impl Fn(&World<N>, NodeId) -> bool,
    ) -> Option<NodeId> {
        world.run_until(at_us.min(self.until_us));
        while world.now_us() < self.until_us {
            let exposed = (0..world.nodes()).find(|node| is_exposed(world, *node));
            if exposed.is_some() {
                return exposed;
            }
            world.run_until(world.now_us() + 1_000);
        }
        None
    }

    fn down_us(&self, rng: &mut SimRng) -> u64 {
        rng.between(10_000, self.longest_us)
    }
}

impl StormPlan {
    /// Schedules the incidents.
    pub fn begin<N: SimNode>(&self, world: &mut World<N>) {
        for (at_us, incident) in &self.incidents {
            world.schedule(*at_us, *incident);
        }
    }
}

/// Mends all links and starts all nodes again, except one that is lost for good.
pub fn heal<N: SimNode>(world: &mut World<N>, link: LinkModel, lost: Option<NodeId>) {
    world.inject(Incident::Heal);
    for from in 0..world.nodes() {
        if world.node(from).is_none() && Some(from) != lost {
            world.inject(Incident::Restart(from));
        }
        for to in (0..world.nodes()).filter(|to| *to != from) {
            world.set_link(from, to, link);
        }
    }
}
