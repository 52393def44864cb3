//! Injects faults into a cluster, and measures the recovery from them.

use super::citizen::Citizen;
use super::town::Town;
use super::{Fault, Params};
use crate::kernel::{Incident, NodeId};

/// The random spread of faults, so that they are not in step with any node's rounds.
const SPREAD_US: u64 = 1_000_000;

pub(super) struct Trouble {
    fault: Fault,
    every_us: u64,
    down_for_us: u64,
    cut_for_us: u64,
    end_us: u64,
    /// The time of the next fault; `None` before all nodes have agreed on a leader.
    next_us: Option<u64>,
    heal_us: Option<u64>,
    /// The time since which there is no leader, or not all nodes know it.
    leaderless_us: Option<u64>,
    unknown_us: Option<u64>,
    /// The time of the healing, and the length of the longest history then.
    healed: Option<(u64, u64)>,
}

impl Trouble {
    pub(super) fn new(params: &Params) -> Self {
        Self {
            fault: params.fault,
            every_us: params.fault_every.0,
            down_for_us: params.down_for.0,
            cut_for_us: params.cut_for.0,
            end_us: params.duration.0,
            next_us: None,
            heal_us: None,
            leaderless_us: None,
            unknown_us: None,
            healed: None,
        }
    }

    /// Records the recoveries since the last observation, and injects the faults that are due.
    pub(super) fn look<N: Citizen>(&mut self, town: &mut Town<N>) {
        let now_us = town.now_us();
        self.recover(town);
        if self.heal_us.take_if(|heal_us| now_us >= *heal_us).is_some() {
            let (longest, _) = town.heads();
            town.befall(Incident::Heal);
            (self.healed, self.unknown_us) = (Some((now_us, longest)), Some(now_us));
        }
        if self.next_us.is_none() && town.has_begun() {
            self.put_off(town);
        }
        if self.next_us.is_some_and(|next_us| now_us >= next_us) {
            self.give_up(town);
            self.strike(town);
            self.put_off(town);
        }
    }

    /// Counts each fault without a recovery until the next fault, or the end, with the time that it had.
    pub(super) fn end<N: Citizen>(&mut self, town: &mut Town<N>) {
        self.give_up(town);
    }

    /// Schedules the next fault. No fault is scheduled that would have less than the usual time to recover from.
    fn put_off<N: Citizen>(&mut self, town: &mut Town<N>) {
        let cut_for_us = if self.fault == Fault::Partition { self.cut_for_us } else { 0 };
        let after_us = self.every_us + town.chance().between(0, SPREAD_US);
        let start_us = self.next_us.map_or(town.now_us(), |next_us| next_us + cut_for_us) + after_us;
        let is_in_time = start_us + cut_for_us + self.every_us <= self.end_us && self.fault != Fault::None;
        self.next_us = Some(if is_in_time { start_us } else { u64::MAX });
    }

    fn strike<N: Citizen>(&mut self, town: &mut Town<N>) {
        let now_us = town.now_us();
        match self.fault {
            Fault::None => return,
            Fault::Crash => {
                let Some(leader) = town.foremost() else { return };
                town.befall(Incident::Crash(leader));
                town.plan(now_us + self.down_for_us, Incident::Restart(leader));
                (self.leaderless_us, self.unknown_us) = (Some(now_us), Some(now_us));
            }
            Fault::Churn => {
                let Some(node) = pick(town) else { return };
                town.befall(Incident::Crash(node));
                town.plan(now_us + self.down_for_us, Incident::Restart(node));
            }
            Fault::Partition => {
                let mut nodes = town.up();
                for place in 0..nodes.len() {
                    let other = town.chance().between(place as u64, nodes.len() as u64 - 1);
                    nodes.swap(place, usize::try_from(other).unwrap_or(place));
                }
                let (one_side, other_side) = nodes.split_at(nodes.len() / 2);
                town.part(one_side, other_side);
                self.heal_us = Some(now_us + self.cut_for_us);
            }
        }
        town.outcome().faults += 1;
    }

    fn recover<N: Citizen>(&mut self, town: &mut Town<N>) {
        let now_us = town.now_us();
        // A crash strikes after the observation of its own moment, so only a later observation counts.
        if let Some(since_us) = self.leaderless_us.take_if(|since_us| now_us > *since_us && town.is_led()) {
            town.outcome().recoveries_us.push(now_us - since_us);
        }
        if let Some(since_us) = self.unknown_us.take_if(|_| town.agrees()) {
            town.outcome().known_us.push(now_us - since_us);
        }
        let is_well = |head: u64| town.voters_agree() && town.heads().1 >= head;
        if let Some((since_us, _)) = self.healed.take_if(|(_, head)| is_well(*head)) {
            town.outcome().healings_us.push(now_us - since_us);
        }
    }

    fn give_up<N: Citizen>(&mut self, town: &mut Town<N>) {
        let now_us = town.now_us();
        let (leaderless, unknown) = (self.leaderless_us.take(), self.unknown_us.take());
        let healed = self.healed.take().map(|(since_us, _)| since_us);
        let outcome = town.outcome();
        outcome.unrecovered += u64::from(leaderless.is_some()) + u64::from(healed.is_some());
        outcome.unknown += u64::from(unknown.is_some());
        outcome.recoveries_us.extend(leaderless.map(|since_us| now_us - since_us));
        outcome.known_us.extend(unknown.map(|since_us| now_us - since_us));
        outcome.healings_us.extend(healed.map(|since_us| now_us - since_us));
    }
}

/// Draws a running node.
fn pick<N: Citizen>(town: &mut Town<N>) -> Option<NodeId> {
    let nodes = town.up();
    let last = nodes.len().checked_sub(1)? as u64;
    nodes.get(usize::try_from(town.chance().between(0, last)).ok()?).copied()
}
