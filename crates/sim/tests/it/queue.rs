//! The laws of the event queue.

use std::collections::BTreeSet;

use holdoff_sim::kernel::EventQueue;
use proptest::prelude::*;

fn cases() -> ProptestConfig {
    ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() }
}

#[derive(Clone, Debug)]
enum Operation {
    Push {
        after_us: u64,
    },
    PushAt {
        at_us: u64,
    },
    Pop,
    PopUntil {
        limit_us: u64,
    },
    Advance {
        by_us: u64,
    },
    /// Advances to the next event's time, or to one microsecond before it: the boundary of slots.
    AdvanceToNext {
        short_by_us: u64,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    let delay = || prop_oneof![0..4_u64, 0..100_u64, 0..100_000_u64, 0..(1_u64 << 40), any::<u64>()];
    prop_oneof![
        3 => delay().prop_map(|after_us| Operation::Push { after_us }),
        1 => (0..200_000_u64).prop_map(|at_us| Operation::PushAt { at_us }),
        2 => Just(Operation::Pop),
        1 => (0..200_000_u64).prop_map(|limit_us| Operation::PopUntil { limit_us }),
        1 => delay().prop_map(|by_us| Operation::Advance { by_us }),
        1 => (0..2_u64).prop_map(|short_by_us| Operation::AdvanceToNext { short_by_us }),
    ]
}

proptest! {
    #![proptest_config(cases())]

    /// Compares with a sorted map of (time, insertion): no event is lost, invented or out of order.
    #[test]
    fn the_queue_is_a_stable_priority_queue(operations in prop::collection::vec(operation(), 1..400)) {
        let mut queue = EventQueue::new();
        let mut model = BTreeSet::new();
        let mut now_us = 0_u64;
        for (number, operation) in operations.into_iter().enumerate() {
            let limit_us = match operation {
                Operation::Push { after_us } => {
                    queue.push_after(after_us, number);
                    model.insert((now_us.saturating_add(after_us), number));
                    continue;
                }
                Operation::PushAt { at_us } => {
                    queue.push(at_us, number);
                    model.insert((at_us.max(now_us), number));
                    continue;
                }
                Operation::Advance { .. } | Operation::AdvanceToNext { .. } => {
                    let next_us = model.first().map_or(u64::MAX, |(at_us, _)| *at_us);
                    let at_us = match operation {
                        Operation::AdvanceToNext { .. } if model.is_empty() => continue,
                        Operation::AdvanceToNext { short_by_us } => next_us.saturating_sub(short_by_us),
                        Operation::Advance { by_us } => now_us.saturating_add(by_us),
                        _ => now_us,
                    };
                    queue.advance_to(at_us);
                    now_us = at_us.min(next_us).max(now_us);
                    prop_assert_eq!((queue.len(), queue.now_us()), (model.len(), now_us));
                    continue;
                }
                Operation::Pop => u64::MAX,
                Operation::PopUntil { limit_us } => limit_us,
            };
            let due = model.first().copied().filter(|(at_us, _)| *at_us <= limit_us);
            prop_assert_eq!(queue.next_at_us(), model.first().map(|(at_us, _)| *at_us));
            prop_assert_eq!(queue.pop_until(limit_us), due);
            if let Some(due) = due {
                prop_assert!(due.0 >= now_us, "time went back");
                now_us = due.0;
                model.remove(&due);
            }
            prop_assert_eq!((queue.len(), queue.now_us()), (model.len(), now_us));
        }
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        prop_assert_eq!(rest, model.into_iter().collect::<Vec<_>>());
        prop_assert!(queue.is_empty());
    }
}
