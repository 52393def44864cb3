//! The reason why a command failed.

use std::fmt;
use std::process::ExitCode;

/// The reason why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments or the input are invalid. Exits with 2.
    Usage(String),
    /// The command ran and failed. Exits with 1.
    Failed(String),
    /// The command ran and failed in a way that has its own exit code.
    Coded(u8, String),
    /// The output could not be written.
    Output(std::io::Error),
}

impl Failure {
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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Failed(message) | Self::Coded(_, message) => f.write_str(message),
            Self::Output(error) => write!(f, "cannot write the output: {error}"),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error)
    }
}
