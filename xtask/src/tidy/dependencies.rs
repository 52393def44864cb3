//! Checks the dependencies between the crates.

use super::File;

/// The crates on which each crate may depend.
const ALLOWED: &[(&str, &[&str])] = &[
    ("policy", &[]),
    ("clock", &[]),
    ("retry", &["policy"]),
    ("driver", &[]),
    ("paxos", &["driver"]),
    ("sim", &["driver", "policy", "paxos", "gossip"]),
    ("sql", &["policy"]),
    ("work", &["clock", "policy", "retry", "sql"]),
    ("lock", &["clock", "policy", "retry", "sql", "ledger"]),
    ("net", &["policy"]),
    ("disk", &[]),
    ("council", &["disk", "driver", "policy", "paxos", "net"]),
    ("server", &["policy", "retry", "sim", "sql", "work", "lock", "net", "council", "ledger"]),
    ("ledger", &["clock", "disk", "driver", "gossip", "net", "policy", "paxos", "retry"]),
    ("gossip", &["policy", "net"]),
    ("holdoff", &["clock", "policy", "retry", "work", "lock", "ledger"]),
    (
        "cli",
        &[
            "policy", "retry", "sim", "sql", "work", "lock", "paxos", "net", "council", "ledger", "server",
            "holdoff",
        ],
    ),
];

pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with("Cargo.toml")) {
        let mut parts = file.path.iter().filter_map(|part| part.to_str());
        let (Some("crates"), Some(name)) = (parts.next(), parts.next()) else { continue };
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
            findings.push(format!(
                "crates/{name} is not listed: add its allowed dependencies to xtask/src/tidy/dependencies.rs"
            ));
            continue;
        };
        for known in dependencies(&file.text).into_iter().filter(|known| !allowed.contains(&known.as_str())) {
            findings.push(format!("crates/{name} must not depend on crates/{known}"));
        }
    }
    findings
}

/// Returns the crates of this project in a manifest's dependencies, without those for tests.
fn dependencies(manifest: &str) -> Vec<String> {
    let Ok(manifest) = manifest.parse::<toml::Table>() else { return Vec::new() };
    let Some(table) = manifest.get("dependencies").and_then(toml::Value::as_table) else { return Vec::new() };
    let folder = |name: &String| match name.as_str() {
        "holdoff" => Some("holdoff".to_owned()),
        name => name.strip_prefix("holdoff-").map(str::to_owned),
    };
    table.keys().filter_map(folder).collect()
}
