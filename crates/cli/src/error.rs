//! The errors of commands, and their exit codes.

use std::fmt;
use std::process::ExitCode;

/// Exit code for an operation that had no effect and may succeed later, such as `EX_TEMPFAIL` of `sysexits.h`.
pub(crate) const EXIT_TEMPFAIL: u8 = 75;
/// Exit code for a lock that was lost while the command ran.
pub(crate) const EXIT_LOCK_LOST: u8 = 76;
/// Exit code for an expired deadline, as of `timeout`. The operation may still take effect.
pub(crate) const EXIT_TIMEOUT: u8 = 124;
/// Exit code for a command that was interrupted before its result.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// The reason why a command failed.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// The arguments or the input are invalid. Exits with 2.
    Usage(String),
    /// The command ran and failed. Exits with 1.
    Failed(String),
    /// The command ran and failed in a way that has its own exit code.
    Coded(u8, String),
    /// The output could not be written.
    Output(std::io::Error),
}

impl CommandError {
    /// Creates an error with exit code 1 from its cause.
    pub(crate) fn failed(cause: impl fmt::Display) -> Self {
        Self::Failed(cause.to_string())
    }

    pub(crate) fn code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Coded(code, _) => ExitCode::from(*code),
            Self::Failed(_) | Self::Output(_) => ExitCode::FAILURE,
        }
    }

    /// Returns whether the reader closed the pipe early, as `head` does.
    pub(crate) fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Failed(message) | Self::Coded(_, message) => f.write_str(message),
            Self::Output(error) => write!(f, "cannot write the output: {error}"),
        }
    }
}

impl From<std::io::Error> for CommandError {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<holdoff_work::Error> for CommandError {
    fn from(error: holdoff_work::Error) -> Self {
        Self::failed(error)
    }
}

impl From<holdoff_lock::Error> for CommandError {
    fn from(error: holdoff_lock::Error) -> Self {
        match error {
            holdoff_lock::Error::InvalidKey(_) | holdoff_lock::Error::Settings(_) => {
                Self::Usage(error.to_string())
            }
            _ => Self::failed(error),
        }
    }
}

impl From<holdoff_server::Error> for CommandError {
    fn from(error: holdoff_server::Error) -> Self {
        match error {
            holdoff_server::Error::Token(_) => Self::Usage(error.to_string()),
            _ => Self::failed(error),
        }
    }
}

impl From<holdoff_sql::BackupError> for CommandError {
    fn from(error: holdoff_sql::BackupError) -> Self {
        Self::failed(error)
    }
}

impl From<holdoff_sql::Error> for CommandError {
    fn from(error: holdoff_sql::Error) -> Self {
        Self::failed(error)
    }
}
