//! The statements that a database received, from its own log.

use holdoff_testbed::{Options, Postgres};

/// A server that logs every statement with its time in milliseconds.
pub(crate) fn logging_postgres() -> Postgres {
    let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let settings = vec![
        setting("log_statement", "all"),
        setting("log_line_prefix", "%m|"),
        setting("log_timezone", "UTC"),
        setting("log_min_messages", "log"),
    ];
    Postgres::start_with(&Options { settings, ..Options::default() })
}

/// The statements of daemons that accept signals, by the millisecond in which they arrived.
#[derive(Debug, Default)]
pub(crate) struct Statements(Vec<u64>);

impl Statements {
    /// Reads the statements of a part of the log.
    pub(crate) fn of(log: &str) -> Self {
        let mut entries: Vec<(u64, String)> = Vec::new();
        for line in log.lines() {
            match line.split_once('|').and_then(|(stamp, rest)| Some((millis(stamp)?, rest))) {
                Some((at, rest)) => entries.push((at, rest.to_owned())),
                // A continuation line of a statement.
                None => entries.iter_mut().last().into_iter().for_each(|(_, text)| text.push_str(line)),
            }
        }
        let is_theirs = |text: &str| {
            let was_run = text.contains("LOG:  execute") || text.contains("LOG:  statement");
            was_run
                && ["holdoff.signals", "holdoff.lock_", "holdoff.locks"]
                    .iter()
                    .any(|name| text.contains(name))
        };
        Self(entries.into_iter().filter(|(_, text)| is_theirs(text)).map(|(at, _)| at).collect())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the maximum number of statements in any 10 ms.
    pub(crate) fn peak(&self) -> usize {
        let within = |from: u64| self.0.iter().filter(|at| (from..from + 10).contains(*at)).count();
        self.0.iter().map(|at| within(*at)).max().unwrap_or(0)
    }
}

/// Returns the millisecond of the day of a time such as `2026-11-15 16:22:03.123 UTC`.
fn millis(stamp: &str) -> Option<u64> {
    let time = stamp.strip_suffix(" UTC")?.split_once(' ')?.1;
    let (clock, millis) = time.split_once('.')?;
    let parts: Vec<u64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [hours, minutes, seconds] = parts.as_slice() else { return None };
    Some(((hours * 60 + minutes) * 60 + seconds) * 1000 + millis.parse::<u64>().ok()?)
}
