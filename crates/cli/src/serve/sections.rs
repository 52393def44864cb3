//! The sections of the file beside the policies. The daemon reads them only when it starts.

use std::path::Path;

/// Every section that is not a policy section.
const NAMES: [&str; 8] = ["server", "work", "http", "credentials", "signals", "lock", "acceptor", "ledger"];

/// The sections of a file at the start of the daemon.
pub(super) struct Sections(toml::Table);

impl Sections {
    pub(super) fn of(file: &Path) -> Self {
        let text = crate::config::text(file).unwrap_or_default();
        Self(text.parse().unwrap_or_default())
    }

    /// Warns of sections that have changed since the start and are not active.
    pub(super) fn tell_changes(&self, file: &Path) {
        let changed = self.changes(&Self::of(file));
        if !changed.is_empty() {
            let file = file.display();
            tracing::warn!("{file} has changed in {changed} too, which is in force from the next start on");
        }
    }

    fn changes(&self, now: &Self) -> String {
        let is_changed = |name: &&str| self.0.get(*name) != now.0.get(*name);
        let changed: Vec<_> = NAMES.into_iter().filter(is_changed).map(|name| format!("[{name}]")).collect();
        changed.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_a_restart_is_told() {
        let read = |text: &str| Sections(text.parse().unwrap());
        let start = read("[work]\nlease = \"1m\"\n[http.destination]\nconcurrency = 1");
        assert_eq!(start.changes(&read("[http.destination]\nconcurrency = 1\n[work]\nlease = \"1m\"")), "");
        let later =
            read("[work]\nlease = \"1m\"\n[http.destination]\nconcurrency = 2\n[lock]\nlease = \"1m\"");
        assert_eq!(start.changes(&later), "[http], [lock]");
        let policies =
            "[work]\nlease = \"1m\"\n[http.destination]\nconcurrency = 1\n[policies.mine]\nbase = \"1s\"";
        assert_eq!(start.changes(&read(policies)), "");
    }
}
