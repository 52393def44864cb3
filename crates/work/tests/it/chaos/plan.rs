//! The submitted tasks and the behaviour of each step, all drawn from the seed.

use std::time::Duration;

use fastrand::Rng;
use holdoff_policy::{Growth, Jitter, Policy, PolicySet};
use holdoff_work::{Settings, Step, Task};
use serde::{Deserialize, Serialize};

/// The policy of every step.
const POLICY: &str = "chaos";

/// The operations that have handlers.
pub(crate) const OPERATIONS: [&str; 3] = ["pack", "weigh", "ship"];

/// The time that a step stays with a worker that does not renew its lease.
pub(crate) const LEASE: Duration = Duration::from_millis(1500);

/// A step's payload: its number, and its parents' numbers by their names.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) number: u64,
    pub(crate) parents: Vec<(String, u64)>,
}

/// The behaviour of a step, the same on every worker.
pub(crate) struct Behaviour {
    pub(crate) takes: Duration,
    /// The number of failures before the step succeeds.
    pub(crate) failures: u32,
    /// Whether the step fails after its effect, and not before.
    pub(crate) fails_late: bool,
    pub(crate) panics: bool,
    /// Whether the step snoozes at its first claim.
    pub(crate) snoozes: bool,
    pub(crate) manners: Manners,
}

/// The reaction of a handler to cancellation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manners {
    /// The handler is dropped at any point.
    Ordinary,
    /// The handler checks for cancellation, and returns.
    Polite,
    /// The handler ignores cancellation and acts. A stale worker must not do this, and the fencing token prevents the
    /// effect.
    Stubborn,
}

impl Behaviour {
    pub(crate) fn of(seed: u64, number: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let millis = match rng.u32(..100) {
            0..86 => rng.u64(1..=5),
            86..97 => rng.u64(50..=150),
            // Longer than the lease, so the worker must renew it.
            _ => rng.u64(500..=2500),
        };
        Self {
            takes: Duration::from_millis(millis),
            failures: rng.choice([0, 0, 0, 0, 0, 0, 0, 0, 1, 2]).unwrap_or(0),
            fails_late: rng.bool(),
            panics: rng.u32(..10) == 0,
            snoozes: rng.u32(..50) == 0,
            manners: match rng.u32(..10) {
                0..2 => Manners::Stubborn,
                2 => Manners::Polite,
                _ => Manners::Ordinary,
            },
        }
    }
}

/// The settings of the parent process and the workers. Rescues are not bounded, because here a lost worker is never
/// the fault of the step.
pub(crate) fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.lease = LEASE;
    settings.poll = Duration::from_millis(200);
    settings.max_rescues = 1000;
    settings.requeue.rescue = Duration::from_millis(20);
    settings
}

pub(crate) fn policies() -> PolicySet {
    let growth = Growth::exponential(Duration::from_millis(20), 2.0);
    let builder = Policy::builder(growth).cap(Duration::from_millis(200)).jitter(Jitter::Full);
    let mut set = PolicySet::default();
    set.define(POLICY, builder.attempts(Policy::UNLIMITED).build().unwrap());
    set
}

/// Creates tasks with this number of steps in total: single steps, chains of three, and diamonds. Each task has a
/// key, so that a caller without a response can submit it again.
pub(crate) fn tasks(seed: u64, steps: u64) -> Vec<Task> {
    let mut rng = Rng::with_seed(seed);
    let mut tasks = Vec::new();
    let mut number = 0;
    while number < steps {
        let shape = match rng.u32(..10) {
            0..2 if steps - number >= 3 => CHAIN,
            2..4 if steps - number >= 4 => DIAMOND,
            _ => SINGLE,
        };
        let mut task = Task::graph().dedup(format!("chaos-{seed}-{number}"));
        for (place, (name, parents)) in (0..).zip(shape) {
            task = task.step(*name, step(number + place, parents, number, &mut rng));
        }
        tasks.push(task);
        number += shape.len() as u64;
    }
    tasks
}

/// Steps by name, each with the indexes of its parents.
type Shape = &'static [(&'static str, &'static [usize])];
const SINGLE: Shape = &[("a", &[])];
const CHAIN: Shape = &[("a", &[]), ("b", &[0]), ("c", &[1])];
const DIAMOND: Shape = &[("a", &[]), ("b", &[0]), ("c", &[0]), ("d", &[1, 2])];
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn step(number: u64, parents: &[usize], first: u64, rng: &mut Rng) -> Step {
    let parent = |place: &usize| (NAMES[*place].to_owned(), first + *place as u64);
    let order = Order { number, parents: parents.iter().map(parent).collect() };
    let operation = rng.choice(OPERATIONS).unwrap_or(OPERATIONS[0]);
    let mut step = Step::new(operation).policy(POLICY).json(&order);
    if rng.u32(..10) == 0 {
        step = step.priority(2);
    }
    if rng.u32(..20) == 0 {
        step = step.delay(Duration::from_millis(rng.u64(1..500)));
    }
    parents.iter().fold(step, |step, place| step.after(NAMES[*place]))
}
