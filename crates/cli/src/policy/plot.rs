//! `holdoff policy explain --plot`

use std::path::Path;

use holdoff_policy::Policy;
use holdoff_sim::chart::{Axis, Chart, Mark, Range, Shape, Unit};

use super::describe;
use crate::failure::Failure;

/// Draws every delay window that the policy can grant.
pub(super) fn run(name: &str, policy: &Policy, file: &Path) -> Result<(), Failure> {
    std::fs::write(file, chart(name, policy).svg())
        .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", file.display())))?;
    anstream::eprintln!("wrote {}", file.display());
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a picture is not that precise")]
fn chart(name: &str, policy: &Policy) -> Chart {
    let waits = policy.explain().waits;
    let range = |wait: &holdoff_policy::Wait| Range {
        x: f64::from(wait.attempt.get()),
        low: wait.window.low_us() as f64,
        high: wait.window.high_us() as f64,
    };
    let shape = Shape::Ranges(waits.iter().map(range).collect());
    Chart {
        title: name.to_owned(),
        x: Axis::linear("after try", Unit::Count),
        y: Axis::linear("wait", Unit::Micros),
        marks: vec![Mark { name: describe::sentence(policy), shape }],
    }
}
