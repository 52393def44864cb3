//! `holdoff lock list`

use std::io::Write;

use holdoff_lock::{Filter, LockRecord};
use holdoff_server::show_lock;

use super::Desk;
use crate::args::LockListArgs;
use crate::failure::Failure;
use crate::output::{Table, time};

pub(super) async fn run(desk: &Desk, args: &LockListArgs, namespace: &str) -> Result<(), Failure> {
    let mut filter = Filter::default().limit(args.limit);
    if !args.all {
        filter = filter.namespace(namespace);
    }
    if args.held {
        filter = filter.held();
    }
    if let Some(prefix) = &args.prefix {
        filter = filter.prefix(prefix);
    }
    let locks = desk.locks.list(&filter).await?;
    let mut out = anstream::stdout();
    if desk.json {
        let shown: Vec<_> = locks.iter().map(show_lock).collect();
        return Ok(writeln!(out, "{}", serde_json::json!(shown))?);
    }
    if locks.is_empty() {
        anstream::eprintln!("no locks");
        return Ok(());
    }
    let mut table = Table::new(["namespace", "key", "held by", "since", "expires in", "waiting", "token"]);
    for lock in &locks {
        table.row(row(lock));
    }
    table.print(&mut out)?;
    if u32::try_from(locks.len()).is_ok_and(|count| count >= args.limit) {
        anstream::eprintln!("there may be more: --limit, --prefix");
    }
    Ok(())
}

fn row(lock: &LockRecord) -> [String; 7] {
    let holder = lock.holder.as_ref();
    let of_holder = |shown: fn(&holdoff_lock::Holder) -> String| holder.map(shown).unwrap_or_default();
    [
        lock.namespace.clone(),
        lock.key.clone(),
        of_holder(|holder| holder.owner.name.clone()),
        of_holder(|holder| time(holder.held_for)),
        of_holder(|holder| time(holder.ends_in)),
        lock.waiting.to_string(),
        lock.token.to_string(),
    ]
}
