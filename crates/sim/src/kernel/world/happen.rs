//! Execution of events: every message, timer and crash has exactly one outcome, which is counted.

use super::{Event, Step, World};
use crate::kernel::node::{Around, Order};
use crate::kernel::{Link, Node, NodeId};

impl<N: Node> World<N> {
    pub(super) fn happen(&mut self, event: Event<N>) -> Step {
        match event {
            Event::Incident(incident) => {
                self.befall(incident);
                Step::Befell(incident)
            }
            Event::Timer { node, incarnation, timer } => {
                if !self.is_up(node, incarnation) {
                    self.faults.timers_outlived += 1;
                    return Step::Dropped;
                }
                self.act(node, |running, disk, around| running.wake(disk, timer, around));
                Step::Woke(node)
            }
            Event::Arrival { from, to, incarnation, number, message } => {
                if !self.gets_through(from, to, incarnation, number) {
                    return Step::Dropped;
                }
                self.act(to, |running, disk, around| running.receive(disk, from, message, around));
                Step::Delivered { from, to }
            }
        }
    }

    /// Returns whether a copy that is due is delivered, and counts the outcome.
    fn gets_through(&mut self, from: NodeId, to: NodeId, incarnation: u32, number: u64) -> bool {
        if self.links.is_cut(from, to) {
            self.faults.partitioned += 1;
            return false;
        }
        if !self.is_up(to, incarnation) {
            self.faults.outlived += 1;
            return false;
        }
        let traffic = self.links.traffic(from, to);
        self.faults.reordered += u64::from(number < traffic.latest_delivered);
        traffic.latest_delivered = traffic.latest_delivered.max(number);
        self.faults.delivered += 1;
        true
    }

    pub(super) fn carry_out(&mut self, node: NodeId, mut orders: Vec<Order<N>>) {
        for order in orders.drain(..) {
            match order {
                Order::Send { to, message } => self.send(node, to, message),
                Order::Remind { after_us, timer } => self.remind(node, after_us, timer),
            }
        }
        // Keeps the buffer for the next turn.
        self.orders = orders;
    }

    fn remind(&mut self, node: NodeId, after_us: u64, timer: N::Timer) {
        let Some(machine) = self.machine(node) else { return };
        let (span_us, incarnation) = (machine.clock.true_span_us(after_us), machine.incarnation);
        self.queue.push_after(span_us, Event::Timer { node, incarnation, timer });
    }

    fn send(&mut self, from: NodeId, to: NodeId, message: N::Message) {
        self.faults.sent += 1;
        if self.links.is_cut(from, to) {
            self.faults.partitioned += 1;
            return;
        }
        let Some(incarnation) = self.machine(to).filter(|it| it.running.is_some()).map(|it| it.incarnation)
        else {
            self.faults.unreachable += 1;
            return;
        };
        let link = self.links.link(from, to);
        let traffic = self.links.traffic(from, to);
        traffic.sent += 1;
        let number = traffic.sent;
        if traffic.chance.happens(link.loss) {
            self.faults.lost += 1;
            return;
        }
        if traffic.chance.happens(link.duplication) {
            self.faults.duplicated += 1;
            let copy = message.clone();
            self.launch(link, Event::Arrival { from, to, incarnation, number, message: copy }, from, to);
        }
        self.launch(link, Event::Arrival { from, to, incarnation, number, message }, from, to);
    }

    /// Schedules the arrival of one copy.
    fn launch(&mut self, link: Link, arrival: Event<N>, from: NodeId, to: NodeId) {
        let chance = &mut self.links.traffic(from, to).chance;
        let mut travel_us = link.latency.draw_us(chance);
        if chance.happens(link.delay) {
            self.faults.delayed += 1;
            travel_us = travel_us.saturating_add(link.delayed_by.draw_us(chance));
        }
        self.queue.push_after(travel_us, arrival);
    }

    pub(super) fn crash(&mut self, node: NodeId) {
        let Some(machine) = self.machine_mut(node) else { return };
        if machine.running.take().is_some() {
            N::crash(&mut machine.disk, &mut machine.chance);
            self.faults.crashed += 1;
        }
    }

    pub(super) fn restart(&mut self, node: NodeId) {
        if self.machine(node).is_some_and(|machine| machine.running.is_none()) {
            self.faults.restarted += 1;
            let orders = self.start(node);
            self.carry_out(node, orders);
        }
    }

    /// Boots a machine, and returns the effects that it requested for the caller to execute.
    pub(super) fn start(&mut self, node: NodeId) -> Vec<Order<N>> {
        let (nodes, now_us) = (self.nodes(), self.now_us());
        let mut orders = std::mem::take(&mut self.orders);
        if let Some(machine) = self.machine_mut(node) {
            machine.incarnation += 1;
            let local_us = machine.clock.local_us(now_us);
            let mut around =
                Around { me: node, nodes, local_us, chance: &mut machine.chance, orders: &mut orders };
            machine.running = Some(N::start(&mut machine.disk, &mut around));
        }
        orders
    }

    fn is_up(&self, node: NodeId, incarnation: u32) -> bool {
        self.machine(node).is_some_and(|it| it.running.is_some() && it.incarnation == incarnation)
    }
}
