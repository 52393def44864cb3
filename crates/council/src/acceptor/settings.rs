//! The section `[acceptor]` of the configuration file, and the limits of an acceptor.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use holdoff_policy::file::{DeTable, Reader, Section};
use holdoff_policy::{Problems, file};

use super::Allowed;
use crate::Quota;

const KEYS: &[&str] = &[
    "listen",
    "data",
    "allow",
    "max_councils",
    "max_council_bytes",
    "max_council_slots",
    "max_memory",
    "max_connections",
];
const MIB: u64 = 1024 * 1024;

/// The settings of an acceptor: the section `[acceptor]` of the configuration file.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The address on which the acceptor listens.
    pub listen: SocketAddr,
    /// The directory of the acceptor's key and store. If it is set, `holdoff serve` runs an acceptor.
    pub data: Option<PathBuf>,
    /// The clients that may send requests. On a loopback address the default is every client; on any other address
    /// a value is required.
    pub allow: Option<Allowed>,
    /// The maximum number of connections.
    pub max_connections: usize,
    /// The limits on the acceptor's resources.
    pub limits: AcceptorLimits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 4747),
            data: None,
            allow: None,
            max_connections: 1024,
            limits: AcceptorLimits::default(),
        }
    }
}

impl Settings {
    /// Reads the section `[acceptor]` of `holdoff.toml`. A missing key has the value of [`Settings::default`]. If
    /// there is any problem, the function returns all problems and no settings. It ignores the other sections.
    ///
    /// ```
    /// use holdoff_council::acceptor::Settings;
    ///
    /// let settings = Settings::from_toml("[acceptor]\ndata = \"/var/lib/holdoff/acceptor\"")?;
    /// assert_eq!(settings.listen.to_string(), "127.0.0.1:4747");
    ///
    /// let problems = Settings::from_toml("[acceptor]\ndate = \"/var\"").unwrap_err();
    /// assert!(problems.to_string().contains("did you mean `data`?"));
    /// # Ok::<(), holdoff_policy::Problems>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Self, Problems> {
        file::read(text, read)
    }
}

fn read(reader: &mut Reader<'_>, document: &DeTable<'_>) -> Settings {
    let mut settings = Settings::default();
    let Some(table) = reader.table_in(document, "acceptor") else { return settings };
    let section = Section::new(reader, "[acceptor]", table, KEYS);
    section.address(reader, "listen", "127.0.0.1:4747", &mut settings.listen);
    settings.data = section.text(reader, "data", "/var/lib/holdoff/acceptor").map(PathBuf::from);
    settings.allow = section.text(reader, "allow", "acceptor.keys").map(|text| Allowed::read(&text));
    let limits = &mut settings.limits;
    section.count(reader, "max_councils", 1..=1_000_000, &mut limits.councils);
    section.size(reader, "max_council_bytes", MIB..=1024 * MIB, &mut limits.council.bytes);
    section.count(reader, "max_council_slots", 1000..=10_000_000, &mut limits.council.slots);
    section.size(reader, "max_memory", MIB..=1024 * 1024 * MIB, &mut limits.memory_bytes);
    section.count(reader, "max_connections", 1..=1_000_000, &mut settings.max_connections);
    settings
}

/// The limits on the resources of an acceptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcceptorLimits {
    /// Councils with data on disk. 10 000.
    pub councils: usize,
    /// The quota of each council.
    pub council: Quota,
    /// Memory for the councils in use, in bytes. Beyond it the acceptor evicts the least recently used council. 256
    /// MiB.
    pub memory_bytes: usize,
    /// Requests that may wait for the disk. Further requests wait at the sender. 1024.
    pub queue: usize,
    /// Maximum number of requests that one commit serves. 256.
    pub batch: usize,
    /// Connections that may watch the same council. 1024.
    pub watchers: usize,
    /// Councils that one connection may watch. 10 000.
    pub watched: usize,
}

impl Default for AcceptorLimits {
    fn default() -> Self {
        Self {
            councils: 10_000,
            council: Quota::default(),
            memory_bytes: 256 * 1024 * 1024,
            queue: 1024,
            batch: 256,
            watchers: 1024,
            watched: 10_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        Settings::from_toml(text).unwrap_err().to_string()
    }

    #[test]
    fn every_key_is_read() {
        let text = "[acceptor]\nlisten = \"[::1]:1\"\ndata = \"d\"\nallow = \"a\"\nmax_councils = 2\n\
                    max_council_bytes = \"3MiB\"\nmax_council_slots = 4000\nmax_memory = \"5MiB\"\n\
                    max_connections = 6";
        let settings = Settings::from_toml(text).unwrap();
        assert_eq!(settings.listen.to_string(), "[::1]:1");
        assert_eq!((settings.data, settings.allow), (Some("d".into()), Some(Allowed::File("a".into()))));
        let AcceptorLimits { councils, council, memory_bytes, .. } = settings.limits;
        assert_eq!((councils, council.bytes, council.slots), (2, 3 << 20, 4000));
        assert_eq!((memory_bytes, settings.max_connections), (5 << 20, 6));
        let anyone = Settings::from_toml("[acceptor]\nallow = \"anyone\"").unwrap();
        assert_eq!(anyone.allow, Some(Allowed::Anyone));
        assert_eq!(Settings::from_toml("[work]\nx = 1").unwrap(), Settings::default());
    }

    #[test]
    fn problems_are_reported_with_their_position() {
        assert!(problems("[acceptor]\nlisten = \"here\"").contains("2:10: listen \"here\" is no address"));
        assert!(problems("[acceptor]\nmax_councils = 0").contains("max_councils is 0"));
        assert!(problems("acceptor = 1").contains("[acceptor] is an integer"));
    }

    #[test]
    fn the_schema_lists_exactly_the_readers_keys() {
        assert_eq!(holdoff_policy::schema_keys("AcceptorTable"), KEYS.iter().copied().collect());
    }
}
