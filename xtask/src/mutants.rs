//! `cargo xtask soak mutants`: changes the code of the pure cores, one place at a time, and runs the tests that must fail.
//!
//! cargo-mutants is installed once from the package registry into `target/mutants`. The results are kept there, too: a run
//! skips the mutants that an earlier run has caught, so that an interrupted run continues, and a run after new tests
//! repeats only the missed ones. Remove the directory to test all mutants again. Models and simulations do not run,
//! because they take seconds for each mutant.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{TaskResult, cargo, root};

const VERSION: &str = "27.1.0";
const FOLDER: &str = "target/mutants";

/// The tests of a mutant may take this many times as long as those of the unchanged code, and at least 20 seconds: the
/// machine may be busy.
const TIMEOUT: [&str; 4] = ["--timeout-multiplier", "5", "--minimum-test-timeout", "20"];

/// A core, and the quickest tests that should catch its mutants.
struct Core {
    /// The crate and a word.
    name: &'static str,
    /// Files of the crate, without their ending.
    files: &'static [&'static str],
    /// A regular expression for the functions of these files.
    functions: &'static str,
    build: &'static [&'static str],
    tests: &'static [&'static str],
    /// Of all mutants in their order, the first and then every n-th is tested.
    every: usize,
}

const CORES: [Core; 5] = [
    Core {
        name: "policy decide",
        files: &["decide", "window"],
        functions: "",
        build: &["--lib"],
        tests: &["decide::", "window::"],
        every: 1,
    },
    Core {
        name: "paxos slot",
        files: &["ballot", "configuration", "slot", "slot/acceptor", "slot/learner", "slot/proposer"],
        functions: "",
        build: &["--lib"],
        tests: &["ballot::", "configuration::", "slot::acceptor::", "slot::learner::", "slot::proposer::"],
        every: 1,
    },
    Core {
        name: "paxos log",
        files: &[
            "log/election",
            "log/entry",
            "log/following",
            "log/leading",
            "log/learning",
            "log/node",
            "log/progress",
            "log/store",
            "log/transfer",
        ],
        functions: "",
        build: &["--lib"],
        tests: &["log::tests::", "log::progress::", "log::store::"],
        every: 4,
    },
    Core {
        name: "lock cores",
        files: &["row", "wait", "validity", "token", "guard/schedule", "queue"],
        functions: "",
        build: &["--lib", "--no-default-features"],
        tests: &["tests::"],
        every: 1,
    },
    Core {
        name: "work verdicts",
        files: &["claimed_step", "engine/exits", "fault", "state"],
        functions: "(replace|in) (judge|snoozed|so_far|panicked)|/(exits|fault|state)\\.rs",
        build: &["--lib"],
        tests: &["claimed_step::", "exits::", "fault::", "state::"],
        every: 1,
    },
];

/// Mutants that behave like the original code, or whose difference no caller observes: the mutant's name without its line,
/// the line that it changes, and the reason.
const EQUIVALENT: &[(&str, &str, &str)] = &[
    (
        "crates/policy/src/window.rs: replace | with ^ in Window::pick",
        "let fraction = ((roll as u64) << 32) | roll as u64;",
        "the two halves have no bit in common",
    ),
    (
        "crates/policy/src/window.rs: replace > with >= in Window::raised",
        "let low = if self.low_us > floor_us { self.low_us } else { floor_us };",
        "equal numbers are exchanged",
    ),
    (
        "crates/policy/src/window.rs: replace > with >= in Window::raised",
        "let high = if self.high_us > spread_end { self.high_us } else { spread_end };",
        "equal numbers are exchanged",
    ),
    (
        "crates/paxos/src/slot/proposer.rs: replace > with >= in Preparing<V>::find",
        "if accepted.as_ref().map(|vote| vote.ballot) > self.found.as_ref().map(|vote| vote.ballot) {",
        "all votes of one ballot have the same value",
    ),
    (
        "crates/lock/src/guard/schedule.rs: replace < with <= in RenewalSchedule::schedule",
        "} else if state.next_check.is_none_or(|next_check| at < next_check) {",
        "the runner wakes up once more, and waits for the same time again",
    ),
];

/// Runs `cargo xtask soak mutants` for the cores whose names contain one of these; for all if there are none.
pub(crate) fn run(names: &[&str]) -> TaskResult {
    let program = install()?;
    let is_chosen = |core: &&Core| names.is_empty() || names.iter().any(|name| core.name.contains(name));
    let cores: Vec<&Core> = CORES.iter().filter(is_chosen).collect();
    let mut table =
        "| core | mutants | tested | caught | timed out | equivalent | missed |\n|---|---|---|---|---|---|---|"
            .to_owned();
    let (mut missed, mut used) = (Vec::new(), BTreeSet::new());
    for core in &cores {
        let all = core.list(&program)?;
        let mutants: Vec<&str> = all.iter().map(String::as_str).step_by(core.every).collect();
        let known: BTreeMap<&str, usize> =
            mutants.iter().filter_map(|mutant| Some((*mutant, equivalent(mutant)?))).collect();
        let mut results = core.results()?;
        let is_open = |results: &BTreeMap<String, String>, mutant: &str| {
            !known.contains_key(mutant) && results.get(mutant).is_none_or(|outcome| outcome == "missed")
        };
        let open: BTreeSet<&str> =
            mutants.iter().copied().filter(|mutant| is_open(&results, mutant)).collect();
        if !open.is_empty() {
            let skipped = all.iter().map(String::as_str).filter(|mutant| !open.contains(mutant));
            core.test(&program, skipped)?;
            results = core.results()?;
        }
        let count = |outcome: &str| {
            let outcomes = mutants.iter().filter_map(|mutant| results.get(*mutant));
            outcomes.filter(|found| *found == outcome).count()
        };
        let open: Vec<&str> = open.into_iter().filter(|mutant| is_open(&results, mutant)).collect();
        let tested = mutants.len() - count("unviable");
        let counts = [all.len(), tested, count("caught"), count("timeout"), known.len(), open.len()];
        let counts = counts.map(|count| count.to_string()).join(" | ");
        // Writing into a string cannot fail.
        let _ = write!(table, "\n| {} | {counts} |", core.name);
        missed.extend(open.into_iter().map(str::to_owned));
        used.extend(known.into_values());
    }
    println!("\n{table}\n");
    for (mutant, code, reason) in used.iter().filter_map(|number| EQUIVALENT.get(*number)) {
        println!("equivalent: {mutant}: `{code}`: {reason}");
    }
    for mutant in &missed {
        println!("missed: {mutant}");
    }
    if cores.len() == CORES.len() && used.len() < EQUIVALENT.len() {
        return Err("xtask/src/mutants.rs lists an equivalent mutant that no longer exists".to_owned());
    }
    if missed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the tests have not caught {} mutants: write a test, or list the mutant in xtask/src/mutants.rs with the reason why it \
         is equivalent",
        missed.len()
    ))
}

/// Returns the number of this mutant in the list, at whatever line it is now.
fn equivalent(mutant: &str) -> Option<usize> {
    let (place, change) = mutant.split_once(": ")?;
    let mut place = place.split(':');
    let (file, line) = (place.next()?, place.next()?.parse::<usize>().ok()?);
    let text = std::fs::read_to_string(root().join(file)).ok()?;
    let (name, code) = (format!("{file}: {change}"), text.lines().nth(line.checked_sub(1)?)?.trim());
    EQUIVALENT.iter().position(|known| (known.0, known.1) == (name.as_str(), code))
}

impl Core {
    /// Returns cargo-mutants for the files of the core.
    fn command(&self, program: &Path) -> Command {
        let package = self.package();
        let mut command = Command::new(program);
        command.args(["mutants", "--package", &format!("holdoff-{package}"), "--re", self.functions]);
        for file in self.files {
            command.args(["--file", &format!("crates/{package}/src/{file}.rs")]);
        }
        command.current_dir(root());
        command
    }

    fn package(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }

    fn output(&self) -> PathBuf {
        root().join(FOLDER).join(self.name.replace(' ', "-"))
    }

    /// Returns the names of all mutants.
    fn list(&self, program: &Path) -> Result<Vec<String>, String> {
        let listed = self.command(program).args(["--list", "--no-config", "--colors", "never"]).output();
        let listed = listed.map_err(|error| format!("cannot run cargo-mutants: {error}"))?;
        if !listed.status.success() {
            let why = String::from_utf8_lossy(&listed.stderr).into_owned();
            return Err(format!("cargo-mutants does not list the mutants of {}: {why}", self.name));
        }
        Ok(String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect())
    }

    /// Tests all mutants except for these.
    fn test<'a>(&self, program: &Path, skipped: impl Iterator<Item = &'a str>) -> TaskResult {
        let config = root().join(FOLDER).join("config.toml");
        let skipped: Vec<String> = skipped.map(|name| format!("'^{}$'", escaped(name))).collect();
        write(&config, &format!("exclude_re = [{}]\n", skipped.join(",\n")))?;
        let mut command = self.command(program);
        command.arg("--config").arg(&config).arg("--output").arg(self.output()).args(TIMEOUT);
        // A mutant's build takes longer than its unit tests, also without optimization.
        let optimized = format!("profile.dev.package.holdoff-{}.opt-level=0", self.package());
        for setting in [&optimized, "profile.dev.debug=0"] {
            command.args(["--cargo-arg=--config", "--cargo-arg", setting]);
        }
        command.arg("--").args(self.build).arg("--").args(self.tests);
        // One directory for all copies of the tree, so that dependencies are built once.
        command.env("CARGO_TARGET_DIR", root().join(FOLDER).join("build"));
        eprintln!("\n▶ mutants of {}", self.name);
        let status = command.status().map_err(|error| format!("cannot run cargo-mutants: {error}"))?;
        match status.code() {
            // All caught, some missed, some timed out.
            Some(0 | 2 | 3) => Ok(()),
            _ => Err(format!("cargo-mutants failed for {}: {status}; its messages are above", self.name)),
        }
    }

    /// Returns the last outcome of each mutant, by its name: `caught`, `timeout`, `unviable` (does not compile) or `missed`.
    /// Adds the outcomes of the last run to those of earlier runs, also if it was interrupted.
    fn results(&self) -> Result<BTreeMap<String, String>, String> {
        let path = self.output().with_extension("tsv");
        let earlier = std::fs::read_to_string(&path).unwrap_or_default();
        let pair =
            |line: &str| line.split_once('\t').map(|(outcome, name)| (name.to_owned(), outcome.to_owned()));
        let mut results: BTreeMap<String, String> = earlier.lines().filter_map(pair).collect();
        for outcome in ["missed", "caught", "timeout", "unviable"] {
            let listed = self.output().join("mutants.out").join(format!("{outcome}.txt"));
            let names = std::fs::read_to_string(listed).unwrap_or_default();
            results.extend(names.lines().map(|name| (name.to_owned(), outcome.to_owned())));
        }
        let lines: Vec<_> = results.iter().map(|(name, outcome)| format!("{outcome}\t{name}\n")).collect();
        write(&path, &lines.concat())?;
        Ok(results)
    }
}

/// Returns a regular expression that matches exactly this text.
fn escaped(text: &str) -> String {
    let plain = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' => letter.to_string(),
        _ => format!("\\x{{{:x}}}", u32::from(letter)),
    };
    text.chars().map(plain).collect()
}

fn write(path: &Path, text: &str) -> TaskResult {
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Returns the program, and installs it if necessary.
fn install() -> Result<PathBuf, String> {
    let program = root().join(FOLDER).join("bin/cargo-mutants");
    let is_there = Command::new(&program).args(["mutants", "--version"]).output();
    if !is_there.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(VERSION)) {
        let wanted = format!("cargo-mutants@{VERSION}");
        cargo(&["install", "--locked", "--root", FOLDER, &wanted], &[])?;
    }
    Ok(program)
}
