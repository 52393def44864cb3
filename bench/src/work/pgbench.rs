//! The ceiling: pgbench executes the same writes as ours, and nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;

use holdoff_testbed::postgres_binaries;

use super::SUBMIT_BATCH;
use super::contestant::{Contestant, Unfinished, gated, sources};

/// The source of our tables.
const SCHEMA: &str = "../crates/work/src/engine/postgres/schema.sql";
/// The only lane, which contains all steps.
const LANE: &str = "insert into holdoff.lanes (namespace, queue, operation, kind, priority)
    values ('default', 'default', 'nothing', 0, 0)";

/// pgbench over our tables.
pub(super) struct Pgbench {
    /// The number of steps that are claimed, and then completed, in one batch.
    pub(super) batch: u32,
}

impl Contestant for Pgbench {
    fn name(&self) -> String {
        format!("raw pgbench, batch {}", self.batch)
    }

    fn install(&self) -> Result<(), String> {
        if program("pgbench").is_file() { Ok(()) } else { Err("pgbench is not installed".to_owned()) }
    }

    fn migrate(&self, url: &str) -> Command {
        let mut psql = Command::new(program("psql"));
        psql.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--dbname", url]);
        psql.args(["--command", "create schema holdoff", "--file"]);
        psql.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(SCHEMA)).args(["--command", LANE]);
        psql
    }

    fn submit(&self, url: &str, jobs: u32) -> Command {
        let mut pgbench = pgbench("submit.sql", SUBMIT_BATCH);
        gated(pgbench.args(["--transactions", &(jobs / SUBMIT_BATCH).to_string(), url]))
    }

    /// A worker without remaining jobs continues to poll.
    fn work(&self, url: &str) -> Command {
        let mut pgbench = pgbench("work_off.sql", self.batch);
        let parameters = ["namespaces={}", "queues={}", "operations={nothing}", "http=false", "worker=1"];
        pgbench.args(parameters.map(|parameter| format!("--define={parameter}")));
        gated(pgbench.args(["--define=lease_us=30000000", "--time=600", url]))
    }

    fn unfinished(&self) -> Unfinished {
        Unfinished { table: "holdoff.steps", id: "task", condition: "true" }
    }
}

fn pgbench(script: &str, batch: u32) -> Command {
    let mut pgbench = Command::new(program("pgbench"));
    pgbench.args(["--no-vacuum", "--client=1", "--protocol=prepared", "--file"]).arg(sources().join(script));
    pgbench.arg(format!("--define=batch={batch}"));
    pgbench
}

fn program(name: &str) -> PathBuf {
    postgres_binaries().unwrap_or_default().join(name)
}

#[cfg(test)]
mod tests {
    /// The parameters of the engine's statements, under their names in the script.
    const CLAIM: [(&str, &str); 7] = [
        ("$1", ":namespaces"),
        ("$2", ":queues"),
        ("$3", ":operations"),
        ("$4", ":http"),
        ("$5", ":worker"),
        ("$6", ":batch"),
        ("$7", ":lease_us"),
    ];
    const SUCCEED: [(&str, &str); 4] =
        [("$1", ":places"), ("$2", ":tasks"), ("$3", ":steps"), ("$4", ":leases")];
    /// The numbers of the names in the engine's statements.
    const NUMBERS: [(&str, &str); 7] = [
        ("{index.claimable}", "1"),
        ("{ready}", "1"),
        ("{running}", "2"),
        ("{succeeded}", "3"),
        ("{format.empty}", "0"),
        ("{kind.handler}", "0"),
        ("{kind.http}", "1"),
    ];

    /// Returns the words of a statement in a source text, with parameters by name and states by number.
    fn statement(source: &str, from: &str, to: &str, names: &[(&str, &str)]) -> String {
        let start = source.find(from).unwrap();
        let length = source[start..].find(to).unwrap();
        let words = source[start..start + length].split_whitespace().collect::<Vec<_>>().join(" ");
        names.iter().chain(&NUMBERS).fold(words, |text, (from, to)| text.replace(from, to))
    }

    #[test]
    fn the_pgbench_script_executes_the_statements_of_the_engine() {
        let script = include_str!("../../peers/work_off.sql");
        // The engine has a second form of the statement, for the case that all rows are locked; in the first form
        // `$head` is empty.
        let claim =
            include_str!("../../../crates/work/src/engine/postgres/queue.rs").replace("\", $head, \"", "");
        let finish = include_str!("../../../crates/work/src/engine/postgres/finish.rs");
        for (from, to) in [("with head as", "update holdoff.steps"), ("update holdoff.steps", "returning")] {
            let ours = statement(&claim, from, to, &CLAIM);
            let theirs = statement(script, from, to, &[]).replace("), claimed as (", ")");
            assert_eq!(theirs.trim_end(), ours.trim_end(), "queue.rs and work_off.sql differ");
        }
        let [ours, theirs] = [(finish, &SUCCEED[..]), (script, &[][..])]
            .map(|(source, names)| statement(source, "with gone as (", "from kept", names));
        assert_eq!(theirs, ours, "finish.rs and work_off.sql differ");
    }
}
