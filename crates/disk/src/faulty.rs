//! A simulated disk that loses unsynced writes on a crash.

use std::io;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use redb::StorageBackend;

/// A disk in memory. After a crash each write since the last sync is present, lost or torn.
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

#[derive(Debug)]
struct DiskState {
    boot: u64,
    bytes: Vec<u8>,
    unsynced: Vec<UnsyncedChange>,
    /// The number of writes and syncs that still succeed.
    power_left: Option<u64>,
    syncs_work: bool,
    syncs: u64,
}

impl Default for DiskState {
    fn default() -> Self {
        Self {
            boot: 0,
            bytes: Vec::new(),
            unsynced: Vec::new(),
            power_left: None,
            syncs_work: true,
            syncs: 0,
        }
    }
}

/// An unsynced change.
#[derive(Debug)]
enum UnsyncedChange {
    Write { at: usize, before: Vec<u8>, after: Vec<u8> },
    Length { before: usize, after: usize, cut: Vec<u8> },
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
        for change in changes.iter().rev() {
            state.undo(change);
        }
        match roll() % 4 {
            0 => {}
            1 => changes.iter().for_each(|change| state.redo(change, &mut || WHOLE)),
            _ => changes.iter().for_each(|change| state.redo(change, &mut roll)),
        }
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
        self.state().syncs_work = false;
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

impl DiskState {
    fn undo(&mut self, change: &UnsyncedChange) {
        match change {
            UnsyncedChange::Write { at, before, .. } => self.put(*at, before),
            UnsyncedChange::Length { before, cut, .. } => {
                self.bytes.resize(before - cut.len(), 0);
                self.bytes.extend_from_slice(cut);
            }
        }
    }

    /// Applies a write in full, not at all, or in some of its sectors, with a probability of a third each.
    fn redo(&mut self, change: &UnsyncedChange, roll: &mut impl FnMut() -> u32) {
        match (change, roll() % 3) {
            (_, 0) => {}
            (UnsyncedChange::Write { at, after, .. }, WHOLE) => self.put(*at, after),
            (UnsyncedChange::Write { at, after, .. }, _) => {
                let mut at = *at;
                for sector in after.chunks(SECTOR) {
                    if roll().is_multiple_of(2) {
                        self.put(at, sector);
                    }
                    at += sector.len();
                }
            }
            (UnsyncedChange::Length { after, .. }, _) => self.bytes.resize(*after, 0),
        }
    }

    fn set_len(&mut self, after: usize) {
        let before = self.bytes.len();
        let cut = self.bytes.get(after..).unwrap_or_default().to_vec();
        self.bytes.resize(after, 0);
        self.unsynced.push(UnsyncedChange::Length { before, after, cut });
    }

    /// Writes the data; a write beyond the end extends the disk.
    fn put(&mut self, at: usize, data: &[u8]) {
        let end = at + data.len();
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        if let Some(range) = self.bytes.get_mut(at..end) {
            range.copy_from_slice(data);
        }
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
        if !state.syncs_work {
            return Err(io::Error::other("the disk does not sync any more"));
        }
        state.syncs += 1;
        state.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (mut state, at) = (self.state_for_change()?, to_index(offset)?);
        if at + data.len() > state.bytes.len() {
            state.set_len(at + data.len());
        }
        let before = state.bytes.get(at..at + data.len()).unwrap_or_default().to_vec();
        state.put(at, data);
        state.unsynced.push(UnsyncedChange::Write { at, before, after: data.to_vec() });
        Ok(())
    }
}
