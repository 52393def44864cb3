//! What an acceptor believes about a council, and why: who the members are, and which snapshot replaces the history.

use std::collections::BTreeMap;

use holdoff_paxos::{Deferred, Slot};

use super::{AcceptorRecord, CouncilAcceptor, DeferredReplies, Requester, to_requester};
use crate::access::Standing;
use crate::{
    AcceptorReply, Access, Closing, CouncilSnapshot, Digest, Endorsement, PublicKey, RequestRefusal,
    SignedAccess, Verifier,
};

/// A snapshot that replaces the slots up to it.
#[derive(Clone, Debug)]
pub(super) struct StoredSnapshot {
    pub(super) snapshot: CouncilSnapshot,
    pub(super) digest: Digest,
    /// The endorsements of a majority of the members after its slot. They convince another acceptor.
    pub(super) certificate: Vec<Endorsement>,
}

/// The snapshot that members have offered last, and their endorsements of snapshots, one of each member.
#[derive(Debug, Default)]
pub(super) struct Endorsements {
    /// The snapshot is in memory only, because the members offer it until the acceptor has stored it.
    offered: Option<(CouncilSnapshot, Digest)>,
    by_member: BTreeMap<PublicKey, Endorsement>,
}

impl Endorsements {
    pub(super) fn restore(&mut self, endorsement: Endorsement) {
        self.by_member.insert(endorsement.by, endorsement);
    }

    /// Returns the hash of the offered snapshot; zeros if there is none.
    pub(super) fn offered(&self) -> Digest {
        self.offered.as_ref().map(|(_, digest)| *digest).unwrap_or_default()
    }

    pub(super) fn snapshot(&self) -> Option<&CouncilSnapshot> {
        self.offered.as_ref().map(|(snapshot, _)| snapshot)
    }

    /// Returns the hash that this member has endorsed; zeros if there is none.
    pub(super) fn by(&self, member: &PublicKey) -> Digest {
        self.by_member.get(member).map(|endorsement| endorsement.digest).unwrap_or_default()
    }

    pub(super) fn memory(&self) -> usize {
        let offered = self.snapshot().map_or(0, |snapshot| snapshot.bytes.len());
        offered + self.by_member.len() * 2 * size_of::<Endorsement>()
    }

    /// Returns the endorsements of this snapshot.
    fn of(&self, slot: Slot, digest: Digest) -> impl Iterator<Item = &Endorsement> {
        self.by_member.values().filter(move |endorsed| endorsed.slot == slot && endorsed.digest == digest)
    }
}

impl CouncilAcceptor {
    /// Learns of a council. The founding record proves who the first members are.
    ///
    /// If a device does not remember all changes since, the acceptor believes the first client that introduces the council with
    /// later members. The device that adds the acceptor therefore introduces the council before, and adds no acceptor that
    /// refuses it.
    pub(super) fn introduce(
        &mut self,
        requester: &Requester,
        introduced: Option<Access>,
        changes: &[SignedAccess],
        verifier: &dyn Verifier,
    ) -> Result<DeferredReplies, RequestRefusal> {
        if self.access.is_some() {
            let is_member = self.may_read(&requester.key);
            return if is_member {
                Ok(self.reported(&requester.key))
            } else {
                Err(self.not_member(&requester.key))
            };
        }
        let mut access = introduced.ok_or(RequestRefusal::ForeignFounding)?;
        let mut is_decided =
            |decided: &SignedAccess| decided.is_signed(self.council, verifier) && access.apply(decided);
        if !changes.iter().all(&mut is_decided) || access.standing(&requester.key) != Standing::Member {
            return Err(RequestRefusal::ForeignFounding);
        }
        self.access = Some(access.clone());
        Ok(self.stored(vec![AcceptorRecord::Access(access)], requester))
    }

    /// Adopts decided changes of the members. Their authors have signed them.
    pub(super) fn change_access(
        &mut self,
        requester: &Requester,
        changes: &[SignedAccess],
        verifier: &dyn Verifier,
    ) -> Result<DeferredReplies, RequestRefusal> {
        let mut access = self.access.clone().ok_or(RequestRefusal::UnknownCouncil)?;
        if !changes.iter().all(|decided| decided.is_signed(self.council, verifier)) {
            return Err(RequestRefusal::Unsigned);
        }
        if !changes.iter().all(|decided| access.apply(decided)) {
            return Err(RequestRefusal::ForeignAccess);
        }
        if self.access.as_ref() == Some(&access) {
            return Ok(self.reported(&requester.key));
        }
        self.access = Some(access.clone());
        let mut records = vec![AcceptorRecord::Access(access)];
        records.extend(self.compact_if_offered());
        Ok(self.stored(records, requester))
    }

    /// Closes the council, if a member has signed this.
    pub(super) fn close(
        &mut self,
        closing: Closing,
        verifier: &dyn Verifier,
    ) -> Result<DeferredReplies, RequestRefusal> {
        let mut access = self.access.clone().ok_or(RequestRefusal::UnknownCouncil)?;
        if !closing.is_signed(self.council, verifier) {
            return Err(RequestRefusal::Unsigned);
        }
        if !access.close(closing) {
            return Err(self.not_member(&closing.by));
        }
        self.access = Some(access.clone());
        let replies = to_requester(AcceptorReply::Closed(closing));
        Ok(Deferred::until_stored(vec![AcceptorRecord::Access(access)], replies))
    }

    /// Takes a snapshot, and stores it if a majority of the members has endorsed it. Of two snapshots, the one with fewer
    /// endorsements is dropped.
    pub(super) fn offer(
        &mut self,
        requester: &Requester,
        snapshot: CouncilSnapshot,
        certificate: &[Endorsement],
        verifier: &dyn Verifier,
    ) -> Result<DeferredReplies, RequestRefusal> {
        if snapshot.bytes.len() > CouncilSnapshot::MAX_BYTES {
            return Err(RequestRefusal::TooLarge);
        }
        if !certificate.iter().all(|endorsement| endorsement.is_signed(self.council, verifier)) {
            return Err(RequestRefusal::Unsigned);
        }
        let offered = (snapshot.digest(), snapshot);
        let record = self.compact_if_endorsed(&offered.1, offered.0, certificate);
        let endorsements = |digest, slot| self.endorsements.of(slot, digest).count();
        let known = self.endorsements.snapshot();
        let known = known.map_or(0, |known| endorsements(self.endorsements.offered(), known.slot));
        if offered.1.slot > self.floor() && known <= endorsements(offered.0, offered.1.slot) {
            self.endorsements.offered = Some((offered.1, offered.0));
        }
        Ok(self.stored(record.into_iter().collect(), requester))
    }

    /// Notes that a member has endorsed a snapshot.
    pub(super) fn endorse(
        &mut self,
        requester: &Requester,
        endorsement: Endorsement,
        verifier: &dyn Verifier,
    ) -> Result<DeferredReplies, RequestRefusal> {
        if endorsement.by != requester.key || !endorsement.is_signed(self.council, verifier) {
            return Err(RequestRefusal::Unsigned);
        }
        let before = self.endorsements.by_member.get(&endorsement.by);
        if endorsement.slot <= self.floor() || before == Some(&endorsement) {
            return Ok(self.reported(&requester.key));
        }
        self.endorsements.restore(endorsement);
        let mut records = vec![AcceptorRecord::Endorsed(endorsement)];
        records.extend(self.compact_if_offered());
        Ok(self.stored(records, requester))
    }

    /// Replaces the slots by the offered snapshot, if a majority of the members after its slot has endorsed it.
    fn compact_if_offered(&mut self) -> Option<AcceptorRecord> {
        let (snapshot, digest) = self.endorsements.offered.clone()?;
        self.compact_if_endorsed(&snapshot, digest, &[])
    }

    /// Replaces the slots by a snapshot, if a majority of the members after its slot has endorsed it.
    fn compact_if_endorsed(
        &mut self,
        snapshot: &CouncilSnapshot,
        digest: Digest,
        certificate: &[Endorsement],
    ) -> Option<AcceptorRecord> {
        let access = self.access.as_ref()?;
        let is_of_it = |endorsed: &&Endorsement| endorsed.slot == snapshot.slot && endorsed.digest == digest;
        let known = self.endorsements.of(snapshot.slot, digest).chain(certificate.iter().filter(is_of_it));
        let known = known.filter(|endorsed| endorsed.access <= access.slot());
        let certificate: BTreeMap<_, _> = known.map(|endorsed| (endorsed.by, *endorsed)).collect();
        let is_endorsed = access.is_majority(snapshot.slot, certificate.keys());
        if snapshot.slot <= self.floor() || !is_endorsed {
            return None;
        }
        let certificate: Vec<_> = certificate.into_values().collect();
        self.compact(snapshot.clone(), certificate.clone());
        Some(AcceptorRecord::Snapshot(snapshot.clone(), certificate))
    }

    fn stored(&self, records: Vec<AcceptorRecord>, requester: &Requester) -> DeferredReplies {
        let replies = to_requester(self.report(&requester.key));
        if records.is_empty() { Deferred::ready(replies) } else { Deferred::until_stored(records, replies) }
    }
}
