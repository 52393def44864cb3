//! Workers that pull photos from the daemon, in this process or in one that will be killed.

use std::process::ExitCode;
use std::time::Duration;

use holdoff::client::{Client, Error, PulledStep};
use serde_json::json;
use tokio::io::AsyncReadExt;

use super::task::PHOTO;
use crate::args::DemoWorkerArgs;
use crate::failure::Failure;

/// A worker that says nothing for so long has lost its steps.
pub(super) const LEASE: Duration = Duration::from_secs(3);

/// How long a photo takes the worker that will be killed: long enough to be killed over it.
const SLOW: Duration = Duration::from_secs(6);
const SLOW_PLACES: usize = 4;

const QUICK: Duration = Duration::from_millis(300);
const QUICK_PLACES: usize = 4;

/// What the worker that will be killed says when it takes a step, and when it is done with one.
pub(super) const TAKEN: &str = "+";
pub(super) const DONE: &str = "-";

/// The worker that will be killed. It ends by itself when whoever started it is gone.
pub(crate) fn work(args: &DemoWorkerArgs) -> Result<ExitCode, Failure> {
    let refused = |error: Error| Failure::Failed(error.to_string());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let working = async {
        let worker = Client::new(&args.url).map_err(refused)?.worker("photos-1").operation(PHOTO);
        let handle = |step: PulledStep| async move {
            println!("{TAKEN}");
            tokio::time::sleep(SLOW).await;
            println!("{DONE}");
            Ok(resized(&step))
        };
        let pulling = worker.lease(LEASE).concurrency(SLOW_PLACES).run(handle, std::future::pending());
        let (mut parent, mut nothing) = (tokio::io::stdin(), [0; 1]);
        tokio::select! {
            ended = pulling => ended.map_err(refused),
            _ = parent.read(&mut nothing) => Ok(()),
        }
    };
    runtime.block_on(working)?;
    Ok(ExitCode::SUCCESS)
}

/// A worker of this process, until `stop` comes.
pub(super) async fn pull(client: &Client, stop: impl Future<Output = ()>) -> Result<(), Error> {
    let handle = |step: PulledStep| async move {
        tokio::time::sleep(QUICK).await;
        Ok(resized(&step))
    };
    let worker = client.worker("photos-2").operation(PHOTO).lease(LEASE).concurrency(QUICK_PLACES);
    worker.run(handle, stop).await
}

fn resized(step: &PulledStep) -> serde_json::Value {
    json!({ "resized": step.payload.get("photo"), "attempt": step.attempt })
}
