//! Batches the submissions of concurrent callers: one transaction, and one wait for the disk.
//!
//! A caller adds its tasks to a waiting line and waits for the result. If no writer is active, the caller starts one.
//! Submissions that arrive during a write form the next batch. So batches grow with the load, and without load no
//! caller waits for others.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::{Shared, Work};
use crate::Error;
use crate::patience::patiently;
use crate::store::{NewTask, Result, Submitted};

/// A caller with more tasks than this has a batch already, and writes it alone.
const MOST_OF_ONE: usize = 100;
/// The largest number of tasks in one transaction, not counting those of its last caller.
const MOST_TOGETHER: usize = 1000;
/// The largest number of bytes in one transaction, not counting those of its last caller. Payloads are held in memory
/// several times while they are written.
const MOST_BYTES: usize = 8 << 20;
/// The largest number of waiting callers; further callers write alone.
const LONGEST_LINE: usize = 10_000;

type Answer = Result<Vec<Submitted>>;

/// A waiting caller.
#[derive(Debug)]
struct Caller {
    tasks: Vec<NewTask>,
    answer: oneshot::Sender<Answer>,
}

impl Caller {
    fn bytes(&self) -> usize {
        self.tasks.iter().flat_map(|task| &task.steps).map(|step| step.payload.bytes.len()).sum()
    }
}

/// The callers that wait for their tasks to be stored.
#[derive(Debug, Default)]
pub(crate) struct Intake(Mutex<Line>);

#[derive(Debug, Default)]
struct Line {
    callers: VecDeque<Caller>,
    is_writing: bool,
}

/// The way in which a caller's tasks are written.
enum Turn {
    /// The caller writes its own tasks.
    Alone(Caller),
    /// No writer is active; the caller starts one.
    First,
    Waits,
}

impl Intake {
    fn line_up(&self, caller: Caller) -> Turn {
        let mut line = self.line();
        let is_large = caller.tasks.len() > MOST_OF_ONE || caller.bytes() > MOST_BYTES;
        if is_large || line.callers.len() >= LONGEST_LINE {
            return Turn::Alone(caller);
        }
        line.callers.push_back(caller);
        if std::mem::replace(&mut line.is_writing, true) { Turn::Waits } else { Turn::First }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    /// Submits tasks, all or none, in a batch with those of other callers. If one caller's tasks are invalid, the
    /// others are not affected.
    pub(super) async fn take_in(&self, tasks: Vec<NewTask>) -> Answer {
        let (answer, answered) = oneshot::channel();
        match self.shared.intake.line_up(Caller { tasks, answer }) {
            Turn::Alone(caller) => return self.write(&caller.tasks).await,
            Turn::First => drop(tokio::spawn(write_down(Writing { work: self.clone(), is_over: false }))),
            Turn::Waits => {}
        }
        answered.await.unwrap_or_else(|_| Err(abandoned()))
    }

    async fn write(&self, tasks: &[NewTask]) -> Answer {
        let Shared { store, callers, .. } = &*self.shared;
        let submitted = patiently(callers, |again| store.submit(tasks, again)).await?;
        self.count_in(tasks, &submitted);
        Ok(submitted)
    }

    /// Submits tasks again, after a call that may have reached the store.
    async fn write_again(&self, tasks: &[NewTask]) -> Answer {
        let Shared { store, callers, .. } = &*self.shared;
        let submitted = patiently(callers, |_| store.submit(tasks, true)).await?;
        self.count_in(tasks, &submitted);
        Ok(submitted)
    }
}

/// The writer for all waiting callers. If it is dropped before the line is empty, its runtime is ending. It then fails
/// the waiting callers, because no other writer will serve them.
struct Writing {
    work: Work,
    is_over: bool,
}

impl Writing {
    /// Takes the next batch of callers. If there are none, the writer ends.
    fn next(&mut self) -> Vec<Caller> {
        let mut line = self.work.shared.intake.line();
        let (mut next, mut tasks, mut bytes) = (Vec::new(), 0, 0);
        while tasks < MOST_TOGETHER
            && bytes < MOST_BYTES
            && let Some(caller) = line.callers.pop_front()
        {
            // The tasks of a caller that has dropped its future are not written.
            if !caller.answer.is_closed() {
                tasks += caller.tasks.len();
                bytes += caller.bytes();
                next.push(caller);
            }
        }
        line.is_writing = !next.is_empty();
        self.is_over = next.is_empty();
        next
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.is_over {
            let mut line = self.work.shared.intake.line();
            line.is_writing = false;
            line.callers.clear();
        }
    }
}

async fn write_down(mut writing: Writing) {
    loop {
        let callers = writing.next();
        if callers.is_empty() {
            return;
        }
        flush(&writing.work, callers).await;
    }
}

async fn flush(work: &Work, callers: Vec<Caller>) {
    let mut tasks = Vec::with_capacity(callers.len());
    let mut shares = Vec::with_capacity(callers.len());
    for Caller { tasks: own, answer } in callers {
        shares.push((own.len(), answer));
        tasks.extend(own);
    }
    match work.write(&tasks).await {
        Ok(submitted) => {
            let mut submitted = submitted.into_iter();
            for (count, answer) in shares {
                // The send fails if the caller has dropped its future.
                let _ = answer.send(Ok(submitted.by_ref().take(count).collect()));
            }
        }
        Err(error) if error.is_transient() || shares.len() == 1 => {
            for (_, answer) in shares {
                let _ = answer.send(Err(same(&error)));
            }
        }
        // Some tasks cannot be stored. Each caller's tasks are written separately, so that only their own caller gets
        // the error.
        Err(_) => {
            let mut tasks = tasks.as_slice();
            let mut trouble = None;
            for (count, answer) in shares {
                let (own, rest) = tasks.split_at(count.min(tasks.len()));
                tasks = rest;
                if answer.is_closed() {
                    continue;
                }
                // After a transient error of the store, the remaining callers get the same error without a further
                // call.
                let written = match &trouble {
                    Some(error) => Err(same(error)),
                    None => work.write_again(own).await,
                };
                trouble =
                    trouble.or_else(|| Some(same(written.as_ref().err().filter(|why| why.is_transient())?)));
                let _ = answer.send(written);
            }
        }
    }
}

/// Returns a copy of an error, for each of several callers.
fn same(error: &Error) -> Error {
    match error {
        Error::Store { transient, source } => {
            Error::Store { transient: *transient, source: source.to_string().into() }
        }
        other => Error::NotPossible(other.to_string()),
    }
}

fn abandoned() -> Error {
    let why = "the program is ending; whether the tasks were stored is unknown";
    Error::Store { transient: true, source: why.into() }
}

#[cfg(feature = "sqlite")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::NewStep;
    use crate::{Payload, TaskId};

    fn caller(bytes: usize) -> (Caller, oneshot::Receiver<Answer>) {
        let step = NewStep {
            name: None,
            lane: 1,
            policy: 1,
            destination: None,
            parents: 0,
            children: 0,
            delay: std::time::Duration::ZERO,
            payload: Payload { format: crate::Format::Bytes, bytes: vec![0; bytes].into() },
        };
        let namespace = "default".to_owned();
        let (id, steps) = (TaskId::fresh(), vec![step]);
        let task = NewTask { id, namespace, dedup: None, trace: None, steps, edges: Vec::new() };
        let (answer, answered) = oneshot::channel();
        (Caller { tasks: vec![task], answer }, answered)
    }

    /// Payloads are held in memory several times while they are written, so few large ones cost as much as many small
    /// ones.
    #[tokio::test]
    async fn bytes_are_limited_as_tasks_are() {
        let work = Work::open("sqlite::memory:", holdoff_policy::PolicySet::default()).await.unwrap();
        let intake = &work.shared.intake;
        let (huge, _answered) = caller(MOST_BYTES + 1);
        assert!(matches!(intake.line_up(huge), Turn::Alone(_)), "it is a batch already");
        let (callers, waiting): (Vec<_>, Vec<_>) = (0..5).map(|_| caller(MOST_BYTES / 2)).unzip();
        for (number, caller) in callers.into_iter().enumerate() {
            let is_first = matches!(intake.line_up(caller), Turn::First);
            assert_eq!(is_first, number == 0);
        }
        let mut writing = Writing { work: work.clone(), is_over: false };
        let batches: Vec<usize> = (0..4).map(|_| writing.next().len()).collect();
        assert_eq!(batches, [2, 2, 1, 0], "no more than {MOST_BYTES} bytes at once");
        drop(waiting);
    }
}
