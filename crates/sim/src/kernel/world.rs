//! Simulated machines, the links between them, and their faults.

mod happen;

use super::link::Links;
use super::node::{Around, Order};
use super::skew::Clock;
use super::{Chance, EventQueue, Faults, Link, Node, NodeId, Skew, mix};

/// Simulated machines that run the same program.
///
/// The seed, the [`Link`]s and the [`Incident`]s determine the whole run. A message reaches only the incarnation that
/// was up when it was sent; the same holds for a timer. Messages that an earlier incarnation sent to *others* may still
/// arrive, as in real networks: the program must tolerate them.
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

/// An incident in the simulated world, now or at a scheduled time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Incident {
    /// A node crashes and loses all state that was not on its disk.
    Crash(NodeId),
    /// A node that is down boots again from its disk.
    Restart(NodeId),
    /// Messages in this one direction are dropped.
    Cut {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
    },
    /// Messages in this one direction are delivered again.
    Mend {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
    },
    /// Every cut link is mended.
    Heal,
}

/// One step of the simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Step {
    /// A node received a message.
    Delivered {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
    },
    /// A node's timer fired.
    Woke(NodeId),
    /// A message or timer was dropped; the fault counters record the reason.
    Dropped,
    /// An incident occurred.
    Befell(Incident),
}

struct Machine<N: Node> {
    /// `None` while the machine is down.
    running: Option<N>,
    disk: N::Disk,
    incarnation: u32,
    clock: Clock,
    chance: Chance,
}

enum Event<N: Node> {
    Arrival { from: NodeId, to: NodeId, incarnation: u32, number: u64, message: N::Message },
    Timer { node: NodeId, incarnation: u32, timer: N::Timer },
    Incident(Incident),
}

impl<N: Node> World<N>
where
    N::Disk: Default,
{
    /// Creates `nodes` machines with empty disks, all booted at time 0, joined by equal links.
    ///
    /// All are up before the first message is sent: a message that a node sends while it starts can reach every other
    /// node.
    pub fn new(seed: u64, nodes: u32, usual: Link) -> Self {
        Self::with_disks(seed, usual, (0..nodes).map(|_| N::Disk::default()))
    }
}

impl<N: Node> World<N> {
    /// Creates one machine for each of these disks, all booted from them at time 0, joined by equal links.
    pub fn with_disks(seed: u64, usual: Link, disks: impl IntoIterator<Item = N::Disk>) -> Self {
        let machine = |(node, disk)| Machine {
            running: None,
            disk,
            incarnation: 0,
            clock: Clock::default(),
            chance: Chance::of(mix(seed, 0), node),
        };
        let mut world = Self {
            queue: EventQueue::new(),
            machines: (0..).zip(disks).map(machine).collect(),
            links: Links::new(seed, usual),
            faults: Faults::default(),
            orders: Vec::new(),
        };
        let nodes = world.nodes();
        let orders: Vec<_> = (0..nodes).map(|node| world.start(node)).collect();
        for (node, orders) in (0..nodes).zip(orders) {
            world.carry_out(node, orders);
        }
        world
    }

    /// Returns the true time.
    pub fn now_us(&self) -> u64 {
        self.queue.now_us()
    }

    /// Returns the counts of the faults so far.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Returns the number of machines.
    pub fn nodes(&self) -> u32 {
        u32::try_from(self.machines.len()).unwrap_or(u32::MAX)
    }

    /// Returns the program of a machine; `None` while it is down.
    pub fn node(&self, node: NodeId) -> Option<&N> {
        self.machine(node)?.running.as_ref()
    }

    /// Returns the disk of a machine, which survives its crashes.
    pub fn disk(&self, node: NodeId) -> Option<&N::Disk> {
        Some(&self.machine(node)?.disk)
    }

    /// Returns how often a machine has booted.
    pub fn incarnation(&self, node: NodeId) -> u32 {
        self.machine(node).map_or(0, |machine| machine.incarnation)
    }

    /// Returns whether messages in this direction are dropped.
    pub fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.links.is_cut(from, to)
    }

    /// Sets the properties of one direction of one link.
    pub fn set_link(&mut self, from: NodeId, to: NodeId, link: Link) {
        self.links.set(from, to, link);
    }

    /// Sets the skew of a machine's clock from now on.
    ///
    /// The clock jumps by the difference in offset and drifts from now on. The gain from an earlier drift remains.
    /// Timers that are already set fire at the time computed when they were set.
    pub fn set_skew(&mut self, node: NodeId, skew: Skew) {
        let now_us = self.now_us();
        if let Some(machine) = self.machine_mut(node) {
            machine.clock.set(skew, now_us);
            self.faults.skewed += u64::from(skew != Skew::default());
        }
    }

    /// Schedules an incident.
    pub fn plan(&mut self, at_us: u64, incident: Incident) {
        self.queue.push(at_us, Event::Incident(incident));
    }

    /// Causes an incident now.
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

    /// Gives a running program a turn, such as a client's request. Returns `None` if the machine is down.
    pub fn act<R>(
        &mut self,
        node: NodeId,
        turn: impl FnOnce(&mut N, &mut N::Disk, &mut Around<'_, N>) -> R,
    ) -> Option<R> {
        let (nodes, now_us) = (self.nodes(), self.now_us());
        let mut orders = std::mem::take(&mut self.orders);
        let machine = self.machine_mut(node)?;
        let local_us = machine.clock.local_us(now_us);
        let mut around =
            Around { me: node, nodes, local_us, chance: &mut machine.chance, orders: &mut orders };
        let result = machine.running.as_mut().map(|running| turn(running, &mut machine.disk, &mut around));
        self.carry_out(node, orders);
        result
    }

    /// Executes the next event. Returns `None` if no event is pending.
    pub fn step(&mut self) -> Option<Step> {
        let (_, event) = self.queue.pop()?;
        Some(self.happen(event))
    }

    /// Executes all events up to and including this time, and advances the clock to it.
    pub fn run_until(&mut self, limit_us: u64) {
        while let Some((_, event)) = self.queue.pop_until(limit_us) {
            self.happen(event);
        }
        self.queue.advance_to(limit_us);
    }

    fn machine(&self, node: NodeId) -> Option<&Machine<N>> {
        self.machines.get(node as usize)
    }

    fn machine_mut(&mut self, node: NodeId) -> Option<&mut Machine<N>> {
        self.machines.get_mut(node as usize)
    }
}
