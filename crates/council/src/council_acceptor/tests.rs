use holdoff_testbed::fault::is_injected;

use super::*;
use crate::device::CouncilFault;
use crate::simulation::TestSigner;
use crate::{Batch, Signer};

const COUNCIL: CouncilId = CouncilId([7; 16]);

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
    let (operations, withdrawn) = (Vec::new(), Vec::new());
    let batch = Batch { previous: Digest::default(), operations, withdrawn, nonce: slot.0 };
    let value = SlotValue::sign(COUNCIL, slot, &batch, &TestSigner(requester(1).key) as &dyn Signer).unwrap();
    AcceptorRequest::Accept { slot, ballot: ballot(slot), value, next }
}

impl Fixture {
    fn new(quota: Quota) -> Self {
        Self { acceptor: CouncilAcceptor::new(COUNCIL, quota), stored: Vec::new() }
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
        self.acceptor = CouncilAcceptor::new(COUNCIL, quota);
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
    let snapshot = CouncilSnapshot { slot: Slot(10), bytes: "the state after ten slots".into() };
    let replies = fixture.request(2, AcceptorRequest::Compact { snapshot: snapshot.clone() });
    assert_eq!(replies, [AcceptorReply::Compacted { slot: Slot(10), digest: snapshot.digest() }]);
    assert_eq!(fixture.decide(11, 10), Ok(()));
}

#[test]
fn a_promise_for_the_next_slot_counts_against_the_quota() {
    let mut fixture = Fixture::new(Quota { slots: 10, ..Quota::default() });
    let refused = (1..30).map(Slot).find(|slot| {
        let replies = fixture.request(1, accept(*slot, Some(ballot(slot.next()))));
        matches!(replies.as_slice(), [AcceptorReply::Refused { why: RequestRefusal::Full, .. }])
    });
    assert_eq!((refused, fixture.acceptor.slots()), (Some(Slot(11)), 10));
}

#[test]
fn a_fetch_reports_the_last_slot_of_the_snapshot() {
    let mut fixture = Fixture::new(Quota::default());
    fixture.decide(1, 3).unwrap();
    let reaches = |replies: &[AcceptorReply]| {
        replies.iter().find_map(|reply| match reply {
            AcceptorReply::Compacted { slot, .. } => Some(*slot),
            _ => None,
        })
    };
    let replies = fixture.request(2, AcceptorRequest::Fetch { after: Slot(2) });
    assert_eq!((reaches(&replies), replies.len()), (Some(Slot(0)), 2));
    fixture.request(
        2,
        AcceptorRequest::Compact { snapshot: CouncilSnapshot { slot: Slot(2), bytes: "two".into() } },
    );
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
        SignedOperation::sign(COUNCIL, id(number), Slot(0), body, &TestSigner(requester(1).key))
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
            assert_eq!(fixture.request(9, prepare(9, slot, absurd)), std::slice::from_ref(&refused));
            let AcceptorRequest::Accept { value, .. } = accept(slot, None) else { panic!("a value") };
            let ballot = Ballot::new(slot, absurd, requester(9).node);
            let vote = Vote { ballot, value: value.clone() };
            assert_eq!(
                fixture.request(9, AcceptorRequest::Decided { slot, vote }),
                std::slice::from_ref(&refused)
            );
            assert_eq!(
                fixture.request(9, AcceptorRequest::Accept { slot, ballot, value, next: None }),
                [refused]
            );
        }
        highest += MAX_ATTEMPT_JUMP;
        assert!(is_promised(&fixture.request(9, prepare(9, slot, highest))));
        highest += 1;
        assert!(is_promised(&fixture.request(1, prepare(1, slot, highest))));
    }
    let steps_to_the_end = u64::MAX / MAX_ATTEMPT_JUMP;
    assert!(steps_to_the_end / 10_000 > 50 * 365 * 24 * 3600, "{steps_to_the_end}");
}

/// An acceptor with an injected defect.
impl CouncilAcceptor {
    /// Forgets a promise that a request with a lower ballot is about to overwrite, if that defect is injected.
    pub(crate) fn race(&mut self, request: &AcceptorRequest) {
        let AcceptorRequest::Prepare { slot, ballot, .. } = request else { return };
        if is_injected(CouncilFault::RacingPromise)
            && let Some(acceptor) = self.slots.get_mut(slot)
            && acceptor.promised() > Some(*ballot)
        {
            let accepted = acceptor.accepted().cloned();
            *acceptor = Acceptor::default();
            if let Some(vote) = accepted {
                acceptor.restore(Record::Accepted(vote));
            }
        }
    }
}
