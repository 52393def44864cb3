//! Prepares the demo: the target, the configured daemon, and its initial content.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use holdoff::client::Client;
use holdoff_lock::Locks;
use holdoff_server::{Deed, Error, Keep, NewToken, Options, Place, Scope, Server};
use tokio::time::Instant;

use super::daemon::Daemon;
use super::operator::{Operator, versions};
use super::plan::{self, Plan};
use super::target::{SECRET, Target, Temper};
use super::task::BILLING;
use super::voice::Voice;
use crate::args::DemoArgs;
use crate::config::{self, Whole};
use crate::failure::Failure;

/// The demo's configuration file.
pub(super) const FILE: &str = include_str!("holdoff.toml");

/// The policy of the circuit breaker's cool-down, which has no key in the file.
const COOL_DOWN: &str = "mail";

/// The time everything gets to start. The demo's clock begins afterwards.
const HEADSTART: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The actor in audit entries of the preparation.
const WHO: &str = "demo";

pub(super) struct Stage {
    pub(super) server: Server,
    /// The reason why the daemon does not use its usual port.
    pub(super) moved: Option<String>,
    pub(super) target: Target,
    pub(super) client: Client,
    pub(super) daemon: Daemon,
    pub(super) operator: Operator,
    pub(super) locks: Locks,
    pub(super) store: String,
    pub(super) since: Instant,
    pub(super) voice: Voice,
}

impl Stage {
    /// Prepares the demo, with secrets in `scratch` and the store in `data`.
    pub(super) async fn set(
        args: &DemoArgs,
        plan: &Plan,
        scratch: &Path,
        data: &Path,
    ) -> Result<Self, Failure> {
        let since = Instant::now() + HEADSTART;
        let voice = Voice::new(since);
        let target = Target::start(Temper { seed: args.seed, outage: plan.outage }, since).await;
        let target = target.map_err(|error| failed(&format!("the demo's target cannot listen: {error}")))?;
        target.check_reach().await.map_err(|why| failed(&why))?;
        let secret = scratch.join("secret");
        std::fs::write(&secret, SECRET)?;
        let file = file(&target, &secret);
        let whole = config::read_whole(&file).map_err(|problems| failed(&problems))?;
        let (first, second) = versions(&file, &whole.policies);

        let place = Place::directory(data);
        let (options, store) = (options(whole, &place, args), place.url().to_owned());
        let (server, moved) = start(options, args.listen.is_none()).await?;
        let locks = Locks::open(&store).await.map_err(|error| failed(&error))?;
        let client = Client::new(&server.url()).map_err(|error| failed(&error))?;
        let daemon = Daemon::new(&server.url()).map_err(|why| failed(&why))?;
        let operator = Operator { daemon: daemon.clone(), file: first, second, voice };
        operator.act(plan::Deed::Newsletters { is_paused: true }).await.map_err(|why| failed(&why))?;
        issue_tokens(server.keep()).await?;
        Ok(Self { server, moved, target, client, daemon, operator, locks, store, since, voice })
    }
}

fn failed(why: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(why.to_string())
}

/// Returns the demo's configuration file with the addresses and the secret of this run.
fn file(target: &Target, secret: &Path) -> String {
    let secret = toml::Value::String(secret.display().to_string()).to_string();
    target.addresses.fill_in(FILE).replace("\"SECRET\"", &secret)
}

fn options(whole: Whole, place: &Place, args: &DemoArgs) -> Options {
    let mut options = Options::new(place.clone());
    options.listen = args.listen.unwrap_or(Options::LISTEN);
    options.patience = whole.server.running.patience;
    (options.policies, options.settings, options.locking) = (whole.policies, whole.work, whole.lock);
    options.server = whole.server;
    if let Some(policy) = options.policies.policy(COOL_DOWN) {
        options.settings.http.destination.breaker.cool_down = policy.as_ref().clone();
    }
    options
}

/// Starts the daemon. If the default port is taken and the user named none, it uses any free port.
async fn start(mut options: Options, may_move: bool) -> Result<(Server, Option<String>), Failure> {
    let is_taken = |error: &Error| matches!(error, Error::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse);
    match Box::pin(Server::start(options.clone())).await {
        Ok(server) => Ok((server, None)),
        Err(error) if may_move && is_taken(&error) => {
            let moved = format!("Port {} is taken, so this is another.", options.listen.port());
            options.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let server = Box::pin(Server::start(options)).await;
            server.map(|server| (server, Some(moved))).map_err(|error| failed(&error))
        }
        Err(error) => Err(failed(&error)),
    }
}

/// Issues API tokens for the dashboard to list. Their secrets are never shown, because loopback needs none.
async fn issue_tokens(keep: &Keep) -> Result<(), Failure> {
    let tokens = [
        NewToken::new("dashboard", Scope::Read).expires(90 * DAY),
        NewToken::new("invoicing", Scope::Work).namespace(BILLING),
        NewToken::new("on-call", Scope::Admin),
        NewToken::new("old laptop", Scope::Admin),
    ];
    let mut last = None;
    for token in &tokens {
        let id = keep.issue(token).await?.record.id;
        let deed = Deed::new("token.create", format!("{id} {} {}", token.scope, token.name)).by(WHO);
        keep.note(&token.namespace.iter().fold(deed, Deed::within)).await?;
        last = Some(id);
    }
    if let Some(id) = last {
        keep.revoke(&id).await?;
        keep.note(&Deed::new("token.revoke", id).by(WHO)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use holdoff_policy::PolicySet;

    use super::*;

    #[test]
    fn the_file_can_be_read_as_it_is_printed() {
        let whole = config::read_whole(FILE).unwrap_or_else(|problems| panic!("{problems}"));
        whole.work.check_policies(&whole.policies).unwrap();
        assert!(whole.policies.policy(COOL_DOWN).is_some());
        assert!(whole.work.http.credentials.contains_key("reports"));
    }

    #[test]
    fn the_second_version_is_another() {
        let policies = PolicySet::from_toml(FILE).unwrap();
        let (first, second) = versions(FILE, &policies);
        let id = |file: &str| PolicySet::from_toml(file).unwrap().id();
        assert_eq!(id(&first), policies.id());
        assert_ne!(id(&second), policies.id());
    }

    #[tokio::test]
    async fn every_name_in_the_file_is_filled_in() {
        let outage = Plan::endless().outage;
        let target = Target::start(Temper { seed: 1, outage }, Instant::now()).await.unwrap();
        let file = file(&target, Path::new("/tmp/a \"quoted\" place"));
        assert!(!file.lines().any(|line| !line.starts_with('#') && line.contains(".demo")), "{file}");
        config::read_whole(&file).unwrap_or_else(|problems| panic!("{problems}"));
    }
}
