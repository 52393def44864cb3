//! `holdoff lock run`: acquires a lock, runs a command while it holds the lock, and releases it.

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use clap::ValueHint;
use holdoff::client::{Client, LockGuard};
use holdoff_lock::{Error, Guard, Locks, Settings};
use holdoff_policy::{format_duration, parse_duration};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::LockContext;
use super::backend::LockBackend;
use crate::api_client::{self, DaemonAddress};
use crate::args::with_default;
use crate::error::{CommandError, EXIT_LOCK_LOST, EXIT_TEMPFAIL};
use crate::output::{escaped, time, warn};
use crate::signals::{StopSignal, StopSignals};

/// The text below the help of `holdoff lock run`.
pub(super) const AFTER_HELP: &str = "Exit codes: the exit code of the command, or 128 plus the signal number if a \
    signal ended it; 75 if the lock was not granted in time; 76 if the lock was lost while the command ran; 126 or 127 \
    if the command cannot be executed; 1 if the store failed.\n\nThe command gets the fencing token in \
    HOLDOFF_FENCING_TOKEN, the key in HOLDOFF_KEY and the namespace in HOLDOFF_NAMESPACE, and neither HOLDOFF_API_TOKEN \
    nor HOLDOFF_STORE. If the lock is lost, the \
    command and its child processes get SIGTERM, and SIGKILL after the grace period.";

#[derive(clap::Args, Debug)]
pub(super) struct RunArgs {
    /// Key of the lock
    key: String,

    #[arg(
        long,
        value_name = "TIME",
        value_parser = parse_duration,
        help = with_default(
            "Lease: time for which the lock stays held if this process dies",
            format_args!("lock.lease, then {}", format_duration(Settings::default().lease()))
        )
    )]
    lease: Option<Duration>,

    /// Time to wait for the lock; 0s tries once [default: lock.wait, then twice the lease]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,

    /// Time that the command gets to end if the lock is lost, before it is killed
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    grace: Duration,

    /// Command to run, after --
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

pub(super) async fn run(context: &LockContext, args: &RunArgs) -> Result<ExitCode, CommandError> {
    let mut signals = StopSignals::new()?;
    let held = match acquire(context, args, &mut signals).await? {
        Ok(held) => held,
        Err(signal) => return Ok(ExitCode::from(signal.exit_code())),
    };
    let ended = run_command(&held, args, &mut signals).await;
    let token = held.token();
    let lost = || {
        let key = &args.key;
        CommandError::Coded(
            EXIT_LOCK_LOST,
            format!("lost the lock {key} with fencing token {token} while the command ran"),
        )
    };
    let released = held.release().await;
    match (ended?, released) {
        (None, _) | (_, ReleaseOutcome::Lost) => Err(lost()),
        (Some(code), released) => {
            if let ReleaseOutcome::Failed(why) = released {
                warn(&format!("cannot release the lock, which stays held until its lease expires: {why}"));
            }
            Ok(ExitCode::from(code))
        }
    }
}

/// Acquires the lock, or returns the signal that arrived first. In both cases it leaves no waiter behind.
async fn acquire(
    context: &LockContext,
    args: &RunArgs,
    signals: &mut StopSignals,
) -> Result<Result<HeldLock, StopSignal>, CommandError> {
    let mut settings = context.settings.clone();
    if let Some(lease) = args.lease {
        settings = settings.with_lease(lease);
    }
    if let Some(wait) = args.wait {
        settings = settings.with_wait(wait);
    }
    if let Some(wait) = settings.short_wait().filter(|wait| !wait.is_zero()) {
        let (wait, lease) = (time(wait), time(settings.lease()));
        warn(&format!(
            "--wait {wait} is shorter than the lease of {lease}: if the holder was killed, the lock is not granted in time"
        ));
    }
    let (key, cancel) = (&args.key, CancellationToken::new());
    let acquiring = async {
        match &context.backend {
            LockBackend::Store { locks, .. } => {
                HeldLock::acquire_from_store(locks, settings, key, cancel.clone()).await
            }
            LockBackend::Daemon(address) => {
                HeldLock::acquire_from_daemon(address, &settings, &context.namespace, key).await
            }
        }
    };
    tokio::pin!(acquiring);
    tokio::select! {
        biased;
        signal = signals.next() => {
            cancel.cancel();
            // The store may have granted the lock at the last moment, and dropping the guard does not wait for its
            // release.
            if let LockBackend::Store { .. } = &context.backend && let Ok(held) = acquiring.await {
                _ = held.release().await;
            }
            Ok(Err(signal))
        }
        acquired = &mut acquiring => acquired.map(Ok),
    }
}

/// Runs the command to its end. Returns its exit code, or `None` if the lease was lost first.
async fn run_command(
    held: &HeldLock,
    args: &RunArgs,
    signals: &mut StopSignals,
) -> Result<Option<u8>, CommandError> {
    let mut child = Child::start(args, held)?;
    let lost = held.lost();
    tokio::pin!(lost);
    loop {
        tokio::select! {
            biased;
            code = child.ended() => return Ok(Some(code?)),
            () = &mut lost => break,
            signal = signals.next() => child.forward(signal),
        }
    }
    warn(&format!("lost the lock: the command gets {} to end", time(args.grace)));
    child.forward(StopSignal::Terminate);
    if tokio::time::timeout(args.grace, child.ended()).await.is_err() {
        child.kill();
        child.ended().await?;
    }
    // Kills child processes that outlived the command.
    child.kill();
    Ok(None)
}

/// A lock that this command holds and renews.
enum HeldLock {
    /// A lock in a store.
    Store(Box<Guard>),
    /// A lock that a daemon grants, with its namespace.
    Daemon(Box<LockGuard>, String),
}

/// The outcome of a release.
enum ReleaseOutcome {
    Released,
    /// The lease was lost before the release.
    Lost,
    /// The release failed. The lock becomes free when its lease expires.
    Failed(String),
}

impl HeldLock {
    /// Acquires a lock in a store.
    async fn acquire_from_store(
        locks: &Locks,
        settings: Settings,
        key: &str,
        cancel: CancellationToken,
    ) -> Result<Self, CommandError> {
        let acquired = locks.with_settings(settings)?.acquire(key).cancel(cancel).await;
        acquired.map(|guard| Self::Store(Box::new(guard))).map_err(|error| match error {
            Error::Contended { .. } | Error::DeadlineExceeded { .. } => {
                CommandError::Coded(EXIT_TEMPFAIL, format!("{key}: {error}"))
            }
            error => error.into(),
        })
    }

    /// Acquires a lock through a daemon. The default wait is twice the lease. A caller that stops waiting leaves no
    /// waiter at the daemon.
    async fn acquire_from_daemon(
        address: &DaemonAddress,
        settings: &Settings,
        namespace: &str,
        key: &str,
    ) -> Result<Self, CommandError> {
        let mut client = Client::builder(address.url.as_str());
        if let Some(token) = &address.api_token {
            client = client.api_token(token);
        }
        let client = client.build().map_err(|error| CommandError::Usage(error.to_string()))?;
        let name = format!("holdoff-{}", std::process::id());
        let lock = client.lock(key).namespace(namespace).name(name).lease(settings.lease());
        let wait = settings.wait().unwrap_or_else(|| settings.lease().saturating_mul(2));
        let guard = lock.wait(wait).acquire().await.map_err(|error| {
            let why = escaped(&error.to_string());
            match error.problem().map(|problem| (problem.kind(), problem.status)) {
                Some(("lock-held", _)) => CommandError::Coded(EXIT_TEMPFAIL, format!("{key}: {why}")),
                Some((_, 400)) => CommandError::Usage(why),
                _ => CommandError::Failed(why),
            }
        })?;
        Ok(Self::Daemon(Box::new(guard), namespace.to_owned()))
    }

    fn token(&self) -> u64 {
        match self {
            Self::Store(guard) => guard.token().get(),
            Self::Daemon(guard, _) => guard.token(),
        }
    }

    fn namespace(&self) -> &str {
        match self {
            Self::Store(guard) => guard.key().namespace(),
            Self::Daemon(_, namespace) => namespace,
        }
    }

    /// Waits until the lease is lost.
    async fn lost(&self) {
        match self {
            Self::Store(guard) => guard.lost().await,
            Self::Daemon(guard, _) => guard.lost().await,
        }
    }

    async fn release(self) -> ReleaseOutcome {
        match self {
            Self::Store(guard) => match guard.release().await {
                Ok(()) => ReleaseOutcome::Released,
                Err(Error::Lost { .. }) => ReleaseOutcome::Lost,
                Err(error) => ReleaseOutcome::Failed(error.to_string()),
            },
            Self::Daemon(guard, _) => match guard.release().await {
                Ok(()) => ReleaseOutcome::Released,
                Err(error) if error.problem().is_some_and(|problem| problem.kind() == "lock-lost") => {
                    ReleaseOutcome::Lost
                }
                Err(error) => ReleaseOutcome::Failed(error.to_string()),
            },
        }
    }
}

/// A running command.
struct Child {
    process: tokio::process::Child,
    /// Whether the command leads its own process group, so that signals reach its child processes too. With a
    /// terminal on stdin it stays in this process's group, because only one group at a time can read from a terminal.
    leads: bool,
    #[cfg(unix)]
    id: Option<rustix::process::Pid>,
}

impl Child {
    fn start(args: &RunArgs, held: &HeldLock) -> Result<Self, CommandError> {
        let Some((program, arguments)) = args.command.split_first() else {
            return Err(CommandError::Usage("no command: add it after --".to_owned()));
        };
        let leads = !std::io::stdin().is_terminal();
        let mut command = Command::new(program);
        command.args(arguments);
        // The command may be a build or a deployment that runs other people's code.
        command.env_remove(api_client::API_TOKEN).env_remove("HOLDOFF_STORE");
        command.env("HOLDOFF_FENCING_TOKEN", held.token().to_string());
        command.env("HOLDOFF_KEY", &args.key).env("HOLDOFF_NAMESPACE", held.namespace());
        #[cfg(unix)]
        if leads {
            command.process_group(0);
        }
        let process = command.spawn().map_err(|error| {
            let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
            CommandError::Coded(code, format!("cannot run {}: {error}", program.to_string_lossy()))
        })?;
        #[cfg(unix)]
        let id = process.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self {
            process,
            leads,
            #[cfg(unix)]
            id,
        })
    }

    /// Waits for the command to exit. Returns the exit code to pass through.
    async fn ended(&mut self) -> Result<u8, CommandError> {
        let ended = self.process.wait().await;
        ended.map(code).map_err(|error| CommandError::Failed(format!("cannot wait for the command: {error}")))
    }

    /// Forwards a signal. Without its own process group, the command receives Ctrl-C directly from the terminal.
    #[cfg(unix)]
    fn forward(&self, signal: StopSignal) {
        use rustix::process::Signal;
        match signal {
            StopSignal::Interrupt if !self.leads => {}
            StopSignal::Interrupt => self.send(Signal::INT),
            StopSignal::Terminate => self.send(Signal::TERM),
            StopSignal::Hangup => self.send(Signal::HUP),
        }
    }

    #[cfg(unix)]
    fn kill(&mut self) {
        self.send(rustix::process::Signal::KILL);
    }

    #[cfg(unix)]
    fn send(&self, signal: rustix::process::Signal) {
        let Some(id) = self.id else { return };
        // A process that has already exited needs no signal.
        _ = if self.leads {
            rustix::process::kill_process_group(id, signal)
        } else if self.process.id().is_some() {
            rustix::process::kill_process(id, signal)
        } else {
            Ok(())
        };
    }

    #[cfg(not(unix))]
    fn forward(&mut self, _: StopSignal) {
        self.kill();
    }

    #[cfg(not(unix))]
    fn kill(&mut self) {
        _ = self.process.start_kill();
    }
}

#[cfg(unix)]
fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(not(unix))]
fn code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
