use holdoff_testbed::fault::is_injected;

use super::*;
use crate::device::CouncilFault;
use crate::simulation::TestSigner;
use crate::{AccessChange, Batch, Founding, Signer};

/// The members of the council, by number. Number 9 is a stranger.
const MEMBERS: std::ops::RangeInclusive<u8> = 1..=8;

fn founding() -> Founding {
    let members = MEMBERS.map(|number| requester(number).key).collect();
    Founding { members, state: Digest::default(), nonce: [7; 16], recovered: None }
}

fn council() -> CouncilId {
    founding().council()
}

/// An acceptor, and the records that it has stored.
struct Fixture {
    acceptor: CouncilAcceptor,
    stored: Vec<AcceptorRecord>,
}

fn requester(number: u8) -> Requester {
    let key = PublicKey::from_bytes([number; 32]);
    Requester { key, node: NodeId::derive(key.as_bytes(), 1) }
}

fn id(number: u64) -> OperationId {
    OperationId(u128::from(number).to_be_bytes())
}

fn ballot(slot: Slot) -> Ballot {
    Ballot::new(slot, 1, requester(1).node)
}

fn accept(slot: Slot, next: Option<Ballot>) -> AcceptorRequest {
    AcceptorRequest::Accept { slot, ballot: ballot(slot), value: value(1, slot, None), next }
}

fn value(by: u8, slot: Slot, access: Option<AccessChange>) -> SlotValue {
    value_with(by, slot, access, false)
}

fn value_with(by: u8, slot: Slot, access: Option<AccessChange>, compacts: bool) -> SlotValue {
    let (operations, withdrawn) = (Vec::new(), Vec::new());
    let batch = Batch { previous: Digest::default(), operations, withdrawn, nonce: slot.0 };
    let signer = TestSigner(requester(by).key);
    SlotValue::sign(council(), slot, &batch, access, compacts, &signer as &dyn Signer).unwrap()
}

/// Returns the report that a member has removed another one in this slot.
fn removal(by: u8, slot: Slot, after: Slot, of: u8) -> AcceptorRequest {
    let change = AccessChange { after, added: Vec::new(), removed: vec![requester(of).key] };
    let changes = value(by, slot, Some(change)).signed_access(slot).into_iter().collect();
    AcceptorRequest::Access { changes }
}

fn endorsement(by: u8, snapshot: &CouncilSnapshot) -> Endorsement {
    let signer = TestSigner(requester(by).key);
    Endorsement::sign(council(), snapshot.slot, snapshot.digest(), Slot(0), &signer)
}

fn refusal(replies: &[AcceptorReply]) -> Option<RequestRefusal> {
    match replies {
        [AcceptorReply::Refused { why, .. }] => Some(*why),
        _ => None,
    }
}

impl Fixture {
    fn new(quota: Quota) -> Self {
        let mut fixture = Self { acceptor: CouncilAcceptor::new(council(), quota), stored: Vec::new() };
        assert_eq!(refusal(&fixture.request(1, founding().introduction())), None);
        fixture
    }

    /// Lets members 1 to 5, a majority, endorse a snapshot that member 1 offers.
    fn compact(&mut self, snapshot: &CouncilSnapshot) -> Vec<AcceptorReply> {
        for member in 1..=5 {
            self.endorse(member, snapshot);
        }
        self.offer(1, snapshot)
    }

    fn offer(&mut self, by: u8, snapshot: &CouncilSnapshot) -> Vec<AcceptorReply> {
        let (snapshot, certificate) = (snapshot.clone(), Vec::new());
        self.request(by, AcceptorRequest::Compact { snapshot, certificate })
    }

    fn endorse(&mut self, by: u8, snapshot: &CouncilSnapshot) -> Vec<AcceptorReply> {
        self.request(by, AcceptorRequest::Endorse(endorsement(by, snapshot)))
    }

    fn request(&mut self, by: u8, request: AcceptorRequest) -> Vec<AcceptorReply> {
        let requester = requester(by);
        let held = self.acceptor.answer(&requester, request, &TestSigner(requester.key));
        let stored = &mut self.stored;
        let answers = held.release(|records| {
            stored.extend(records);
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(answers) = answers;
        answers
            .into_iter()
            .filter(|answer| answer.to == Recipient::Requester)
            .map(|answer| answer.reply)
            .collect()
    }

    /// Restarts the acceptor from the stored records.
    fn restart(&mut self, quota: Quota) {
        self.acceptor = CouncilAcceptor::new(council(), quota);
        self.stored.iter().cloned().for_each(|stored| self.acceptor.restore(stored));
    }

    fn post(&mut self, number: u64, to: u8) -> AcceptorReply {
        let request =
            AcceptorRequest::Post { id: id(number), to: requester(to).key, message: "welcome".into() };
        self.request(1, request).remove(0)
    }

    fn mail(&mut self, to: u8) -> usize {
        match self.request(to, AcceptorRequest::Collect).as_slice() {
            [AcceptorReply::Mail(mail)] => mail.len(),
            other => panic!("{other:?}"),
        }
    }

    /// Decides this many slots from a first slot on, until the acceptor refuses.
    fn decide(&mut self, from: u64, slots: u64) -> Result<(), RequestRefusal> {
        for slot in (from..from + slots).map(Slot) {
            let prepare = AcceptorRequest::Prepare { slot, ballot: ballot(slot), announce: Vec::new() };
            for request in [prepare, accept(slot, None)] {
                if let [AcceptorReply::Refused { why, .. }] = self.request(1, request).as_slice() {
                    return Err(*why);
                }
            }
        }
        Ok(())
    }
}

#[test]
fn mail_is_deleted_when_its_addressee_connects() {
    let mut fixture = Fixture::new(Quota::default());
    fixture.post(1, 8);
    fixture.post(2, 9);
    let bytes = fixture.acceptor.bytes();
    assert_eq!(
        (fixture.mail(8), fixture.mail(8)),
        (1, 1),
        "an addressee that is killed collects its mail again"
    );
    fixture.request(7, AcceptorRequest::Fetch { after: Slot(0) });
    fixture.restart(Quota::default());
    assert_eq!(
        (fixture.mail(8), fixture.mail(9)),
        (1, 1),
        "a request of another device does not delete the mail"
    );
    fixture.request(8, AcceptorRequest::Fetch { after: Slot(0) });
    assert_eq!((fixture.mail(8), fixture.mail(9), fixture.acceptor.bytes()), (0, 1, bytes / 2));
    fixture.restart(Quota::default());
    assert_eq!((fixture.mail(8), fixture.mail(9), fixture.acceptor.bytes()), (0, 1, bytes / 2));
}

#[test]
fn collected_invitations_free_their_quota() {
    let quota = Quota { mail_messages: 4, ..Quota::default() };
    let mut fixture = Fixture::new(quota);
    for number in 0..1000 {
        assert_eq!(fixture.post(number, 8), AcceptorReply::Posted { id: id(number) });
        fixture.request(8, AcceptorRequest::Fetch { after: Slot(0) });
    }
    for number in 0..4 {
        fixture.post(number, 9);
    }
    assert_eq!(
        fixture.post(4, 9),
        AcceptorReply::Refused { slot: None, why: RequestRefusal::Full },
        "collected mail does not raise the quota"
    );
}

#[test]
fn mail_leaves_room_for_slots() {
    let quota = Quota { bytes: 4000, ..Quota::default() };
    let mut fixture = Fixture::new(quota);
    let posted = (0..256)
        .take_while(|number| fixture.post(*number, 9) == AcceptorReply::Posted { id: id(*number) })
        .count();
    assert!((100..=1000 / 7).contains(&posted), "{posted}");
    assert_eq!(fixture.decide(1, 3), Ok(()));
}

#[test]
fn a_snapshot_frees_the_quota_of_a_full_council() {
    let mut fixture = Fixture::new(Quota { slots: 10, ..Quota::default() });
    assert_eq!(fixture.decide(1, 11), Err(RequestRefusal::Full));
    let slot = Slot(11);
    let value = value_with(1, slot, None, true);
    let replies =
        fixture.request(1, AcceptorRequest::Accept { slot, ballot: ballot(slot), value, next: None });
    assert_eq!(refusal(&replies), None, "a value that compacts has a reserve");
    let snapshot = CouncilSnapshot { slot, bytes: "the state after eleven slots".into() };
    let replies = fixture.compact(&snapshot);
    let [AcceptorReply::Report(report)] = replies.as_slice() else { panic!("{replies:?}") };
    assert_eq!((report.floor, report.digest), (slot, snapshot.digest()));
    assert_eq!(fixture.decide(12, 10), Ok(()));
}

#[test]
fn a_promise_for_the_next_slot_counts_against_the_quota() {
    let mut fixture = Fixture::new(Quota { slots: 10, ..Quota::default() });
    let refused = (1..30).map(Slot).find(|slot| {
        let replies = fixture.request(1, accept(*slot, Some(ballot(slot.next()))));
        matches!(replies.as_slice(), [AcceptorReply::Refused { why: RequestRefusal::Full, .. }])
    });
    assert_eq!((refused, fixture.acceptor.slots()), (Some(Slot(11)), 11));
}

#[test]
fn a_fetch_reports_the_last_slot_of_the_snapshot() {
    let mut fixture = Fixture::new(Quota::default());
    fixture.decide(1, 3).unwrap();
    let reaches = |replies: &[AcceptorReply]| {
        replies.iter().find_map(|reply| match reply {
            AcceptorReply::Report(report) => Some(report.floor),
            _ => None,
        })
    };
    let replies = fixture.request(2, AcceptorRequest::Fetch { after: Slot(2) });
    assert_eq!((reaches(&replies), replies.len()), (Some(Slot(0)), 2));
    fixture.compact(&CouncilSnapshot { slot: Slot(2), bytes: "two".into() });
    let replies = fixture.request(2, AcceptorRequest::Fetch { after: Slot(2) });
    assert!(matches!(replies.first(), Some(AcceptorReply::History { votes, .. }) if votes.len() == 1));
    assert_eq!(reaches(&replies), Some(Slot(2)));
    assert_eq!(
        fixture.request(2, AcceptorRequest::Fetch { after: Slot(1) }).len(),
        1,
        "the first slots are only in the snapshot"
    );
}

#[test]
fn announced_operations_are_limited_to_the_size_of_an_answer() {
    let mut fixture = Fixture::new(Quota::default());
    let announce = (0..4_u64).map(|number| {
        let body = Bytes::from(vec![0; 50 * 1024]);
        SignedOperation::sign(council(), id(number), Slot(0), body, &TestSigner(requester(1).key))
    });
    let ballot = Ballot::new(Slot(1), 1, requester(1).node);
    let replies =
        fixture.request(1, AcceptorRequest::Prepare { slot: Slot(1), ballot, announce: announce.collect() });
    let [AcceptorReply::Promise { announced, .. }] = replies.as_slice() else { panic!("{replies:?}") };
    assert_eq!(announced.iter().map(|operation| operation.id).collect::<Vec<_>>(), [id(0), id(1)]);
}

fn prepare(by: u8, slot: Slot, attempt: u64) -> AcceptorRequest {
    AcceptorRequest::Prepare {
        slot,
        ballot: Ballot::new(slot, attempt, requester(by).node),
        announce: Vec::new(),
    }
}

fn is_promised(replies: &[AcceptorReply]) -> bool {
    matches!(replies, [AcceptorReply::Promise { reply: PromiseReply::Promise { .. }, .. }])
}

/// A hostile member needs 2^44 requests to exhaust the attempts of one slot: more than fifty years at ten thousand
/// requests a second.
#[test]
fn an_absurd_attempt_is_refused_and_every_attempt_can_be_exceeded() {
    let mut fixture = Fixture::new(Quota::default());
    let (slot, mut highest) = (Slot(1), 0);
    for _ in 0..100 {
        for absurd in [highest + MAX_ATTEMPT_JUMP + 1, u64::MAX / 2 - 1, u64::MAX] {
            let why = RequestRefusal::AttemptTooHigh { highest };
            let refused = AcceptorReply::Refused { slot: Some(slot), why };
            assert_eq!(fixture.request(8, prepare(8, slot, absurd)), std::slice::from_ref(&refused));
            let value = value(8, slot, None);
            let ballot = Ballot::new(slot, absurd, requester(8).node);
            let vote = Vote { ballot, value: value.clone() };
            assert_eq!(
                fixture.request(8, AcceptorRequest::Decided { slot, vote }),
                std::slice::from_ref(&refused)
            );
            assert_eq!(
                fixture.request(8, AcceptorRequest::Accept { slot, ballot, value, next: None }),
                [refused]
            );
        }
        highest += MAX_ATTEMPT_JUMP;
        assert!(is_promised(&fixture.request(8, prepare(8, slot, highest))));
        highest += 1;
        assert!(is_promised(&fixture.request(1, prepare(1, slot, highest))));
    }
    let steps_to_the_end = u64::MAX / MAX_ATTEMPT_JUMP;
    assert!(steps_to_the_end / 10_000 > 50 * 365 * 24 * 3600, "{steps_to_the_end}");
}

/// Returns every kind of request that only members may send.
fn requests_of_members(by: u8, slot: Slot) -> Vec<AcceptorRequest> {
    let (ballot, value) = (Ballot::new(slot, 1, requester(by).node), value(by, slot, None));
    let snapshot = CouncilSnapshot { slot, bytes: "a state".into() };
    let digest = snapshot.digest();
    vec![
        AcceptorRequest::Prepare { slot, ballot, announce: Vec::new() },
        AcceptorRequest::Accept { slot, ballot, value: value.clone(), next: None },
        AcceptorRequest::Decided { slot, vote: Vote { ballot, value } },
        AcceptorRequest::Fetch { after: slot },
        AcceptorRequest::Snapshot { offered: Some(digest) },
        AcceptorRequest::Endorse(endorsement(by, &snapshot)),
        AcceptorRequest::Compact { snapshot, certificate: Vec::new() },
        AcceptorRequest::Post { id: id(1), to: requester(1).key, message: "spam".into() },
    ]
}

#[test]
fn a_stranger_may_only_collect_its_own_mail() {
    let mut fixture = Fixture::new(Quota::default());
    fixture.decide(1, 3).unwrap();
    fixture.post(1, 9);
    let stored = fixture.stored.len();
    for request in requests_of_members(9, Slot(4)) {
        let why = RequestRefusal::NotMember { access: Slot(0), removed_in: None };
        assert_eq!(refusal(&fixture.request(9, request.clone())), Some(why), "{request:?}");
    }
    assert!(!fixture.acceptor.may_read(&requester(9).key));
    assert_eq!((fixture.mail(9), fixture.stored.len()), (1, stored));
}

#[test]
fn a_removed_member_loses_its_access_in_the_slot_that_removes_it() {
    let mut fixture = Fixture::new(Quota::default());
    fixture.decide(1, 3).unwrap();
    assert_eq!(refusal(&fixture.request(2, removal(1, Slot(2), Slot(0), 8))), None);
    for _ in 0..2 {
        for request in requests_of_members(8, Slot(4)) {
            let why = RequestRefusal::NotMember { access: Slot(2), removed_in: Some(Slot(2)) };
            assert_eq!(refusal(&fixture.request(8, request.clone())), Some(why), "{request:?}");
        }
        assert!(!fixture.acceptor.may_read(&requester(8).key), "it gets no pushes");
        let forged = refusal(&fixture.request(8, removal(8, Slot(4), Slot(2), 1)));
        assert_eq!(forged, Some(RequestRefusal::ForeignAccess));
        // It can read the slot that has removed it, and nothing after it.
        let replies = fixture.request(8, AcceptorRequest::Fetch { after: Slot(0) });
        let [AcceptorReply::History { votes, latest }] = replies.as_slice() else { panic!("{replies:?}") };
        let slots: Vec<_> = votes.iter().map(|(slot, _)| *slot).collect();
        assert_eq!((slots.as_slice(), *latest), (&[Slot(1), Slot(2)][..], Slot(2)));
        fixture.restart(Quota::default());
    }
}

#[test]
fn an_acceptor_adopts_only_changes_that_members_have_signed_without_a_gap() {
    let mut fixture = Fixture::new(Quota::default());
    let foreign = Some(RequestRefusal::ForeignAccess);
    assert_eq!(refusal(&fixture.request(9, removal(9, Slot(1), Slot(0), 1))), foreign, "a stranger");
    assert_eq!(refusal(&fixture.request(1, removal(1, Slot(5), Slot(3), 2))), foreign, "a gap");
    let AcceptorRequest::Access { mut changes } = removal(1, Slot(1), Slot(0), 2) else { panic!("changes") };
    changes[0].change.removed = vec![requester(3).key];
    let forged = fixture.request(1, AcceptorRequest::Access { changes });
    assert_eq!(refusal(&forged), Some(RequestRefusal::Unsigned));
    // Any client may report what a member has signed, and repeat it.
    for _ in 0..2 {
        assert_eq!(refusal(&fixture.request(9, removal(1, Slot(1), Slot(0), 2))), None);
    }
    assert_eq!(refusal(&fixture.request(2, removal(2, Slot(3), Slot(1), 1))), foreign, "a removed member");
}

#[test]
fn an_acceptor_takes_no_request_before_a_member_has_introduced_the_council() {
    let mut fixture =
        Fixture { acceptor: CouncilAcceptor::new(council(), Quota::default()), stored: Vec::new() };
    for request in requests_of_members(1, Slot(1)) {
        assert_eq!(refusal(&fixture.request(1, request)), Some(RequestRefusal::UnknownCouncil));
    }
    let foreign = Some(RequestRefusal::ForeignFounding);
    let (founding, access) = (founding(), Slot(0));
    let members: Vec<_> = founding.members.iter().copied().collect();
    let introduce = |founding: &Founding, access, members: &Vec<_>| AcceptorRequest::Introduce {
        founding: founding.clone(),
        access,
        members: members.clone(),
        changes: Vec::new(),
    };
    let others = Founding { nonce: [8; 16], ..founding.clone() };
    assert_eq!(refusal(&fixture.request(1, introduce(&others, access, &members))), foreign);
    let more = [members.clone(), vec![requester(9).key]].concat();
    assert_eq!(refusal(&fixture.request(9, introduce(&founding, access, &more))), foreign);
    assert_eq!(refusal(&fixture.request(9, founding.introduction())), foreign, "the sender is no member");
    assert!(fixture.stored.is_empty());
    // An acceptor that is added later believes the first member that introduces the council.
    assert_eq!(refusal(&fixture.request(9, introduce(&founding, Slot(7), &more))), None);
    fixture.restart(Quota::default());
    assert_eq!(refusal(&fixture.request(9, prepare(9, Slot(8), 1))), None);
    let later = introduce(&founding, Slot(9), &vec![requester(4).key]);
    assert_eq!(refusal(&fixture.request(4, later)), None, "a second introduction changes nothing");
    assert_eq!(refusal(&fixture.request(9, prepare(9, Slot(9), 1))), None);
}

#[test]
fn an_acceptor_that_is_added_later_knows_who_had_to_endorse_earlier_snapshots() {
    let (acceptor, stored) = (CouncilAcceptor::new(council(), Quota::default()), Vec::new());
    let mut fixture = Fixture { acceptor, stored };
    let members = founding().members.into_iter().collect();
    let removed = [(2, 0, 2), (3, 2, 3), (4, 3, 4)].map(|(slot, after, of)| {
        let AcceptorRequest::Access { mut changes } = removal(1, Slot(slot), Slot(after), of) else {
            panic!()
        };
        changes.remove(0)
    });
    let changes = removed.to_vec();
    let introduction = AcceptorRequest::Introduce { founding: founding(), access: Slot(0), members, changes };
    let foreign = Some(RequestRefusal::ForeignFounding);
    assert_eq!(refusal(&fixture.request(2, introduction.clone())), foreign, "the sender was removed");
    assert_eq!(refusal(&fixture.request(1, introduction)), None);
    // Three of five members today, and too few of the eight then.
    let snapshot = CouncilSnapshot { slot: Slot(1), bytes: "the state".into() };
    for (endorsers, floor) in [(vec![5, 6, 7], Slot(0)), (vec![2, 3, 5, 6, 7], Slot(1))] {
        let certificate = endorsers.into_iter().map(|by| endorsement(by, &snapshot)).collect();
        fixture.request(1, AcceptorRequest::Compact { snapshot: snapshot.clone(), certificate });
        assert_eq!(fixture.acceptor.floor(), floor);
    }
}

#[test]
fn only_a_majority_of_the_members_replaces_the_history() {
    let mut fixture = Fixture::new(Quota::default());
    fixture.decide(1, 3).unwrap();
    let [lie, truth] = [(u64::MAX - 1, "anything"), (3, "the state")]
        .map(|(slot, bytes)| CouncilSnapshot { slot: Slot(slot), bytes: bytes.into() });
    for liar in [9, 8, 8] {
        fixture.endorse(liar, &lie);
        fixture.offer(liar, &lie);
        assert_eq!((fixture.acceptor.floor(), fixture.acceptor.slots()), (Slot(0), 3));
    }
    let forged = Endorsement { by: requester(7).key, ..endorsement(8, &lie) };
    let unsigned = Some(RequestRefusal::Unsigned);
    assert_eq!(refusal(&fixture.request(8, AcceptorRequest::Endorse(forged))), unsigned);
    assert_eq!(refusal(&fixture.request(8, AcceptorRequest::Endorse(endorsement(1, &truth)))), unsigned);
    let relayed = AcceptorRequest::Compact { snapshot: lie.clone(), certificate: vec![forged; 8] };
    assert_eq!(refusal(&fixture.request(8, relayed)), unsigned);
    let repeated = vec![endorsement(8, &lie), endorsement(8, &lie), endorsement(9, &lie)];
    fixture.request(8, AcceptorRequest::Compact { snapshot: lie.clone(), certificate: repeated });
    assert_eq!(fixture.acceptor.floor(), Slot(0), "each member counts once, and strangers do not count");
    for member in 1..=3 {
        fixture.endorse(member, &truth);
    }
    fixture.offer(1, &truth);
    fixture.offer(8, &lie);
    // Endorsements survive a restart; the offered snapshot does not.
    fixture.endorse(4, &truth);
    assert_eq!(fixture.acceptor.floor(), Slot(0), "four of eight are no majority");
    fixture.restart(Quota::default());
    fixture.endorse(5, &truth);
    assert_eq!(fixture.acceptor.floor(), Slot(0), "no snapshot is offered");
    fixture.offer(2, &truth);
    for _ in 0..2 {
        assert_eq!((fixture.acceptor.floor(), fixture.acceptor.slots()), (Slot(3), 0));
        // Another acceptor believes the same endorsements.
        let replies = fixture.request(1, AcceptorRequest::Snapshot { offered: None });
        let [AcceptorReply::Snapshot { snapshot, certificate }] = replies.as_slice() else {
            panic!("{replies:?}")
        };
        let (snapshot, certificate) = (snapshot.clone(), certificate.clone());
        let mut other = Fixture::new(Quota::default());
        other.request(6, AcceptorRequest::Compact { snapshot, certificate });
        assert_eq!(other.acceptor.floor(), Slot(3));
        fixture.restart(Quota::default());
    }
}

#[test]
fn the_members_after_the_slot_of_a_snapshot_endorse_it() {
    let mut fixture = Fixture::new(Quota::default());
    let [early, late] = [3, 6].map(|slot| CouncilSnapshot { slot: Slot(slot), bytes: "a state".into() });
    for (slot, after, removed) in [(4, 0, 8), (5, 4, 7), (6, 5, 6)] {
        fixture.request(1, removal(1, Slot(slot), Slot(after), removed));
    }
    for member in 1..=3 {
        fixture.endorse(member, &late);
    }
    let certificate: Vec<_> = (1..=4).map(|member| endorsement(member, &early)).collect();
    let offer = |certificate| AcceptorRequest::Compact { snapshot: early.clone(), certificate };
    fixture.request(1, offer(certificate.clone()));
    assert_eq!(fixture.acceptor.floor(), Slot(0), "four of eight");
    fixture.request(1, offer([certificate, vec![endorsement(8, &early)]].concat()));
    assert_eq!(fixture.acceptor.floor(), Slot(3), "five of eight, one of which was removed later");
    for member in 1..=3 {
        fixture.endorse(member, &late);
    }
    fixture.offer(1, &late);
    assert_eq!(fixture.acceptor.floor(), Slot(6), "three of five");
}

#[test]
fn an_acceptor_that_has_missed_a_change_of_members_waits_for_it() {
    let mut fixture = Fixture::new(Quota::default());
    let snapshot = CouncilSnapshot { slot: Slot(3), bytes: "a state".into() };
    fixture.offer(1, &snapshot);
    for member in 1..=5 {
        let signer = TestSigner(requester(member).key);
        let late = Endorsement::sign(council(), Slot(3), snapshot.digest(), Slot(2), &signer);
        fixture.request(member, AcceptorRequest::Endorse(late));
    }
    assert_eq!(fixture.acceptor.floor(), Slot(0), "slot 2 may have added members");
    fixture.request(1, removal(1, Slot(2), Slot(0), 8));
    assert_eq!(fixture.acceptor.floor(), Slot(3));
}

/// An acceptor with an injected defect.
impl CouncilAcceptor {
    /// Changes the state so that the next request meets the injected defect.
    pub(crate) fn inject_faults(&mut self, request: &AcceptorRequest) {
        if is_injected(CouncilFault::ForgetRemoval)
            && let Some(access) = &mut self.access
        {
            access.forget_removals();
        }
        if let AcceptorRequest::Compact { snapshot, .. } = request
            && is_injected(CouncilFault::BelieveAnySnapshot)
        {
            self.compact(snapshot.clone(), Vec::new());
        }
        let AcceptorRequest::Prepare { slot, ballot, .. } = request else { return };
        let is_absurd = self.check_attempt(*slot, *ballot).is_err();
        let Some(acceptor) = self.slots.get_mut(slot) else { return };
        if is_absurd && is_injected(CouncilFault::TakeAnyAttempt) {
            drop(acceptor.prepare(*ballot).release(|_| Ok::<_, std::convert::Infallible>(())));
        }
        // The last write wins although a request with a higher ballot was promised.
        if is_injected(CouncilFault::RacingPromise) && acceptor.promised() > Some(*ballot) {
            let accepted = acceptor.accepted().cloned();
            *acceptor = Acceptor::default();
            if let Some(vote) = accepted {
                acceptor.restore(Record::Accepted(vote));
            }
        }
    }
}
