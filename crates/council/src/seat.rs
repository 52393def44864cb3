//! The part of one acceptor in one council.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use holdoff_paxos::slot::{AcceptReply, Acceptor, PromiseReply, Record, Vote};
use holdoff_paxos::{Ballot, Held, NodeId, Slot};
use serde::{Deserialize, Serialize};

use crate::{
    Ask, CouncilId, Digest, Operation, OperationId, PublicKey, Refusal, Snapshot, Tell, Value, Verifier,
};

/// The data of one acceptor for one council: the votes by slot, a snapshot and mail.
///
/// Each council has one seat, and each seat has one writer. The seat returns the records that must be on disk
/// [held](Held) together with the answers that may leave afterwards.
#[derive(Debug)]
pub struct Seat {
    council: CouncilId,
    quota: Quota,
    slots: BTreeMap<Slot, Acceptor<Value>>,
    /// The highest slot in which this acceptor has accepted a value.
    latest: Slot,
    snapshot: Option<(Snapshot, Digest)>,
    letters: BTreeMap<(PublicKey, OperationId), Bytes>,
    /// The announced operations. They are in memory only, because the author keeps its operation until it is
    /// decided.
    announced: VecDeque<Operation>,
    bytes: usize,
}

/// The quota of a council at an acceptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Slots that the snapshot does not cover.
    pub slots: usize,
    /// Total bytes.
    pub bytes: usize,
    /// Announced operations that are not decided yet.
    pub announced: usize,
    /// Uncollected mail messages.
    pub letters: usize,
}

impl Default for Quota {
    fn default() -> Self {
        Self { slots: 100_000, bytes: 64 * 1024 * 1024, announced: 256, letters: 256 }
    }
}

/// The sender of a request: its key, which the connection authenticates, and its node id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asker {
    /// The key.
    pub key: PublicKey,
    /// The id in ballots.
    pub node: NodeId,
}

/// A record that an acceptor must have on disk before its answer leaves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Stored {
    /// A promise or a vote.
    Slot(Slot, Record<Value>),
    /// A snapshot. The store may delete all slots up to its slot.
    Snapshot(Snapshot),
    /// A mail message.
    Letter(PublicKey, OperationId, Bytes),
    /// The addressee of these mail messages has connected as a device. The store may delete the messages.
    Came(PublicKey),
}

/// A message with its destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The destination.
    pub to: To,
    /// The message.
    pub tell: Tell,
}

/// The destination of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// The sender of the request.
    Asker,
    /// All watchers of the council except the sender of the request.
    Watchers,
}

type Answers = Held<Vec<Stored>, Vec<Answer>>;

/// The maximum size of a history in one answer, in slots and in bytes.
const HISTORY_SLOTS: usize = 64;
const HISTORY_BYTES: usize = 512 * 1024;
/// The maximum size of the announced operations in one answer.
const ANNOUNCED_BYTES: usize = 128 * 1024;
/// The maximum size of the mail in one answer, in messages and in bytes.
const MAIL_LETTERS: usize = 16;
const MAIL_BYTES: usize = 512 * 1024;
/// The maximum size of a mail message.
const LETTER_BYTES: usize = 64 * 1024;
/// The share of a council's bytes that mail may take: one part in this number. So mail never prevents the council
/// from deciding.
const LETTERS_SHARE: usize = 4;

impl Seat {
    /// Creates the seat of a council that has no data yet.
    pub fn new(council: CouncilId, quota: Quota) -> Self {
        Self {
            council,
            quota,
            slots: BTreeMap::new(),
            latest: Slot(0),
            snapshot: None,
            letters: BTreeMap::new(),
            announced: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Restores a record that an earlier process has stored.
    pub fn restore(&mut self, stored: Stored) {
        match stored {
            Stored::Slot(slot, record) => self.keep(slot, record),
            Stored::Snapshot(snapshot) => self.compact(snapshot),
            Stored::Letter(to, id, message) => {
                self.bytes += message.len();
                self.letters.insert((to, id), message);
            }
            Stored::Came(who) => drop(self.forget_letters(&who)),
        }
    }

    /// Returns the highest slot in which this acceptor has accepted a value.
    pub fn latest(&self) -> Slot {
        self.latest
    }

    /// Returns the last slot that the snapshot covers.
    pub fn floor(&self) -> Slot {
        self.snapshot.as_ref().map_or(Slot(0), |(snapshot, _)| snapshot.slot)
    }

    /// Returns the stored bytes of values, mail and snapshot.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the approximate memory of the seat.
    pub fn memory(&self) -> usize {
        const EACH: usize = 256;
        let announced: usize = self.announced.iter().map(|operation| operation.body.len()).sum();
        let many = 1 + self.slots.len() + self.letters.len() + self.announced.len();
        self.bytes + announced + many * EACH
    }

    /// Returns the number of stored mail messages.
    pub fn letters(&self) -> usize {
        self.letters.len()
    }

    /// Returns the number of stored slots.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the seat stores the mail message of this operation.
    #[cfg(test)]
    pub(crate) fn has_letter(&self, id: &OperationId) -> bool {
        self.letters.keys().any(|(_, known)| known == id)
    }

    /// Answers a request. A refused request changes nothing.
    pub fn answer(&mut self, asker: &Asker, ask: Ask, verifier: &dyn Verifier) -> Answers {
        let slot = slot_of(&ask);
        let answered = match ask {
            Ask::Prepare { slot, ballot, announce } => self.prepare(asker, slot, ballot, announce),
            Ask::Accept { slot, ballot, value, next } => {
                self.accept(asker, slot, Vote { ballot, value }, next, verifier)
            }
            Ask::Decided { slot, vote } => self.decided(slot, vote, verifier),
            Ask::Fetch { after } => Ok(self.fetch(asker, after)),
            Ask::Snapshot => Ok(Held::free(to_asker(self.own_snapshot()))),
            Ask::Compact { snapshot } => self.take_snapshot(snapshot),
            Ask::Post { id, to, message } => self.post(id, to, message),
            Ask::Collect => Ok(Held::free(to_asker(self.mail(&asker.key)))),
        };
        answered.unwrap_or_else(|why| Held::free(to_asker(Tell::Refused { slot, why })))
    }

    fn prepare(
        &mut self,
        asker: &Asker,
        slot: Slot,
        ballot: Ballot,
        announce: Vec<Operation>,
    ) -> Result<Answers, Refusal> {
        check_ballot(asker, slot, ballot)?;
        if slot <= self.floor() {
            return Ok(Held::free(to_asker(self.compacted())));
        }
        self.check_promise(slot)?;
        self.hear(slot, announce);
        let held = self.slots.entry(slot).or_default().prepare(ballot);
        Ok(held.map_record(|record| vec![Stored::Slot(slot, record)]).map(|reply| {
            let (announced, latest) = (self.told(), self.latest);
            to_asker(Tell::Promise { slot, reply, announced, latest })
        }))
    }

    fn accept(
        &mut self,
        asker: &Asker,
        slot: Slot,
        vote: Vote<Value>,
        next: Option<Ballot>,
        verifier: &dyn Verifier,
    ) -> Result<Answers, Refusal> {
        check_ballot(asker, slot, vote.ballot)?;
        next.map_or(Ok(()), |ballot| check_ballot(asker, slot.next(), ballot))?;
        if slot <= self.floor() {
            return Ok(Held::free(to_asker(self.compacted())));
        }
        self.check_value(slot, &vote.value, verifier)?;
        let held = self.vote(slot, &vote);
        let is_new = held.record().is_some();
        let held = held.map_record(|record| vec![Stored::Slot(slot, record)]);
        let mut promised = None;
        // If there is no room for the next slot, the acceptor ignores the request for its promise. It refuses a
        // separate prepare request.
        let held = match next.filter(|_| self.check_promise(slot.next()).is_ok()) {
            None => held,
            Some(ballot) => {
                let promise = self.slots.entry(slot.next()).or_default().prepare(ballot);
                let both = held.and(promise.map_record(|record| Stored::Slot(slot.next(), record)));
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
        next: Option<PromiseReply<Value>>,
        new: Option<Vote<Value>>,
    ) -> Vec<Answer> {
        let announced = if next.is_some() { self.told() } else { Vec::new() };
        let mut answers = to_asker(Tell::Accepted { slot, reply, next, announced });
        answers.extend(new.map(|vote| Answer { to: To::Watchers, tell: Tell::Voted { slot, vote } }));
        answers
    }

    /// Processes the report that this value was chosen. If the acceptor has already accepted it, there is no new
    /// record.
    fn decided(
        &mut self,
        slot: Slot,
        vote: Vote<Value>,
        verifier: &dyn Verifier,
    ) -> Result<Answers, Refusal> {
        if !vote.ballot.is_of(slot) {
            return Err(Refusal::ForeignBallot);
        }
        if slot <= self.floor() {
            return Ok(Held::free(Vec::new()));
        }
        self.check_value(slot, &vote.value, verifier)?;
        let held = self.vote(slot, &vote);
        if held.record().is_none() {
            return Ok(Held::free(Vec::new()));
        }
        let answers = vec![Answer { to: To::Watchers, tell: Tell::Voted { slot, vote } }];
        Ok(held.map_record(|record| vec![Stored::Slot(slot, record)]).map(|_| answers))
    }

    /// Returns the history after a slot, and deletes the mail of the sender.
    ///
    /// Only a device fetches, and a device has the content of its mail on its own disk. So only the addressee,
    /// which the link authenticates, has its mail deleted, and only when it no longer needs the mail: if it is
    /// killed earlier, it finds the mail again. Every device fetches from every acceptor repeatedly. So the mail is
    /// also deleted at an acceptor that stored it late or was unreachable.
    fn fetch(&mut self, asker: &Asker, after: Slot) -> Answers {
        let mut told = if after >= self.floor() { to_asker(self.history(after)) } else { Vec::new() };
        told.extend(to_asker(self.compacted()));
        if self.forget_letters(&asker.key) {
            return Held::behind(vec![Stored::Came(asker.key)], told);
        }
        Held::free(told)
    }

    fn history(&self, after: Slot) -> Tell {
        let (mut votes, mut bytes) = (Vec::new(), 0);
        let accepted =
            |(slot, acceptor): (&Slot, &Acceptor<Value>)| Some((*slot, acceptor.accepted()?.clone()));
        let later = self.slots.range(after.next()..).filter_map(accepted);
        for (slot, vote) in later.take(HISTORY_SLOTS) {
            bytes += vote.value.len();
            if bytes > HISTORY_BYTES && !votes.is_empty() {
                break;
            }
            votes.push((slot, vote));
        }
        Tell::History { votes, latest: self.latest }
    }

    fn compacted(&self) -> Tell {
        let (slot, digest) = match &self.snapshot {
            Some((snapshot, digest)) => (snapshot.slot, *digest),
            None => (Slot(0), Digest::default()),
        };
        Tell::Compacted { slot, digest }
    }

    fn own_snapshot(&self) -> Tell {
        let snapshot = self.snapshot.as_ref().map(|(snapshot, _)| snapshot.clone());
        snapshot.map_or_else(|| self.compacted(), Tell::Snapshot)
    }

    fn take_snapshot(&mut self, snapshot: Snapshot) -> Result<Answers, Refusal> {
        if snapshot.bytes.len() > Snapshot::MAX_BYTES {
            return Err(Refusal::TooLarge);
        }
        if snapshot.slot <= self.floor() {
            return Ok(Held::free(to_asker(self.compacted())));
        }
        self.compact(snapshot.clone());
        let told = to_asker(self.compacted());
        Ok(Held::behind(vec![Stored::Snapshot(snapshot)], told))
    }

    fn compact(&mut self, snapshot: Snapshot) {
        let later = self.slots.split_off(&snapshot.slot.next());
        let gone = std::mem::replace(&mut self.slots, later);
        let gone: usize = gone.values().filter_map(Acceptor::accepted).map(|vote| vote.value.len()).sum();
        let before = self.snapshot.as_ref().map_or(0, |(snapshot, _)| snapshot.bytes.len());
        self.bytes = (self.bytes + snapshot.bytes.len()).saturating_sub(gone + before);
        self.latest = self.latest.max(snapshot.slot);
        let digest = snapshot.digest();
        self.snapshot = Some((snapshot, digest));
    }

    fn post(&mut self, id: OperationId, to: PublicKey, message: Bytes) -> Result<Answers, Refusal> {
        let told = to_asker(Tell::Posted { id });
        if self.letters.contains_key(&(to, id)) {
            return Ok(Held::free(told));
        }
        if message.len() > LETTER_BYTES {
            return Err(Refusal::TooLarge);
        }
        let letters: usize = self.letters.values().map(Bytes::len).sum();
        let has_room = letters + message.len() <= self.quota.bytes / LETTERS_SHARE;
        let fits = self.bytes + message.len() <= self.quota.bytes;
        if self.letters.len() >= self.quota.letters || !has_room || !fits {
            return Err(Refusal::Full);
        }
        self.bytes += message.len();
        self.letters.insert((to, id), message.clone());
        Ok(Held::behind(vec![Stored::Letter(to, id, message)], told))
    }

    /// Deletes the mail of this addressee. Returns whether there was any.
    fn forget_letters(&mut self, to: &PublicKey) -> bool {
        let (first, last) = (OperationId([0; 16]), OperationId([u8::MAX; 16]));
        let theirs: Vec<_> = self.letters.range((*to, first)..=(*to, last)).map(|(key, _)| *key).collect();
        for key in &theirs {
            let message = self.letters.remove(key).unwrap_or_default();
            self.bytes = self.bytes.saturating_sub(message.len());
        }
        !theirs.is_empty()
    }

    fn mail(&self, to: &PublicKey) -> Tell {
        let mut bytes = 0;
        let mine = self.letters.iter().filter(|((key, _), _)| key == to);
        let fits = mine.take_while(|(_, message)| {
            bytes += message.len();
            bytes <= MAIL_BYTES
        });
        Tell::Mail(fits.map(|((_, id), message)| (*id, message.clone())).take(MAIL_LETTERS).collect())
    }

    /// Stores announced operations, up to the quota, and drops those that the previous slot has decided. The author
    /// keeps each operation that is dropped here.
    fn hear(&mut self, slot: Slot, announce: Vec<Operation>) {
        if let Some(earlier) = self.slots.get(&Slot(slot.0 - 1)).and_then(Acceptor::accepted) {
            let done = earlier.value.batch().map(|batch| batch.operations).unwrap_or_default();
            self.announced.retain(|known| done.iter().all(|done| done.id != known.id));
        }
        for operation in announce.into_iter().take(self.quota.announced) {
            if operation.body.len() > Operation::MAX_BODY {
                continue;
            }
            self.announced.retain(|known| known.id != operation.id);
            self.announced.push_back(operation);
        }
        while self.announced.len() > self.quota.announced {
            self.announced.pop_front();
        }
    }

    fn told(&self) -> Vec<Operation> {
        let mut bytes = 0;
        let fits = |operation: &&Operation| {
            bytes += operation.body.len() + 128;
            bytes <= ANNOUNCED_BYTES
        };
        self.announced.iter().take_while(fits).cloned().collect()
    }

    fn vote(&mut self, slot: Slot, vote: &Vote<Value>) -> Held<Record<Value>, AcceptReply> {
        let before = self.weight(slot);
        let held = self.slots.entry(slot).or_default().accept(vote.ballot, vote.value.clone());
        self.weigh(slot, before);
        held
    }

    fn keep(&mut self, slot: Slot, record: Record<Value>) {
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

    fn check_value(&self, slot: Slot, value: &Value, verifier: &dyn Verifier) -> Result<(), Refusal> {
        if value.len() > Value::MAX_BYTES {
            return Err(Refusal::TooLarge);
        }
        self.check_room(slot, value.len())?;
        if value.is_signed(self.council, slot, verifier) { Ok(()) } else { Err(Refusal::Unsigned) }
    }

    /// Checks that there is room for a promise in this slot.
    fn check_promise(&self, slot: Slot) -> Result<(), Refusal> {
        if !self.slots.contains_key(&slot) && self.bytes >= self.quota.bytes {
            return Err(Refusal::Full);
        }
        self.check_room(slot, 0)
    }

    /// Checks that there is room for a value of this size in this slot, in place of the previous one.
    fn check_room(&self, slot: Slot, bytes: usize) -> Result<(), Refusal> {
        let has_place = self.slots.contains_key(&slot) || self.slots.len() < self.quota.slots;
        let before = self.weight(slot).unwrap_or(0);
        let fits = bytes <= before || self.bytes - before + bytes <= self.quota.bytes;
        if has_place && fits { Ok(()) } else { Err(Refusal::Full) }
    }
}

fn check_ballot(asker: &Asker, slot: Slot, ballot: Ballot) -> Result<(), Refusal> {
    // No proposer makes nearly so many attempts, and every proposer must be able to exceed any attempt.
    let is_sane = ballot.attempt() < u64::MAX / 2 && slot > Slot(0);
    let is_own = ballot.member() == asker.node && ballot.is_of(slot) && is_sane;
    if is_own { Ok(()) } else { Err(Refusal::ForeignBallot) }
}

fn to_asker(tell: Tell) -> Vec<Answer> {
    vec![Answer { to: To::Asker, tell }]
}

fn slot_of(ask: &Ask) -> Option<Slot> {
    match ask {
        Ask::Prepare { slot, .. } | Ask::Accept { slot, .. } | Ask::Decided { slot, .. } => Some(*slot),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
