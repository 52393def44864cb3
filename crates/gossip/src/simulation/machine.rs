//! A gossiping node on a simulated machine.

use std::cell::Cell;

use holdoff_sim::kernel::{Around, Node as Program, NodeId};

use super::keys::{GROUP, Pen, key, number, peer};
use super::liar::Liar;
use crate::{Electorate, Message, Node, Sampling, Send, Settings, Watch};

/// The bytes that framing and TLS add to each message.
const FRAMING_BYTES: u64 = 64;

/// The setup of the nodes of a run.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) voters: u32,
    pub(super) is_mesh: bool,
    pub(super) liar: Option<NodeId>,
}

thread_local! {
    static SETUP: Cell<Setup> = const { Cell::new(Setup { voters: 3, is_mesh: true, liar: None }) };
}

impl Setup {
    pub(super) fn begin(self) {
        SETUP.set(self);
    }

    pub(super) fn electorate(self) -> Electorate {
        Electorate::new((0..self.voters).map(key)).unwrap()
    }
}

pub(super) struct Machine {
    pub(super) node: Node<Pen, Pen>,
    pub(super) sent_bytes: u64,
    /// The time of the last check, by the node's own clock.
    pub(super) looked_us: u64,
    liar: Option<Liar>,
}

impl Machine {
    pub(super) fn say(&mut self, sends: Vec<Send>, around: &mut Around<'_, Self>) {
        // A waiting liar stays silent, and sends its valid votes only when the other nodes no longer expect them.
        if self.liar.as_ref().is_some_and(Liar::is_patient) {
            return;
        }
        for Send { to, message } in sends {
            let bytes = message.encode().unwrap();
            self.sent_bytes += u64::try_from(bytes.len()).unwrap() + FRAMING_BYTES;
            around.send(number(&to), bytes);
        }
    }
}

fn roll(around: &mut Around<'_, Machine>) -> u64 {
    around.chance().between(0, u64::MAX)
}

impl Program for Machine {
    type Message = Vec<u8>;
    type Timer = ();
    type Disk = ();

    fn start((): &mut (), around: &mut Around<'_, Self>) -> Self {
        let (setup, settings, me) = (SETUP.get(), Settings::default(), around.me());
        let pen = Pen(key(me));
        let watch = Watch::new(GROUP, pen, pen, setup.electorate(), &settings, around.now_us());
        let contacts: Vec<_> = if setup.is_mesh {
            (0..around.nodes()).map(peer).collect()
        } else {
            let last = u64::from(around.nodes() - 1);
            (0..4).map(|_| peer(u32::try_from(around.chance().between(0, last)).unwrap())).collect()
        };
        let sampling = Sampling::new(peer(me), contacts, setup.is_mesh);
        let node = Node::new(watch, sampling, &settings);
        let liar = (setup.liar == Some(me)).then(|| Liar::new(me, setup.electorate().majority()));
        let mut machine = Self { node, sent_bytes: 0, looked_us: around.now_us(), liar };
        let sends = machine.node.tick(around.now_us(), roll(around));
        machine.say(sends, around);
        let phase_us = around.chance().between(0, 300_000);
        around.remind(phase_us, ());
        machine
    }

    fn receive(&mut self, (): &mut (), from: NodeId, bytes: Vec<u8>, around: &mut Around<'_, Self>) {
        let Ok(message) = Message::decode(&bytes) else { return };
        if let Some(liar) = &mut self.liar {
            liar.overhear(&message, &bytes);
        }
        let sends = self.node.receive(around.now_us(), roll(around), key(from), message);
        self.say(sends, around);
    }

    fn wake(&mut self, (): &mut (), (): (), around: &mut Around<'_, Self>) {
        let sends = self.node.tick(around.now_us(), roll(around));
        self.say(sends, around);
        if let Some(liar) = &mut self.liar {
            liar.lie(&self.node, around);
        }
        around.remind(300_000, ());
    }
}
