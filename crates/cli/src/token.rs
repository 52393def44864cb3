//! `holdoff token …`, directly on the store, so that the first API token needs no other.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use holdoff_policy::parse_duration;
use holdoff_server::{AuditEvent, NewToken, TokenRecord, TokenScope, TokenStore};

use crate::args::{GlobalArgs, StoreArgs};
use crate::error::CommandError;
use crate::output::{self, Table};
use crate::store;

#[derive(clap::Args, Debug)]
pub(crate) struct TokenArgs {
    #[command(flatten)]
    store: StoreArgs,

    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Subcommand, Debug)]
enum TokenCommand {
    /// Create an API token and print it; the store keeps only its hash
    Create(CreateArgs),

    /// List API tokens, the newest first
    List,

    /// Revoke an API token; every daemon on the store rejects it within two seconds
    Revoke {
        /// Id of the token, as `holdoff token list` shows it
        id: String,
    },
}

#[derive(clap::Args, Debug)]
struct CreateArgs {
    /// Name of the owner, as the audit log shows it
    #[arg(long)]
    name: String,

    /// Permissions: read, work (includes read), or admin (includes all)
    #[arg(long)]
    scope: TokenScope,

    /// Restrict the token to this namespace [default: all namespaces]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// Lifetime, such as 90d [default: until the token is revoked]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    expires: Option<Duration>,
}

pub(crate) fn run(args: &TokenArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(execute(args, global)))
}

async fn execute(args: &TokenArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let store = store::select(&args.store, global.config.as_deref())?;
    match &args.command {
        TokenCommand::Create(_) if store.as_str().starts_with("sqlite::memory:") => {
            return Err(CommandError::Usage(
                "an in-memory store ends with this command and would lose the API token; name a file or a server"
                    .to_owned(),
            ));
        }
        TokenCommand::Create(_) => store.create()?,
        _ => store::require_existing(&store, "`holdoff token create`")?,
    }
    let tokens = store::open_tokens(&store).await?;
    match &args.command {
        TokenCommand::Create(create_args) => create(&tokens, create_args, global.json).await?,
        TokenCommand::List => list(&tokens.tokens().await?, global.json)?,
        TokenCommand::Revoke { id } => revoke(&tokens, id, global.json).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates an API token. Only the token goes to stdout, so that it can be piped into a secret store.
async fn create(tokens: &TokenStore, args: &CreateArgs, json: bool) -> Result<(), CommandError> {
    let mut new = NewToken::new(&args.name, args.scope);
    (new.namespace, new.expires) = (args.namespace.clone(), args.expires);
    let issued = tokens.issue(&new).await?;
    let id = &issued.record.id;
    let event =
        AuditEvent::new("token.create", format!("{id} {} {}", args.scope, args.name)).by(store::ACTOR);
    let event = args.namespace.iter().fold(event, AuditEvent::in_namespace);
    tokens.record(&event).await?;
    let mut out = output::stdout();
    if json {
        let mut answer = serde_json::json!(issued.record);
        answer.as_object_mut().map(|answer| answer.insert("token".to_owned(), issued.token.into()));
        return Ok(writeln!(out, "{answer}")?);
    }
    writeln!(out, "{}", issued.token)?;
    note!("Created API token {id}. Save it now: the store keeps only its hash.");
    Ok(())
}

fn list(tokens: &[TokenRecord], json: bool) -> Result<(), CommandError> {
    let mut out = output::stdout();
    if json {
        return Ok(writeln!(out, "{}", serde_json::json!(tokens))?);
    }
    if tokens.is_empty() {
        note!("no API tokens");
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

async fn revoke(tokens: &TokenStore, id: &str, json: bool) -> Result<(), CommandError> {
    if !tokens.revoke(id).await? {
        return Err(CommandError::Failed(format!(
            "there is no active API token {id}; `holdoff token list` shows all tokens"
        )));
    }
    tokens.record(&AuditEvent::new("token.revoke", id).by(store::ACTOR)).await?;
    let mut out = output::stdout();
    if json {
        return Ok(writeln!(out, "{}", serde_json::json!({ "id": id, "revoked": true }))?);
    }
    Ok(writeln!(out, "revoked API token {id}; every daemon rejects it within two seconds")?)
}
