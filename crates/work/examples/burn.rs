//! How fast steps that do nothing are taken in and burnt down: `burn URL [STEPS] [PLACES] [WAITING]`.

#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::time::{Duration, Instant};

use holdoff_policy::PolicySet;
use holdoff_work::{Context, Fault, Filter, Page, StepRecord, StepState, Task, Work};

const LATER: Duration = Duration::from_secs(3600);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |place: usize, default: usize| {
        arguments.get(place).map_or(default, |text| text.parse().unwrap_or(default))
    };
    let url = arguments.first().ok_or("burn URL [STEPS] [PLACES] [WAITING]")?;
    let (steps, places, waiting) = (argument(1, 100_000), argument(2, 2000), argument(3, 0));
    let work = Work::open(url, PolicySet::default()).await?;
    for batch in batches(waiting, 5000) {
        work.submit_all((0..batch).map(|_| Task::new("nothing").delay(LATER)).collect()).await?;
    }
    let start = Instant::now();
    for batch in batches(steps, 1000) {
        work.submit_all((0..batch).map(|_| Task::new("nothing")).collect()).await?;
    }
    report("submitted", steps, start);
    let start = Instant::now();
    let worker = work
        .worker()
        .handle("nothing", |_: Context, (): ()| async { Ok::<_, Fault>(()) })
        .concurrency(places)
        .without_maintenance()
        .start()
        .await?;
    // What waits for tomorrow was submitted first, so the newest steps are those that burn.
    let unfinished = Filter::states([StepState::Ready, StepState::Running]);
    let is_due = |step: &StepRecord| step.due_at.is_some_and(|due| due.since(step.created_at) < LATER / 2);
    while work.list(&unfinished, &Page::first(1)).await?.iter().any(is_due) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    report("burnt down", steps, start);
    worker.shutdown().await;
    Ok(())
}

fn batches(all: usize, size: usize) -> impl Iterator<Item = usize> {
    (0..all.div_ceil(size)).map(move |batch| size.min(all - batch * size))
}

#[expect(clippy::cast_precision_loss, reason = "a rate is a float")]
fn report(what: &str, steps: usize, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!("{what} {steps} steps in {seconds:.2} s: {:.0}/s", steps as f64 / seconds);
}
