//! Why a command did not do what it was asked.

use std::fmt;
use std::process::ExitCode;

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was not asked right. Exits with 2.
    Usage(String),
    /// It was tried, and failed. Exits with 1.
    Failed(String),
    /// It was tried, and failed in a way that has an exit code of its own.
    Coded(u8, String),
    /// Output could not be written.
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

    /// Whoever reads the output has seen enough, as `head` does.
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
