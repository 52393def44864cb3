//! The command that runs under a lock.

use std::io::{ErrorKind, IsTerminal};
use std::process::ExitStatus;

use tokio::process::Command;

use super::held::Held;
use super::signals::Came;
use crate::args::LockRunArgs;
use crate::failure::Failure;

/// A running command.
pub(super) struct Child {
    process: tokio::process::Child,
    /// Whether the command leads its own process group, so that signals reach its child processes too. With a
    /// terminal on stdin it stays in this process's group, because only one group at a time can read from a terminal.
    leads: bool,
    #[cfg(unix)]
    id: Option<rustix::process::Pid>,
}

impl Child {
    pub(super) fn start(args: &LockRunArgs, held: &Held) -> Result<Self, Failure> {
        let Some((program, arguments)) = args.command.split_first() else {
            return Err(Failure::Usage("name a command, after --".to_owned()));
        };
        let leads = !std::io::stdin().is_terminal();
        let mut command = Command::new(program);
        command.args(arguments);
        command.env("HOLDOFF_TOKEN", held.token().to_string());
        command.env("HOLDOFF_KEY", &args.key).env("HOLDOFF_NAMESPACE", held.namespace());
        #[cfg(unix)]
        if leads {
            command.process_group(0);
        }
        let process = command.spawn().map_err(|error| {
            let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
            Failure::Coded(code, format!("cannot run {}: {error}", program.to_string_lossy()))
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
    pub(super) async fn ended(&mut self) -> Result<u8, Failure> {
        let ended = self.process.wait().await;
        ended.map(code).map_err(|error| Failure::Failed(format!("cannot wait for the command: {error}")))
    }

    /// Forwards a signal. Without its own process group, the command receives Ctrl-C directly from the terminal.
    #[cfg(unix)]
    pub(super) fn tell(&self, came: Came) {
        use rustix::process::Signal;
        match came {
            Came::Interrupt if !self.leads => {}
            Came::Interrupt => self.send(Signal::INT),
            Came::Terminate => self.send(Signal::TERM),
        }
    }

    #[cfg(unix)]
    pub(super) fn kill(&mut self) {
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
    pub(super) fn tell(&mut self, _: Came) {
        self.kill();
    }

    #[cfg(not(unix))]
    pub(super) fn kill(&mut self) {
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
