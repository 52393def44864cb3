//! Fault injection: a node with known defects. The checks of the simulation and of the tests must find each of them.
//!
//! [`FaultyLedger`] wraps a node and makes it misbehave while a [`LedgerFault`] is injected. The production code has one
//! seam: in tests the hash of an entry covers the bytes that [`hashed_bytes`] returns.

use std::ops::Deref;

use holdoff_driver::{Core, Roll};
use holdoff_paxos::log::{self, EntryPayload};
use holdoff_paxos::{NodeId, Slot};
use holdoff_testbed::fault::is_injected;

use super::{Consistency, Input, Ledger, LedgerStep, Message, Options, Recovered};
use crate::certificate::Notary;
use crate::entry::{AppData, LogEntry, ReplicatedMachine, Transaction, link};
use crate::state::{Divergence, SnapshotContent, State};

/// A defect of the source document's algorithm, or a possible defect of the hash, the restart, the disk or the lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LedgerFault {
    /// A node whose wait for a result times out increments the index and continues without the diff.
    SkipOnTimeout,
    /// A restart counts the stored entries as applied but does not apply them.
    CountOnRestart,
    /// The hash of an entry does not cover its diff.
    HashWithoutDiff,
    /// A failing goal changes the state of the leader that executes it.
    FailureChanges,
    /// The receiver numbers the entries that it receives.
    LocalNumbers,
    /// A restarted voter forgets that it confirmed a term, and votes for another candidate at once.
    ForgetLeaseGrant,
    /// A leader that has transferred leadership continues to serve reads until its lease expires.
    ReadOn,
    /// A leader that sends entries before they are on its own disk counts itself as a replica that has stored them.
    CountUnstored,
    /// A node adopts a snapshot of which it has the first chunk only, and does not compare its content with the head.
    AdoptIncomplete,
    /// A node continues an interrupted transfer with the chunks of another snapshot, and does not compare the content with
    /// the head.
    MixChunks,
    /// A leader executes a transaction that is not in the dedup window, whatever the birth of the submission is.
    IgnoreBirth,
    /// The clock of a node stands still while its machine is suspended.
    StandingClock,
}

/// A node that has the injected defect.
pub(crate) struct FaultyLedger<M: ReplicatedMachine, N> {
    inner: Ledger<M, N>,
    /// The end of the lease that this node had when it transferred leadership.
    former_lease_us: u64,
}

impl<M: ReplicatedMachine, N> Deref for FaultyLedger<M, N> {
    type Target = Ledger<M, N>;

    fn deref(&self) -> &Ledger<M, N> {
        &self.inner
    }
}

impl<M: ReplicatedMachine, N: Notary> FaultyLedger<M, N> {
    pub(crate) fn new(
        me: NodeId,
        options: Options,
        notary: N,
        recovered: Recovered<M>,
        now_us: u64,
        roll: u32,
    ) -> Result<Self, Divergence> {
        let content = recovered.content.clone();
        let mut inner = Ledger::new(me, options, notary, recovered, now_us, roll)?;
        if is_injected(LedgerFault::ForgetLeaseGrant) {
            inner.lease_granted_until_us = 0;
        }
        if is_injected(LedgerFault::CountOnRestart) {
            count_without_applying(&mut inner, content)?;
        }
        Ok(Self { inner, former_lease_us: 0 })
    }

    pub(crate) fn step(&mut self, now_us: u64, roll: u32, input: Input<M>) -> LedgerStep<M> {
        let (late, last) = (self.inner.counts.late, self.store().last());
        let transfers = self.is_ready() && matches!(input, Input::TransferLeadership(_));
        let input = self.replace(now_us, roll, input);
        let step = self.inner.step(now_us, roll, input);
        if transfers && self.leads().is_none() {
            self.former_lease_us = now_us + self.inner.options.lease_us;
        }
        if is_injected(LedgerFault::SkipOnTimeout) {
            self.inner.state.index.0 += self.inner.counts.late - late;
        }
        if is_injected(LedgerFault::FailureChanges) && self.has_proposed_failure(last) {
            self.inner.state.machine = M::default();
        }
        step
    }

    /// Returns the input that the node handles instead of this one.
    fn replace(&mut self, now_us: u64, roll: u32, input: Input<M>) -> Input<M> {
        match input {
            Input::Message(_, Message::History { entries, .. }) if is_injected(LedgerFault::LocalNumbers) => {
                (self.inner.now_us, self.inner.roll) = (now_us, roll);
                apply_by_own_count(&mut self.inner, entries);
                // The known contacts again: an input without an effect, after which the node returns its outputs.
                Input::Contacts(self.inner.fetching.contacts.clone())
            }
            Input::Read { read, goal, consistency: Consistency::Lease }
                if is_injected(LedgerFault::ReadOn) && now_us < self.former_lease_us =>
            {
                Input::Read { read, goal, consistency: Consistency::Local }
            }
            Input::Message(from, Message::Submit { tx_id, goal, relayed_for, .. })
                if is_injected(LedgerFault::IgnoreBirth) =>
            {
                Input::Message(from, Message::Submit { tx_id, birth: Slot(u64::MAX), goal, relayed_for })
            }
            Input::SnapshotLoaded { snapshot, loaded: Ok(content) }
                if is_injected(LedgerFault::AdoptIncomplete) || is_injected(LedgerFault::MixChunks) =>
            {
                (self.inner.now_us, self.inner.roll) = (now_us, roll);
                self.inner.adopt_unverified(snapshot, *content);
                Input::Contacts(self.inner.fetching.contacts.clone())
            }
            Input::Message(from, message) if is_injected(LedgerFault::MixChunks) => {
                if let Message::State(snapshot)
                | Message::Log(log::Message::InstallSnapshot { snapshot, .. }) = &message
                {
                    self.inner.mix_chunks(snapshot);
                }
                Input::Message(from, message)
            }
            input => input,
        }
    }

    /// Returns true if this leader has proposed a failed goal after this slot.
    fn has_proposed_failure(&self, last: Slot) -> bool {
        let Some(term) = self.leads() else { return false };
        let mut proposed =
            (last.0 + 1..=self.store().last().0).filter_map(|slot| self.store().entry(Slot(slot)));
        proposed.any(|entry| match &entry.payload {
            EntryPayload::Value(value) => entry.term == term && value.result.is_err(),
            _ => false,
        })
    }
}

impl<M: ReplicatedMachine, N: Notary> Core for FaultyLedger<M, N> {
    type Input = Input<M>;
    type Record = super::Record<M>;
    type Output = super::OutputOf<M>;

    fn step(&mut self, now_us: u64, roll: Roll<'_>, input: Input<M>) -> LedgerStep<M> {
        FaultyLedger::step(self, now_us, roll(), input)
    }
}

/// The restart of the source document's algorithm.
fn count_without_applying<M: ReplicatedMachine, N: Notary>(
    ledger: &mut Ledger<M, N>,
    content: SnapshotContent<M>,
) -> Result<(), Divergence> {
    ledger.state = State::restore(ledger.log.store().snapshot(), content, ledger.options.dedup)?;
    ledger.history.clear();
    while let Some(entry) = ledger.log.store().entry(ledger.state.index.next()) {
        let slot = ledger.state.index.next();
        let hash = link(ledger.state.hash, slot, entry);
        (ledger.state.index, ledger.state.hash) = (slot, hash.unwrap_or_default());
    }
    Ok(())
}

/// Numbers received entries by the local index, as the source document's algorithm does.
fn apply_by_own_count<M: ReplicatedMachine, N: Notary>(ledger: &mut Ledger<M, N>, entries: Vec<LogEntry<M>>) {
    if ledger.leader_state.is_some() || entries.len() > ledger.options.kept {
        return;
    }
    for mut entry in entries {
        let index = ledger.state.index.next();
        if let EntryPayload::Value(value) = &mut entry.payload {
            (value.index, value.prev_hash) = (index, ledger.state.hash);
        }
        if ledger.divergence.is_none() {
            ledger.apply(index, entry);
        }
    }
}

/// Returns the bytes that the hash of an entry covers.
pub(crate) fn hashed_bytes<G: AppData, D: AppData, A: AppData>(
    entry: &log::Entry<Transaction<G, D, A>>,
) -> Option<Vec<u8>> {
    match &entry.payload {
        EntryPayload::Value(it) if is_injected(LedgerFault::HashWithoutDiff) => {
            postcard::to_stdvec(&(it.index, it.term, it.prev_hash, it.tx_id, &it.goal, &it.result)).ok()
        }
        _ => postcard::to_stdvec(entry).ok(),
    }
}

/// Each defect is injected alone, and the simulation must find it.
mod tests {
    use holdoff_driver::faulty::DriverFault;
    use holdoff_testbed::fault::inject;

    use super::LedgerFault;
    use crate::simulation::{Violation, run};

    /// The maximum number of seeds that may be needed to find a defect.
    const SEEDS: u64 = 200;

    /// Asserts that the simulation finds a defect, by a violation of this kind. The defect may violate other properties, too.
    fn assert_is_found(fault: impl Copy + std::fmt::Debug + 'static, is_expected: fn(&Violation) -> bool) {
        let failed = |seed| inject(fault, || run(seed)).err().filter(|failed| is_expected(&failed.violation));
        let found = (0..SEEDS).find_map(|seed| Some((seed, failed(seed)?)));
        let (seed, failed) =
            found.unwrap_or_else(|| panic!("{fault:?} causes no such violation with {SEEDS} seeds"));
        println!("{fault:?}: found by seed {seed}: {failed}");
    }

    #[test]
    fn a_result_timeout_does_not_advance_the_index() {
        assert_is_found(LedgerFault::SkipOnTimeout, |found| matches!(found, Violation::OtherHistory { .. }));
    }

    #[test]
    fn a_restart_does_not_advance_the_index_without_the_diff() {
        assert_is_found(LedgerFault::CountOnRestart, |found| {
            matches!(found, Violation::OtherState { .. } | Violation::Gap { .. } | Violation::Diverged { .. })
        });
    }

    #[test]
    fn the_hash_of_an_entry_covers_its_diff() {
        assert_is_found(LedgerFault::HashWithoutDiff, |found| matches!(found, Violation::OtherState { .. }));
    }

    #[test]
    fn a_failed_goal_changes_nothing() {
        assert_is_found(LedgerFault::FailureChanges, |found| matches!(found, Violation::Diverged { .. }));
    }

    #[test]
    fn the_index_of_an_entry_is_its_slot_in_the_log() {
        assert_is_found(LedgerFault::LocalNumbers, |found| matches!(found, Violation::OtherHistory { .. }));
    }

    #[test]
    fn a_forgotten_transaction_is_not_executed_again() {
        assert_is_found(LedgerFault::IgnoreBirth, |found| matches!(found, Violation::CommittedTwice { .. }));
    }

    #[test]
    fn a_lease_ends_while_the_machine_is_suspended() {
        assert_is_found(LedgerFault::StandingClock, |found| matches!(found, Violation::StaleRead { .. }));
    }

    #[test]
    fn the_driver_stores_before_it_sends() {
        assert_is_found(DriverFault::SendBeforeStore, |found| matches!(found, Violation::Durability { .. }));
    }

    #[test]
    fn the_driver_releases_an_output_once() {
        assert_is_found(DriverFault::ReleaseTwice, |found| matches!(found, Violation::EndedTwice { .. }));
    }

    #[test]
    fn the_driver_stops_after_a_failed_write() {
        assert_is_found(DriverFault::ContinueAfterFailure, |found| {
            matches!(found, Violation::Durability { .. })
        });
    }

    /// The machine's rows or the remembered transactions are wrong, or a restarted node does not recognize its disk.
    fn is_wrong_state(found: &Violation) -> bool {
        matches!(
            found,
            Violation::OtherState { .. }
                | Violation::Diverged { .. }
                | Violation::FalseAbsence { .. }
                | Violation::CommittedTwice { .. }
        )
    }

    #[test]
    fn a_snapshot_is_adopted_only_as_a_whole() {
        assert_is_found(LedgerFault::AdoptIncomplete, is_wrong_state);
    }

    #[test]
    fn chunks_of_two_snapshots_are_not_mixed() {
        assert_is_found(LedgerFault::MixChunks, is_wrong_state);
    }

    #[test]
    fn a_leader_counts_only_entries_on_its_disk() {
        assert_is_found(LedgerFault::CountUnstored, |found| matches!(found, Violation::Durability { .. }));
    }
}
