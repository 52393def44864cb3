//! The recorded requests and responses with their times, and the check that they fit one order of events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use porcupine_rs::{CheckResult, Model, Operation};

/// A member that the devices add and remove, by number.
pub(crate) type Guest = u8;

/// An operation and its response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MemberOperation {
    /// The guest was added in this slot, or was already a member if there is none.
    Add(Guest, Option<u64>),
    /// The guest was removed in this slot, or was not a member if there is none.
    Remove(Guest, Option<u64>),
    /// The guests that were members after this slot.
    Read(BTreeSet<Guest>, u64),
}

#[derive(Clone, Debug)]
struct Entry {
    device: u32,
    called: Duration,
    returned: Duration,
    operation: MemberOperation,
}

pub(crate) struct History {
    began: Instant,
    entries: Mutex<Vec<Entry>>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), entries: Mutex::default() }
    }

    /// Runs an operation and records it with its times. An operation that was not committed is not recorded.
    pub(crate) fn record(&self, device: u32, run: impl FnOnce() -> Option<MemberOperation>) {
        let called = self.began.elapsed();
        let done = run();
        let returned = self.began.elapsed();
        let entry = done.map(|operation| Entry { device, called, returned, operation });
        self.entries.lock().unwrap().extend(entry);
    }

    /// Checks the whole history. Returns a summary of its size.
    pub(crate) fn check(&self) -> String {
        let entries = self.entries.lock().unwrap().clone();
        by_slots(&entries);
        by_porcupine(&entries);
        let matching =
            |is: fn(&MemberOperation) -> bool| entries.iter().filter(|entry| is(&entry.operation)).count();
        format!(
            "{} changes, {} already satisfied, {} reads",
            matching(|operation| matches!(
                operation,
                MemberOperation::Add(_, Some(_)) | MemberOperation::Remove(_, Some(_))
            )),
            matching(|operation| matches!(
                operation,
                MemberOperation::Add(_, None) | MemberOperation::Remove(_, None)
            )),
            matching(|operation| matches!(operation, MemberOperation::Read(..))),
        )
    }
}

/// Checks that the slots follow real time and that each read returns the effects of all slots up to its own.
fn by_slots(entries: &[Entry]) {
    let slot = |entry: &Entry| match &entry.operation {
        MemberOperation::Add(_, slot) | MemberOperation::Remove(_, slot) => *slot,
        MemberOperation::Read(_, slot) => Some(*slot),
    };
    for earlier in entries {
        for later in entries.iter().filter(|later| earlier.returned < later.called) {
            if let (Some(before), Some(after)) = (slot(earlier), slot(later)) {
                assert!(before <= after, "{earlier:?} came before {later:?}");
            }
        }
    }
    for reading in entries {
        let MemberOperation::Read(seen, upto) = &reading.operation else { continue };
        assert_eq!(seen, &there_after(entries, *upto), "{reading:?}");
    }
}

/// Returns the guests that are members after a slot. The number of additions of a guest equals its removals, or
/// exceeds them by one.
fn there_after(entries: &[Entry], upto: u64) -> BTreeSet<Guest> {
    let mut balance: BTreeMap<Guest, i32> = BTreeMap::new();
    for entry in entries {
        match entry.operation {
            MemberOperation::Add(guest, Some(slot)) if slot <= upto => {
                *balance.entry(guest).or_default() += 1;
            }
            MemberOperation::Remove(guest, Some(slot)) if slot <= upto => {
                *balance.entry(guest).or_default() -= 1;
            }
            _ => {}
        }
    }
    assert!(balance.values().all(|times| (0..=1).contains(times)), "a guest was added twice: {balance:?}");
    balance.into_iter().filter(|(_, times)| *times == 1).map(|(guest, _)| guest).collect()
}

/// The sequential model: a set of guests, as a client observes it, without slots.
#[derive(Clone, Debug)]
struct Guests;

impl Model for Guests {
    type State = BTreeSet<Guest>;
    type Op = MemberOperation;
    type Metadata = ();

    fn init() -> Self::State {
        BTreeSet::new()
    }

    fn step(state: &Self::State, operation: &MemberOperation) -> (bool, Self::State) {
        let mut next = state.clone();
        let fits = match operation {
            MemberOperation::Add(guest, Some(_)) => next.insert(*guest),
            MemberOperation::Add(guest, None) => state.contains(guest),
            MemberOperation::Remove(guest, Some(_)) => next.remove(guest),
            MemberOperation::Remove(guest, None) => !state.contains(guest),
            MemberOperation::Read(seen, _) => state == seen,
        };
        (fits, next)
    }
}

fn by_porcupine(entries: &[Entry]) {
    let time = |at: Duration| i64::try_from(at.as_nanos()).unwrap();
    let operation = |entry: &Entry| Operation::<Guests> {
        client_id: Some(entry.device),
        call_time: time(entry.called),
        return_time: time(entry.returned),
        op: entry.operation.clone(),
        metadata: None,
    };
    let operations: Vec<_> = entries.iter().map(operation).collect();
    let checked = porcupine_rs::check_operations_timeout(&operations, Duration::from_secs(60));
    assert_eq!(checked, CheckResult::Ok, "{entries:#?}");
}

#[test]
fn a_history_without_a_linear_order_is_rejected() {
    let entry = |called, returned, operation| Entry {
        device: 0,
        called: Duration::from_millis(called),
        returned: Duration::from_millis(returned),
        operation,
    };
    let stale = [
        entry(0, 1, MemberOperation::Add(1, Some(1))),
        entry(2, 3, MemberOperation::Remove(1, Some(2))),
        entry(4, 5, MemberOperation::Add(1, None)),
    ];
    assert!(std::panic::catch_unwind(|| by_porcupine(&stale)).is_err());
    by_porcupine(&stale[..2]);
    let late = [
        entry(0, 1, MemberOperation::Add(1, Some(2))),
        entry(2, 3, MemberOperation::Read(BTreeSet::new(), 1)),
    ];
    assert!(std::panic::catch_unwind(|| by_slots(&late)).is_err());
}
