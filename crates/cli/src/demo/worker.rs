//! Workers that pull photos from the daemon, in this process or in one that the demo kills.

use std::process::ExitCode;
use std::time::Duration;

use holdoff::client::{Client, Error, PulledStep};
use serde_json::json;
use tokio::io::AsyncReadExt;

use super::task::PHOTO;
use crate::args::DemoWorkerArgs;
use crate::failure::Failure;

/// The lease of a worker's steps. Without a heartbeat for this long, the worker loses them.
pub(super) const LEASE: Duration = Duration::from_secs(3);

/// The duration of a photo in the worker to be killed, long enough for the kill to happen meanwhile.
const SLOW: Duration = Duration::from_secs(6);
const SLOW_PLACES: usize = 4;

const QUICK: Duration = Duration::from_millis(300);
const QUICK_PLACES: usize = 4;

/// The lines that the worker to be killed prints when it claims a step and when it completes one.
pub(super) const TAKEN: &str = "+";
pub(super) const DONE: &str = "-";

/// Runs the worker to be killed. It exits when its parent closes its stdin.
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

/// Runs a worker in this process until `stop` completes.
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
