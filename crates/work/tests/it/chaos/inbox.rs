//! Applies the effects of one process to a SQLite file in batches. Single effects would spend most time waiting for
//! the lock.

use sqlx::SqlitePool;
use tokio::sync::{mpsc, oneshot};

use crate::chaos::effects::{Fate, apply_sqlite};

/// Receives effects from the handlers.
pub(crate) struct Inbox(mpsc::Sender<Request>);

struct Request {
    step: String,
    token: i64,
    run: i64,
    answer: oneshot::Sender<(Fate, i64)>,
}

const BATCH: usize = 100;

impl Inbox {
    pub(crate) fn new(pool: SqlitePool) -> Self {
        let (requests, mut inbox) = mpsc::channel(BATCH);
        tokio::spawn(async move {
            let mut batch = Vec::with_capacity(BATCH);
            while inbox.recv_many(&mut batch, BATCH).await > 0 {
                if let Err(error) = apply(&pool, &mut batch).await {
                    tracing::debug!(target: "chaos", %error, "the resource is away");
                }
                // A handler without an answer repeats its request.
                batch.clear();
            }
        });
        Self(requests)
    }

    pub(crate) async fn apply(&self, step: &str, token: i64, run: i64) -> Result<(Fate, i64), sqlx::Error> {
        let (answer, answered) = oneshot::channel();
        let request = Request { step: step.to_owned(), token, run, answer };
        self.0.send(request).await.map_err(|_| sqlx::Error::WorkerCrashed)?;
        answered.await.map_err(|_| sqlx::Error::WorkerCrashed)
    }
}

async fn apply(pool: &SqlitePool, batch: &mut Vec<Request>) -> Result<(), sqlx::Error> {
    let mut tx = pool.begin_with("begin immediate").await?;
    let mut answers = Vec::with_capacity(batch.len());
    for request in batch.iter() {
        answers.push(apply_sqlite(&mut tx, &request.step, request.token, request.run).await?);
    }
    tx.commit().await?;
    for (request, answer) in batch.drain(..).zip(answers) {
        // A handler that was stopped no longer waits for the answer.
        let _ = request.answer.send(answer);
    }
    Ok(())
}
