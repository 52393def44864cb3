//! `holdoff lock show`

use std::io::Write;

use super::Desk;
use super::keeper::Seen;
use crate::daemon::read;
use crate::failure::Failure;
use crate::output::time;

pub(super) async fn run(desk: &Desk, key: &str) -> Result<(), Failure> {
    let Some(lock) = desk.keeper.show(&desk.namespace, key).await? else {
        return Err(Failure::Failed(format!(
            "there is no lock {key}: it was never held, or nobody has used it for so long that it is forgotten"
        )));
    };
    let mut out = anstream::stdout();
    if desk.json {
        return Ok(writeln!(out, "{lock}")?);
    }
    let lock: Seen = read(lock)?;
    match &lock.holder {
        Some(holder) => {
            let (name, since, ends) = (&holder.name, time(holder.held_for()), time(holder.ends_in()));
            writeln!(
                out,
                "{key} is held by {name} for {since}; its lease ends in {ends} unless it is renewed"
            )?;
        }
        None => writeln!(out, "{key} is free")?,
    }
    writeln!(out, "{} wait; the last token is {}", lock.waiting, lock.token)?;
    Ok(())
}
