//! A core on a simulated machine, run by the driver that production uses.

use std::ops::{Deref, DerefMut};

use holdoff_driver::faulty::{DriverFault, FaultyDriver};
use holdoff_driver::{Core, Write, WriteOptions};

use crate::kernel::{NodeContext, NodeId, SimNode, SimRng};

/// The program around a core: it turns events into inputs, and performs the outputs that the driver releases.
pub trait SimHost: Sized {
    /// The core.
    type Core: Core<Output: Clone>;
    /// The messages between machines.
    type Message: Clone;
    /// The payload of a timer.
    type Timer;
    /// The content of the disk.
    type Store: Default;

    /// Boots from the content of the disk.
    fn start(store: &mut Self::Store, boot: &mut Boot<'_, '_, Self>) -> (Self, Self::Core);

    /// Handles a message.
    fn receive(&mut self, from: NodeId, message: Self::Message, turn: &mut Turn<'_, '_, Self>);

    /// Handles a timer.
    fn wake(&mut self, timer: Self::Timer, turn: &mut Turn<'_, '_, Self>);

    /// Performs an output.
    fn perform(&mut self, output: <Self::Core as Core>::Output, turn: &mut Turn<'_, '_, Self>);

    /// Applies the records of a transaction to the content of the disk. After an error the process stops, and starts again.
    fn store(
        store: &mut Self::Store,
        node: NodeId,
        records: Vec<<Self::Core as Core>::Record>,
    ) -> Result<(), FailedWrite>;

    /// Returns the duration of a transaction of the disk that begins now.
    fn write_us(now_us: u64, rng: &mut SimRng) -> u64;

    /// Returns whether the disk reports the failure of a transaction. Its records may be on disk all the same. The process
    /// stops, and starts again.
    fn write_fails(_store: &mut Self::Store, _rng: &mut SimRng) -> bool {
        false
    }

    /// Returns whether a crash during a transaction can leave the first of its records on disk, and not the others.
    fn tears() -> bool {
        true
    }

    /// Returns the time at which the core waits for [`tick`](SimHost::tick), if it waits.
    fn wake_at_us(&self, _core: &Self::Core) -> Option<u64> {
        None
    }

    /// Handles the time that [`wake_at_us`](SimHost::wake_at_us) has returned.
    fn tick(&mut self, _turn: &mut Turn<'_, '_, Self>) {}

    /// Combines outputs before they are performed.
    fn combine(_outputs: &mut Vec<<Self::Core as Core>::Output>) {}

    /// Observes the core after each event.
    fn observe(&mut self, _core: &Self::Core) {}

    /// Applies the effects of a crash on the content of the disk, after a part of the last transaction has reached it.
    fn crash(
        _store: &mut Self::Store,
        _node: NodeId,
        _lost: &LostRecords<<Self::Core as Core>::Record>,
        _rng: &mut SimRng,
    ) {
    }

    /// Returns whether the core's clock stands still while the machine is suspended. Such a clock is a defect, if a lease
    /// is measured with it.
    fn clock_stands() -> bool {
        false
    }

    /// Returns the options of the driver.
    fn write_options() -> WriteOptions {
        WriteOptions::default()
    }

    /// Returns the injected defect of the driver, if there is one.
    fn driver_fault() -> Option<DriverFault> {
        None
    }
}

/// The error of a disk that has not stored a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailedWrite;

type HostContext<'c, H> = NodeContext<'c, SimMachine<H>>;

/// The records that a crash has lost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostRecords<R> {
    /// The records that were on their way to the disk.
    pub records: Vec<R>,
    /// Whether a part of the last transaction has reached the disk, and a part has not.
    pub is_torn: bool,
    /// The number of records in the memory of the process.
    pub unwritten: usize,
}

/// A simulated machine: a host, its core, and the driver between them.
pub struct SimMachine<H: SimHost> {
    /// `None` after a failed write, until the process starts again.
    process: Option<(H, FaultyDriver<H::Core>)>,
    /// The number of processes so far. Timers of earlier processes have no effect.
    processes: u64,
    /// The time of the next tick.
    tick_at_us: Option<u64>,
}

/// The disk of a simulated machine. It carries out one transaction at a time.
pub struct SimDisk<H: SimHost> {
    /// The content of the disk.
    pub store: H::Store,
    node: NodeId,
    transaction: Option<Write<RecordOf<H>>>,
    queue: Option<Write<RecordOf<H>>>,
    unwritten: usize,
}

type RecordOf<H> = <<H as SimHost>::Core as Core>::Record;

/// A timer of a machine, and the number of the process that has set it.
pub struct MachineTimer<T>(u64, TimerKind<T>);

enum TimerKind<T> {
    Host(T),
    /// A write becomes due.
    WriteDue,
    /// The core waits for this time.
    Tick(u64),
    /// A transaction has ended.
    Written,
    /// The process starts again.
    Restart,
}

/// The time after which a process that has stopped is started again.
const RESTART_US: u64 = 100_000;

impl<H: SimHost> Default for SimDisk<H> {
    fn default() -> Self {
        Self { store: H::Store::default(), node: 0, transaction: None, queue: None, unwritten: 0 }
    }
}

/// The start of a process.
pub struct Boot<'t, 'c, H: SimHost> {
    context: &'t mut HostContext<'c, H>,
    process: u64,
}

/// Returns the time on the clock that the core reads.
fn clock_us<H: SimHost>(context: &HostContext<'_, H>) -> u64 {
    if H::clock_stands() { context.awake_us() } else { context.now_us() }
}

/// One turn of a host.
pub struct Turn<'t, 'c, H: SimHost> {
    driver: &'t mut FaultyDriver<H::Core>,
    store: &'t mut H::Store,
    boot: Boot<'t, 'c, H>,
}

impl<H: SimHost> Boot<'_, '_, H> {
    /// Returns the number of this machine.
    pub fn me(&self) -> NodeId {
        self.context.me()
    }

    /// Returns the number of machines.
    pub fn nodes(&self) -> u32 {
        self.context.nodes()
    }

    /// Returns the time on the clock that the core reads.
    pub fn now_us(&self) -> u64 {
        clock_us(self.context)
    }

    /// Returns the time on the machine's own clock, which never stands still.
    pub fn wall_us(&self) -> u64 {
        self.context.now_us()
    }

    /// Returns the random number stream of the machine.
    pub fn rng(&mut self) -> &mut SimRng {
        self.context.rng()
    }

    /// Sends a message.
    pub fn send(&mut self, to: NodeId, message: H::Message) {
        self.context.send(to, message);
    }

    /// Sets a timer.
    pub fn set_timer(&mut self, after_us: u64, timer: H::Timer) {
        self.context.set_timer(after_us, MachineTimer(self.process, TimerKind::Host(timer)));
    }
}

impl<H: SimHost> Turn<'_, '_, H> {
    /// Passes an input to the core. The host performs its outputs after the turn.
    pub fn step(&mut self, input: <H::Core as Core>::Input) {
        let now_us = self.boot.now_us();
        self.driver.step(now_us, &mut || self.boot.rng().roll(), input);
    }

    /// Returns the core.
    pub fn core(&self) -> &H::Core {
        self.driver.core()
    }

    /// Returns the content of the disk.
    pub fn store(&mut self) -> &mut H::Store {
        self.store
    }
}

impl<'t, 'c, H: SimHost> Deref for Turn<'t, 'c, H> {
    type Target = Boot<'t, 'c, H>;

    fn deref(&self) -> &Boot<'t, 'c, H> {
        &self.boot
    }
}

impl<'t, 'c, H: SimHost> DerefMut for Turn<'t, 'c, H> {
    fn deref_mut(&mut self) -> &mut Boot<'t, 'c, H> {
        &mut self.boot
    }
}

impl<H: SimHost> SimMachine<H> {
    /// Returns the host, unless the process has stopped.
    pub fn host(&self) -> Option<&H> {
        self.process.as_ref().map(|(host, _)| host)
    }

    /// Returns the core, unless the process has stopped.
    pub fn core(&self) -> Option<&H::Core> {
        self.process.as_ref().map(|(_, driver)| driver.core())
    }

    fn boot(&mut self, disk: &mut SimDisk<H>, context: &mut HostContext<'_, H>) {
        self.processes += 1;
        self.tick_at_us = None;
        disk.node = context.me();
        let mut boot = Boot { context, process: self.processes };
        let (mut host, core) = H::start(&mut disk.store, &mut boot);
        let driver = FaultyDriver::new(core, H::write_options(), H::driver_fault());
        host.observe(driver.core());
        self.process = Some((host, driver));
        self.turn(disk, context, |_, _| {});
    }

    /// Passes an event to the host, and performs the outputs that it leads to.
    pub fn turn(
        &mut self,
        disk: &mut SimDisk<H>,
        context: &mut HostContext<'_, H>,
        event: impl FnOnce(&mut H, &mut Turn<'_, '_, H>),
    ) {
        let process = self.processes;
        let Some((host, driver)) = &mut self.process else { return };
        let store = &mut disk.store;
        event(host, &mut Turn { driver, store, boot: Boot { context, process } });
        loop {
            host.observe(driver.core());
            let mut outputs = driver.take_outputs();
            if outputs.is_empty() {
                break;
            }
            H::combine(&mut outputs);
            for output in outputs {
                let store = &mut disk.store;
                host.perform(output, &mut Turn { driver, store, boot: Boot { context, process } });
            }
        }
        while let Some(write) = driver.begin_write(clock_us(context)) {
            match &mut disk.queue {
                Some(queue) => queue.append(write),
                queue => *queue = Some(write),
            }
        }
        disk.unwritten = driver.unwritten();
        if let Some(at_us) = driver.write_at_us() {
            let after_us = at_us.saturating_sub(clock_us(context)).max(1);
            context.set_timer(after_us, MachineTimer(process, TimerKind::WriteDue));
        }
        if let Some(at_us) = host.wake_at_us(driver.core())
            && self.tick_at_us.is_none_or(|tick_at_us| at_us < tick_at_us)
        {
            self.tick_at_us = Some(at_us);
            let after_us = at_us.saturating_sub(clock_us(context)).max(1);
            context.set_timer(after_us, MachineTimer(process, TimerKind::Tick(at_us)));
        }
        disk.begin(process, context);
    }

    /// Ends a transaction: it is on disk, or has failed and the process stops.
    fn end_transaction(&mut self, disk: &mut SimDisk<H>, context: &mut HostContext<'_, H>) {
        let Some((_, driver)) = &mut self.process else { return };
        let Some(write) = disk.transaction.take() else { return };
        let is_reported_as_failed = H::write_fails(&mut disk.store, context.rng());
        let is_lost = is_reported_as_failed && context.rng().happens(0.5);
        let stored = if is_lost { Err(FailedWrite) } else { write.store(|records| disk.keep(records)) };
        match stored {
            Ok(written) if !is_reported_as_failed => {
                let now_us = clock_us(context);
                driver.finish_write(now_us, &mut || context.rng().roll(), written);
            }
            _ if driver.fail_write() => {
                self.process = None;
                disk.lose(context.rng());
                return context.set_timer(RESTART_US, MachineTimer(self.processes, TimerKind::Restart));
            }
            _ => {}
        }
        self.turn(disk, context, |_, _| {});
    }
}

impl<H: SimHost> SimDisk<H> {
    /// Begins a transaction of all queued writes, unless one is in progress.
    fn begin(&mut self, process: u64, context: &mut HostContext<'_, H>) {
        if self.transaction.is_none()
            && let Some(queue) = self.queue.take()
        {
            self.transaction = Some(queue);
            let after_us = H::write_us(context.now_us(), context.rng());
            context.set_timer(after_us, MachineTimer(process, TimerKind::Written));
        }
    }

    fn keep(&mut self, records: Vec<RecordOf<H>>) -> Result<(), FailedWrite> {
        H::store(&mut self.store, self.node, records)
    }

    /// Loses the unstored records. The transaction in progress may have reached the disk, in whole or in part.
    fn lose(&mut self, rng: &mut SimRng) {
        let mut lost = LostRecords {
            records: Vec::new(),
            is_torn: false,
            unwritten: std::mem::take(&mut self.unwritten),
        };
        if let Some(write) = self.transaction.take() {
            let count = write.records().len();
            let kept = if H::tears() {
                usize::try_from(rng.between(0, count as u64)).unwrap_or(count)
            } else if rng.happens(0.5) {
                count
            } else {
                0
            };
            lost.is_torn = kept < count;
            // The process does not learn of it.
            drop(write.store(|mut records| {
                lost.records = records.split_off(kept);
                self.keep(records)
            }));
        }
        if let Some(queue) = self.queue.take() {
            drop(queue.store(|records| {
                lost.records.extend(records);
                Ok::<_, std::convert::Infallible>(())
            }));
        }
        H::crash(&mut self.store, self.node, &lost, rng);
    }
}

impl<H: SimHost> SimNode for SimMachine<H> {
    type Message = H::Message;
    type Timer = MachineTimer<H::Timer>;
    type Disk = SimDisk<H>;

    fn start(disk: &mut SimDisk<H>, context: &mut HostContext<'_, H>) -> Self {
        let mut machine = Self { process: None, processes: 0, tick_at_us: None };
        machine.boot(disk, context);
        machine
    }

    fn receive(
        &mut self,
        disk: &mut SimDisk<H>,
        from: NodeId,
        message: H::Message,
        context: &mut HostContext<'_, H>,
    ) {
        self.turn(disk, context, |host, turn| host.receive(from, message, turn));
    }

    fn wake(&mut self, disk: &mut SimDisk<H>, timer: Self::Timer, context: &mut HostContext<'_, H>) {
        let MachineTimer(process, kind) = timer;
        if process != self.processes {
            return;
        }
        match kind {
            TimerKind::Host(timer) => self.turn(disk, context, |host, turn| host.wake(timer, turn)),
            TimerKind::WriteDue => self.turn(disk, context, |_, _| {}),
            TimerKind::Tick(at_us) if self.tick_at_us == Some(at_us) => {
                self.tick_at_us = None;
                self.turn(disk, context, SimHost::tick);
            }
            TimerKind::Tick(_) => {}
            TimerKind::Written => self.end_transaction(disk, context),
            TimerKind::Restart => self.boot(disk, context),
        }
    }

    fn crash(disk: &mut SimDisk<H>, rng: &mut SimRng) {
        disk.lose(rng);
    }
}
