//! Checks that no two library crates declare a public type of the same name: one word has one meaning.

use std::collections::{BTreeMap, BTreeSet};

use crate::api;

/// Names that several library crates declare, and the reason why each is unambiguous where it is read.
const ALLOWED: &[(&str, &str)] = &[
    ("Error", "the error enum of its crate, written with the crate's name: `holdoff_lock::Error`"),
    ("Settings", "the settings of its crate, written with the crate's name"),
    ("Options", "the options of a core or of the daemon, written with the module's name: `log::Options`"),
    ("Server", "the listening side of `net`, and the daemon of `server`; no file uses both"),
    ("Input", "the inputs of a pure core: the cores of paxos, council and ledger have the same shape"),
    ("Output", "the outputs of a pure core"),
    ("Record", "what a pure core wants to be stored before its outputs are performed"),
    ("Store", "the stored state of a node: the log's, the ledger's alias of it, and the file of an acceptor"),
    ("Message", "the messages between nodes of one protocol, written with the module's name: `log::Message`"),
    ("Node", "a participant of one protocol, written with the module's name: `log::Node`"),
    ("NodeId", "the identity of a node: of a Paxos node, and of a node of the simulation kernel"),
    ("Outcome", "the end of an operation, of a transaction, and of a simulated run"),
    ("Task", "a task as work declares it, and as the HTTP client submits and sees it"),
    ("TaskState", "the state of a task in work, and the same state in the HTTP client"),
    ("Step", "a step as work declares it, and as the HTTP client sees it"),
    ("Transaction", "a transaction of a ledger, and of a Postgres store, which only the SQL components use"),
    ("StepState", "the state of a step in work, and the same state in the HTTP client"),
];

pub(super) fn check() -> Vec<String> {
    match api::public_types() {
        Ok(crates) => collisions(&crates, ALLOWED),
        Err(why) => vec![why],
    }
}

/// Returns a finding for each name that several crates declare without an entry, and for each entry without a collision.
fn collisions(crates: &[(String, BTreeSet<String>)], allowed: &[(&str, &str)]) -> Vec<String> {
    let mut declared: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, types) in crates {
        for declared_type in types {
            declared.entry(declared_type).or_default().push(name);
        }
    }
    declared.retain(|_, crates| crates.len() > 1);
    let is_allowed = |name: &str| allowed.iter().any(|(allowed, _)| *allowed == name);
    let mut findings = Vec::new();
    for (name, crates) in declared.iter().filter(|(name, _)| !is_allowed(name)) {
        findings.push(format!(
            "the public type {name} is declared by {}: rename all but one, or add a reason to \
             xtask/src/tidy/names.rs",
            crates.join(", ")
        ));
    }
    for (name, _) in allowed.iter().filter(|(name, _)| !declared.contains_key(name)) {
        findings.push(format!("xtask/src/tidy/names.rs allows {name}, which only one crate declares"));
    }
    for (name, _) in allowed.iter().filter(|(_, reason)| reason.is_empty()) {
        findings.push(format!("xtask/src/tidy/names.rs allows {name} without a reason"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crates() -> Vec<(String, BTreeSet<String>)> {
        let types = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        vec![
            ("holdoff-a".to_owned(), types(&["Error", "Lease"])),
            ("holdoff-b".to_owned(), types(&["Error", "Lease", "Task"])),
        ]
    }

    #[test]
    fn a_name_of_two_crates_fails_unless_it_is_allowed() {
        let findings = collisions(&crates(), &[("Error", "an idiom")]);
        let [finding] = &findings[..] else { panic!("{findings:?}") };
        assert!(
            finding.starts_with("the public type Lease is declared by holdoff-a, holdoff-b"),
            "{finding}"
        );
        let allowed = [("Error", "an idiom"), ("Lease", "the same thing")];
        assert_eq!(collisions(&crates(), &allowed), Vec::<String>::new());
    }

    #[test]
    fn an_unused_exception_and_one_without_a_reason_fail() {
        let allowed = [("Error", "an idiom"), ("Lease", ""), ("Task", "only in one crate")];
        let findings = collisions(&crates(), &allowed);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].contains("allows Task") && findings[1].contains("Lease without a reason"));
    }
}
