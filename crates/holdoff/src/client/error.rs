//! What can go wrong between a program and the daemon.

use std::time::Duration;

use serde::Deserialize;

/// What went wrong between this program and the daemon. Every call may be repeated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The daemon's address cannot be used. Nobody was asked.
    #[error("`{address}` is no daemon's address: {why}")]
    Address {
        /// The address.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// The token cannot be sent. Nobody was asked.
    #[error("the token has characters that no token has; copy it again")]
    Token,
    /// The daemon did not answer, for as long as the policy goes on. Whether it did what was asked is unknown.
    #[error("the daemon did not answer: {why}")]
    Unreachable {
        /// What happened instead.
        why: String,
        /// Whether it took too long.
        timed_out: bool,
    },
    /// The daemon said no. Nothing was changed unless the problem says so.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The daemon's answer is not what this version expects.
    #[error("the daemon's answer is not understood: {0}; are client and daemon of the same version?")]
    Answer(String),
    /// The task that was waited for is not there, or not any more.
    #[error("there is no task {0}")]
    NoSuchTask(String),
    /// The policy allows no try at all.
    #[error("the daemon was not asked: the policy allows no try")]
    NotAsked,
}

impl Error {
    pub(super) fn unreachable(error: &reqwest::Error) -> Self {
        // The innermost cause says most, and names no address.
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        Self::Unreachable { why: cause.to_string(), timed_out: error.is_timeout() }
    }

    /// What the daemon said, if it said no.
    pub fn problem(&self) -> Option<&Problem> {
        if let Self::Refused(problem) = self { Some(problem) } else { None }
    }

    pub(super) fn is(&self, kind: &str) -> bool {
        self.problem().is_some_and(|problem| problem.kind() == kind)
    }
}

/// What the daemon says when something cannot be done.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, thiserror::Error)]
#[error("{title}: {detail}")]
#[non_exhaustive]
pub struct Problem {
    #[serde(rename = "type")]
    pub(super) uri: String,
    /// What kind of problem it is, for people.
    pub title: String,
    /// The status of the answer.
    #[serde(default)]
    pub status: u16,
    /// What is true now, and what to do.
    #[serde(default)]
    pub detail: String,
    /// When to come back, if that was said.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
}

impl Problem {
    /// What kind of problem it is, for programs: `no-such-task`, `lock-held`, `queue-full`.
    pub fn kind(&self) -> &str {
        self.uri.rsplit('/').next().unwrap_or_default()
    }

    /// For somebody who answers instead of the daemon.
    pub(super) fn of_status(status: u16) -> Self {
        let title = format!("The answer is {status}");
        let detail = "somebody between this program and the daemon answered".to_owned();
        Self { uri: String::new(), title, status, detail, retry_after: None }
    }
}
