//! `holdoff policy apply` and `holdoff policy versions`

use std::io::Write;

use holdoff_policy::{Change, PolicySet, changes};
use holdoff_server::{Error, Place};
use holdoff_work::{Settings, Work};
use serde_json::json;

use crate::args::{ApplyArgs, Args, PlaceArgs};
use crate::failure::Failure;
use crate::output::{Table, is_wanted, style};
use crate::work::refuse_missing;
use crate::{config, serve};

pub(super) async fn apply(command: &ApplyArgs, args: &Args) -> Result<(), Failure> {
    let named = command.file.as_deref().or(args.config.as_deref());
    let file = config::file(named).ok_or_else(|| {
        Failure::Usage("there is no holdoff.toml in this folder; name a file to apply".to_owned())
    })?;
    let config::Whole { policies, work: settings, .. } = config::load_whole(Some(&file))?;
    settings.check_policies(&policies).map_err(|waits| Failure::Failed(waits.to_string()))?;
    let place = serve::place(&command.place, args.config.as_deref())?;
    let work = open(&place, settings).await?;
    work.look_at_policies().await?;
    let changes = changes(&work.policies(), &policies);
    let version = policies.id().to_string();
    let is_active = work.versions().await?.iter().any(|known| known.active && known.id == policies.id());
    if !args.json {
        show(&changes)?;
    }
    let mut out = anstream::stdout();
    if is_active {
        return say(
            &mut out,
            args.json,
            &version,
            true,
            &changes,
            &format!("version {version} is active already"),
        );
    }
    if command.dry_run {
        let said = format!("this would put version {version} in force; nothing was changed");
        return say(&mut out, args.json, &version, false, &changes, &said);
    }
    let what = format!("put version {} in force for every node on {place}", short(&version));
    if !command.yes && !is_wanted(&what)? {
        return Err(Failure::Failed("nothing was changed".to_owned()));
    }
    work.publish(policies, &who()).await?;
    let said = format!("version {version} is in force for every node on {place}");
    say(&mut out, args.json, &version, true, &changes, &said)
}

pub(super) async fn versions(place: &PlaceArgs, args: &Args) -> Result<(), Failure> {
    let work = open(&serve::place(place, args.config.as_deref())?, Settings::default()).await?;
    let versions = work.versions().await?;
    let mut out = anstream::stdout();
    if args.json {
        return Ok(writeln!(out, "{}", json!(versions))?);
    }
    let mut table = Table::new(["version", "published", "by", "in force since"]);
    for version in &versions {
        let since = version.activated_at.filter(|_| version.active).map(|moment| moment.to_string());
        let fallback = if version.active { "now" } else { "" };
        table.row([
            short(&version.id.to_string()),
            version.published_at.to_string(),
            version.published_by.clone().unwrap_or_default(),
            since.unwrap_or_else(|| fallback.to_owned()),
        ]);
    }
    table.print(&mut out)?;
    Ok(())
}

async fn open(place: &Place, settings: Settings) -> Result<Work, Failure> {
    refuse_missing(place)?;
    let refused = |source| Failure::Failed(Error::Store { place: place.clone(), source }.to_string());
    Box::pin(Work::attach(place.url(), PolicySet::default(), settings)).await.map_err(refused)
}

fn show(changes: &[Change]) -> std::io::Result<()> {
    let mut out = anstream::stdout();
    let heading = style::HEADING;
    for Change { subject, before, after, .. } in changes {
        writeln!(out, "{heading}{subject}{heading:#}")?;
        for (mark, colour, lines) in [("-", style::ERROR, before), ("+", style::BAR, after)] {
            for line in lines {
                writeln!(out, "  {colour}{mark}{colour:#} {line}")?;
            }
        }
    }
    if changes.is_empty() { Ok(()) } else { writeln!(out) }
}

fn say(
    out: &mut impl Write,
    json: bool,
    version: &str,
    active: bool,
    changes: &[Change],
    said: &str,
) -> Result<(), Failure> {
    if json {
        let changes: Vec<_> = changes
            .iter()
            .map(|Change { subject, before, after, .. }| json!({ "subject": subject, "before": before, "after": after }))
            .collect();
        return Ok(writeln!(out, "{}", json!({ "id": version, "active": active, "changes": changes }))?);
    }
    Ok(writeln!(out, "{said}")?)
}

/// Returns the author of the deployment, as displayed to operators.
fn who() -> String {
    let user =
        std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "somebody".to_owned());
    format!("{user} at {}", holdoff_work::this_process())
}

fn short(version: &str) -> String {
    version.chars().take(12).collect()
}
