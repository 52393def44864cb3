//! A simulated disk that loses unsynced writes on a crash.

use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use redb::StorageBackend;

/// A disk in memory, and the cache in front of it. After a crash each write since the last sync is present, lost or torn.
///
/// The disk outlives the processes that use it: each process gets a [`DiskHandle`], which a crash invalidates.
#[derive(Clone, Debug, Default)]
pub struct FaultyDisk(Arc<Mutex<DiskState>>);

/// A process's access to a [`FaultyDisk`], until the next crash.
#[derive(Debug)]
pub struct DiskHandle {
    disk: FaultyDisk,
    boot: u64,
}

/// Blocks all access to a [`FaultyDisk`] while it exists.
#[derive(Debug)]
pub struct PausedDisk<'a> {
    _state: MutexGuard<'a, DiskState>,
}

/// The size of a sector, which is written as a whole or not at all.
const SECTOR: usize = 512;
/// The roll for which a write is present as a whole.
const WHOLE: u32 = 1;

#[derive(Debug, Default)]
struct DiskState {
    boot: u64,
    /// The content that processes read: the cache.
    bytes: Vec<u8>,
    /// The content that survives a power failure.
    platter: Vec<u8>,
    unsynced: Vec<UnsyncedChange>,
    /// The number of writes and syncs that still succeed.
    power_left: Option<u64>,
    /// The number of syncs that fail.
    failing_syncs: u64,
    syncs: u64,
}

/// An unsynced change.
#[derive(Debug)]
enum UnsyncedChange {
    Write { at: usize, data: Vec<u8> },
    Length(usize),
}

impl FaultyDisk {
    /// Returns a handle for a new process.
    pub fn handle(&self) -> DiskHandle {
        DiskHandle { disk: self.clone(), boot: self.state().boot }
    }

    /// Simulates a power failure. `roll` determines the fate of the unsynced writes: all lost, all present,
    /// or each write separately.
    pub fn crash(&self, mut roll: impl FnMut() -> u32) {
        let mut state = self.state();
        state.boot += 1;
        state.power_left = None;
        let changes = std::mem::take(&mut state.unsynced);
        match roll() % 4 {
            0 => {}
            1 => changes.iter().for_each(|change| change.reach(&mut state.platter, &mut || WHOLE)),
            _ => changes.iter().for_each(|change| change.reach(&mut state.platter, &mut roll)),
        }
        let DiskState { bytes, platter, .. } = &mut *state;
        bytes.clone_from(platter);
    }

    /// Cuts the power after this many further writes and syncs: all operations fail until the
    /// [crash](FaultyDisk::crash).
    pub fn lose_power_after(&self, steps: u64) {
        self.state().power_left = Some(steps);
    }

    /// Blocks all users of the disk until the returned value is dropped.
    pub fn pause(&self) -> PausedDisk<'_> {
        PausedDisk { _state: self.state() }
    }

    /// Makes all further syncs fail.
    pub fn stop_syncing(&self) {
        self.fail_syncs(u64::MAX);
    }

    /// Makes the next syncs fail as a kernel does: the writes since the last sync stay readable and never reach the disk,
    /// and later syncs succeed.
    pub fn fail_syncs(&self, syncs: u64) {
        self.state().failing_syncs = syncs;
    }

    /// Returns the number of syncs.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Returns the current content.
    pub fn image(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.0.lock()
    }
}

impl UnsyncedChange {
    /// Applies a write in full, not at all, or in some of its sectors, with a probability of a third each.
    fn reach(&self, platter: &mut Vec<u8>, roll: &mut impl FnMut() -> u32) {
        match (self, roll() % 3) {
            (_, 0) => {}
            (Self::Write { at, data }, WHOLE) => put(platter, *at, data),
            (Self::Write { at, data }, _) => {
                let mut at = *at;
                for sector in data.chunks(SECTOR) {
                    if roll().is_multiple_of(2) {
                        put(platter, at, sector);
                    }
                    at += sector.len();
                }
            }
            (Self::Length(length), _) => platter.resize(*length, 0),
        }
    }
}

impl DiskState {
    fn set_len(&mut self, length: usize) {
        self.bytes.resize(length, 0);
        self.unsynced.push(UnsyncedChange::Length(length));
    }
}

/// Writes the data; a write beyond the end extends the disk.
fn put(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    let end = at + data.len();
    if end > bytes.len() {
        bytes.resize(end, 0);
    }
    if let Some(range) = bytes.get_mut(at..end) {
        range.copy_from_slice(data);
    }
}

impl DiskHandle {
    fn state(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let state = self.disk.state();
        let is_on = state.boot == self.boot && state.power_left != Some(0);
        if is_on { Ok(state) } else { Err(io::Error::other("the machine has no power")) }
    }

    /// Like `state`, for an operation that changes the disk.
    fn state_for_change(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let mut state = self.state()?;
        state.power_left = state.power_left.map(|left| left - 1);
        Ok(state)
    }
}

fn to_index(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(io::Error::other)
}

impl StorageBackend for DiskHandle {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state()?.bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (state, at) = (self.state()?, to_index(offset)?);
        let Some(found) = state.bytes.get(at..at + out.len()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.state_for_change()?.set_len(to_index(len)?);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.state_for_change()?;
        let changes = std::mem::take(&mut state.unsynced);
        if state.failing_syncs > 0 {
            state.failing_syncs -= 1;
            return Err(io::Error::other("the disk does not sync any more"));
        }
        state.syncs += 1;
        for change in &changes {
            change.reach(&mut state.platter, &mut || WHOLE);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (mut state, at) = (self.state_for_change()?, to_index(offset)?);
        if at + data.len() > state.bytes.len() {
            state.set_len(at + data.len());
        }
        put(&mut state.bytes, at, data);
        state.unsynced.push(UnsyncedChange::Write { at, data: data.to_vec() });
        Ok(())
    }
}
