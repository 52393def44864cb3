//! A budgeted call: a success refunds, a retry withdraws. Ours compared with tower's.

use std::hint::black_box;
use std::time::Duration;

use holdoff_policy::{Budget, BudgetOptions};
use tower::retry::budget::{Budget as _, TpsBudget};

use crate::measure::{CALLS, contest};
use crate::row::Row;

pub(crate) fn rows() -> Vec<Row> {
    let ours = Budget::new(BudgetOptions { ratio: 0.2, burst: 1000 });
    let tower = TpsBudget::new(Duration::from_secs(10), 100, 0.2);
    let figures = contest(vec![
        ("ours", Box::new(|| calls(|| ours.refund(), || ours.withdraw()))),
        ("tower", Box::new(|| calls(|| tower.deposit(), || tower.withdraw()))),
    ]);
    let figure =
        |wanted: &str| figures.iter().find(|(name, _)| *name == wanted).map_or(f64::NAN, |(_, ns)| *ns);
    let (ours, tower) = (figure("ours"), figure("tower"));
    vec![
        Row::beside("a budgeted call", "ns", ours, ("tower TpsBudget", tower))
            .bar("≤ ¼", ours <= tower / 4.0),
    ]
}

/// Runs calls of which nine succeed and the tenth is retried.
fn calls(refund: impl Fn(), withdraw: impl Fn() -> bool) {
    for call in 0..CALLS {
        if call % 10 == 9 {
            black_box(withdraw());
        } else {
            refund();
        }
    }
}
