//! The options of a cluster.

use std::fmt::Write as _;

/// The options of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether a commit waits for the disk. Off by default: a test's data need not survive a crash of the
    /// machine, and it survives a crash of the server either way.
    pub fsync: bool,
    /// Further lines of `postgresql.conf`, each a name and a value; they override all others.
    pub settings: Vec<(String, String)>,
}

impl Options {
    /// Returns the lines to add to `postgresql.conf`.
    pub(crate) fn lines(&self, port: u16) -> String {
        let switch = if self.fsync { "on" } else { "off" };
        let own = [
            // Loopback only: the path of a socket would have to be short and accessible to all accounts.
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("unix_socket_directories", String::new()),
            ("port", port.to_string()),
            ("max_connections", "200".to_owned()),
            ("fsync", switch.to_owned()),
            ("full_page_writes", switch.to_owned()),
        ];
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        let asked = self.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        own.chain(asked).fold(String::from("\n"), |mut lines, (name, value)| {
            // Writing into a string cannot fail.
            let _ = writeln!(lines, "{name} = '{}'", value.replace('\'', "''"));
            lines
        })
    }
}
