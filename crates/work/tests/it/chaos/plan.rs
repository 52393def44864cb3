//! What is submitted, and how each step behaves: all drawn from the seed.

use std::time::Duration;

use fastrand::Rng;
use holdoff_policy::{Growth, Jitter, Policy, PolicySet};
use holdoff_work::{Settings, Step, Task};
use serde::{Deserialize, Serialize};

/// The policy of every step.
const POLICY: &str = "chaos";

/// What handlers there are.
pub(crate) const OPERATIONS: [&str; 3] = ["pack", "weigh", "ship"];

/// How long a step stays with a worker that says nothing.
pub(crate) const LEASE: Duration = Duration::from_millis(1500);

/// A step's payload: its number, and its parents' numbers by their names.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) number: u64,
    pub(crate) parents: Vec<(String, u64)>,
}

/// How a step behaves, whoever runs it.
pub(crate) struct Behaviour {
    pub(crate) takes: Duration,
    /// How often it fails before it succeeds.
    pub(crate) failures: u32,
    /// Whether it fails after its effect, rather than before.
    pub(crate) fails_late: bool,
    pub(crate) panics: bool,
    /// Whether it asks for more time when it is claimed first.
    pub(crate) snoozes: bool,
    pub(crate) manners: Manners,
}

/// What a handler does when it is to be stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manners {
    /// It is dropped wherever it is.
    Ordinary,
    /// It looks whether it is to be stopped, and goes.
    Polite,
    /// It acts, whatever it is told: what a stale worker must not do, and what the fence is for.
    Stubborn,
}

impl Behaviour {
    pub(crate) fn of(seed: u64, number: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let millis = match rng.u32(..100) {
            0..86 => rng.u64(1..=5),
            86..97 => rng.u64(50..=150),
            // Longer than the lease: it is renewed meanwhile.
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

/// What parent and workers agree on. Rescues are not bounded: here it is never the step's own fault.
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

/// Tasks with so many steps in all: single ones, chains of three, diamonds. Each has a key, so that it may be
/// submitted again by somebody who has heard nothing.
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

/// Steps by name, each with the places of its parents.
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
