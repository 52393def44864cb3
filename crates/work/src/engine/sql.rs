//! SQL statements with names in place of numbers.
//!
//! The stores keep states, outcomes and kinds as numbers. `sql!("… where s.state = {running}")` expands at compile time
//! to one static string, in which each name in braces is replaced by its number. An unknown name does not compile.
//! Because the string is static, a statement is prepared once for each connection.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    reason = "these functions run at compile time, where a panic is a compile error"
)]

use super::columns::Column;
use crate::payload::Format;
use crate::record::FailureReason;
use crate::stats::{StatsKind, StatsRow};
use crate::store::{AttemptOutcome, Pausable};
use crate::{Kind, StepState};

/// The part of the Postgres indexes that a step is in. No index mentions the state itself, so that a claim changes no
/// indexed column.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IndexState {
    /// In no partial index: the step is blocked.
    None = 0,
    /// The step is ready, or it is claimed and its lease was never renewed.
    Claimable = 1,
    /// The step is failed or conflicted.
    Halted = 2,
    /// The step is held by a worker that has renewed its lease.
    Renewed = 3,
}

/// The names that a statement may use.
const NAMES: &[(&str, i16)] = &[
    ("blocked", StepState::Blocked.code()),
    ("ready", StepState::Ready.code()),
    ("running", StepState::Running.code()),
    ("succeeded", StepState::Succeeded.code()),
    ("failed", StepState::Failed.code()),
    ("conflicted", StepState::Conflicted.code()),
    ("discarded", StepState::Discarded.code()),
    ("cancelled", StepState::Cancelled.code()),
    ("index.none", IndexState::None as i16),
    ("index.claimable", IndexState::Claimable as i16),
    ("index.halted", IndexState::Halted as i16),
    ("index.renewed", IndexState::Renewed as i16),
    ("outcome.succeeded", AttemptOutcome::Succeeded.code()),
    ("outcome.retried", AttemptOutcome::Retried.code()),
    ("outcome.failed", AttemptOutcome::Failed.code()),
    ("outcome.conflicted", AttemptOutcome::Conflicted.code()),
    ("outcome.rescued", AttemptOutcome::Rescued.code()),
    ("reason.rescues", FailureReason::TooManyRescues.code()),
    ("reason.expired", FailureReason::Expired.code()),
    ("format.empty", Format::Empty.code()),
    ("kind.handler", Kind::Handler.code()),
    ("kind.http", Kind::Http.code()),
    ("paused.queue", Pausable::Queue.code()),
    ("paused.operation", Pausable::Operation.code()),
    ("stats.steps", StatsKind::Steps as i16),
    ("stats.class", StatsKind::Class as i16),
    ("stats.attempt", StatsKind::Attempt as i16),
    ("stats.operation", StatsKind::Operation as i16),
    ("stats.destination", StatsKind::Destination as i16),
    ("stats.submitted", StatsRow::SUBMITTED),
    ("stats.failure", StatsRow::FAILURE),
];

/// Expands to one static string: the parts, with each name in braces replaced by its number. `{}` stays as it is.
macro_rules! sql {
    ($($part:expr),+ $(,)?) => {{
        const PARTS: &[&str] = &[$($part),+];
        const LENGTH: usize = $crate::engine::sql::length(PARTS);
        const BYTES: &[u8; LENGTH] = &$crate::engine::sql::expand(PARTS);
        const TEXT: &str = $crate::engine::sql::text(BYTES);
        TEXT
    }};
}

pub(crate) use sql;

/// The bytes written so far. Bytes beyond `N` are only counted.
struct Rendered<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Rendered<N> {
    const fn push(mut self, byte: u8) -> Self {
        if self.length < N {
            self.bytes[self.length] = byte;
        }
        self.length += 1;
        self
    }

    const fn push_number(mut self, number: i16) -> Self {
        if number >= 10 {
            self = self.push_number(number / 10);
        }
        self.push(b'0' + (number % 10).to_le_bytes()[0])
    }

    /// Adds a text, with each name in braces replaced by its number.
    const fn push_text(mut self, text: &str) -> Self {
        let text = text.as_bytes();
        let mut at = 0;
        while at < text.len() {
            let end = if text[at] == b'{' { closing_brace(text, at) } else { at };
            if end > at + 1 {
                self = self.push_number(number(text, at + 1, end));
                at = end + 1;
            } else {
                self = self.push(text[at]);
                at += 1;
            }
        }
        self
    }
}

/// Returns the length of the expanded text.
pub(crate) const fn length(parts: &[&str]) -> usize {
    render::<0>(parts).length
}

/// Returns the bytes of the expanded text.
pub(crate) const fn expand<const N: usize>(parts: &[&str]) -> [u8; N] {
    render::<N>(parts).bytes
}

/// Returns the expanded text.
pub(crate) const fn text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => panic!("a statement is not UTF-8"),
    }
}

/// Returns the length of a column list.
pub(crate) const fn list_length(columns: &[Column], source: usize) -> usize {
    render_list::<0>(columns, source).length
}

/// Returns the bytes of a column list: `EXPRESSION as NAME, …`.
pub(crate) const fn list<const N: usize>(columns: &[Column], source: usize) -> [u8; N] {
    render_list::<N>(columns, source).bytes
}

const fn render<const N: usize>(parts: &[&str]) -> Rendered<N> {
    let mut output = Rendered { bytes: [0; N], length: 0 };
    let mut part = 0;
    while part < parts.len() {
        output = output.push_text(parts[part]);
        part += 1;
    }
    output
}

const fn render_list<const N: usize>(columns: &[Column], source: usize) -> Rendered<N> {
    let mut output = Rendered { bytes: [0; N], length: 0 };
    let mut column = 0;
    while column < columns.len() {
        let Column { name, expressions } = &columns[column];
        output = output.push_text(if column == 0 { "" } else { ", " });
        output = match expressions.len() {
            0 => output.push_text("s.").push_text(name),
            known if source < known => output.push_text(expressions[source]),
            _ => output.push_text(expressions[source % 2]),
        };
        output = output.push_text(" as ").push_text(name);
        column += 1;
    }
    output
}

const fn closing_brace(text: &[u8], mut at: usize) -> usize {
    while text[at] != b'}' {
        at += 1;
    }
    at
}

/// Returns the number of the name in this range.
const fn number(text: &[u8], start: usize, end: usize) -> i16 {
    let mut known = 0;
    while known < NAMES.len() {
        let (name, number) = NAMES[known];
        let name = name.as_bytes();
        let mut same = 0;
        while name.len() == end - start && same < name.len() && name[same] == text[start + same] {
            same += 1;
        }
        if same == end - start {
            return number;
        }
        known += 1;
    }
    panic!("a statement uses an unknown name")
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_become_numbers() {
        const STATEMENT: &str =
            sql!("select '{}' where state in ({failed}, {conflicted})", " or outcome = {stats.submitted}");
        assert_eq!(STATEMENT, "select '{}' where state in (4, 5) or outcome = 100");
    }
}
