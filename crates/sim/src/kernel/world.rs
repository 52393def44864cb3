//! Simulated machines, the programs that they run, and the execution of events.

use super::link::Links;
use super::skew::Clock;
use super::{EventQueue, FaultCounters, LinkModel, SimRng, Skew, mix};

/// Simulated machines that run the same program.
///
/// The seed, the [`LinkModel`]s and the [`Incident`]s determine the whole run. A message reaches only the incarnation that
/// was up when it was sent; the same holds for a timer. Messages that an earlier incarnation sent to *others* may still
/// arrive, as in real networks: the program must tolerate them.
///
/// ```
/// use holdoff_sim::kernel::{NodeContext, Incident, LinkModel, SimNode, NodeId, World};
///
/// /// Counts greetings, in memory and on disk.
/// struct Greeter(u32);
///
/// impl SimNode for Greeter {
///     type Message = &'static str;
///     type Timer = ();
///     type Disk = u32;
///
///     fn start(_: &mut u32, _: &mut NodeContext<'_, Self>) -> Self {
///         Greeter(0)
///     }
///
///     fn receive(&mut self, disk: &mut u32, _: NodeId, _: &'static str, _: &mut NodeContext<'_, Self>) {
///         (self.0, *disk) = (self.0 + 1, *disk + 1);
///     }
///
///     fn wake(&mut self, _: &mut u32, (): (), _: &mut NodeContext<'_, Self>) {}
/// }
///
/// let mut world: World<Greeter> = World::new(1, 2, LinkModel::default());
/// world.act(0, |_, _, context| context.send(1, "good morning"));
/// world.run_until(1_000_000);
/// world.inject(Incident::Crash(1));
/// world.inject(Incident::Restart(1));
/// assert_eq!(world.node(1).map(|node| node.0), Some(0), "memory is gone");
/// assert_eq!(world.disk(1), Some(&1), "the disk is not");
/// assert_eq!(world.faults().crashed, 1);
/// ```
pub struct World<N: SimNode> {
    queue: EventQueue<Event<N>>,
    machines: Vec<Machine<N>>,
    links: Links,
    faults: FaultCounters,
    effects: Vec<Effect<N>>,
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
    /// A machine is suspended: its processor and its timers stand still, and messages that are due at it are lost. Its
    /// clock runs on ([`NodeContext::now_us`]), or stands still ([`NodeContext::awake_us`]).
    Suspend {
        /// The machine.
        node: NodeId,
        /// The duration.
        for_us: u64,
    },
}

/// One step of the simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StepOutcome {
    /// A node received a message.
    Delivered {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
    },
    /// A node's timer fired.
    TimerFired(NodeId),
    /// A message or timer was dropped; the fault counters record the reason.
    Dropped,
    /// A node's timer was postponed, because the machine has been suspended since the timer was set.
    Postponed(NodeId),
    /// An incident occurred.
    Incident(Incident),
}

struct Machine<N: SimNode> {
    /// `None` while the machine is down.
    running: Option<N>,
    disk: N::Disk,
    incarnation: u32,
    clock: Clock,
    rng: SimRng,
    /// The end of the last suspension, and the duration of all suspensions.
    awake_at_us: u64,
    slept_us: u64,
}

enum Event<N: SimNode> {
    Arrival {
        from: NodeId,
        to: NodeId,
        incarnation: u32,
        number: u64,
        message: N::Message,
    },
    /// `slept_us` is the machine's when the timer was set.
    Timer {
        node: NodeId,
        incarnation: u32,
        slept_us: u64,
        timer: N::Timer,
    },
    Incident(Incident),
}

impl<N: SimNode> World<N>
where
    N::Disk: Default,
{
    /// Creates `nodes` machines with empty disks, all booted at time 0, joined by equal links.
    ///
    /// All are up before the first message is sent: a message that a node sends while it starts can reach every other
    /// node.
    pub fn new(seed: u64, nodes: u32, usual: LinkModel) -> Self {
        Self::with_disks(seed, usual, (0..nodes).map(|_| N::Disk::default()))
    }
}

impl<N: SimNode> World<N> {
    /// Creates one machine for each of these disks, all booted from them at time 0, joined by equal links.
    pub fn with_disks(seed: u64, usual: LinkModel, disks: impl IntoIterator<Item = N::Disk>) -> Self {
        let machine = |(node, disk)| Machine {
            running: None,
            disk,
            incarnation: 0,
            clock: Clock::default(),
            rng: SimRng::of(mix(seed, 0), node),
            awake_at_us: 0,
            slept_us: 0,
        };
        let mut world = Self {
            queue: EventQueue::new(),
            machines: (0..).zip(disks).map(machine).collect(),
            links: Links::new(seed, usual),
            faults: FaultCounters::default(),
            effects: Vec::new(),
        };
        let nodes = world.nodes();
        let effects: Vec<_> = (0..nodes).map(|node| world.start(node)).collect();
        for (node, effects) in (0..nodes).zip(effects) {
            world.execute(node, effects);
        }
        world
    }

    /// Returns the true time.
    pub fn now_us(&self) -> u64 {
        self.queue.now_us()
    }

    /// Returns the counts of the faults so far.
    pub fn faults(&self) -> &FaultCounters {
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
    pub fn set_link(&mut self, from: NodeId, to: NodeId, link: LinkModel) {
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
    pub fn schedule(&mut self, at_us: u64, incident: Incident) {
        self.queue.push(at_us, Event::Incident(incident));
    }

    /// Causes an incident now.
    pub fn inject(&mut self, incident: Incident) {
        match incident {
            Incident::Crash(node) => self.crash(node),
            Incident::Restart(node) => self.restart(node),
            Incident::Cut { from, to } => self.links.cut(from, to),
            Incident::Mend { from, to } => self.links.mend(from, to),
            Incident::Heal => self.links.heal(),
            Incident::Suspend { node, for_us } => self.suspend(node, for_us),
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

    /// Gives a running program a turn, such as a client's request. Returns `None` if the machine is down or
    /// suspended.
    pub fn act<R>(
        &mut self,
        node: NodeId,
        turn: impl FnOnce(&mut N, &mut N::Disk, &mut NodeContext<'_, N>) -> R,
    ) -> Option<R> {
        let (nodes, now_us) = (self.nodes(), self.now_us());
        if !self.is_awake(node) {
            return None;
        }
        let mut effects = std::mem::take(&mut self.effects);
        let machine = self.machine_mut(node)?;
        let (local_us, slept_us) = (machine.clock.local_us(now_us), machine.slept_us);
        let mut context =
            NodeContext { me: node, nodes, local_us, slept_us, rng: &mut machine.rng, effects: &mut effects };
        let result = machine.running.as_mut().map(|running| turn(running, &mut machine.disk, &mut context));
        self.execute(node, effects);
        result
    }

    /// Executes the next event. Returns `None` if no event is pending.
    pub fn step(&mut self) -> Option<StepOutcome> {
        let (_, event) = self.queue.pop()?;
        Some(self.handle(event))
    }

    /// Executes all events up to and including this time, and advances the clock to it.
    pub fn run_until(&mut self, limit_us: u64) {
        while let Some((_, event)) = self.queue.pop_until(limit_us) {
            self.handle(event);
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

/// The number of a node, from 0.
pub type NodeId = u32;

/// The program of a simulated machine.
///
/// The value itself is the memory of the machine: a crash drops it. The disk survives, and the next incarnation
/// [starts](SimNode::start) from it.
pub trait SimNode: Sized {
    /// The messages between nodes.
    type Message: Clone;
    /// The payload of a timer.
    type Timer;
    /// The state that survives a crash.
    type Disk;

    /// Boots from the content of the disk.
    fn start(disk: &mut Self::Disk, context: &mut NodeContext<'_, Self>) -> Self;

    /// Handles a message.
    fn receive(
        &mut self,
        disk: &mut Self::Disk,
        from: NodeId,
        message: Self::Message,
        context: &mut NodeContext<'_, Self>,
    );

    /// Handles a timer that has fired.
    fn wake(&mut self, disk: &mut Self::Disk, timer: Self::Timer, context: &mut NodeContext<'_, Self>);

    /// Applies the effect of a crash to the disk, such as the loss of unsynced data. The default has no effect.
    fn crash(_disk: &mut Self::Disk, _chance: &mut SimRng) {}
}

/// The environment of a node: its inputs, and the effects that it requests.
pub struct NodeContext<'a, N: SimNode> {
    me: NodeId,
    nodes: u32,
    local_us: u64,
    slept_us: u64,
    rng: &'a mut SimRng,
    effects: &'a mut Vec<Effect<N>>,
}

/// An effect that a node requested. The world executes it when the node has finished its turn.
enum Effect<N: SimNode> {
    Send { to: NodeId, message: N::Message },
    SetTimer { after_us: u64, timer: N::Timer },
}

impl<N: SimNode> NodeContext<'_, N> {
    /// Returns the number of this node.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Returns the time on the node's own, possibly skewed, clock. A correct clock starts at
    /// [`Skew::EPOCH_US`](super::Skew::EPOCH_US).
    pub fn now_us(&self) -> u64 {
        self.local_us
    }

    /// Returns the same time without the suspensions of the machine.
    pub fn awake_us(&self) -> u64 {
        self.local_us.saturating_sub(self.slept_us)
    }

    /// Returns the random number stream of the node.
    pub fn rng(&mut self) -> &mut SimRng {
        self.rng
    }

    /// Sends a message. The sender does not learn whether it arrives.
    pub fn send(&mut self, to: NodeId, message: N::Message) {
        self.effects.push(Effect::Send { to, message });
    }

    /// Sets a timer on the node's own clock.
    pub fn set_timer(&mut self, after_us: u64, timer: N::Timer) {
        self.effects.push(Effect::SetTimer { after_us, timer });
    }
}

impl<N: SimNode> World<N> {
    fn handle(&mut self, event: Event<N>) -> StepOutcome {
        match event {
            Event::Incident(incident) => {
                self.inject(incident);
                StepOutcome::Incident(incident)
            }
            Event::Timer { node, incarnation, slept_us: before_us, timer } => {
                if !self.is_up(node, incarnation) {
                    self.faults.timers_outlived += 1;
                    return StepOutcome::Dropped;
                }
                let slept_us = self.machine(node).map_or(0, |machine| machine.slept_us);
                if slept_us > before_us {
                    let postponed = Event::Timer { node, incarnation, slept_us, timer };
                    self.queue.push_after(slept_us - before_us, postponed);
                    return StepOutcome::Postponed(node);
                }
                self.act(node, |running, disk, context| running.wake(disk, timer, context));
                StepOutcome::TimerFired(node)
            }
            Event::Arrival { from, to, incarnation, number, message } => {
                if !self.is_delivered(from, to, incarnation, number) {
                    return StepOutcome::Dropped;
                }
                self.act(to, |running, disk, context| running.receive(disk, from, message, context));
                StepOutcome::Delivered { from, to }
            }
        }
    }

    /// Returns whether a copy that is due is delivered, and counts the outcome.
    fn is_delivered(&mut self, from: NodeId, to: NodeId, incarnation: u32, number: u64) -> bool {
        if self.links.is_cut(from, to) {
            self.faults.partitioned += 1;
            return false;
        }
        if !self.is_up(to, incarnation) {
            self.faults.outlived += 1;
            return false;
        }
        if !self.is_awake(to) {
            self.faults.slept_through += 1;
            return false;
        }
        let traffic = self.links.traffic(from, to);
        self.faults.reordered += u64::from(number < traffic.latest_delivered);
        traffic.latest_delivered = traffic.latest_delivered.max(number);
        self.faults.delivered += 1;
        true
    }

    fn execute(&mut self, node: NodeId, mut effects: Vec<Effect<N>>) {
        for effect in effects.drain(..) {
            match effect {
                Effect::Send { to, message } => self.send(node, to, message),
                Effect::SetTimer { after_us, timer } => self.set_timer(node, after_us, timer),
            }
        }
        // Keeps the buffer for the next turn.
        self.effects = effects;
    }

    fn set_timer(&mut self, node: NodeId, after_us: u64, timer: N::Timer) {
        let Some(machine) = self.machine(node) else { return };
        let (incarnation, slept_us) = (machine.incarnation, machine.slept_us);
        let span_us = machine.clock.true_span_us(after_us);
        self.queue.push_after(span_us, Event::Timer { node, incarnation, slept_us, timer });
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
        if traffic.rng.happens(link.loss) {
            self.faults.lost += 1;
            return;
        }
        if traffic.rng.happens(link.duplication) {
            self.faults.duplicated += 1;
            let copy = message.clone();
            self.schedule_arrival(
                link,
                Event::Arrival { from, to, incarnation, number, message: copy },
                from,
                to,
            );
        }
        self.schedule_arrival(link, Event::Arrival { from, to, incarnation, number, message }, from, to);
    }

    /// Schedules the arrival of one copy.
    fn schedule_arrival(&mut self, link: LinkModel, arrival: Event<N>, from: NodeId, to: NodeId) {
        let rng = &mut self.links.traffic(from, to).rng;
        let mut travel_us = link.latency.draw_us(rng);
        if rng.happens(link.delay) {
            self.faults.delayed += 1;
            travel_us = travel_us.saturating_add(link.delayed_by.draw_us(rng));
        }
        self.queue.push_after(travel_us, arrival);
    }

    fn crash(&mut self, node: NodeId) {
        let Some(machine) = self.machine_mut(node) else { return };
        if machine.running.take().is_some() {
            N::crash(&mut machine.disk, &mut machine.rng);
            self.faults.crashed += 1;
        }
    }

    /// Suspends a machine that is up and awake.
    fn suspend(&mut self, node: NodeId, for_us: u64) {
        let now_us = self.now_us();
        let is_awake = self.is_awake(node);
        if let Some(machine) = self.machine_mut(node).filter(|machine| is_awake && machine.running.is_some())
        {
            machine.awake_at_us = now_us.saturating_add(for_us);
            machine.slept_us = machine.slept_us.saturating_add(for_us);
            self.faults.suspended += 1;
        }
    }

    fn restart(&mut self, node: NodeId) {
        if self.machine(node).is_some_and(|machine| machine.running.is_none()) {
            self.faults.restarted += 1;
            let effects = self.start(node);
            self.execute(node, effects);
        }
    }

    /// Boots a machine, and returns the effects that it requested for the caller to execute.
    fn start(&mut self, node: NodeId) -> Vec<Effect<N>> {
        let (nodes, now_us) = (self.nodes(), self.now_us());
        let mut effects = std::mem::take(&mut self.effects);
        if let Some(machine) = self.machine_mut(node) {
            machine.incarnation += 1;
            machine.awake_at_us = now_us;
            let (local_us, slept_us) = (machine.clock.local_us(now_us), machine.slept_us);
            let mut context = NodeContext {
                me: node,
                nodes,
                local_us,
                slept_us,
                rng: &mut machine.rng,
                effects: &mut effects,
            };
            machine.running = Some(N::start(&mut machine.disk, &mut context));
        }
        effects
    }

    fn is_awake(&self, node: NodeId) -> bool {
        self.machine(node).is_none_or(|machine| machine.awake_at_us <= self.now_us())
    }

    fn is_up(&self, node: NodeId, incarnation: u32) -> bool {
        self.machine(node).is_some_and(|it| it.running.is_some() && it.incarnation == incarnation)
    }
}
