//! `holdoff lock list`

use std::io::Write;

use serde_json::Value;

use super::Desk;
use super::keeper::{Seen, SeenHolder};
use crate::args::LockListArgs;
use crate::daemon::read;
use crate::failure::Failure;
use crate::output::{Table, time};

pub(super) async fn run(desk: &Desk, args: &LockListArgs) -> Result<(), Failure> {
    let locks = desk.keeper.list(args, &desk.namespace).await?;
    let mut out = anstream::stdout();
    if desk.json {
        return Ok(writeln!(out, "{}", Value::from(locks))?);
    }
    if locks.is_empty() {
        anstream::eprintln!("no locks");
        return Ok(());
    }
    let count = locks.len();
    let mut table = Table::new(["namespace", "key", "held by", "since", "expires in", "waiting", "token"]);
    for lock in locks {
        table.row(row(read(lock)?));
    }
    table.print(&mut out)?;
    if u32::try_from(count).is_ok_and(|count| count >= args.limit) {
        anstream::eprintln!("there may be more: --limit, --prefix");
    }
    Ok(())
}

fn row(lock: Seen) -> [String; 7] {
    let Seen { namespace, key, token, holder, waiting } = lock;
    let of_holder = |shown: fn(&SeenHolder) -> String| holder.as_ref().map(shown).unwrap_or_default();
    [
        namespace,
        key,
        of_holder(|holder| holder.name.clone()),
        of_holder(|holder| time(holder.held_for())),
        of_holder(|holder| time(holder.ends_in())),
        waiting.to_string(),
        token.to_string(),
    ]
}
