//! `holdoff acceptor`

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use holdoff_council::acceptor::AcceptorService;
use holdoff_council::node_id;

use crate::args::{AcceptorArgs, Args};
use crate::config::load_layers;
use crate::failure::Failure;
use crate::serve::start_log;

/// The time that requests in flight get to finish after a stop signal.
const GRACE: Duration = Duration::from_secs(5);

pub(crate) fn run(command: &AcceptorArgs, args: &Args) -> Result<ExitCode, Failure> {
    let config = load_layers(args.config.as_deref(), command.given())?;
    let settings = &config.whole.acceptor;
    let Some(directory) = &settings.data else {
        let message = "say where the acceptor keeps its key and its promises, by --data DIR";
        return Err(Failure::Usage(message.to_owned()));
    };
    start_log(&config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let started = AcceptorService::start(directory, settings).await;
        let acceptor = started.map_err(|error| Failure::Failed(error.to_string()))?;
        let mut asked_to_end = std::pin::pin!(asked_to_end()?);
        // A closed stdout does not keep the acceptor from serving.
        let _ = greet(&acceptor, args.json);
        tokio::select! {
            stopped = acceptor.failed() => Err(Failure::Failed(stopped.to_string())),
            () = &mut asked_to_end => {
                tokio::select! {
                    _ = acceptor.stop(GRACE) => {}
                    // A second signal stops the acceptor at once. Everything that it has answered is already on disk.
                    () = &mut asked_to_end => {}
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    })
}

/// Completes on SIGTERM or Ctrl-C. The future can be awaited again for the next signal.
#[cfg(unix)]
fn asked_to_end() -> Result<impl Future<Output = ()>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(std::future::poll_fn(move |context| {
        let is_asked = terminate.poll_recv(context).is_ready() || interrupt.poll_recv(context).is_ready();
        if is_asked { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    }))
}

#[cfg(not(unix))]
fn asked_to_end() -> Result<impl Future<Output = ()>, Failure> {
    let mut waiting = Box::pin(tokio::signal::ctrl_c());
    Ok(std::future::poll_fn(move |context| {
        let asked = waiting.as_mut().poll(context);
        if asked.is_ready() {
            waiting = Box::pin(tokio::signal::ctrl_c());
        }
        asked.map(drop)
    }))
}

/// Prints the acceptor's identity. The first line is the `KEY@HOST:PORT` address to paste into other commands.
fn greet(acceptor: &AcceptorService, json: bool) -> std::io::Result<()> {
    let mut out = anstream::stdout();
    let (key, life, address) = (acceptor.key(), acceptor.life(), acceptor.address());
    let node = format!("{:032x}", node_id(&key, life).0);
    if json {
        let greeting = serde_json::json!({
            "acceptor": format!("{key}@{address}"),
            "key": key.to_string(),
            "life": format!("{life:016x}"),
            "node": node,
            "address": address,
        });
        return writeln!(out, "{greeting}");
    }
    writeln!(out, "{key}@{address}")?;
    writeln!(out, "it is node {node}, in life {life:016x} of its storage")
}
