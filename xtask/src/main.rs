//! The development tasks of the project: `cargo xtask test`, `tidy`, `bench`, `soak`, `n-minus-one`, `schema`,
//! `openapi`, `api`, `schemathesis`, `axe`.

mod api;
mod generated;
mod mutants;
mod n_minus_one;
mod requirements;
mod run;
mod schemathesis;
mod soak;
mod test;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask TASK

  test                  runs the checks of CI: format, lints, tests, examples in the docs, tidiness
  test --deep           also runs all other tests; run it before an issue is closed
  test NAME...          runs only the tests whose names contain one of these
  test --repeat N NAME  runs tests by name, N times each, while other processes keep every core busy
  tidy                  checks file lengths, dependencies between crates, wording, names of public types, paths in documents,
                        metrics, and the API listings
  bench [NAME] [--json] compares holdoff with its peers; NAME is one of decide, retry, budget, sim, work, store, space, lock,
                        queries, server, latency, council, ledger
  soak [council|ledger|server] runs the long tests: ten million inputs for each fuzz target, ten minutes of chaos, forty
                        minutes of load, a hundred thousand seeds of the council and of the ledger
  soak jepsen           runs ledgers in network namespaces under four kinds of faults, ten minutes each, and checks the
                        histories of their clients; HOLDOFF_JEPSEN_SECONDS sets another length
  soak mutants [NAME]   changes the code of the pure cores, or of those with this name, and runs the tests that must fail
  n-minus-one           runs the previous release beside this one on one store (from version 0.2.0 on)
  schema                regenerates the JSON schema and the test vectors
  openapi               regenerates the API document
  schemathesis          checks the responses of a running daemon against the API document
  api                   regenerates the listings of the public API
  axe                   installs axe-core for the browser tests
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["test", rest @ ..] => match test::Request::parse(rest) {
            Ok(request) => test::run(&request),
            Err(why) => return misused(&why, test::USAGE),
        },
        ["tidy"] => tidy::run(),
        ["bench", rest @ ..] => run::bench(rest),
        ["soak"] => soak::run(),
        ["n-minus-one"] => n_minus_one::run(),
        ["soak", "council"] => soak::council(),
        ["soak", "ledger"] => soak::ledger(),
        ["soak", "server"] => soak::server(),
        ["soak", "jepsen"] => soak::jepsen(),
        ["soak", "mutants", names @ ..] => mutants::run(names),
        ["schema"] => generated::schema(),
        ["openapi"] => generated::openapi(),
        ["api"] => api::run(),
        ["axe"] => requirements::axe(),
        ["schemathesis"] => schemathesis::build_and_run(),
        [] => return misused("a task is missing", USAGE),
        unknown => return misused(&format!("unknown task {:?}", unknown.join(" ")), USAGE),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("\nxtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the reason and the usage for an invalid command line.
fn misused(why: &str, usage: &str) -> ExitCode {
    eprintln!("xtask: {why}\n\n{usage}");
    ExitCode::from(2)
}
