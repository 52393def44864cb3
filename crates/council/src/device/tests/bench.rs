//! A test bench: a device and three acceptors whose messages the test determines.

use std::convert::Infallible;

use holdoff_paxos::slot::{AcceptReply, PromiseReply, Vote};
use holdoff_paxos::{Ballot, NodeId, Slot};

use crate::device::{Device, DeviceStep, Input, Mail, Options, Output, Record};
use crate::machine::{AcceptorInfo, CouncilChange, Effect, Machine, Members};
use crate::simulation::TestSigner;
use crate::{
    AcceptorReply, AcceptorRequest, Batch, CouncilState, OperationId, PublicKey, SignedOperation, Signer,
    SlotValue,
};

pub(super) struct Bench {
    pub(super) device: Device<Members>,
    pub(super) now_us: u64,
    pub(super) roll: u32,
    pub(super) acceptors: Vec<NodeId>,
    /// The requests of the last step that sent any.
    requests: Vec<(NodeId, AcceptorRequest)>,
}

pub(super) fn id(number: u64) -> OperationId {
    OperationId(u128::from(number).to_be_bytes())
}

pub(super) fn add(number: u64) -> CouncilChange {
    let mut key = [1; 32];
    key[..8].copy_from_slice(&number.to_be_bytes());
    CouncilChange::Add { key: PublicKey::from_bytes(key), name: number.to_string() }
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(super) fn with(options: Options) -> Self {
        let mut bench = Self::not_started_with(options);
        // The first poll and the first reserve of ballots.
        bench.step(Input::Tick);
        bench
    }

    /// Creates a bench whose device has not run a step yet.
    pub(super) fn not_started() -> Self {
        Self::not_started_with(Options::default())
    }

    fn not_started_with(options: Options) -> Self {
        let device = Self::device(options);
        let acceptors = device.state().machine().acceptors().keys().copied().collect();
        Self { device, now_us: 1_000_000, roll: 1 << 31, acceptors, requests: Vec::new() }
    }

    fn device(options: Options) -> Device<Members> {
        let [mine, others] = [[101; 32], [102; 32]].map(PublicKey::from_bytes);
        let acceptor = |number: u8| AcceptorInfo {
            key: PublicKey::from_bytes([number; 32]),
            incarnation: 1,
            address: "a:1".into(),
        };
        let mut members = Members::create(mine, "me", (201..204).map(acceptor)).unwrap();
        members.admit(others, "other");
        let state = CouncilState::found(members, [7; 16]);
        let [signer, verifier] = [TestSigner(mine); 2];
        Device::new(NodeId::derive(mine.as_bytes(), 1), Box::new(signer), Box::new(verifier), state, options)
    }

    /// Restarts the device in a new process, which finds the state and one additional record on its disk.
    pub(super) fn restarted_with(self, record: Record<CouncilChange>) -> Self {
        let snapshot = self.device.state().snapshot();
        let mut again = Self::new();
        again.device = Self::device(Options::default());
        again.device.restore(Record::Snapshot(snapshot));
        again.device.restore(record);
        again.requests.clear();
        again
    }

    /// Runs a step without storing its records.
    pub(super) fn unstored(&mut self, input: Input<CouncilChange>) -> DeviceStep<CouncilChange> {
        let roll = self.roll;
        self.device.step_with_faults(self.now_us, &mut || roll, input)
    }

    pub(super) fn step(&mut self, input: Input<CouncilChange>) -> Vec<Output> {
        let (mut outputs, mut next) = (Vec::new(), Some(input));
        while let Some(input) = next.take() {
            let Ok((released, when_stored)) = self.unstored(input).store(|_| Ok::<_, Infallible>(()));
            outputs.extend(released);
            next = when_stored;
        }
        let requests = outputs.iter().filter_map(|output| match output {
            Output::Send {
                to,
                request: request @ (AcceptorRequest::Prepare { .. } | AcceptorRequest::Accept { .. }),
            } => Some((*to, request.clone())),
            _ => None,
        });
        self.requests = requests.collect();
        outputs
    }

    pub(super) fn reply(&mut self, acceptor: usize, reply: AcceptorReply) -> Vec<Output> {
        let from = self.acceptors[acceptor];
        self.step(Input::Reply { from, reply })
    }

    pub(super) fn submit(&mut self, number: u64) -> Vec<Output> {
        self.step(Input::Submit { id: id(number), change: add(number), mail: None, deadline_us: u64::MAX })
    }

    /// Has an operation decided without contention.
    pub(super) fn decide(&mut self, number: u64, change: CouncilChange, mail: Option<Mail>) -> Vec<Output> {
        self.step(Input::Submit { id: id(number), change, mail, deadline_us: u64::MAX });
        self.win()
    }

    /// Lets the acceptors promise and accept the proposal of this device.
    pub(super) fn win(&mut self) -> Vec<Output> {
        if self.accepted_value().is_none() {
            self.promise(0);
            self.promise(1);
        }
        self.accept_all()
    }

    /// Has an operation of the other member decided.
    pub(super) fn lose(&mut self, number: u64, change: &CouncilChange) -> Vec<Output> {
        let value = self.value_of_another_change(number, change);
        self.vote(0, 9, &value);
        self.vote(1, 9, &value)
    }

    /// Lets time pass until the device wakes.
    pub(super) fn wait_out(&mut self) -> Vec<Output> {
        self.now_us = self.device.wake_at();
        self.step(Input::Tick)
    }

    /// Lets this much time pass, and returns the outputs of the device.
    pub(super) fn wait(&mut self, us: u64) -> Vec<Output> {
        let (until_us, mut outputs) = (self.now_us + us, Vec::new());
        let mut turns = 0;
        while self.device.wake_at() <= until_us {
            outputs.extend(self.wait_out());
            turns += 1;
            assert!(turns < 100_000, "the device wakes without end");
        }
        self.now_us = until_us;
        outputs
    }

    /// Returns the ballot of the last prepare requests.
    pub(super) fn prepared(&self) -> Option<Ballot> {
        self.requests.iter().find_map(|(_, request)| match request {
            AcceptorRequest::Prepare { ballot, .. } => Some(*ballot),
            _ => None,
        })
    }

    /// Returns the last proposed value.
    pub(super) fn accepted_value(&self) -> Option<SlotValue> {
        self.requests.iter().find_map(|(_, request)| match request {
            AcceptorRequest::Accept { value, .. } => Some(value.clone()),
            _ => None,
        })
    }

    fn slot(&self) -> Slot {
        self.device.state().applied().next()
    }

    fn own_ballot(&self) -> Ballot {
        Ballot::new(self.slot(), 1, self.device.id())
    }

    pub(super) fn promise(&mut self, acceptor: usize) {
        let (slot, ballot) = (self.slot(), self.own_ballot());
        let reply = PromiseReply::Promise { ballot, accepted: None };
        self.reply(acceptor, AcceptorReply::Promise { slot, reply, announced: Vec::new(), latest: Slot(0) });
    }

    pub(super) fn promise_with(&mut self, acceptor: usize, attempt: u64, value: &SlotValue) {
        let (slot, ballot) = (self.slot(), self.own_ballot());
        let vote = Vote { ballot: Ballot::new(slot, attempt, NodeId(5)), value: value.clone() };
        let reply = PromiseReply::Promise { ballot, accepted: Some(vote) };
        self.reply(acceptor, AcceptorReply::Promise { slot, reply, announced: Vec::new(), latest: slot });
    }

    pub(super) fn refuse_promise(&mut self, acceptor: usize, attempt: u64) {
        let (slot, ballot) = (self.slot(), self.own_ballot());
        let reply = PromiseReply::Nack { ballot, promised: Ballot::new(slot, attempt, NodeId(5)) };
        self.reply(acceptor, AcceptorReply::Promise { slot, reply, announced: Vec::new(), latest: Slot(0) });
    }

    pub(super) fn refuse_promises(&mut self, attempt: u64) {
        for acceptor in 0..2 {
            self.refuse_promise(acceptor, attempt);
        }
    }

    /// Lets all acceptors accept the last proposal, and promise the next slot if that was requested.
    pub(super) fn accept_all(&mut self) -> Vec<Output> {
        let requests = std::mem::take(&mut self.requests);
        let mut outputs = Vec::new();
        for (to, request) in requests {
            let AcceptorRequest::Accept { slot, ballot, next, .. } = request else { continue };
            let next = next.map(|ballot| PromiseReply::Promise { ballot, accepted: None });
            let reply = AcceptReply::Accepted { ballot };
            let reply = AcceptorReply::Accepted { slot, reply, next, announced: Vec::new() };
            outputs.extend(self.step(Input::Reply { from: to, reply }));
        }
        outputs
    }

    /// Like `accept_all`, without storing any records.
    pub(super) fn accept_all_unstored(&mut self) -> Vec<DeviceStep<CouncilChange>> {
        let requests = std::mem::take(&mut self.requests);
        let accepted = requests.into_iter().filter_map(|(from, request)| {
            let AcceptorRequest::Accept { slot, ballot, .. } = request else { return None };
            let reply = AcceptReply::Accepted { ballot };
            let reply = AcceptorReply::Accepted { slot, reply, next: None, announced: Vec::new() };
            Some(self.unstored(Input::Reply { from, reply }))
        });
        accepted.collect()
    }

    /// Has a change decided in a slot of its own.
    pub(super) fn commit_change(&mut self, number: u64, change: CouncilChange) {
        self.step(Input::Submit { id: id(number), change, mail: None, deadline_us: u64::MAX });
        self.promise(0);
        self.promise(1);
        self.accept_all();
    }

    /// Lets an acceptor report a vote for this value of another device.
    pub(super) fn vote(&mut self, acceptor: usize, attempt: u64, value: &SlotValue) -> Vec<Output> {
        let slot = self.slot();
        let vote = Vote { ballot: Ballot::new(slot, attempt, NodeId(5)), value: value.clone() };
        self.reply(acceptor, AcceptorReply::Voted { slot, vote })
    }

    /// Like `vote`, without storing any records.
    pub(super) fn unstored_vote(
        &mut self,
        acceptor: usize,
        attempt: u64,
        value: &SlotValue,
    ) -> DeviceStep<CouncilChange> {
        let slot = self.slot();
        let vote = Vote { ballot: Ballot::new(slot, attempt, NodeId(5)), value: value.clone() };
        self.unstored(Input::Reply {
            from: self.acceptors[acceptor],
            reply: AcceptorReply::Voted { slot, vote },
        })
    }

    /// Lets an acceptor report this value as its history.
    pub(super) fn history(&mut self, acceptor: usize, attempt: u64, value: &SlotValue) {
        let slot = self.slot();
        let vote = Vote { ballot: Ballot::new(slot, attempt, NodeId(5)), value: value.clone() };
        self.reply(acceptor, AcceptorReply::History { votes: vec![(slot, vote)], latest: slot });
    }

    /// Lets an acceptor report these values as its history, in consecutive slots.
    pub(super) fn histories(&mut self, acceptor: usize, values: &[SlotValue]) -> Vec<Output> {
        let vote =
            |slot, value: &SlotValue| Vote { ballot: Ballot::new(slot, 1, NodeId(5)), value: value.clone() };
        let slots = (self.slot().0..).map(Slot);
        let votes: Vec<_> = slots.zip(values).map(|(slot, value)| (slot, vote(slot, value))).collect();
        let latest = votes.last().map_or(Slot(0), |(slot, _)| *slot);
        self.reply(acceptor, AcceptorReply::History { votes, latest })
    }

    pub(super) fn signer(&self) -> TestSigner {
        TestSigner(self.device.key())
    }

    /// Returns an operation of the other member.
    pub(super) fn operation_of_another(&self, number: u64) -> SignedOperation {
        self.value_of_another(number).batch().unwrap().operations.remove(0)
    }

    /// Returns the value that the other member would propose for the next slot.
    pub(super) fn value_of_another(&self, number: u64) -> SlotValue {
        self.value_after(&[], Self::other(), number)
    }

    /// Returns the signer of the other member.
    pub(super) fn other() -> TestSigner {
        TestSigner(PublicKey::from_bytes([102; 32]))
    }

    /// Returns the value that a member would propose after these decided values.
    pub(super) fn value_after(&self, decided: &[SlotValue], by: TestSigner, number: u64) -> SlotValue {
        let mut state = self.device.state().clone();
        for value in decided {
            state.apply(value, &by);
        }
        Self::value_on(&state, by, number, &add(number))
    }

    fn value_of_another_change(&self, number: u64, change: &CouncilChange) -> SlotValue {
        Self::value_on(self.device.state(), Self::other(), number, change)
    }

    fn value_on(
        state: &CouncilState<Members>,
        by: TestSigner,
        number: u64,
        change: &CouncilChange,
    ) -> SlotValue {
        let body = postcard::to_allocvec(change).unwrap().into();
        let council = state.council();
        let operation = SignedOperation::sign(council, id(number), state.applied(), body, &by);
        let mut machine = state.machine().clone();
        let compacts = state.check(&mut machine, &operation, &by) == Ok(Effect::Compact);
        let batch =
            Batch { previous: state.chain(), operations: vec![operation], withdrawn: Vec::new(), nonce: 1 };
        let access = state.access_change(&machine);
        SlotValue::sign(council, state.applied().next(), &batch, access, compacts, &by as &dyn Signer)
            .unwrap()
    }
}

impl SlotValue {
    /// Replaces the author by a member that has not signed the value.
    pub(super) fn with_a_forged_author(mut self) -> Self {
        self.author = PublicKey::from_bytes([101; 32]);
        self
    }
}
