//! A gossip node on a simulated machine, with cheap signatures: any node could compute them, but lying voters sign only with
//! their own key.

use std::cell::Cell;

use holdoff_sim::kernel::{NodeContext, NodeId, SimNode as Program};
use holdoff_testbed::fault::is_injected;

use super::faults::{GossipFault, VOTERS};
use super::liar::Liar;
use crate::{
    Electorate, Group, Heartbeat, Hint, Message, Node, PublicKey, Settings, Signature, Signer, Transmit,
    Verifier, Watch,
};

pub(crate) const GROUP: Group = Group([7; 16]);

/// Returns the key of a node. The node's number is at the end of the key.
pub(crate) fn key(number: u32) -> PublicKey {
    let mut bytes = *blake3::hash(&number.to_le_bytes()).as_bytes();
    bytes[28..].copy_from_slice(&number.to_le_bytes());
    PublicKey::from_bytes(bytes)
}

pub(crate) fn number(key: &PublicKey) -> u32 {
    u32::from_le_bytes(key.as_bytes()[28..].try_into().unwrap())
}

/// Signs with the key of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TestSigner(pub(crate) PublicKey);

impl Signer for TestSigner {
    fn public(&self) -> PublicKey {
        self.0
    }

    fn sign(&self, context: &[u8], message: &[u8]) -> Signature {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.0.as_bytes()).update(context).update(message);
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(hasher.finalize().as_bytes());
        Signature::from_bytes(bytes)
    }
}

impl Verifier for TestSigner {
    fn is_signed(&self, by: &PublicKey, context: &[u8], message: &[u8], signature: &Signature) -> bool {
        let is_by = |by: &PublicKey| TestSigner(*by).sign(context, message) == *signature;
        if message.starts_with(b"beat") && is_injected(GossipFault::UncheckedHeartbeats) {
            return true;
        }
        if message.starts_with(b"beat") && is_injected(GossipFault::RelaysRaise) {
            return (0..VOTERS).any(|voter| is_by(&key(voter)));
        }
        is_by(by)
    }
}

/// The bytes that framing and TLS add to each message.
const FRAMING_BYTES: u64 = 64;

/// The setup of the nodes of a run.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) voters: u32,
    pub(super) liar: Option<NodeId>,
}

thread_local! {
    static SETUP: Cell<Setup> = const { Cell::new(Setup { voters: 3, liar: None }) };
}

impl Setup {
    pub(super) fn begin(self) {
        SETUP.set(self);
    }

    pub(super) fn electorate(self) -> Electorate {
        Electorate::new((0..self.voters).map(key)).unwrap()
    }
}

pub(super) struct SimulatedNode {
    pub(super) node: Node<TestSigner, TestSigner>,
    pub(super) sent_bytes: u64,
    /// The time of the last check, by the node's own clock.
    pub(super) looked_us: u64,
    liar: Option<Liar>,
}

impl SimulatedNode {
    pub(super) fn transmit(&mut self, sends: Vec<Transmit>, context: &mut NodeContext<'_, Self>) {
        // A waiting liar stays silent, and sends its valid votes only when the other nodes no longer expect them.
        if self.liar.as_ref().is_some_and(Liar::is_waiting) {
            return;
        }
        for Transmit { to, message } in sends {
            let bytes = message.encode().unwrap();
            self.sent_bytes += u64::try_from(bytes.len()).unwrap() + FRAMING_BYTES;
            context.send(number(&to), bytes);
        }
    }

    /// Raises and signs the heartbeat of another node, which only its leader may do.
    fn raise_as_relay(&mut self, context: &mut NodeContext<'_, Self>) {
        let me = key(context.me());
        let is_relayed = |hint: &Hint| hint.heartbeat > 0 && hint.claim.leader != me;
        let Some(Hint { claim, heartbeat }) = self.node.hint().filter(is_relayed) else { return };
        let hint = Hint { claim, heartbeat: heartbeat + 1 };
        let beat = Heartbeat::sign(GROUP, hint, None, &TestSigner(me));
        let sends = self.node.receive(context.now_us(), roll(context), me, Message::Heartbeat(beat));
        self.transmit(sends, context);
    }
}

fn roll(context: &mut NodeContext<'_, SimulatedNode>) -> u64 {
    context.rng().between(0, u64::MAX)
}

impl Program for SimulatedNode {
    type Message = Vec<u8>;
    type Timer = ();
    type Disk = ();

    fn start((): &mut (), context: &mut NodeContext<'_, Self>) -> Self {
        let (setup, settings, me) = (SETUP.get(), Settings::default(), context.me());
        let signer = TestSigner(key(me));
        let watch = Watch::new(GROUP, signer, signer, setup.electorate(), &settings, context.now_us());
        let peers = (0..context.nodes()).filter(|node| *node != me).map(key).collect();
        let node = Node::new(watch, peers, &settings);
        let liar = (setup.liar == Some(me)).then(|| Liar::new(me, setup.electorate().majority()));
        let mut machine = Self { node, sent_bytes: 0, looked_us: context.now_us(), liar };
        let sends = machine.node.tick(context.now_us(), roll(context));
        machine.transmit(sends, context);
        let phase_us = context.rng().between(0, 300_000);
        context.set_timer(phase_us, ());
        machine
    }

    fn receive(&mut self, (): &mut (), from: NodeId, bytes: Vec<u8>, context: &mut NodeContext<'_, Self>) {
        let Ok(message) = Message::decode(&bytes) else { return };
        if let Some(liar) = &mut self.liar {
            liar.overhear(&message, &bytes);
        }
        let sends = self.node.receive(context.now_us(), roll(context), key(from), message);
        self.transmit(sends, context);
    }

    fn wake(&mut self, (): &mut (), (): (), context: &mut NodeContext<'_, Self>) {
        if is_injected(GossipFault::RelaysRaise) {
            self.raise_as_relay(context);
        }
        let sends = self.node.tick(context.now_us(), roll(context));
        self.transmit(sends, context);
        if let Some(liar) = &mut self.liar {
            liar.lie(&self.node, context);
        }
        context.set_timer(300_000, ());
    }
}
