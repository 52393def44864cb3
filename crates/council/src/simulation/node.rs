//! A simulated node: an acceptor or a device, its disk, and the ways in which it dies.

use std::cell::RefCell;
use std::collections::BTreeSet;

use holdoff_disk::faulty::FaultyDisk;
use holdoff_paxos::{Deferred, NodeId as Id};
use holdoff_sim::kernel::{NodeContext, NodeId, SimNode, SimRng, mix};

use crate::acceptor::Store;
use crate::machine::{AcceptorInfo, CouncilChange, Members};
use crate::{
    AcceptorRecord, AcceptorReply, AcceptorRequest, CouncilAcceptor, CouncilId, CouncilState, Device, Digest,
    Input, Options, Output, PublicKey, Quota, Recipient, Record, Requester, Signature, Signer, Verifier,
};

pub(super) const COUNCIL: CouncilId = CouncilId(*b"the test council");
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
    pub(super) options: Options,
    /// The quota of the acceptors.
    pub(super) quota: Quota,
    /// Whether acceptors use a disk that can lose parts of unsynced writes.
    pub(super) tears: bool,
}

impl Common {
    pub(super) fn begin(self) {
        PARAMETERS.set(self);
    }
}

/// Returns the key of a node.
pub(super) fn key_of(node: NodeId) -> PublicKey {
    key(mix(PARAMETERS.with_borrow(|parameters| parameters.seed), u64::from(node)))
}

/// Returns an acceptor whose disk was wiped this many times.
pub(super) fn acceptor(node: NodeId, wiped: u64) -> AcceptorInfo {
    AcceptorInfo { key: key_of(node), incarnation: wiped, address: format!("acceptor-{node}:1") }
}

/// Returns the id of a device in ballots.
pub(super) fn device_id(node: NodeId) -> Id {
    Id::derive(key_of(node).as_bytes(), 0)
}

fn founding(devices: u32) -> CouncilState<Members> {
    let founder = FIRST_DEVICE;
    let acceptors = (0..ACCEPTORS).map(|node| acceptor(node, 0));
    let mut members = Members::create(key_of(founder), "0", acceptors).unwrap();
    for device in 1..devices {
        members.admit(key_of(founder + device), &device.to_string());
    }
    CouncilState::new(COUNCIL, members)
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
    /// The records of an acceptor in runs without torn writes.
    pub(super) stored: Vec<AcceptorRecord>,
    /// The disk of an acceptor in runs with torn writes.
    pub(super) platter: FaultyDisk,
    pub(super) records: Vec<Record<CouncilChange>>,
    /// The outputs of a device, for the checks of the simulation. No node receives them.
    pub(super) outputs: Vec<Output>,
}

pub(super) enum Machine {
    Acceptor {
        id: Id,
        core: Box<CouncilAcceptor>,
        watchers: BTreeSet<NodeId>,
        store: Option<Box<Store>>,
        failed: bool,
    },
    Device {
        device: Box<Device<Members>>,
        dying: Dying,
        backlog: Backlog,
    },
}

/// The steps whose records a device has not stored yet. A crash loses them.
#[derive(Default)]
pub(super) struct Backlog {
    steps: Vec<Deferred<Vec<Record<CouncilChange>>, Vec<Output>>>,
    store_at_us: Option<u64>,
}

/// The maximum time by which a device delays records that are not urgent.
const SOON_US: u64 = 10_000;

/// The way in which a device dies in its next step.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Dying {
    #[default]
    No,
    /// The device dies after the immediate outputs have left and before any record of the step is stored.
    BeforeStoring,
    /// The device dies after the records are stored and before the outputs that wait for them leave.
    AfterStoring,
    /// The device is dead; the simulation will notice.
    Dead,
}

impl Machine {
    fn acceptor(me: NodeId, disk: &Disk) -> Self {
        let mut core = CouncilAcceptor::new(COUNCIL, PARAMETERS.with_borrow(|parameters| parameters.quota));
        let store = PARAMETERS.with_borrow(|parameters| parameters.tears).then(|| {
            let store =
                Store::open_with(disk.platter.handle(), disk.wiped).expect("the store opens after any crash");
            assert_eq!(store.incarnation(), disk.wiped, "the store keeps its incarnation");
            Box::new(store)
        });
        let stored =
            store.as_ref().map(|store| store.load(COUNCIL).expect("the stored records can be loaded"));
        for stored in stored.as_ref().unwrap_or(&disk.stored) {
            core.restore(stored.clone());
        }
        let id = acceptor(me, disk.wiped).id();
        Self::Acceptor { id, core: Box::new(core), watchers: BTreeSet::new(), store, failed: false }
    }

    pub(super) fn device(&self) -> Option<&Device<Members>> {
        match self {
            Self::Device { device, .. } => Some(device),
            Self::Acceptor { .. } => None,
        }
    }

    pub(super) fn core(&self) -> Option<&CouncilAcceptor> {
        match self {
            Self::Acceptor { core, .. } => Some(core),
            Self::Device { .. } => None,
        }
    }

    pub(super) fn id(&self) -> Id {
        match self {
            Self::Acceptor { id, .. } => *id,
            Self::Device { device, .. } => device.id(),
        }
    }

    pub(super) fn die(&mut self, how: Dying) {
        if let Self::Device { dying, .. } = self {
            *dying = how;
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        matches!(self, Self::Device { dying: Dying::Dead, .. } | Self::Acceptor { failed: true, .. })
    }

    pub(super) fn step(
        &mut self,
        disk: &mut Disk,
        input: Input<CouncilChange>,
        context: &mut NodeContext<'_, Self>,
    ) {
        let Self::Device { device, dying, backlog } = self else { return };
        if *dying == Dying::Dead {
            return;
        }
        let now_us = context.now_us();
        let step = device.step_with_faults(now_us, &mut || context.rng().roll(), input);
        perform(step.at_once, disk, context);
        if step.deferred.record().is_some() {
            backlog.store_at_us.get_or_insert(now_us + SOON_US);
        }
        let stores = step.is_urgent || backlog.store_at_us.is_some_and(|at_us| at_us <= now_us);
        backlog.steps.push(step.deferred);
        // Crashes between two steps can strike at any instant. Crashes within a step are simulated only where the
        // step stores a record.
        let has_record = stores && backlog.steps.iter().any(|held| held.record().is_some());
        if has_record && *dying == Dying::BeforeStoring {
            *dying = Dying::Dead;
            return;
        }
        if stores {
            let steps = std::mem::take(backlog).steps;
            let released = Deferred::release_all(steps, |records| {
                disk.records.extend(records.into_iter().flatten());
                Ok::<_, std::convert::Infallible>(())
            });
            device.stored();
            if has_record && *dying == Dying::AfterStoring {
                *dying = Dying::Dead;
                return;
            }
            let Ok(outputs) = released;
            perform(outputs.into_iter().flatten(), disk, context);
        }
        let wake_at_us = backlog.store_at_us.map_or(device.wake_at(), |at_us| at_us.min(device.wake_at()));
        context.set_timer(wake_at_us.saturating_sub(now_us).max(1), ());
    }
}

fn perform(
    outputs: impl IntoIterator<Item = Output>,
    disk: &mut Disk,
    context: &mut NodeContext<'_, Machine>,
) {
    for output in outputs {
        match output {
            Output::Send { to, request } => {
                let known = (0..FIRST_DEVICE).find(|node| is_acceptor(*node, to));
                if let Some(node) = known {
                    context.send(node, Message::Request(to, request));
                }
            }
            other => disk.outputs.push(other),
        }
    }
}

fn is_acceptor(node: NodeId, id: Id) -> bool {
    (0..4).any(|wiped| acceptor(node, wiped).id() == id)
}

impl SimNode for Machine {
    type Message = Message;
    type Timer = ();
    type Disk = Disk;

    fn start(disk: &mut Disk, context: &mut NodeContext<'_, Self>) -> Self {
        let me = context.me();
        if me < FIRST_DEVICE {
            return Self::acceptor(me, disk);
        }
        let signer = TestSigner(key_of(me));
        let Common { options, devices, .. } = PARAMETERS.with_borrow(Clone::clone);
        let mut device =
            Device::new(device_id(me), Box::new(signer), Box::new(signer), founding(devices), options);
        for record in &disk.records {
            device.restore_with_faults(record.clone());
        }
        context.set_timer(1, ());
        Self::Device { device: Box::new(device), dying: Dying::No, backlog: Backlog::default() }
    }

    fn receive(
        &mut self,
        disk: &mut Disk,
        from: NodeId,
        message: Message,
        context: &mut NodeContext<'_, Self>,
    ) {
        match (self, message) {
            (
                Self::Acceptor { id, core, watchers, store, failed: failed @ false },
                Message::Request(to, request),
            ) if to == *id => {
                if matches!(request, AcceptorRequest::Fetch { .. }) {
                    watchers.insert(from);
                }
                let requester = Requester { key: key_of(from), node: device_id(from) };
                let held = core.answer_with_faults(&requester, request, &TestSigner(requester.key));
                let answers = held.release(|stored| {
                    if let Some(store) = store {
                        return store.write(stored.into_iter().map(|stored| (COUNCIL, stored)));
                    }
                    disk.stored.extend(stored);
                    Ok(())
                });
                let Ok(answers) = answers else {
                    // An acceptor that cannot store its records does not answer, neither now nor later.
                    *failed = true;
                    return;
                };
                for answer in answers {
                    match answer.to {
                        Recipient::Requester => context.send(from, Message::Reply(*id, answer.reply)),
                        Recipient::Watchers => {
                            for watcher in watchers.iter().filter(|watcher| **watcher != from) {
                                context.send(*watcher, Message::Reply(*id, answer.reply.clone()));
                            }
                        }
                    }
                }
            }
            (device @ Self::Device { .. }, Message::Reply(from, reply)) => {
                device.step(disk, Input::Reply { from, reply }, context);
            }
            _ => {}
        }
    }

    fn wake(&mut self, disk: &mut Disk, (): (), context: &mut NodeContext<'_, Self>) {
        self.step(disk, Input::Tick, context);
    }

    fn crash(disk: &mut Disk, rng: &mut SimRng) {
        disk.platter.crash(|| rng.roll());
        if disk.wipe {
            *disk = Disk { wiped: disk.wiped + 1, ..Disk::default() };
        }
    }
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
