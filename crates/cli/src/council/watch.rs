//! `holdoff council watch`

use std::io::Write;
use std::process::ExitCode;

use holdoff_council::machine::{Change, Invalid};
use holdoff_council::runtime::{AcceptorAddress, News};
use holdoff_council::{Applied, Operation};

use super::Desk;
use crate::failure::Failure;
use crate::lock::signals::Signals;

pub(super) async fn run(desk: &Desk<'_>) -> Result<ExitCode, Failure> {
    let mut news = desk.council.subscribe()?;
    let before = desk.council.state().await?.applied();
    anstream::eprintln!("watching after slot {before}, until this is ended");
    let mut signals = Signals::new()?;
    loop {
        tokio::select! {
            next = news.next() => match next {
                Some(news) => tell(&news, desk.json)?,
                None => return Err(Failure::Failed("the device has stopped: the log says why".to_owned())),
            },
            _ = signals.next() => return Ok(ExitCode::SUCCESS),
        }
    }
}

fn tell(news: &News, json: bool) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    match news {
        News::Applied(applied) if json => writeln!(out, "{}", as_json(applied))?,
        News::Applied(applied) => in_words(applied, &mut out)?,
        News::Installed(slot) if json => writeln!(out, "{}", serde_json::json!({ "installed": slot.0 }))?,
        News::Installed(slot) => writeln!(out, "slot {slot}: taken over as a whole, from a snapshot")?,
        News::Lagged(many) => anstream::eprintln!("{many} slots came too fast to be shown"),
        _ => {}
    }
    out.flush()?;
    Ok(())
}

fn as_json(applied: &Applied) -> serde_json::Value {
    let operation = |(operation, result): &(Operation, Result<(), Invalid>)| {
        serde_json::json!({
            "id": operation.id.to_string(),
            "author": operation.author,
            "what": what(operation),
            "invalid": result.as_ref().err().map(ToString::to_string),
        })
    };
    serde_json::json!({
        "slot": applied.slot.0,
        "author": applied.author,
        "operations": applied.operations.iter().map(operation).collect::<Vec<_>>(),
        "skipped": applied.skipped.as_ref().map(ToString::to_string),
    })
}

fn in_words(applied: &Applied, out: &mut impl Write) -> std::io::Result<()> {
    let slot = applied.slot;
    if let Some(why) = &applied.skipped {
        writeln!(out, "slot {slot}: skipped by everybody: {why}")?;
    }
    for (operation, result) in &applied.operations {
        let author = operation.author.short();
        match result {
            Ok(()) => writeln!(out, "slot {slot}: {author} {}", what(operation))?,
            Err(why) => {
                writeln!(out, "slot {slot}: {author} wanted: {}; it cannot be: {why}", what(operation))?;
            }
        }
    }
    Ok(())
}

fn what(operation: &Operation) -> String {
    match Change::read(&operation.body) {
        Some(Change::Add { key, name }) => format!("adds {name} ({key})"),
        Some(Change::Remove { key }) => format!("removes {key}"),
        Some(Change::Rotate { to }) => format!("goes over to the key {to}"),
        Some(Change::AddAcceptor(acceptor)) => {
            let address = AcceptorAddress { key: acceptor.key, address: acceptor.address };
            format!("adds the acceptor {address}")
        }
        Some(Change::RemoveAcceptor(id)) => format!("removes the acceptor {id}"),
        Some(Change::Compact { .. }) => "compacts".to_owned(),
        _ => "does something that this release does not know".to_owned(),
    }
}
