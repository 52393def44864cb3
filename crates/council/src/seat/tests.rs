use super::*;
use crate::simulation::Pen;
use crate::{Batch, Signer};

const COUNCIL: CouncilId = CouncilId([7; 16]);

/// A seat, and the records that it has stored.
struct Desk {
    seat: Seat,
    stored: Vec<Stored>,
}

fn asker(number: u8) -> Asker {
    let key = PublicKey::from_bytes([number; 32]);
    Asker { key, node: crate::node_id(&key, 1) }
}

fn id(number: u64) -> OperationId {
    OperationId(u128::from(number).to_be_bytes())
}

fn ballot(slot: Slot) -> Ballot {
    Ballot::new(slot, 1, asker(1).node)
}

fn accept(slot: Slot, next: Option<Ballot>) -> Ask {
    let (operations, withdrawn) = (Vec::new(), Vec::new());
    let batch = Batch { previous: Digest::default(), operations, withdrawn, nonce: slot.0 };
    let value = Value::sign(COUNCIL, slot, &batch, &Pen(asker(1).key) as &dyn Signer).unwrap();
    Ask::Accept { slot, ballot: ballot(slot), value, next }
}

impl Desk {
    fn new(quota: Quota) -> Self {
        Self { seat: Seat::new(COUNCIL, quota), stored: Vec::new() }
    }

    fn ask(&mut self, by: u8, ask: Ask) -> Vec<Tell> {
        let asker = asker(by);
        let held = self.seat.answer(&asker, ask, &Pen(asker.key));
        let stored = &mut self.stored;
        let answers = held.release(|records| {
            stored.extend(records);
            Ok::<_, std::convert::Infallible>(())
        });
        let Ok(answers) = answers;
        answers.into_iter().filter(|answer| answer.to == To::Asker).map(|answer| answer.tell).collect()
    }

    /// Restarts the seat from the stored records.
    fn restart(&mut self, quota: Quota) {
        self.seat = Seat::new(COUNCIL, quota);
        self.stored.iter().cloned().for_each(|stored| self.seat.restore(stored));
    }

    fn post(&mut self, number: u64, to: u8) -> Tell {
        let ask = Ask::Post { id: id(number), to: asker(to).key, message: "welcome".into() };
        self.ask(1, ask).remove(0)
    }

    fn mail(&mut self, to: u8) -> usize {
        match self.ask(to, Ask::Collect).as_slice() {
            [Tell::Mail(letters)] => letters.len(),
            other => panic!("{other:?}"),
        }
    }

    /// Decides this many slots from a first slot on, until the seat refuses.
    fn decide(&mut self, from: u64, slots: u64) -> Result<(), Refusal> {
        for slot in (from..from + slots).map(Slot) {
            let prepare = Ask::Prepare { slot, ballot: ballot(slot), announce: Vec::new() };
            for ask in [prepare, accept(slot, None)] {
                if let [Tell::Refused { why, .. }] = self.ask(1, ask).as_slice() {
                    return Err(*why);
                }
            }
        }
        Ok(())
    }
}

#[test]
fn a_letter_stays_until_its_addressee_comes_and_then_goes_for_good() {
    let mut desk = Desk::new(Quota::default());
    desk.post(1, 8);
    desk.post(2, 9);
    let bytes = desk.seat.bytes();
    assert_eq!((desk.mail(8), desk.mail(8)), (1, 1), "whoever is killed while reading reads again");
    desk.ask(7, Ask::Fetch { after: Slot(0) });
    desk.restart(Quota::default());
    assert_eq!((desk.mail(8), desk.mail(9)), (1, 1), "others come and go");
    desk.ask(8, Ask::Fetch { after: Slot(0) });
    assert_eq!((desk.mail(8), desk.mail(9), desk.seat.bytes()), (0, 1, bytes / 2));
    desk.restart(Quota::default());
    assert_eq!((desk.mail(8), desk.mail(9), desk.seat.bytes()), (0, 1, bytes / 2));
}

#[test]
fn there_is_room_for_as_many_invitations_as_are_taken_up() {
    let quota = Quota { letters: 4, ..Quota::default() };
    let mut desk = Desk::new(quota);
    for number in 0..1000 {
        assert_eq!(desk.post(number, 8), Tell::Posted { id: id(number) });
        desk.ask(8, Ask::Fetch { after: Slot(0) });
    }
    for number in 0..4 {
        desk.post(number, 9);
    }
    assert_eq!(desk.post(4, 9), Tell::Refused { slot: None, why: Refusal::Full }, "the limit is as it was");
}

#[test]
fn letters_leave_room_for_slots() {
    let quota = Quota { bytes: 4000, ..Quota::default() };
    let mut desk = Desk::new(quota);
    let posted =
        (0..256).take_while(|number| desk.post(*number, 9) == Tell::Posted { id: id(*number) }).count();
    assert!((100..=1000 / 7).contains(&posted), "{posted}");
    assert_eq!(desk.decide(1, 3), Ok(()));
}

#[test]
fn who_is_full_has_room_again_when_it_is_handed_a_snapshot() {
    let mut desk = Desk::new(Quota { slots: 10, ..Quota::default() });
    assert_eq!(desk.decide(1, 11), Err(Refusal::Full));
    let snapshot = Snapshot { slot: Slot(10), bytes: "the state after ten slots".into() };
    let told = desk.ask(2, Ask::Compact { snapshot: snapshot.clone() });
    assert_eq!(told, [Tell::Compacted { slot: Slot(10), digest: snapshot.digest() }]);
    assert_eq!(desk.decide(11, 10), Ok(()));
}

#[test]
fn a_lone_writer_that_asks_for_the_next_slot_with_each_vote_finds_it_full_as_well() {
    let mut desk = Desk::new(Quota { slots: 10, ..Quota::default() });
    let refused = (1..30).map(Slot).find(|slot| {
        let told = desk.ask(1, accept(*slot, Some(ballot(slot.next()))));
        matches!(told.as_slice(), [Tell::Refused { why: Refusal::Full, .. }])
    });
    assert_eq!((refused, desk.seat.slots()), (Some(Slot(11)), 10));
}

#[test]
fn whoever_fetches_is_told_how_far_the_snapshot_reaches() {
    let mut desk = Desk::new(Quota::default());
    desk.decide(1, 3).unwrap();
    let reaches = |tells: &[Tell]| {
        tells.iter().find_map(|tell| match tell {
            Tell::Compacted { slot, .. } => Some(*slot),
            _ => None,
        })
    };
    let tells = desk.ask(2, Ask::Fetch { after: Slot(2) });
    assert_eq!((reaches(&tells), tells.len()), (Some(Slot(0)), 2));
    desk.ask(2, Ask::Compact { snapshot: Snapshot { slot: Slot(2), bytes: "two".into() } });
    let tells = desk.ask(2, Ask::Fetch { after: Slot(2) });
    assert!(matches!(tells.first(), Some(Tell::History { votes, .. }) if votes.len() == 1));
    assert_eq!(reaches(&tells), Some(Slot(2)));
    assert_eq!(
        desk.ask(2, Ask::Fetch { after: Slot(1) }).len(),
        1,
        "the first slots are only in the snapshot"
    );
}

#[test]
fn as_much_is_told_of_what_others_want_as_an_answer_holds() {
    let mut desk = Desk::new(Quota::default());
    let announce = (0..4_u64).map(|number| {
        let body = Bytes::from(vec![0; 50 * 1024]);
        Operation::sign(COUNCIL, id(number), Slot(0), body, &Pen(asker(1).key))
    });
    let ballot = Ballot::new(Slot(1), 1, asker(1).node);
    let told = desk.ask(1, Ask::Prepare { slot: Slot(1), ballot, announce: announce.collect() });
    let [Tell::Promise { announced, .. }] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(announced.iter().map(|operation| operation.id).collect::<Vec<_>>(), [id(0), id(1)]);
}
