//! The chores of the project: `cargo xtask test`, `tidy`, `bench`, `soak`, `n-minus-one`, `schema`,
//! `openapi`, `api`, `schemathesis`, `axe`.

mod api;
mod axe;
mod n_minus_one;
mod needs;
mod openapi;
mod run;
mod schema;
mod schemathesis;
mod soak;
mod test;
mod tidy;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask CHORE

  test                  what CI runs: format, lints, tests, examples in the docs, tidiness
  test --deep           everything else, too; run it before an issue is closed
  test NAME...          only the tests whose names contain one of these
  test --repeat N NAME  tests by name, N times each, on busy cores
  tidy                  file lengths, crate arrows, documents and metrics against the code
  bench [NAME] [--json] holdoff beside its peers; NAME is one of decide, retry, budget, sim, work, store, room, lock, look, server,
                        council, ledger
  soak [council|ledger|server] the long hauls: ten million inputs for each fuzz target, ten minutes of chaos, and of load,
                        a hundred thousand seeds of the council and of the ledger
  n-minus-one           the release before this one beside it, on one store (from version 0.2.0 on)
  schema                writes the generated files anew: the JSON schema and the test vectors
  openapi               writes the API's document anew
  schemathesis          holds a running daemon's answers against the API's document
  api                   writes the listings of the public API anew
  axe                   installs axe-core where the tests in a browser look for it
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
        ["schema"] => schema::run(),
        ["openapi"] => openapi::run(),
        ["api"] => api::run(),
        ["axe"] => axe::run(),
        ["schemathesis"] => schemathesis::build_and_run(),
        [] => return misused("say which chore", USAGE),
        unknown => return misused(&format!("unknown chore {:?}", unknown.join(" ")), USAGE),
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
