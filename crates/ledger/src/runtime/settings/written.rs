//! The section `[ledger]` of the configuration file.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use holdoff_policy::file::{self, DeTable, Reader, Section};
use holdoff_policy::{Problems, as_micros_u64, format_duration, is_unprintable};

use super::Settings;
use crate::runtime::MAX_NAME_BYTES;
use crate::runtime::roster::is_address;

const KEYS: &[&str] = &[
    "listen",
    "data",
    "advertise",
    "name",
    "result_timeout",
    "lease",
    "election",
    "heartbeat",
    "kept",
    "kept_bytes",
    "max_state",
    "max_transaction",
    "max_pending",
    "gossip",
];
const GOSSIP_KEYS: &[&str] = &[
    "round",
    "diameter",
    "dissemination",
    "clock_tolerance",
    "fan_out",
    "election",
    "listening",
    "suspicion",
    "minimum_tenure",
];

/// The range of timeouts and intervals between nodes.
const TIMES: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(600);
/// The range of the sizes of states and of kept entries, in bytes.
const SIZES: RangeInclusive<u64> = 1 << 20..=1 << 40;
/// The range of the largest transaction, in bytes.
const TRANSACTION_SIZES: RangeInclusive<u64> = 1 << 10..=4 << 20;
/// The range of delays of gossip.
const DELAYS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(600);

/// The settings of ledgers in the configuration file, and their directory if the file sets it.
#[derive(Clone, Debug)]
pub struct FileSettings {
    /// The directory of the key and the stores.
    pub data: Option<PathBuf>,
    settings: Settings,
}

impl Default for FileSettings {
    fn default() -> Self {
        Self { data: None, settings: Settings::new("") }
    }
}

impl FileSettings {
    /// Reads the section `[ledger]` of `holdoff.toml`. Keys that are not set have the values of [`Settings::new`]. If
    /// there is a problem, all problems are reported. Ignores the other sections.
    ///
    /// ```
    /// use holdoff_ledger::runtime::FileSettings;
    ///
    /// let written = FileSettings::from_toml("[ledger]\nname = \"one\"\n[ledger.gossip]\nround = \"500ms\"")?;
    /// assert_eq!(written.at("/var/lib/holdoff/ledger").listen.to_string(), "127.0.0.1:4848");
    ///
    /// let problems = FileSettings::from_toml("[ledger]\nadvertize = \"a:1\"").unwrap_err();
    /// assert!(problems.to_string().contains("did you mean `advertise`?"));
    /// # Ok::<(), holdoff_policy::Problems>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Self, Problems> {
        file::read(text, read)
    }

    /// Returns the settings for ledgers in this directory.
    pub fn at(&self, data: impl Into<PathBuf>) -> Settings {
        Settings { data: data.into(), ..self.settings.clone() }
    }
}

fn read(reader: &mut Reader<'_>, document: &DeTable<'_>) -> FileSettings {
    let mut written = FileSettings::default();
    let Some(table) = reader.table_in(document, "ledger") else { return written };
    let section = Section::new(reader, "[ledger]", table, KEYS);
    let settings = &mut written.settings;
    written.data = section.text(reader, "data", "/var/lib/holdoff/ledger").map(PathBuf::from);
    section.address(reader, "listen", "127.0.0.1:4848", &mut settings.listen);
    settings.advertise = read_advertised(reader, &section);
    settings.name = read_name(reader, &section);
    let core = &mut settings.ledger;
    read_micros(reader, &section, "result_timeout", &mut core.result_us);
    read_micros(reader, &section, "election", &mut core.log.election_us);
    read_micros(reader, &section, "heartbeat", &mut core.log.heartbeat_us);
    core.lease_us = core.lease_us.min(core.log.election_us);
    read_micros(reader, &section, "lease", &mut core.lease_us);
    let election = core.log.election_us;
    check_limit(reader, &section, "lease", core.lease_us, election, "at most as long as `election`");
    check_limit(
        reader,
        &section,
        "heartbeat",
        core.log.heartbeat_us,
        election / 2,
        "at most half of `election`",
    );
    section.count(reader, "kept", 16..=1_000_000, &mut core.kept);
    section.size(reader, "kept_bytes", SIZES, &mut core.kept_bytes);
    section.size(reader, "max_state", SIZES, &mut core.max_state_bytes);
    section.size(reader, "max_transaction", TRANSACTION_SIZES, &mut settings.max_transaction_bytes);
    section.count(reader, "max_pending", 1..=100_000, &mut core.pending);
    if let Some(section) = Section::inside(reader, table, "gossip", "gossip.", GOSSIP_KEYS) {
        read_gossip(reader, &section, &mut settings.gossip);
    }
    written
}

fn read_gossip(reader: &mut Reader<'_>, section: &Section<'_, '_>, gossip: &mut holdoff_gossip::Settings) {
    section.duration(reader, "round", TIMES, &mut gossip.round);
    section.count(reader, "diameter", 1..=64, &mut gossip.diameter);
    section.duration(reader, "dissemination", DELAYS, &mut gossip.dissemination);
    section.duration(reader, "clock_tolerance", DELAYS, &mut gossip.clock_tolerance);
    section.count(reader, "fan_out", 1..=32, &mut gossip.fan_out);
    for (key, into) in [
        ("election", &mut gossip.election),
        ("listening", &mut gossip.listening),
        ("suspicion", &mut gossip.suspicion),
        ("minimum_tenure", &mut gossip.minimum_tenure),
    ] {
        if section.get(key).is_some() {
            section.duration(reader, key, TIMES, into.get_or_insert_default());
        }
    }
}

fn read_micros(reader: &mut Reader<'_>, section: &Section<'_, '_>, key: &str, into: &mut u64) {
    let mut time = Duration::from_micros(*into);
    section.duration(reader, key, TIMES, &mut time);
    *into = as_micros_u64(time);
}

/// Reports a value above a limit that depends on `election`. The problem is at the key, or else at `election`.
fn check_limit(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    key: &str,
    value_us: u64,
    max_us: u64,
    expected: &str,
) {
    let Some((value, _)) = section.get(key).or_else(|| section.get("election")) else { return };
    if value_us > max_us {
        let length = format_duration(Duration::from_micros(value_us));
        reader.problem(value.span(), format!("{key} is {length}")).expected(expected);
    }
}

fn read_advertised(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> Option<String> {
    const EXAMPLE: &str = "one.example.org:4848";
    let text = section.text(reader, "advertise", EXAMPLE)?;
    let has_port = text
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
    if has_port && is_address(&text) {
        return Some(text);
    }
    let (value, what) = section.get("advertise")?;
    let expected = format!("a host and a port, at most {MAX_NAME_BYTES} bytes, such as \"{EXAMPLE}\"");
    reader.problem(value.span(), format!("{what} {text:?} is not an address")).expected(expected);
    None
}

fn read_name(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> Option<String> {
    let name = section.text(reader, "name", "one")?;
    if name.len() <= MAX_NAME_BYTES && !name.chars().any(is_unprintable) {
        return Some(name);
    }
    let (value, what) = section.get("name")?;
    let expected = format!("at most {MAX_NAME_BYTES} bytes without control or bidi characters");
    reader.problem(value.span(), format!("{what} is not a valid name")).expected(expected);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        FileSettings::from_toml(text).unwrap_err().to_string()
    }

    #[test]
    fn every_key_is_read() {
        let text = "[ledger]\nlisten = \"[::1]:1\"\ndata = \"d\"\nadvertise = \"a:2\"\nname = \"n\"\n\
                    result_timeout = \"3s\"\nlease = \"400ms\"\nelection = \"2s\"\nheartbeat = \"50ms\"\nkept = 60\n\
                    max_pending = 7\nkept_bytes = \"2MiB\"\nmax_state = \"3MiB\"\nmax_transaction = 4096\n[ledger.gossip]\nround = \"80ms\"\ndiameter = 9\ndissemination = \"10ms\"\n\
                    clock_tolerance = \"11ms\"\nfan_out = 12\nelection = \"13ms\"\nlistening = \"14ms\"\n\
                    suspicion = \"15ms\"\nminimum_tenure = \"16ms\"";
        let written = FileSettings::from_toml(text).unwrap();
        assert_eq!(written.data, Some("d".into()));
        let settings = written.at("e");
        assert_eq!(settings.max_transaction_bytes, 4096);
        assert_eq!((settings.ledger.kept_bytes, settings.ledger.max_state_bytes), (2 << 20, 3 << 20));
        let Settings { listen, advertise, name, ledger, gossip, data, .. } = settings;
        assert_eq!((listen.to_string().as_str(), data), ("[::1]:1", "e".into()));
        assert_eq!((advertise.as_deref(), name.as_deref()), (Some("a:2"), Some("n")));
        assert_eq!((ledger.result_us, ledger.lease_us, ledger.kept), (3_000_000, 400_000, 60));
        assert_eq!((ledger.log.election_us, ledger.log.heartbeat_us), (2_000_000, 50_000));
        assert_eq!(ledger.pending, 7);
        let ms = Duration::from_millis;
        let expected = holdoff_gossip::Settings {
            round: ms(80),
            diameter: 9,
            dissemination: ms(10),
            clock_tolerance: ms(11),
            fan_out: 12,
            election: Some(ms(13)),
            listening: Some(ms(14)),
            suspicion: Some(ms(15)),
            minimum_tenure: Some(ms(16)),
        };
        assert_eq!(gossip, expected);
    }

    #[test]
    fn a_shorter_election_timeout_shortens_the_lease() {
        let settings = |text: &str| FileSettings::from_toml(text).unwrap().at("").ledger;
        assert_eq!(settings("[ledger]\nelection = \"500ms\"").lease_us, 500_000);
        assert_eq!(settings("[ledger]\nelection = \"5s\"").lease_us, 1_000_000);
        assert_eq!(settings("[work]\nx = 1").lease_us, 1_000_000);
    }

    #[test]
    fn a_problem_is_reported_with_its_position() {
        assert!(problems("[ledger]\nlisten = \"here\"").contains("2:10: listen \"here\" is no address"));
        for nowhere in ["here", ":1", "a:0", "a b:1"] {
            let message = problems(&format!("[ledger]\nadvertise = \"{nowhere}\""));
            assert!(
                message.contains("2:13: advertise") && message.contains("a host and a port"),
                "{message}"
            );
        }
        assert!(problems("[ledger]\nlease = \"2s\"").contains("2:9: lease is 2s"));
        assert!(problems("[ledger]\nelection = \"200ms\"").contains("2:12: heartbeat is 150ms"));
        assert!(problems("[ledger.gossip]\nfan_out = 0").contains("gossip.fan_out is 0"));
        let message = problems("[ledger.gossip]\nfanout = 2");
        assert!(message.contains("did you mean `fan_out`?"), "{message}");
        assert!(problems("ledger = 1").contains("[ledger] is an integer"));
        assert!(
            problems(&format!("[ledger]\nname = \"{}\"", "n".repeat(65)))
                .contains("name is not a valid name")
        );
    }

    #[test]
    fn the_schema_has_exactly_the_keys_of_the_reader() {
        assert_eq!(holdoff_policy::schema_keys("LedgerTable"), KEYS.iter().copied().collect());
        assert_eq!(holdoff_policy::schema_keys("GossipTable"), GOSSIP_KEYS.iter().copied().collect());
    }
}
