//! A million requests to the seat alone.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use holdoff_council::acceptor::Request;
use holdoff_council::{CouncilId, Seat, Stored, Tell};

use super::{Cheap, QUOTA, asker, number, question};

const COUNCIL: CouncilId = CouncilId([1; 16]);
/// The number of consecutive cases for one seat. The cases share its state, so one case finds the results of the
/// others.
const NEIGHBOURS: u64 = 256;

/// A seat, its stored records, and counts of its answers.
struct Asked {
    seat: Seat,
    stored: Vec<Stored>,
    read: u64,
    refused: u64,
}

impl Asked {
    fn looks(&self) -> impl PartialEq + std::fmt::Debug + use<> {
        (self.seat.bytes(), self.seat.slots(), self.seat.latest(), self.seat.floor())
    }

    fn ask(&mut self, rng: &mut Rng) {
        let Ok(Request::Ask { ask, .. }) = holdoff_net::decode(&question(rng, COUNCIL)) else { return };
        self.read += 1;
        let before = self.looks();
        let held = self.seat.answer(&asker(), ask, &Cheap);
        let records = held.record().cloned().unwrap_or_default();
        let answers = held.release(|_| Ok::<_, ()>(())).unwrap();
        if answers.iter().any(|answer| matches!(answer.tell, Tell::Refused { .. })) {
            self.refused += 1;
            assert!(records.is_empty() && self.looks() == before, "what is refused changes nothing");
        }
        let snapshot = 64;
        assert!(self.seat.slots() <= QUOTA.slots + 1 && self.seat.bytes() <= QUOTA.bytes + snapshot);
        self.stored.extend(records);
    }

    /// Restarts the seat from the stored records and compares.
    fn check_restored(&mut self) {
        let mut again = Seat::new(COUNCIL, QUOTA);
        self.stored.drain(..).for_each(|record| again.restore(record));
        let before = self.looks();
        self.seat = again;
        assert_eq!(self.looks(), before);
    }
}

#[test]
fn an_acceptor_is_asked_anything() {
    let (start, cases) = (number("HOLDOFF_FUZZ_SEED", 0), number("HOLDOFF_FUZZ_CASES", 1_000_000));
    let mut asked = Asked { seat: Seat::new(COUNCIL, QUOTA), stored: Vec::new(), read: 0, refused: 0 };
    for seed in start - start % NEIGHBOURS..start + cases {
        let survived = catch_unwind(AssertUnwindSafe(|| {
            if seed % NEIGHBOURS == 0 {
                asked.check_restored();
                asked.seat = Seat::new(COUNCIL, QUOTA);
            }
            asked.ask(&mut Rng::with_seed(seed));
        }))
        .is_ok();
        assert!(
            survived,
            "replay with HOLDOFF_FUZZ_SEED={seed} HOLDOFF_FUZZ_CASES=1 cargo test -p holdoff-council --test it fuzz"
        );
    }
    let (read, refused) = (asked.read * 100 / cases, asked.refused * 100 / cases);
    println!("{read} % could be read, {refused} % were refused by the seat");
    assert!(cases < 1000 || ((10..98).contains(&read) && refused >= 3), "the mutations miss the point");
}
