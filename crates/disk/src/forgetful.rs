//! A simulated disk that loses unsynced writes on a crash.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

/// A disk in memory. After a crash each write since the last sync is present, lost or torn.
///
/// The disk outlives the processes that use it: each process gets a [`Handle`], which a crash invalidates.
#[derive(Clone, Debug, Default)]
pub struct Disk(Arc<Mutex<Platter>>);

/// A process's access to a [`Disk`], until the next crash.
#[derive(Debug)]
pub struct Handle {
    disk: Disk,
    boot: u64,
}

/// Blocks all access to a [`Disk`] while it exists.
#[derive(Debug)]
pub struct Paused<'a> {
    _platter: MutexGuard<'a, Platter>,
}

/// The size of a sector, which is written as a whole or not at all.
const SECTOR: usize = 512;
/// The roll for which a write is present as a whole.
const WHOLE: u32 = 1;

#[derive(Debug)]
struct Platter {
    boot: u64,
    bytes: Vec<u8>,
    unsynced: Vec<Change>,
    /// The number of writes and syncs that still succeed.
    power_left: Option<u64>,
    syncs_work: bool,
    syncs: u64,
}

impl Default for Platter {
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
enum Change {
    Write { at: usize, before: Vec<u8>, after: Vec<u8> },
    Length { before: usize, after: usize, cut: Vec<u8> },
}

impl Disk {
    /// Returns a handle for a new process.
    pub fn handle(&self) -> Handle {
        Handle { disk: self.clone(), boot: self.platter().boot }
    }

    /// Simulates a power failure. `roll` determines the fate of the unsynced writes: all lost, all present,
    /// or each write separately.
    pub fn crash(&self, mut roll: impl FnMut() -> u32) {
        let mut platter = self.platter();
        platter.boot += 1;
        platter.power_left = None;
        let changes = std::mem::take(&mut platter.unsynced);
        for change in changes.iter().rev() {
            platter.undo(change);
        }
        match roll() % 4 {
            0 => {}
            1 => changes.iter().for_each(|change| platter.redo(change, &mut || WHOLE)),
            _ => changes.iter().for_each(|change| platter.redo(change, &mut roll)),
        }
    }

    /// Cuts the power after this many further writes and syncs: all operations fail until the
    /// [crash](Disk::crash).
    pub fn lose_power_after(&self, steps: u64) {
        self.platter().power_left = Some(steps);
    }

    /// Blocks all users of the disk until the returned value is dropped.
    pub fn pause(&self) -> Paused<'_> {
        Paused { _platter: self.platter() }
    }

    /// Makes all further syncs fail.
    pub fn stop_syncing(&self) {
        self.platter().syncs_work = false;
    }

    /// Returns the number of syncs.
    pub fn syncs(&self) -> u64 {
        self.platter().syncs
    }

    /// Returns the current content.
    pub fn image(&self) -> Vec<u8> {
        self.platter().bytes.clone()
    }

    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Platter {
    fn undo(&mut self, change: &Change) {
        match change {
            Change::Write { at, before, .. } => self.put(*at, before),
            Change::Length { before, cut, .. } => {
                self.bytes.resize(before - cut.len(), 0);
                self.bytes.extend_from_slice(cut);
            }
        }
    }

    /// Applies a write in full, not at all, or in some of its sectors, with a probability of a third each.
    fn redo(&mut self, change: &Change, roll: &mut impl FnMut() -> u32) {
        match (change, roll() % 3) {
            (_, 0) => {}
            (Change::Write { at, after, .. }, WHOLE) => self.put(*at, after),
            (Change::Write { at, after, .. }, _) => {
                let mut at = *at;
                for sector in after.chunks(SECTOR) {
                    if roll().is_multiple_of(2) {
                        self.put(at, sector);
                    }
                    at += sector.len();
                }
            }
            (Change::Length { after, .. }, _) => self.bytes.resize(*after, 0),
        }
    }

    fn set_len(&mut self, after: usize) {
        let before = self.bytes.len();
        let cut = self.bytes.get(after..).unwrap_or_default().to_vec();
        self.bytes.resize(after, 0);
        self.unsynced.push(Change::Length { before, after, cut });
    }

    /// Writes the data; a write beyond the end extends the disk.
    fn put(&mut self, at: usize, data: &[u8]) {
        let end = at + data.len();
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        if let Some(place) = self.bytes.get_mut(at..end) {
            place.copy_from_slice(data);
        }
    }
}

impl Handle {
    fn platter(&self) -> io::Result<MutexGuard<'_, Platter>> {
        let platter = self.disk.platter();
        let is_on = platter.boot == self.boot && platter.power_left != Some(0);
        if is_on { Ok(platter) } else { Err(io::Error::other("the machine has no power")) }
    }

    /// Like `platter`, for an operation that changes the disk.
    fn step(&self) -> io::Result<MutexGuard<'_, Platter>> {
        let mut platter = self.platter()?;
        platter.power_left = platter.power_left.map(|left| left - 1);
        Ok(platter)
    }
}

fn place(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(io::Error::other)
}

impl StorageBackend for Handle {
    fn len(&self) -> io::Result<u64> {
        Ok(self.platter()?.bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (platter, at) = (self.platter()?, place(offset)?);
        let Some(found) = platter.bytes.get(at..at + out.len()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.step()?.set_len(place(len)?);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut platter = self.step()?;
        if !platter.syncs_work {
            return Err(io::Error::other("the disk does not sync any more"));
        }
        platter.syncs += 1;
        platter.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (mut platter, at) = (self.step()?, place(offset)?);
        if at + data.len() > platter.bytes.len() {
            platter.set_len(at + data.len());
        }
        let before = platter.bytes.get(at..at + data.len()).unwrap_or_default().to_vec();
        platter.put(at, data);
        platter.unsynced.push(Change::Write { at, before, after: data.to_vec() });
        Ok(())
    }
}
