//! A simulated node: an acceptor or a device, its disk, and the ways in which it dies.

use std::cell::RefCell;
use std::collections::BTreeSet;

use holdoff_disk::faulty::FaultyDisk;
use holdoff_driver::faulty::DriverFault;
use holdoff_driver::{Core, Roll, Step, StepOf};
use holdoff_paxos::NodeId as Id;
use holdoff_sim::kernel::{NodeId, SimRng, World, mix};
use holdoff_sim::kit::{self, Boot, FailedWrite, LostRecords, SimHost, Turn};
use holdoff_testbed::fault::is_injected;

use crate::acceptor::{AcceptorAnswer, AcceptorCore, AcceptorInput, AcceptorLimits, Store, StoreError};
use crate::machine::{AcceptorInfo, CouncilChange, Members};
use crate::{
    AcceptorRecord, AcceptorReply, AcceptorRequest, AddressedReply, CouncilAcceptor, CouncilId, CouncilState,
    Device, Digest, Input, Mail, OperationId, Options, Outcome, Output, PublicKey, Quota, Recipient, Record,
    Requester, Signature, Signer, Verifier,
};

/// The first nodes are acceptors: those of the first configuration, followed by spare ones.
pub(super) const ACCEPTORS: u32 = 3;
pub(super) const SPARE: u32 = 2;
pub(super) const FIRST_DEVICE: u32 = ACCEPTORS + SPARE;

thread_local! {
    /// The shared parameters of the current run.
    static PARAMETERS: RefCell<Common> = RefCell::new(Common::default());
}

/// The parameters that all nodes of a run share.
#[derive(Clone, Default)]
pub(super) struct Common {
    /// The seed of the keys. Each run has other keys, so that no node has the best tie-breaker in all runs.
    pub(super) seed: u64,
    pub(super) devices: u32,
    /// The hostile node, after the devices.
    pub(super) hostile: Option<Hostile>,
    pub(super) council: Option<CouncilId>,
    pub(super) options: Options,
    /// The quota of the acceptors.
    pub(super) quota: Quota,
    /// Whether acceptors use a disk that can lose parts of unsynced writes.
    pub(super) tears: bool,
    /// The minimum and the maximum duration of a write.
    pub(super) write_us: (u64, u64),
    /// The share of writes that take much longer, and their minimum and maximum duration.
    pub(super) slow_writes: f64,
    pub(super) counts: NodeCounts,
}

/// The duration of a slow write.
const SLOW_WRITE_US: (u64, u64) = (50_000, 500_000);

/// The role of a hostile node. Its device follows the protocol; beside it, the node sends requests of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hostile {
    /// Never was a member.
    Stranger,
    /// Is a member until another device removes it.
    Removed,
    /// Is a member, and compacts what was never decided, and jumps attempts.
    Lying,
}

/// What the nodes of a run have counted.
#[derive(Clone, Default)]
pub(super) struct NodeCounts {
    /// Writes that have failed without a loss of power.
    pub(super) failed_writes: u64,
    /// Writes during which the power was lost.
    pub(super) torn: u64,
    /// Writes that took long.
    pub(super) slow_writes: u64,
    /// An operation whose final outcome one process has reported twice.
    pub(super) ended_twice: Option<OperationId>,
}

fn count(add: impl FnOnce(&mut NodeCounts)) {
    PARAMETERS.with_borrow_mut(|parameters| add(&mut parameters.counts));
}

/// Returns what the nodes of the current run have counted.
pub(super) fn counts() -> NodeCounts {
    PARAMETERS.with_borrow(|parameters| parameters.counts.clone())
}

impl Common {
    pub(super) fn begin(self) {
        let council = founding(&self).council();
        PARAMETERS.set(Self { council: Some(council), ..self });
    }
}

/// Returns the id of the council.
pub(super) fn council() -> CouncilId {
    PARAMETERS.with_borrow(|parameters| parameters.council).expect("a run has begun")
}

/// Returns the key of a node.
pub(super) fn key_of(node: NodeId) -> PublicKey {
    key_with(PARAMETERS.with_borrow(|parameters| parameters.seed), node)
}

fn key_with(seed: u64, node: NodeId) -> PublicKey {
    key(mix(seed, u64::from(node)))
}

/// Returns an acceptor whose disk was wiped this many times.
pub(super) fn acceptor(node: NodeId, wiped: u64) -> AcceptorInfo {
    acceptor_with(key_of(node), node, wiped)
}

fn acceptor_with(key: PublicKey, node: NodeId, wiped: u64) -> AcceptorInfo {
    AcceptorInfo { key, incarnation: wiped, address: format!("acceptor-{node}:1") }
}

/// Returns the id of a device in ballots.
pub(super) fn device_id(node: NodeId) -> Id {
    Id::derive(key_of(node).as_bytes(), 0)
}

fn founding(common: &Common) -> CouncilState<Members> {
    let (founder, key) = (FIRST_DEVICE, |node| key_with(common.seed, node));
    let acceptors = (0..ACCEPTORS).map(|node| acceptor_with(key(node), node, 0));
    let mut members = Members::create(key(founder), "0", acceptors).unwrap();
    let is_hostile = matches!(common.hostile, Some(Hostile::Removed | Hostile::Lying));
    for device in 1..common.devices + u32::from(is_hostile) {
        members.admit(key(founder + device), &device.to_string());
    }
    CouncilState::found(members, [1; 16])
}

/// A message on the network.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// A request to the acceptor with this id. If the node has another id by now, it ignores the request.
    Request(Id, AcceptorRequest),
    /// An answer of the acceptor with this id.
    Reply(Id, AcceptorReply),
}

/// The data that survives a crash.
#[derive(Default, Debug)]
pub(super) struct Disk {
    /// The number of times that the disk was wiped.
    pub(super) wiped: u64,
    /// Whether the next crash wipes the disk.
    pub(super) wipe: bool,
    /// Whether the next write fails.
    pub(super) write_fails: bool,
    /// The records of an acceptor in runs without torn writes.
    stored: Vec<AcceptorRecord>,
    /// The disk of an acceptor in runs with torn writes, and the store on it while the process runs.
    pub(super) platter: FaultyDisk,
    open: Option<Box<Store>>,
    pub(super) records: Vec<Record<CouncilChange>>,
    /// The outputs of a device, for the checks of the simulation. No node receives them.
    pub(super) outputs: Vec<Output>,
}

/// The core of a node: a device, or the acceptors of all councils.
pub(super) enum NodeCore {
    Acceptor(Box<AcceptorCore<NodeId>>),
    Device(Box<Device<Members>>),
}

pub(super) enum NodeInput {
    Request(AcceptorInput<NodeId>),
    Device(Input<CouncilChange>),
}

pub(super) enum NodeRecord {
    Acceptor(CouncilId, AcceptorRecord),
    Device(Record<CouncilChange>),
}

#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "an output is created, passed on and matched at once")]
pub(super) enum NodeOutput {
    Answer(AcceptorAnswer<NodeId>),
    Device(Output),
}

impl Core for NodeCore {
    type Input = NodeInput;
    type Record = NodeRecord;
    type Output = NodeOutput;

    fn step(&mut self, now_us: u64, roll: Roll<'_>, input: NodeInput) -> StepOf<Self> {
        match (self, input) {
            (Self::Device(device), NodeInput::Device(input)) => {
                let step = device.step_with_faults(now_us, roll, input);
                step.map(NodeInput::Device, NodeRecord::Device, NodeOutput::Device)
            }
            (Self::Acceptor(core), NodeInput::Request(input)) => {
                if let Some(acceptor) = core.acceptor_mut(&council()) {
                    acceptor.inject_faults(input.request());
                }
                let step = core.step(now_us, roll, input);
                let record = |(council, record)| NodeRecord::Acceptor(council, record);
                step.map(NodeInput::Request, record, NodeOutput::Answer)
            }
            _ => Step::default(),
        }
    }
}

/// The program of a node.
pub(super) struct CouncilHost {
    pub(super) id: Id,
    /// The devices that watch an acceptor.
    watchers: BTreeSet<NodeId>,
    /// The operations that were submitted to this process and have not ended.
    pub(super) waiting: BTreeSet<OperationId>,
    /// The operations whose final outcome this process has reported.
    ended: BTreeSet<OperationId>,
}

pub(super) type Machine = kit::SimMachine<CouncilHost>;

/// Returns the device of a node, if it is one and its process runs.
pub(super) fn device_of(machine: &Machine) -> Option<&Device<Members>> {
    match machine.core()? {
        NodeCore::Device(device) => Some(device),
        NodeCore::Acceptor(_) => None,
    }
}

/// Returns the acceptor of a node, if it is one and its process runs.
pub(super) fn acceptor_of(machine: &Machine) -> Option<&CouncilAcceptor> {
    match machine.core()? {
        NodeCore::Acceptor(core) => core.acceptor(&council()),
        NodeCore::Device(_) => None,
    }
}

/// Submits an operation at a node. Returns whether its process runs.
pub(super) fn submit(
    world: &mut World<Machine>,
    node: NodeId,
    id: OperationId,
    change: CouncilChange,
    mail: Option<Mail>,
    timeout_us: u64,
) -> bool {
    let submitted = world.act(node, |machine, disk, context| {
        machine.turn(disk, context, |host, turn| {
            host.waiting.insert(id);
            let deadline_us = turn.now_us() + timeout_us;
            turn.step(NodeInput::Device(Input::Submit { id, change, mail, deadline_us }));
        });
        machine.host().is_some()
    });
    submitted.unwrap_or(false)
}

/// Sends a request from a node, past its device. Returns whether its process runs.
pub(super) fn send(world: &mut World<Machine>, from: NodeId, to: NodeId, request: AcceptorRequest) -> bool {
    let acceptor = world.node(to).and_then(Machine::host).map(|host| host.id);
    let Some(acceptor) = acceptor else { return false };
    let sent = world.act(from, |machine, disk, context| {
        machine.turn(disk, context, |_, turn| turn.send(to, Message::Request(acceptor, request)));
    });
    sent.is_some()
}

impl SimHost for CouncilHost {
    type Core = NodeCore;
    type Message = Message;
    type Timer = ();
    type Store = Disk;

    fn start(disk: &mut Disk, boot: &mut Boot<'_, '_, Self>) -> (Self, NodeCore) {
        let me = boot.me();
        let host =
            |id| Self { id, watchers: BTreeSet::new(), waiting: BTreeSet::new(), ended: BTreeSet::new() };
        let common = PARAMETERS.with_borrow(Clone::clone);
        let state = founding(&common);
        let Common { options, quota, tears, .. } = common;
        if me < FIRST_DEVICE {
            if tears {
                let store = Store::open_with(disk.platter.handle(), disk.wiped)
                    .expect("the store opens after any crash");
                assert_eq!(store.incarnation(), disk.wiped, "the store keeps its incarnation");
                disk.open = Some(Box::new(store));
            }
            let limits = AcceptorLimits { council: quota, ..AcceptorLimits::default() };
            let core = AcceptorCore::new(limits, disk.has_acceptor_records().then_some(council()));
            return (host(acceptor(me, disk.wiped).id()), NodeCore::Acceptor(Box::new(core)));
        }
        let signer = TestSigner(key_of(me));
        let mut device = Device::new(device_id(me), Box::new(signer), Box::new(signer), state, options);
        for record in &disk.records {
            device.restore_with_faults(record.clone());
        }
        boot.set_timer(1, ());
        (host(device.id()), NodeCore::Device(Box::new(device)))
    }

    fn receive(&mut self, from: NodeId, message: Message, turn: &mut Turn<'_, '_, Self>) {
        match message {
            Message::Request(to, request) if to == self.id => {
                if matches!(request, AcceptorRequest::Fetch { .. }) {
                    self.watchers.insert(from);
                }
                let requester = Requester { key: key_of(from), node: device_id(from) };
                let is_signed = request.is_signed(council(), &TestSigner(requester.key));
                let stored = turn.store().acceptor_records();
                let NodeCore::Acceptor(core) = turn.core() else { return };
                let load = |_| stored;
                // An acceptor that cannot read its records does not answer.
                if let Ok(input) = core.request(council(), requester, request, is_signed, from, load) {
                    turn.step(NodeInput::Request(input));
                }
            }
            Message::Request(..) => {}
            Message::Reply(from, reply) => turn.step(NodeInput::Device(Input::Reply { from, reply })),
        }
    }

    fn wake(&mut self, (): (), turn: &mut Turn<'_, '_, Self>) {
        self.tick(turn);
    }

    fn wake_at_us(&self, core: &NodeCore) -> Option<u64> {
        match core {
            NodeCore::Device(device) => Some(device.wake_at()),
            NodeCore::Acceptor(_) => None,
        }
    }

    fn tick(&mut self, turn: &mut Turn<'_, '_, Self>) {
        turn.step(NodeInput::Device(Input::Tick));
    }

    fn perform(&mut self, output: NodeOutput, turn: &mut Turn<'_, '_, Self>) {
        match output {
            NodeOutput::Answer(AcceptorAnswer { path: from, replies }) => {
                for AddressedReply { to, reply } in replies {
                    match to {
                        Recipient::Requester => turn.send(from, Message::Reply(self.id, reply)),
                        Recipient::Watchers => {
                            let NodeCore::Acceptor(core) = turn.core() else { return };
                            let Some(acceptor) = core.acceptor(&council()) else { return };
                            self.watchers.retain(|watcher| acceptor.may_read(&key_of(*watcher)));
                            for watcher in self.watchers.iter().filter(|watcher| **watcher != from) {
                                turn.send(*watcher, Message::Reply(self.id, reply.clone()));
                            }
                        }
                    }
                }
            }
            NodeOutput::Device(Output::Send { to, request }) => {
                if let Some(node) = (0..FIRST_DEVICE).find(|node| is_acceptor(*node, to)) {
                    turn.send(node, Message::Request(to, request));
                }
            }
            NodeOutput::Device(output) => {
                if let Output::Ended { id, outcome } = &output {
                    self.waiting.remove(id);
                    if *outcome != Outcome::Unknown && !self.ended.insert(*id) {
                        count(|counts| counts.ended_twice = Some(*id));
                    }
                }
                turn.store().outputs.push(output);
            }
        }
    }

    fn store(disk: &mut Disk, _: NodeId, records: Vec<NodeRecord>) -> Result<(), FailedWrite> {
        let mut of_acceptor = Vec::new();
        for record in records {
            match record {
                NodeRecord::Acceptor(council, record) => of_acceptor.push((council, record)),
                NodeRecord::Device(record) => disk.records.push(record),
            }
        }
        let Some(store) = &mut disk.open else {
            disk.stored.extend(of_acceptor.into_iter().map(|(_, record)| record));
            return Ok(());
        };
        store.write(of_acceptor).map_err(|_| {
            count(|counts| counts.torn += 1);
            FailedWrite
        })
    }

    fn write_us(_: u64, rng: &mut SimRng) -> u64 {
        let (usual, slow) =
            PARAMETERS.with_borrow(|parameters| (parameters.write_us, parameters.slow_writes));
        let is_slow = slow > 0.0 && rng.happens(slow);
        count(|counts| counts.slow_writes += u64::from(is_slow));
        let (least, most) = if is_slow { SLOW_WRITE_US } else { usual };
        rng.between(least, most).max(1)
    }

    fn write_fails(disk: &mut Disk, _: &mut SimRng) -> bool {
        let fails = std::mem::take(&mut disk.write_fails);
        count(|counts| counts.failed_writes += u64::from(fails));
        fails
    }

    /// A transaction of the store is atomic.
    fn tears() -> bool {
        false
    }

    fn crash(disk: &mut Disk, _: NodeId, _: &LostRecords<NodeRecord>, rng: &mut SimRng) {
        disk.open = None;
        disk.platter.crash(|| rng.roll());
        if disk.wipe {
            *disk = Disk { wiped: disk.wiped + 1, ..Disk::default() };
        }
    }

    fn driver_fault() -> Option<DriverFault> {
        DRIVER_FAULTS.into_iter().find(|fault| is_injected(*fault))
    }
}

/// The defects of the driver that the simulation must find.
pub(super) const DRIVER_FAULTS: [DriverFault; 3] =
    [DriverFault::SendBeforeStore, DriverFault::ReleaseTwice, DriverFault::ContinueAfterFailure];

impl Disk {
    fn has_acceptor_records(&self) -> bool {
        self.open.as_ref().map_or(!self.stored.is_empty(), |store| store.knows(&council()))
    }

    /// Returns whether the disk of an acceptor contains the mail message of this operation.
    pub(super) fn has_mail(&self, id: &OperationId) -> bool {
        let is_it = |record: AcceptorRecord| matches!(record, AcceptorRecord::Mail(_, of, _) if of == *id);
        self.acceptor_records().is_ok_and(|records| records.into_iter().any(is_it))
    }

    /// Returns whether the acceptor on this disk knows the members, and this key is none of them. After a crash it still
    /// knows.
    pub(super) fn excludes(&self, key: &PublicKey) -> bool {
        let mut acceptor = CouncilAcceptor::new(council(), Quota::default());
        let access = |record: &AcceptorRecord| matches!(record, AcceptorRecord::Access(_));
        let records = self.acceptor_records().unwrap_or_default();
        let last = records.into_iter().rfind(access);
        let is_known = last.is_some();
        if let Some(record) = last {
            acceptor.restore(record);
        }
        is_known && !acceptor.may_read(key)
    }

    fn acceptor_records(&self) -> Result<Vec<AcceptorRecord>, StoreError> {
        self.open.as_deref().map_or_else(|| Ok(self.stored.clone()), |store| store.load(council()))
    }
}

fn is_acceptor(node: NodeId, id: Id) -> bool {
    (0..4).any(|wiped| acceptor(node, wiped).id() == id)
}

/// Returns the key of the participant with this number.
pub(super) fn key(number: u64) -> PublicKey {
    PublicKey::from_bytes(Digest::of(&[b"key", &number.to_le_bytes()]).0)
}

/// A signer for any key.
#[derive(Clone, Copy)]
pub(crate) struct TestSigner(pub(crate) PublicKey);

impl Signer for TestSigner {
    fn public(&self) -> PublicKey {
        self.0
    }

    fn sign(&self, context: &[u8], message: &[u8]) -> Signature {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&Digest::of(&[self.0.as_bytes(), context, message]).0);
        Signature::from_bytes(bytes)
    }
}

impl Verifier for TestSigner {
    fn is_signed(&self, by: &PublicKey, context: &[u8], message: &[u8], signature: &Signature) -> bool {
        TestSigner(*by).sign(context, message) == *signature
    }
}
