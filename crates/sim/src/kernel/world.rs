//! Machines, the links between them, and what befalls both.

use super::link::Links;
use super::node::{Around, Order};
use super::{Chance, EventQueue, Faults, Link, Node, NodeId, Skew, mix};

/// Simulated machines that run the same program.
///
/// Everything that happens follows from the seed, the [`Link`]s and the [`Incident`]s. A message reaches
/// the incarnation that was up when it was sent, or nobody; a timer likewise. What an earlier incarnation
/// sent to *others* may still arrive: so it is in real networks, and so it must be survived.
///
/// ```
/// use holdoff_sim::kernel::{Around, Incident, Link, Node, NodeId, World};
///
/// /// Counts greetings, in memory and on disk.
/// struct Greeter(u32);
///
/// impl Node for Greeter {
///     type Message = &'static str;
///     type Timer = ();
///     type Disk = u32;
///
///     fn start(_: &mut u32, _: &mut Around<'_, Self>) -> Self {
///         Greeter(0)
///     }
///
///     fn receive(&mut self, disk: &mut u32, _: NodeId, _: &'static str, _: &mut Around<'_, Self>) {
///         (self.0, *disk) = (self.0 + 1, *disk + 1);
///     }
///
///     fn wake(&mut self, _: &mut u32, (): (), _: &mut Around<'_, Self>) {}
/// }
///
/// let mut world: World<Greeter> = World::new(1, 2, Link::default());
/// world.act(0, |_, _, around| around.send(1, "good morning"));
/// world.run_until(1_000_000);
/// world.befall(Incident::Crash(1));
/// world.befall(Incident::Restart(1));
/// assert_eq!(world.node(1).map(|node| node.0), Some(0), "memory is gone");
/// assert_eq!(world.disk(1), Some(&1), "the disk is not");
/// assert_eq!(world.faults().crashed, 1);
/// ```
pub struct World<N: Node> {
    queue: EventQueue<Event<N>>,
    machines: Vec<Machine<N>>,
    links: Links,
    faults: Faults,
    orders: Vec<Order<N>>,
}

/// Something that befalls the world, now or at a set time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Incident {
    /// A node goes down and forgets what was not on its disk.
    Crash(NodeId),
    /// A node that is down boots again from its disk.
    Restart(NodeId),
    /// Messages in this one direction no longer get through.
    Cut {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
    },
    /// Messages in this one direction get through again.
    Mend {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
    },
    /// Every cut link is mended.
    Heal,
}

/// What one step of the world was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Step {
    /// A node got a message.
    Delivered {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
    },
    /// A node's timer fired.
    Woke(NodeId),
    /// A message or timer came to nothing; the fault counters say why.
    Dropped,
    /// An incident happened.
    Befell(Incident),
}

struct Machine<N: Node> {
    /// `None` while it is down.
    running: Option<N>,
    disk: N::Disk,
    incarnation: u32,
    skew: Skew,
    chance: Chance,
}

enum Event<N: Node> {
    Arrival { from: NodeId, to: NodeId, incarnation: u32, number: u64, message: N::Message },
    Timer { node: NodeId, incarnation: u32, timer: N::Timer },
    Incident(Incident),
}

impl<N: Node> World<N> {
    /// So many machines with empty disks, all booted at time 0, joined by equal links.
    pub fn new(seed: u64, nodes: u32, usual: Link) -> Self {
        let machine = |node| Machine {
            running: None,
            disk: N::Disk::default(),
            incarnation: 0,
            skew: Skew::default(),
            chance: Chance::of(mix(seed, 0), u64::from(node)),
        };
        let mut world = Self {
            queue: EventQueue::new(),
            machines: (0..nodes).map(machine).collect(),
            links: Links::new(seed, usual),
            faults: Faults::default(),
            orders: Vec::new(),
        };
        (0..nodes).for_each(|node| world.boot(node));
        world
    }

    /// The true time.
    pub fn now_us(&self) -> u64 {
        self.queue.now_us()
    }

    /// What has gone wrong so far.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// How many machines there are.
    pub fn nodes(&self) -> u32 {
        u32::try_from(self.machines.len()).unwrap_or(u32::MAX)
    }

    /// The program on a machine; `None` while it is down.
    pub fn node(&self, node: NodeId) -> Option<&N> {
        self.machine(node)?.running.as_ref()
    }

    /// A machine's disk, which outlives its crashes.
    pub fn disk(&self, node: NodeId) -> Option<&N::Disk> {
        Some(&self.machine(node)?.disk)
    }

    /// How often a machine has booted.
    pub fn incarnation(&self, node: NodeId) -> u32 {
        self.machine(node).map_or(0, |machine| machine.incarnation)
    }

    /// Whether messages in this direction are stopped.
    pub fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.links.is_cut(from, to)
    }

    /// Makes one direction of one link different from the others.
    pub fn set_link(&mut self, from: NodeId, to: NodeId, link: Link) {
        self.links.set(from, to, link);
    }

    /// Gives a machine a clock that is wrong.
    pub fn set_skew(&mut self, node: NodeId, skew: Skew) {
        if let Some(machine) = self.machine_mut(node) {
            machine.skew = skew;
            self.faults.skewed += u64::from(skew != Skew::default());
        }
    }

    /// Lets something befall the world at a set time.
    pub fn plan(&mut self, at_us: u64, incident: Incident) {
        self.queue.push(at_us, Event::Incident(incident));
    }

    /// Lets something befall the world now.
    pub fn befall(&mut self, incident: Incident) {
        match incident {
            Incident::Crash(node) => self.crash(node),
            Incident::Restart(node) => self.restart(node),
            Incident::Cut { from, to } => self.links.cut(from, to),
            Incident::Mend { from, to } => self.links.mend(from, to),
            Incident::Heal => self.links.heal(),
        }
    }

    /// Cuts every link between two groups, in both directions.
    pub fn partition(&mut self, one_side: &[NodeId], other_side: &[NodeId]) {
        for &one in one_side {
            for &other in other_side {
                self.links.cut(one, other);
                self.links.cut(other, one);
            }
        }
    }

    /// Gives a running program a turn, such as a client's request; `None` if the machine is down.
    pub fn act<R>(
        &mut self,
        node: NodeId,
        turn: impl FnOnce(&mut N, &mut N::Disk, &mut Around<'_, N>) -> R,
    ) -> Option<R> {
        let (nodes, now_us) = (self.nodes(), self.now_us());
        let mut orders = std::mem::take(&mut self.orders);
        let machine = self.machine_mut(node)?;
        let local_us = machine.skew.local_us(now_us);
        let mut around =
            Around { me: node, nodes, local_us, chance: &mut machine.chance, orders: &mut orders };
        let result = machine.running.as_mut().map(|running| turn(running, &mut machine.disk, &mut around));
        self.carry_out(node, orders);
        result
    }

    /// Lets the next thing happen; `None` if nothing will happen any more.
    pub fn step(&mut self) -> Option<Step> {
        let (_, event) = self.queue.pop()?;
        Some(self.happen(event))
    }

    /// Lets everything happen up to and including this time.
    pub fn run_until(&mut self, limit_us: u64) {
        while let Some((_, event)) = self.queue.pop_until(limit_us) {
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event<N>) -> Step {
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

    /// Whether a copy that is due is handed over; counts what befell it either way.
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

    fn carry_out(&mut self, node: NodeId, mut orders: Vec<Order<N>>) {
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
        let (span_us, incarnation) = (machine.skew.true_span_us(after_us), machine.incarnation);
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

    /// Sends one copy on its way.
    fn launch(&mut self, link: Link, arrival: Event<N>, from: NodeId, to: NodeId) {
        let chance = &mut self.links.traffic(from, to).chance;
        let mut travel_us = link.latency.draw_us(chance);
        if chance.happens(link.delay) {
            self.faults.delayed += 1;
            travel_us = travel_us.saturating_add(link.delayed_by.draw_us(chance));
        }
        self.queue.push_after(travel_us, arrival);
    }

    fn crash(&mut self, node: NodeId) {
        let Some(machine) = self.machine_mut(node) else { return };
        if machine.running.take().is_some() {
            N::crash(&mut machine.disk, &mut machine.chance);
            self.faults.crashed += 1;
        }
    }

    fn restart(&mut self, node: NodeId) {
        if self.machine(node).is_some_and(|machine| machine.running.is_none()) {
            self.faults.restarted += 1;
            self.boot(node);
        }
    }

    fn boot(&mut self, node: NodeId) {
        let (nodes, now_us) = (self.nodes(), self.now_us());
        let mut orders = std::mem::take(&mut self.orders);
        if let Some(machine) = self.machine_mut(node) {
            machine.incarnation += 1;
            let local_us = machine.skew.local_us(now_us);
            let mut around =
                Around { me: node, nodes, local_us, chance: &mut machine.chance, orders: &mut orders };
            machine.running = Some(N::start(&mut machine.disk, &mut around));
        }
        self.carry_out(node, orders);
    }

    fn is_up(&self, node: NodeId, incarnation: u32) -> bool {
        self.machine(node).is_some_and(|it| it.running.is_some() && it.incarnation == incarnation)
    }

    fn machine(&self, node: NodeId) -> Option<&Machine<N>> {
        self.machines.get(node as usize)
    }

    fn machine_mut(&mut self, node: NodeId) -> Option<&mut Machine<N>> {
        self.machines.get_mut(node as usize)
    }
}
