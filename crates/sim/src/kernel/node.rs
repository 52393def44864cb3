//! What runs on a simulated machine.

use super::Chance;

/// A node's number, from 0.
pub type NodeId = u32;

/// The program on a simulated machine.
///
/// The value itself is memory: a crash drops it. The disk is kept, and the next incarnation
/// [starts](Node::start) from it.
pub trait Node: Sized {
    /// What nodes send each other.
    type Message: Clone;
    /// What a timer reminds of.
    type Timer;
    /// What survives a crash.
    type Disk;

    /// Boots from what the disk holds.
    fn start(disk: &mut Self::Disk, around: &mut Around<'_, Self>) -> Self;

    /// A message has arrived.
    fn receive(
        &mut self,
        disk: &mut Self::Disk,
        from: NodeId,
        message: Self::Message,
        around: &mut Around<'_, Self>,
    );

    /// A timer has fired.
    fn wake(&mut self, disk: &mut Self::Disk, timer: Self::Timer, around: &mut Around<'_, Self>);

    /// What a crash does to the disk, such as dropping what was not synced. By default nothing.
    fn crash(_disk: &mut Self::Disk, _chance: &mut Chance) {}
}

/// What a node sees of the world, and what it asks of it.
pub struct Around<'a, N: Node> {
    pub(super) me: NodeId,
    pub(super) nodes: u32,
    pub(super) local_us: u64,
    pub(super) chance: &'a mut Chance,
    pub(super) orders: &'a mut Vec<Order<N>>,
}

/// What a node asked for; carried out when it has finished its turn.
pub(super) enum Order<N: Node> {
    Send { to: NodeId, message: N::Message },
    Remind { after_us: u64, timer: N::Timer },
}

impl<N: Node> Around<'_, N> {
    /// This node's number.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// The time on the node's own, possibly wrong, clock; a right one starts at
    /// [`Skew::EPOCH_US`](super::Skew::EPOCH_US).
    pub fn now_us(&self) -> u64 {
        self.local_us
    }

    /// The node's own stream of chance.
    pub fn chance(&mut self) -> &mut Chance {
        self.chance
    }

    /// Sends a message. Nothing says whether it arrives.
    pub fn send(&mut self, to: NodeId, message: N::Message) {
        self.orders.push(Order::Send { to, message });
    }

    /// Sets a timer on the node's own clock.
    pub fn remind(&mut self, after_us: u64, timer: N::Timer) {
        self.orders.push(Order::Remind { after_us, timer });
    }
}
