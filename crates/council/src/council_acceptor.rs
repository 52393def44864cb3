//! The part of one acceptor in one council.

mod proof;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use holdoff_paxos::slot::{AcceptReply, Acceptor, PromiseReply, Record, Vote};
use holdoff_paxos::{Ballot, Deferred, NodeId, Slot};
use proof::{Endorsements, StoredSnapshot};
use serde::{Deserialize, Serialize};

use crate::access::Standing;
use crate::{
    AcceptorReply, AcceptorReport, AcceptorRequest, Access, Closing, CouncilId, CouncilSnapshot, Digest,
    Endorsement, OperationId, PublicKey, RequestRefusal, SignedOperation, SlotValue, Verifier,
};

/// The data of one acceptor for one council: the members, the votes by slot, a snapshot and mail.
///
/// A council has several acceptors, and an acceptor serves many councils. It has one `CouncilAcceptor` for each
/// council, and one writer that calls all of them. A request returns a [`Deferred`]: the records to store, and the
/// replies, which are released when the records are on disk.
#[derive(Debug)]
pub struct CouncilAcceptor {
    council: CouncilId,
    quota: Quota,
    /// The members; `None` until a member has introduced the council.
    access: Option<Access>,
    endorsements: Endorsements,
    slots: BTreeMap<Slot, Acceptor<SlotValue>>,
    /// The highest slot in which this acceptor has accepted a value.
    latest: Slot,
    snapshot: Option<StoredSnapshot>,
    mail: BTreeMap<(PublicKey, OperationId), Bytes>,
    /// The announced operations. They are in memory only, because the author keeps its operation until it is
    /// decided.
    announced: VecDeque<SignedOperation>,
    bytes: usize,
}

/// The quota of a council at an acceptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Slots after the last one that the snapshot covers.
    pub slots: usize,
    /// Total bytes.
    pub bytes: usize,
    /// Announced operations that are not decided yet.
    pub announced: usize,
    /// Uncollected mail messages.
    pub mail_messages: usize,
}

impl Default for Quota {
    fn default() -> Self {
        Self { slots: 100_000, bytes: 64 * 1024 * 1024, announced: 256, mail_messages: 256 }
    }
}

/// The sender of a request: its key, which the connection authenticates, and its node id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requester {
    /// The key.
    pub key: PublicKey,
    /// The id in ballots.
    pub node: NodeId,
}

/// A record that an acceptor must have on disk before its answer leaves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AcceptorRecord {
    /// The members.
    Access(Access),
    /// A member has endorsed a snapshot.
    Endorsed(Endorsement),
    /// A promise or a vote.
    Slot(Slot, Record<SlotValue>),
    /// A snapshot with its endorsements. The store may delete all slots up to its slot, and all other endorsements.
    Snapshot(CouncilSnapshot, Vec<Endorsement>),
    /// A mail message.
    Mail(PublicKey, OperationId, Bytes),
    /// The addressee of these mail messages has connected as a device. The store may delete the messages.
    AddresseeConnected(PublicKey),
}

/// A message with its destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AddressedReply {
    /// The destination.
    pub to: Recipient,
    /// The message.
    pub reply: AcceptorReply,
}

/// The destination of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recipient {
    /// The sender of the request.
    Requester,
    /// All watchers of the council except the sender of the request.
    Watchers,
}

type DeferredReplies = Deferred<Vec<AcceptorRecord>, Vec<AddressedReply>>;

/// The maximum size of a history in one answer, in slots and in bytes.
const HISTORY_SLOTS: usize = 64;
const HISTORY_BYTES: usize = 512 * 1024;
/// The maximum size of the announced operations in one answer.
const ANNOUNCED_BYTES: usize = 128 * 1024;
/// The maximum size of the mail in one answer, in messages and in bytes.
const MAIL_MESSAGES: usize = 16;
const MAIL_BYTES: usize = 512 * 1024;
/// The maximum size of a mail message.
const MAIL_MESSAGE_BYTES: usize = 64 * 1024;
/// The share of a council's bytes that mail may take: one part in this number. So mail never prevents the council
/// from deciding.
const MAIL_SHARE: usize = 4;
/// The maximum difference between the attempt of a ballot and the highest attempt that the acceptor has seen in the
/// slot. Every proposer must be able to exceed any attempt, and to exhaust the numbers one needs 2^44 requests in one
/// slot, each of which waits for the disk. Honest devices raise attempts one by one.
pub(crate) const MAX_ATTEMPT_JUMP: u64 = 1 << 20;

impl CouncilAcceptor {
    /// Creates the acceptor of a council that has no data yet.
    pub fn new(council: CouncilId, quota: Quota) -> Self {
        Self {
            council,
            quota,
            access: None,
            endorsements: Endorsements::default(),
            slots: BTreeMap::new(),
            latest: Slot(0),
            snapshot: None,
            mail: BTreeMap::new(),
            announced: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Restores a record that an earlier process has stored.
    pub fn restore(&mut self, stored: AcceptorRecord) {
        match stored {
            AcceptorRecord::Access(access) => self.access = Some(access),
            AcceptorRecord::Endorsed(endorsement) => self.endorsements.restore(endorsement),
            AcceptorRecord::Slot(slot, record) => self.keep(slot, record),
            AcceptorRecord::Snapshot(snapshot, certificate) => self.compact(snapshot, certificate),
            AcceptorRecord::Mail(to, id, message) => {
                self.bytes += message.len();
                self.mail.insert((to, id), message);
            }
            AcceptorRecord::AddresseeConnected(who) => drop(self.delete_mail(&who)),
        }
    }

    /// Returns the highest slot in which this acceptor has accepted a value.
    pub fn latest(&self) -> Slot {
        self.latest
    }

    /// Returns the last slot that the snapshot covers.
    pub fn floor(&self) -> Slot {
        self.snapshot.as_ref().map_or(Slot(0), |stored| stored.snapshot.slot)
    }

    /// Returns the stored bytes of values, mail and snapshot.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the approximate memory of the acceptor.
    pub fn memory(&self) -> usize {
        const EACH: usize = 256;
        let announced: usize = self.announced.iter().map(|operation| operation.body.len()).sum();
        let many = 1 + self.slots.len() + self.mail.len() + self.announced.len();
        let access = self.access.as_ref().map_or(0, Access::memory);
        self.bytes + announced + access + self.endorsements.memory() + many * EACH
    }

    /// Returns the number of stored mail messages.
    pub fn mail_count(&self) -> usize {
        self.mail.len()
    }

    /// Returns the number of stored slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Answers a request. A refused request changes nothing.
    pub fn answer(
        &mut self,
        requester: &Requester,
        request: AcceptorRequest,
        verifier: &dyn Verifier,
    ) -> DeferredReplies {
        let slot = slot_of(&request);
        let answered = self.check_access(requester, &request).and_then(|()| match request {
            AcceptorRequest::Introduce { founding, access, members, changes } => {
                let introduced = Access::introduced(&founding, self.council, access, members);
                self.introduce(requester, introduced, &changes, verifier)
            }
            AcceptorRequest::Access { changes } => self.change_access(requester, &changes, verifier),
            AcceptorRequest::Prepare { slot, ballot, announce } => {
                self.prepare(requester, slot, ballot, announce)
            }
            AcceptorRequest::Accept { slot, ballot, value, next } => {
                self.accept(requester, slot, Vote { ballot, value }, next, verifier)
            }
            AcceptorRequest::Decided { slot, vote } => self.decided(slot, vote, verifier),
            AcceptorRequest::Fetch { after } => self.fetch(requester, after),
            AcceptorRequest::Snapshot { offered } => {
                Ok(Deferred::ready(to_requester(self.own_snapshot(&requester.key, offered))))
            }
            AcceptorRequest::Compact { snapshot, certificate } => {
                self.offer(requester, snapshot, &certificate, verifier)
            }
            AcceptorRequest::Endorse(endorsement) => self.endorse(requester, endorsement, verifier),
            AcceptorRequest::Close(closing) => self.close(closing, verifier),
            AcceptorRequest::Post { id, to, message } => self.post(id, to, message),
            AcceptorRequest::Collect => Ok(Deferred::ready(to_requester(self.collect(&requester.key)))),
        });
        answered.unwrap_or_else(|why| Deferred::ready(to_requester(AcceptorReply::Refused { slot, why })))
    }

    fn prepare(
        &mut self,
        requester: &Requester,
        slot: Slot,
        ballot: Ballot,
        announce: Vec<SignedOperation>,
    ) -> Result<DeferredReplies, RequestRefusal> {
        check_owner(requester, slot, ballot)?;
        if slot <= self.floor() {
            return Ok(self.reported(&requester.key));
        }
        self.check_attempt(slot, ballot)?;
        self.check_promise(slot)?;
        self.store_announced(slot, announce);
        let held = self.slots.entry(slot).or_default().prepare(ballot);
        Ok(held.map_record(|record| vec![AcceptorRecord::Slot(slot, record)]).map(|reply| {
            let (announced, latest) = (self.announced_operations(), self.latest);
            to_requester(AcceptorReply::Promise { slot, reply, announced, latest })
        }))
    }

    fn accept(
        &mut self,
        requester: &Requester,
        slot: Slot,
        vote: Vote<SlotValue>,
        next: Option<Ballot>,
        verifier: &dyn Verifier,
    ) -> Result<DeferredReplies, RequestRefusal> {
        check_owner(requester, slot, vote.ballot)?;
        next.map_or(Ok(()), |ballot| check_owner(requester, slot.next(), ballot))?;
        if slot <= self.floor() {
            return Ok(self.reported(&requester.key));
        }
        self.check_attempt(slot, vote.ballot)?;
        next.map_or(Ok(()), |ballot| self.check_attempt(slot.next(), ballot))?;
        self.check_value(slot, &vote.value, verifier)?;
        let held = self.vote(slot, &vote);
        let is_new = held.record().is_some();
        let held = held.map_record(|record| vec![AcceptorRecord::Slot(slot, record)]);
        let mut promised = None;
        // If there is no room for the next slot, the acceptor ignores the request for its promise. It refuses a
        // separate prepare request.
        let held = match next.filter(|_| self.check_promise(slot.next()).is_ok()) {
            None => held,
            Some(ballot) => {
                let promise = self.slots.entry(slot.next()).or_default().prepare(ballot);
                let both = held.and(promise.map_record(|record| AcceptorRecord::Slot(slot.next(), record)));
                both.map(|(reply, promise)| {
                    promised = Some(promise);
                    reply
                })
            }
        };
        Ok(held.map(|reply| self.accepted(slot, reply, promised, is_new.then_some(vote))))
    }

    fn accepted(
        &self,
        slot: Slot,
        reply: AcceptReply,
        next: Option<PromiseReply<SlotValue>>,
        new: Option<Vote<SlotValue>>,
    ) -> Vec<AddressedReply> {
        let announced = if next.is_some() { self.announced_operations() } else { Vec::new() };
        let mut answers = to_requester(AcceptorReply::Accepted { slot, reply, next, announced });
        answers.extend(new.map(|vote| AddressedReply {
            to: Recipient::Watchers,
            reply: AcceptorReply::Voted { slot, vote },
        }));
        answers
    }

    /// Processes the report that this value was chosen. If the acceptor has already accepted it, there is no new
    /// record.
    fn decided(
        &mut self,
        slot: Slot,
        vote: Vote<SlotValue>,
        verifier: &dyn Verifier,
    ) -> Result<DeferredReplies, RequestRefusal> {
        if !vote.ballot.is_of(slot) {
            return Err(RequestRefusal::ForeignBallot);
        }
        if slot <= self.floor() {
            return Ok(Deferred::ready(Vec::new()));
        }
        self.check_attempt(slot, vote.ballot)?;
        self.check_value(slot, &vote.value, verifier)?;
        let held = self.vote(slot, &vote);
        if held.record().is_none() {
            return Ok(Deferred::ready(Vec::new()));
        }
        let answers =
            vec![AddressedReply { to: Recipient::Watchers, reply: AcceptorReply::Voted { slot, vote } }];
        Ok(held.map_record(|record| vec![AcceptorRecord::Slot(slot, record)]).map(|_| answers))
    }

    /// Returns the history after a slot, and deletes the mail of the sender.
    ///
    /// Only a device fetches, and a device has the content of its mail on its own disk. So only the addressee,
    /// which the link authenticates, has its mail deleted, and only when it no longer needs the mail: if it is
    /// killed earlier, it finds the mail again. Every device fetches from every acceptor repeatedly. So the mail is
    /// also deleted at an acceptor that stored it late or was unreachable.
    ///
    /// A former member gets the slots up to the one that removed it, so that it learns of its removal.
    fn fetch(&mut self, requester: &Requester, after: Slot) -> Result<DeferredReplies, RequestRefusal> {
        if let Standing::Removed(last) = self.standing(&requester.key) {
            let is_kept = after >= self.floor() && after < last;
            let history = is_kept.then(|| Deferred::ready(to_requester(self.history(after, last))));
            return history.ok_or(self.not_member(&requester.key));
        }
        let mut replies = Vec::new();
        if after >= self.floor() {
            replies = to_requester(self.history(after, Slot(u64::MAX)));
        }
        replies.extend(to_requester(self.report(&requester.key)));
        if let Some(closing) = self.closed() {
            replies.extend(to_requester(AcceptorReply::Closed(closing)));
        }
        if self.delete_mail(&requester.key) {
            let connected = AcceptorRecord::AddresseeConnected(requester.key);
            return Ok(Deferred::until_stored(vec![connected], replies));
        }
        Ok(Deferred::ready(replies))
    }

    fn history(&self, after: Slot, last: Slot) -> AcceptorReply {
        let (mut votes, mut bytes) = (Vec::new(), 0);
        let accepted =
            |(slot, acceptor): (&Slot, &Acceptor<SlotValue>)| Some((*slot, acceptor.accepted()?.clone()));
        let later = self.slots.range(after.next()..=last.max(after.next())).filter_map(accepted);
        for (slot, vote) in later.take(HISTORY_SLOTS) {
            bytes += vote.value.len();
            if bytes > HISTORY_BYTES && !votes.is_empty() {
                break;
            }
            votes.push((slot, vote));
        }
        AcceptorReply::History { votes, latest: self.latest.min(last) }
    }

    fn report(&self, to: &PublicKey) -> AcceptorReply {
        let digest = self.snapshot.as_ref().map(|stored| stored.digest);
        AcceptorReply::Report(AcceptorReport {
            floor: self.floor(),
            digest: digest.unwrap_or_default(),
            offered: self.endorsements.offered(),
            endorsed: self.endorsements.by(to),
            access: self.access.as_ref().map_or(Slot(0), Access::slot),
        })
    }

    fn reported(&self, to: &PublicKey) -> DeferredReplies {
        Deferred::ready(to_requester(self.report(to)))
    }

    fn own_snapshot(&self, to: &PublicKey, offered: Option<Digest>) -> AcceptorReply {
        if let Some(snapshot) = self.endorsements.snapshot()
            && Some(self.endorsements.offered()) == offered
        {
            return AcceptorReply::Snapshot { snapshot: snapshot.clone(), certificate: Vec::new() };
        }
        let Some(StoredSnapshot { snapshot, certificate, .. }) = self.snapshot.clone() else {
            return self.report(to);
        };
        AcceptorReply::Snapshot { snapshot, certificate }
    }

    fn compact(&mut self, snapshot: CouncilSnapshot, certificate: Vec<Endorsement>) {
        let later = self.slots.split_off(&snapshot.slot.next());
        let gone = std::mem::replace(&mut self.slots, later);
        let gone: usize = gone.values().filter_map(Acceptor::accepted).map(|vote| vote.value.len()).sum();
        let before = self.snapshot.as_ref().map_or(0, |stored| stored.snapshot.bytes.len());
        self.bytes = (self.bytes + snapshot.bytes.len()).saturating_sub(gone + before);
        self.latest = self.latest.max(snapshot.slot);
        let digest = snapshot.digest();
        self.snapshot = Some(StoredSnapshot { snapshot, digest, certificate });
        self.endorsements = Endorsements::default();
    }

    fn post(
        &mut self,
        id: OperationId,
        to: PublicKey,
        message: Bytes,
    ) -> Result<DeferredReplies, RequestRefusal> {
        let replies = to_requester(AcceptorReply::Posted { id });
        if self.mail.contains_key(&(to, id)) {
            return Ok(Deferred::ready(replies));
        }
        if message.len() > MAIL_MESSAGE_BYTES {
            return Err(RequestRefusal::TooLarge);
        }
        let mail: usize = self.mail.values().map(Bytes::len).sum();
        let has_room = mail + message.len() <= self.quota.bytes / MAIL_SHARE;
        let fits = self.bytes + message.len() <= self.quota.bytes;
        if self.mail.len() >= self.quota.mail_messages || !has_room || !fits {
            return Err(RequestRefusal::Full);
        }
        self.bytes += message.len();
        self.mail.insert((to, id), message.clone());
        Ok(Deferred::until_stored(vec![AcceptorRecord::Mail(to, id, message)], replies))
    }

    /// Deletes the mail of this addressee. Returns whether there was any.
    fn delete_mail(&mut self, to: &PublicKey) -> bool {
        let (first, last) = (OperationId([0; 16]), OperationId([u8::MAX; 16]));
        let theirs: Vec<_> = self.mail.range((*to, first)..=(*to, last)).map(|(key, _)| *key).collect();
        for key in &theirs {
            let message = self.mail.remove(key).unwrap_or_default();
            self.bytes = self.bytes.saturating_sub(message.len());
        }
        !theirs.is_empty()
    }

    fn collect(&self, to: &PublicKey) -> AcceptorReply {
        let mut bytes = 0;
        let mine = self.mail.iter().filter(|((key, _), _)| key == to);
        let fits = mine.take_while(|(_, message)| {
            bytes += message.len();
            bytes <= MAIL_BYTES
        });
        AcceptorReply::Mail(
            fits.map(|((_, id), message)| (*id, message.clone())).take(MAIL_MESSAGES).collect(),
        )
    }

    /// Stores announced operations, up to the quota, and drops those that the previous slot has decided. The author
    /// keeps each operation that is dropped here.
    fn store_announced(&mut self, slot: Slot, announce: Vec<SignedOperation>) {
        if let Some(earlier) = self.slots.get(&Slot(slot.0 - 1)).and_then(Acceptor::accepted) {
            let done = earlier.value.batch().map(|batch| batch.operations).unwrap_or_default();
            self.announced.retain(|known| done.iter().all(|done| done.id != known.id));
        }
        for operation in announce.into_iter().take(self.quota.announced) {
            if operation.body.len() > SignedOperation::MAX_BODY {
                continue;
            }
            self.announced.retain(|known| known.id != operation.id);
            self.announced.push_back(operation);
        }
        while self.announced.len() > self.quota.announced {
            self.announced.pop_front();
        }
    }

    fn announced_operations(&self) -> Vec<SignedOperation> {
        let mut bytes = 0;
        let fits = |operation: &&SignedOperation| {
            bytes += operation.body.len() + 128;
            bytes <= ANNOUNCED_BYTES
        };
        self.announced.iter().take_while(fits).cloned().collect()
    }

    fn vote(&mut self, slot: Slot, vote: &Vote<SlotValue>) -> Deferred<Record<SlotValue>, AcceptReply> {
        let before = self.weight(slot);
        let held = self.slots.entry(slot).or_default().accept(vote.ballot, vote.value.clone());
        self.weigh(slot, before);
        held
    }

    fn keep(&mut self, slot: Slot, record: Record<SlotValue>) {
        let before = self.weight(slot);
        self.slots.entry(slot).or_default().restore(record);
        self.weigh(slot, before);
    }

    /// Returns the stored bytes of a slot, if the acceptor has accepted a value in it.
    fn weight(&self, slot: Slot) -> Option<usize> {
        Some(self.slots.get(&slot)?.accepted()?.value.len())
    }

    fn weigh(&mut self, slot: Slot, before: Option<usize>) {
        if let Some(after) = self.weight(slot) {
            self.bytes = (self.bytes + after).saturating_sub(before.unwrap_or(0));
            self.latest = self.latest.max(slot);
        }
    }

    fn check_value(
        &self,
        slot: Slot,
        value: &SlotValue,
        verifier: &dyn Verifier,
    ) -> Result<(), RequestRefusal> {
        if value.len() > SlotValue::MAX_BYTES {
            return Err(RequestRefusal::TooLarge);
        }
        self.check_room(slot, value.len(), value.compacts)?;
        if value.is_signed(self.council, slot, verifier) { Ok(()) } else { Err(RequestRefusal::Unsigned) }
    }

    /// Returns the relation of a key to the council.
    fn standing(&self, key: &PublicKey) -> Standing {
        self.access.as_ref().map_or(Standing::Stranger, |access| access.standing(key))
    }

    /// Returns whether this key may read the history, and receive pushes.
    pub fn may_read(&self, key: &PublicKey) -> bool {
        self.standing(key) == Standing::Member
    }

    /// Checks that the sender may send this request. A former member may fetch, and any client may introduce a council,
    /// report changes of the members, which members have signed, and collect its own mail.
    fn check_access(&self, requester: &Requester, request: &AcceptorRequest) -> Result<(), RequestRefusal> {
        let is_open = match request {
            AcceptorRequest::Introduce { .. } | AcceptorRequest::Collect => return Ok(()),
            AcceptorRequest::Access { .. } | AcceptorRequest::Close(_) => true,
            AcceptorRequest::Fetch { .. } => self.standing(&requester.key) != Standing::Stranger,
            AcceptorRequest::Snapshot { .. } => self.may_read(&requester.key),
            _ if self.may_read(&requester.key) && self.closed().is_some() => {
                return Err(RequestRefusal::Closed);
            }
            _ => self.may_read(&requester.key),
        };
        if is_open && self.access.is_some() { Ok(()) } else { Err(self.not_member(&requester.key)) }
    }

    fn closed(&self) -> Option<Closing> {
        self.access.as_ref().and_then(Access::closed)
    }

    fn not_member(&self, key: &PublicKey) -> RequestRefusal {
        let Some(access) = &self.access else { return RequestRefusal::UnknownCouncil };
        let removed_in = match access.standing(key) {
            Standing::Removed(slot) => Some(slot),
            _ => None,
        };
        RequestRefusal::NotMember { access: access.slot(), removed_in }
    }

    /// Checks that the attempt of a ballot is not far above the highest attempt in its slot.
    fn check_attempt(&self, slot: Slot, ballot: Ballot) -> Result<(), RequestRefusal> {
        let highest = self.slots.get(&slot).and_then(Acceptor::promised).map_or(0, Ballot::attempt);
        let is_near = ballot.attempt().saturating_sub(highest) <= MAX_ATTEMPT_JUMP;
        if is_near { Ok(()) } else { Err(RequestRefusal::AttemptTooHigh { highest }) }
    }

    /// Checks that there is room for a promise in this slot, for a value that compacts.
    fn check_promise(&self, slot: Slot) -> Result<(), RequestRefusal> {
        if !self.slots.contains_key(&slot) && self.bytes >= with_reserve(self.quota.bytes) {
            return Err(RequestRefusal::Full);
        }
        self.check_room(slot, 0, true)
    }

    /// Checks that there is room for a value of this size in this slot, in place of the previous one. Values that compact
    /// have a reserve beyond the quota, because only a compaction frees a full council.
    ///
    /// The limit is a range of slots, not a number. So acceptors with the same snapshot have room for the same slots, and
    /// all devices can learn every slot that was decided before the council became full.
    fn check_room(&self, slot: Slot, bytes: usize, compacts: bool) -> Result<(), RequestRefusal> {
        let [slots, most] = [self.quota.slots, self.quota.bytes]
            .map(|quota| if compacts { with_reserve(quota) } else { quota });
        let floor = self.floor().max(self.access.as_ref().map_or(Slot(0), |access| access.base));
        let has_place = slot.0.saturating_sub(floor.0) <= slots as u64;
        let before = self.weight(slot).unwrap_or(0);
        let fits = bytes <= before || self.bytes - before + bytes <= most;
        if has_place && fits { Ok(()) } else { Err(RequestRefusal::Full) }
    }
}

/// Adds the reserve for values that compact to a quota: an eighth.
fn with_reserve(quota: usize) -> usize {
    quota.saturating_add(quota.div_ceil(8))
}

/// Checks that a ballot belongs to the sender and to this slot.
fn check_owner(requester: &Requester, slot: Slot, ballot: Ballot) -> Result<(), RequestRefusal> {
    let is_own = ballot.member() == requester.node && ballot.is_of(slot) && slot > Slot(0);
    if is_own { Ok(()) } else { Err(RequestRefusal::ForeignBallot) }
}

fn to_requester(reply: AcceptorReply) -> Vec<AddressedReply> {
    vec![AddressedReply { to: Recipient::Requester, reply }]
}

fn slot_of(request: &AcceptorRequest) -> Option<Slot> {
    match request {
        AcceptorRequest::Prepare { slot, .. }
        | AcceptorRequest::Accept { slot, .. }
        | AcceptorRequest::Decided { slot, .. } => Some(*slot),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
