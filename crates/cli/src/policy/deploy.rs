//! `holdoff policy deploy` and `holdoff policy versions`

use std::io::Write;
use std::path::PathBuf;

use clap::ValueHint;
use holdoff_policy::{PolicyChange, PolicySet, changes};
use holdoff_server::{Error, StoreUrl};
use holdoff_work::{Settings, Work};
use serde_json::json;

use crate::args::{GlobalArgs, StoreArgs};
use crate::config::{AllSettings, find_file, load_settings};
use crate::error::CommandError;
use crate::input::confirm;
use crate::output::{self, Table, style};
use crate::{store, work};

#[derive(clap::Args, Debug)]
pub(crate) struct DeployArgs {
    /// Policy file [default: the configuration file]
    #[arg(value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,

    /// Show the changes without deploying them
    #[arg(long)]
    dry_run: bool,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    store: StoreArgs,
}

pub(super) async fn deploy(args: &DeployArgs, global: &GlobalArgs) -> Result<(), CommandError> {
    let named = args.file.as_deref().or(global.config.as_deref());
    let file = find_file(named).ok_or_else(|| {
        CommandError::Usage(
            "there is no holdoff.toml in the current directory; name a policy file".to_owned(),
        )
    })?;
    let AllSettings { policies, work: settings, .. } = load_settings(Some(&file))?;
    settings.check_policies(&policies).map_err(CommandError::failed)?;
    let store = store::select(&args.store, global.config.as_deref())?;
    let work = open(&store, settings).await?;
    work.refresh_policies().await?;
    let changes = changes(&work.policies(), &policies);
    let version = policies.id().to_string();
    let is_active = work.versions().await?.iter().any(|known| known.active && known.id == policies.id());
    if !global.json {
        print_changes(&changes)?;
    }
    let report = |active: bool, message: &str| print_result(global.json, &version, active, &changes, message);
    if is_active {
        return report(true, &format!("version {version} is already active"));
    }
    if args.dry_run {
        return report(false, &format!("version {version} would become active; nothing was changed"));
    }
    let action = format!("make version {} active for every node on {store}", short_id(&version));
    if !args.yes && !confirm(&action)? {
        return Err(CommandError::Failed("nothing was changed".to_owned()));
    }
    work.deploy(policies, &author()).await?;
    report(true, &format!("version {version} is active for every node on {store}"))
}

pub(super) async fn versions(args: &StoreArgs, global: &GlobalArgs) -> Result<(), CommandError> {
    let work = open(&store::select(args, global.config.as_deref())?, Settings::default()).await?;
    let versions = work.versions().await?;
    let mut out = output::stdout();
    if global.json {
        return Ok(writeln!(out, "{}", json!(versions))?);
    }
    let mut table = Table::new(["version", "deployed", "by", "active since"]);
    for version in &versions {
        let since = version.activated_at.filter(|_| version.active).map(|moment| moment.to_string());
        let fallback = if version.active { "now" } else { "" };
        table.row([
            short_id(&version.id.to_string()),
            version.deployed_at.to_string(),
            version.deployed_by.clone().unwrap_or_default(),
            since.unwrap_or_else(|| fallback.to_owned()),
        ]);
    }
    table.print(&mut out)?;
    Ok(())
}

async fn open(store: &StoreUrl, settings: Settings) -> Result<Work, CommandError> {
    store::require_existing(store, work::CREATORS)?;
    let refused = |source| CommandError::failed(Error::Store { store: store.clone(), source });
    Box::pin(Work::attach(store.as_str(), PolicySet::default(), settings)).await.map_err(refused)
}

fn print_changes(changes: &[PolicyChange]) -> std::io::Result<()> {
    let mut out = output::stdout();
    let heading = style::HEADING;
    for PolicyChange { subject, before, after, .. } in changes {
        writeln!(out, "{heading}{subject}{heading:#}")?;
        for (sign, colour, lines) in [("-", style::ERROR, before), ("+", style::BAR, after)] {
            for line in lines {
                writeln!(out, "  {colour}{sign}{colour:#} {line}")?;
            }
        }
    }
    if changes.is_empty() { Ok(()) } else { writeln!(out) }
}

fn print_result(
    json: bool,
    version: &str,
    active: bool,
    changes: &[PolicyChange],
    message: &str,
) -> Result<(), CommandError> {
    let mut out = output::stdout();
    if !json {
        return Ok(writeln!(out, "{message}")?);
    }
    let as_json = |change: &PolicyChange| {
        let PolicyChange { subject, before, after, .. } = change;
        json!({ "subject": subject, "before": before, "after": after })
    };
    let changes: Vec<_> = changes.iter().map(as_json).collect();
    Ok(writeln!(out, "{}", json!({ "id": version, "active": active, "changes": changes }))?)
}

/// Returns the author of the deployment, as displayed to operators.
fn author() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    format!("{} at {}", user.as_deref().unwrap_or("unknown user"), holdoff_work::process_name())
}

fn short_id(version: &str) -> String {
    version.chars().take(12).collect()
}
