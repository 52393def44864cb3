//! `holdoff token …`, directly on the store, so that the first API token needs no other.

use std::io::Write;
use std::process::ExitCode;

use holdoff_server::{Deed, Keep, NewToken, TokenRecord};

use crate::args::{Args, TokenArgs, TokenCommand, TokenCreateArgs};
use crate::failure::Failure;
use crate::output::Table;
use crate::{audit, serve};

pub(crate) fn run(command: &TokenArgs, args: &Args) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(answer(command, args)))
}

async fn answer(command: &TokenArgs, args: &Args) -> Result<ExitCode, Failure> {
    let place = serve::place(&command.place, args.config.as_deref())?;
    match &command.command {
        TokenCommand::Create(_) if place.url().starts_with("sqlite::memory:") => {
            return Err(Failure::Usage(
                "a store in memory is gone with this command, and so would be the token".to_owned(),
            ));
        }
        TokenCommand::Create(_) => place.make()?,
        _ => audit::refuse_missing(&place, "API token", "token create")?,
    }
    let keep = audit::open(&place).await?;
    match &command.command {
        TokenCommand::Create(wish) => create(&keep, wish, args.json).await?,
        TokenCommand::List => list(&keep.tokens().await?, args.json)?,
        TokenCommand::Revoke { id } => revoke(&keep, id, args.json).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates an API token. Only the token goes to stdout, so that it can be piped into a secret store.
async fn create(keep: &Keep, wish: &TokenCreateArgs, json: bool) -> Result<(), Failure> {
    let mut new = NewToken::new(&wish.name, wish.scope);
    (new.namespace, new.expires) = (wish.namespace.clone(), wish.expires);
    let issued = keep.issue(&new).await?;
    let id = &issued.record.id;
    let deed = Deed::new("token.create", format!("{id} {} {}", wish.scope, wish.name)).by(audit::WHO);
    let deed = wish.namespace.iter().fold(deed, Deed::within);
    keep.note(&deed).await?;
    let mut out = anstream::stdout();
    if json {
        let mut answer = serde_json::json!(issued.record);
        answer.as_object_mut().map(|answer| answer.insert("token".to_owned(), issued.token.into()));
        return Ok(writeln!(out, "{answer}")?);
    }
    writeln!(out, "{}", issued.token)?;
    anstream::eprintln!("This is token {id}. It is shown this once: only its hash is kept.");
    Ok(())
}

fn list(tokens: &[TokenRecord], json: bool) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    if json {
        return Ok(writeln!(out, "{}", serde_json::json!(tokens))?);
    }
    if tokens.is_empty() {
        anstream::eprintln!("no tokens");
        return Ok(());
    }
    let shown = |moment: Option<holdoff_work::Moment>| moment.map_or_else(String::new, |m| m.to_string());
    let mut table =
        Table::new(["id", "name", "scope", "namespace", "created", "expires", "last used", "revoked"]);
    for token in tokens {
        table.row([
            token.id.clone(),
            token.name.clone(),
            token.scope.to_string(),
            token.namespace.clone().unwrap_or_else(|| "all".to_owned()),
            token.created_at.to_string(),
            shown(token.expires_at),
            shown(token.used_at),
            shown(token.revoked_at),
        ]);
    }
    Ok(table.print(&mut out)?)
}

async fn revoke(keep: &Keep, id: &str, json: bool) -> Result<(), Failure> {
    if !keep.revoke(id).await? {
        return Err(Failure::Failed(format!(
            "there is no token {id} that could be revoked; `holdoff token list` shows them all"
        )));
    }
    keep.note(&Deed::new("token.revoke", id).by(audit::WHO)).await?;
    let mut out = anstream::stdout();
    if json {
        return Ok(writeln!(out, "{}", serde_json::json!({ "id": id, "revoked": true }))?);
    }
    Ok(writeln!(out, "{id} is revoked: every daemon refuses it within two seconds")?)
}
