//! The acceptors of all councils behind one disk, as one core.

use std::collections::{BTreeMap, HashMap, HashSet};

use holdoff_driver::{Core, Roll, Step, StepOf};

use super::AcceptorLimits;
use crate::{
    AcceptorRecord, AcceptorReply, AcceptorRequest, AddressedReply, CouncilAcceptor, CouncilId, PublicKey,
    Recipient, RequestRefusal, Requester, Signature, Verifier,
};

/// The acceptors of all councils. `P` is the path of an answer: the core returns it unchanged.
///
/// The core reads no disk: [`AcceptorCore::request`] adds the records of a council that is not in memory to the request.
#[derive(Debug)]
pub struct AcceptorCore<P> {
    limits: AcceptorLimits,
    /// The councils that have a record on disk, or will have one.
    known: HashSet<CouncilId>,
    in_memory: HashMap<CouncilId, CachedCouncil>,
    /// The councils in memory by their last use, least recently used first.
    by_use: BTreeMap<u64, CouncilId>,
    uses: u64,
    memory: usize,
    paths: std::marker::PhantomData<fn(P)>,
}

#[derive(Debug)]
struct CachedCouncil {
    acceptor: CouncilAcceptor,
    used: u64,
    memory: usize,
}

/// A request to the acceptor of a council. [`AcceptorCore::request`] creates it.
#[derive(Debug)]
pub struct AcceptorInput<P> {
    council: CouncilId,
    requester: Requester,
    request: AcceptorRequest,
    is_signed: bool,
    /// The records of the council, unless the council is in memory.
    stored: Vec<AcceptorRecord>,
    path: P,
}

/// The answer to a request, and the path on which it leaves.
#[derive(Clone, Debug)]
pub struct AcceptorAnswer<P> {
    /// The path of the request.
    pub path: P,
    /// The replies, each with its recipient.
    pub replies: Vec<AddressedReply>,
}

impl<P> AcceptorInput<P> {
    #[cfg(test)]
    pub(crate) fn request(&self) -> &AcceptorRequest {
        &self.request
    }
}

impl<P> AcceptorCore<P> {
    /// Creates the core of an acceptor whose disk contains records of these councils.
    pub fn new(limits: AcceptorLimits, known: impl IntoIterator<Item = CouncilId>) -> Self {
        Self {
            limits,
            known: known.into_iter().collect(),
            in_memory: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            memory: 0,
            paths: std::marker::PhantomData,
        }
    }

    /// Creates the input of a request. If the council is on disk and not in memory, `load` reads its records.
    ///
    /// The next step must process the input: a later one could find other records on disk.
    pub fn request<E>(
        &self,
        council: CouncilId,
        requester: Requester,
        request: AcceptorRequest,
        is_signed: bool,
        path: P,
        load: impl FnOnce(CouncilId) -> Result<Vec<AcceptorRecord>, E>,
    ) -> Result<AcceptorInput<P>, E> {
        let is_needed = self.knows(&council) && !self.in_memory.contains_key(&council);
        let stored = if is_needed { load(council)? } else { Vec::new() };
        Ok(AcceptorInput { council, requester, request, is_signed, stored, path })
    }

    /// Returns whether the council has a record on disk, or will have one with the next write.
    pub fn knows(&self, council: &CouncilId) -> bool {
        self.known.contains(council)
    }

    /// Returns the acceptor of a council, if it is in memory.
    pub fn acceptor(&self, council: &CouncilId) -> Option<&CouncilAcceptor> {
        self.in_memory.get(council).map(|cached| &cached.acceptor)
    }

    #[cfg(test)]
    pub(crate) fn acceptor_mut(&mut self, council: &CouncilId) -> Option<&mut CouncilAcceptor> {
        self.in_memory.get_mut(council).map(|cached| &mut cached.acceptor)
    }

    /// Returns the memory that the acceptors use, in bytes.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Evicts the least recently used acceptors until the rest fits into memory. Only data that is on disk may be
    /// evicted, so the caller must have no records left to write.
    pub fn make_room(&mut self) {
        while self.memory > self.limits.memory_bytes {
            let Some((_, longest_ago)) = self.by_use.pop_first() else { return };
            if let Some(cached) = self.in_memory.remove(&longest_ago) {
                self.memory -= cached.memory;
            }
        }
    }

    /// Returns the acceptor of a council, from memory or from its records on disk.
    fn take(&mut self, council: CouncilId, stored: Vec<AcceptorRecord>) -> CachedCouncil {
        if let Some(cached) = self.in_memory.remove(&council) {
            return cached;
        }
        let mut acceptor = CouncilAcceptor::new(council, self.limits.council);
        for record in stored {
            acceptor.restore(record);
        }
        CachedCouncil { acceptor, used: 0, memory: 0 }
    }

    fn keep(&mut self, council: CouncilId, mut cached: CachedCouncil) {
        self.uses += 1;
        self.by_use.remove(&cached.used);
        self.by_use.insert(self.uses, council);
        cached.used = self.uses;
        self.memory -= cached.memory;
        cached.memory = cached.acceptor.memory();
        self.memory += cached.memory;
        self.in_memory.insert(council, cached);
    }
}

impl<P> Core for AcceptorCore<P> {
    type Input = AcceptorInput<P>;
    type Record = (CouncilId, AcceptorRecord);
    type Output = AcceptorAnswer<P>;

    fn step(&mut self, _: u64, _: Roll<'_>, input: AcceptorInput<P>) -> StepOf<Self> {
        let AcceptorInput { council, requester, request, is_signed, stored, path } = input;
        let mut step = Step::default();
        let has_room = self.knows(&council) || self.known.len() < self.limits.councils;
        if matches!(request, AcceptorRequest::Introduce { .. }) && !has_room {
            let reply = AcceptorReply::Refused { slot: None, why: RequestRefusal::TooManyCouncils };
            let replies = vec![AddressedReply { to: Recipient::Requester, reply }];
            step.hold(AcceptorAnswer { path, replies });
            return step;
        }
        let mut cached = self.take(council, stored);
        let answer = cached.acceptor.answer(&requester, request, &CheckedSignature { is_signed });
        self.keep(council, cached);
        if answer.record().is_some() {
            self.known.insert(council);
        }
        let of_council = |records: Vec<_>| records.into_iter().map(|record| (council, record)).collect();
        step.hold_until_stored(answer.map_record(of_council).map(|replies| AcceptorAnswer { path, replies }));
        step
    }
}

/// A verifier with the result of a check that the connection's task has already made.
struct CheckedSignature {
    is_signed: bool,
}

impl Verifier for CheckedSignature {
    fn is_signed(&self, _: &PublicKey, _: &[u8], _: &[u8], _: &Signature) -> bool {
        self.is_signed
    }
}
