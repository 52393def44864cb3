//! The number of statements for each acquisition, counted in the database's log.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use holdoff_testbed::Postgres;

use super::crowd::{Crowd, Way};
use crate::row::Row;

const WAITING: usize = 64;
const ACQUISITIONS: u32 = 320;

/// The kinds of statements, by a part of their text.
const KINDS: [(&str, &str); 8] = [
    ("update holdoff.locks l", "ask plainly"),
    ("holdoff.lock_try(", "ask"),
    ("update holdoff.locks set nonce", "let go plainly"),
    ("holdoff.lock_release(", "let go"),
    ("update holdoff.locks", "renew"),
    ("holdoff.lock_withdraw(", "withdraw"),
    ("select token from holdoff.locks", "read back"),
    ("holdoff.", "anything else"),
];
/// The kind of a new connection's first statements, which count for neither way.
const SET_UP: &str = "set up, not counted";

pub(super) async fn rows(server: &Postgres) -> Result<Vec<Row>, String> {
    let ours = per_acquisition(server, "waiting", Way::Wait).await?;
    let polled = per_acquisition(server, "polling", Way::Poll).await?;
    let row = Row::beside(
        &format!("Postgres: statements, {WAITING} wait"),
        "each",
        ours,
        ("polling every 100 ms", polled),
    );
    Ok(vec![row.bar("≤ 0.25 ×", ours <= 0.25 * polled)])
}

async fn per_acquisition(server: &Postgres, name: &str, way: Way) -> Result<f64, String> {
    let url = server.create_database(name);
    let database = url.rsplit('/').next().unwrap_or_default();
    server.psql("postgres", &format!("alter database \"{database}\" set log_statement = 'all'"));
    let mut crowd = Crowd::gather(&url, WAITING, way).await?;
    let before = server.log().len();
    crowd.watch(usize::try_from(ACQUISITIONS).unwrap_or_default()).await?;
    let log = server.log();
    let parts = count(log.get(before..).unwrap_or_default(), database);
    let each = |number: &u32| f64::from(*number) / f64::from(ACQUISITIONS);
    let shown = parts.iter().fold(String::new(), |mut shown, (kind, number)| {
        // Writing into a string cannot fail.
        let _ = write!(shown, ", {kind} {:.2}", each(number));
        shown
    });
    let all: u32 = parts.iter().filter(|(kind, _)| **kind != SET_UP).map(|(_, number)| number).sum();
    eprintln!("lock: statements for each acquisition, {name}: {:.2}{shown}", each(&all));
    Ok(each(&all))
}

/// Counts the statements in this database by kind. A statement begins on its own line; its further lines
/// begin with a tab.
fn count(log: &str, database: &str) -> BTreeMap<&'static str, u32> {
    let begins = [format!("{database}|LOG:  execute "), format!("{database}|LOG:  statement: ")];
    let mut parts = BTreeMap::new();
    for line in log.lines().filter(|line| begins.iter().any(|begin| line.starts_with(begin))) {
        let kind = KINDS.iter().find(|(part, _)| line.contains(part)).map_or(SET_UP, |(_, kind)| *kind);
        *parts.entry(kind).or_default() += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_told_apart_and_others_databases_are_left_out() {
        let log = "\
            a_1|LOG:  execute sqlx_s_1: select * from holdoff.lock_try($1)\n\
            a_1|LOG:  execute sqlx_s_2: update holdoff.locks\n\tset until = holdoff.lock_try(\n\
            a_1|LOG:  statement: LISTEN \"holdoff_locks\"\n\
            a_1|ERROR:  execute what?\n\
            b_2|LOG:  execute sqlx_s_1: select * from holdoff.lock_try($1)\n";
        assert_eq!(count(log, "a_1"), BTreeMap::from([("ask", 1), ("renew", 1), (SET_UP, 1)]));
    }
}
