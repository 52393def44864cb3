//! The program of a simulated machine.

use super::Chance;

/// The number of a node, from 0.
pub type NodeId = u32;

/// The program of a simulated machine.
///
/// The value itself is the memory of the machine: a crash drops it. The disk survives, and the next incarnation
/// [starts](Node::start) from it.
pub trait Node: Sized {
    /// The messages between nodes.
    type Message: Clone;
    /// The payload of a timer.
    type Timer;
    /// The state that survives a crash.
    type Disk;

    /// Boots from the content of the disk.
    fn start(disk: &mut Self::Disk, around: &mut Around<'_, Self>) -> Self;

    /// Handles a message.
    fn receive(
        &mut self,
        disk: &mut Self::Disk,
        from: NodeId,
        message: Self::Message,
        around: &mut Around<'_, Self>,
    );

    /// Handles a timer that has fired.
    fn wake(&mut self, disk: &mut Self::Disk, timer: Self::Timer, around: &mut Around<'_, Self>);

    /// Applies the effect of a crash to the disk, such as the loss of unsynced data. The default has no effect.
    fn crash(_disk: &mut Self::Disk, _chance: &mut Chance) {}
}

/// The environment of a node: its inputs, and the effects that it requests.
pub struct Around<'a, N: Node> {
    pub(super) me: NodeId,
    pub(super) nodes: u32,
    pub(super) local_us: u64,
    pub(super) chance: &'a mut Chance,
    pub(super) orders: &'a mut Vec<Order<N>>,
}

/// An effect that a node requested. The world executes it when the node has finished its turn.
pub(super) enum Order<N: Node> {
    Send { to: NodeId, message: N::Message },
    Remind { after_us: u64, timer: N::Timer },
}

impl<N: Node> Around<'_, N> {
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

    /// Returns the random number stream of the node.
    pub fn chance(&mut self) -> &mut Chance {
        self.chance
    }

    /// Sends a message. The sender does not learn whether it arrives.
    pub fn send(&mut self, to: NodeId, message: N::Message) {
        self.orders.push(Order::Send { to, message });
    }

    /// Sets a timer on the node's own clock.
    pub fn remind(&mut self, after_us: u64, timer: N::Timer) {
        self.orders.push(Order::Remind { after_us, timer });
    }
}
