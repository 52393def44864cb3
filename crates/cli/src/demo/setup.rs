//! Prepares the demo: the target, the configured daemon, and its initial content.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use holdoff::client::Client;
use holdoff_lock::Locks;
use holdoff_server::{AuditEvent, Error, NewToken, Options, Server, StoreUrl, TokenScope, TokenStore};
use tokio::time::Instant;

use super::DemoArgs;
use super::operator::{ApiClient, Operator, versions};
use super::output::ProgressLog;
use super::plan::{OperatorAction, Plan};
use super::target::{FailureModel, SECRET, Target};
use super::traffic::BILLING;
use crate::config::{self, AllSettings};
use crate::error::CommandError;

/// The demo's configuration file.
pub(super) const FILE: &str = include_str!("holdoff.toml");

/// The policy of the circuit breaker's cool-down, which has no key in the file.
const COOL_DOWN: &str = "mail";

/// The time everything gets to start. The demo's clock begins afterwards.
const STARTUP_DELAY: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The actor in audit entries of the preparation.
const ACTOR: &str = "demo";

pub(super) struct Setup {
    pub(super) server: Server,
    /// The reason why the daemon does not use its usual port.
    pub(super) moved: Option<String>,
    pub(super) target: Target,
    pub(super) client: Client,
    pub(super) daemon: ApiClient,
    pub(super) operator: Operator,
    pub(super) locks: Locks,
    pub(super) store: String,
    pub(super) since: Instant,
    pub(super) progress: ProgressLog,
}

impl Setup {
    /// Prepares the demo, with secrets in `scratch` and the store in `data`.
    pub(super) async fn start(
        args: &DemoArgs,
        plan: &Plan,
        scratch: &Path,
        data: &Path,
    ) -> Result<Self, CommandError> {
        let since = Instant::now() + STARTUP_DELAY;
        let progress = ProgressLog::new(since);
        let target = Target::start(FailureModel { seed: args.seed, outage: plan.outage }, since).await;
        let target = target.map_err(|error| {
            CommandError::Failed(format!("the target of the demo cannot listen: {error}"))
        })?;
        target.check_reach().await.map_err(CommandError::failed)?;
        let secret = scratch.join("secret");
        std::fs::write(&secret, SECRET)?;
        let file = file(&target, &secret);
        let settings = config::parse_settings(&file).map_err(CommandError::failed)?;
        let (first, second) = versions(&file, &settings.policies);

        let store_url = StoreUrl::in_directory(data);
        let (options, store) = (options(settings, &store_url, args), store_url.as_str().to_owned());
        let (server, moved) = start(options, args.listen.is_none()).await?;
        let locks = Locks::open(&store).await.map_err(CommandError::failed)?;
        let client = Client::new(&server.url()).map_err(CommandError::failed)?;
        let daemon = ApiClient::new(&server.url()).map_err(CommandError::failed)?;
        let operator = Operator { daemon: daemon.clone(), file: first, second, progress };
        operator.act(OperatorAction::Newsletters { is_paused: true }).await.map_err(CommandError::failed)?;
        issue_tokens(server.token_store()).await?;
        Ok(Self { server, moved, target, client, daemon, operator, locks, store, since, progress })
    }
}

/// Returns the demo's configuration file with the addresses and the secret of this run.
fn file(target: &Target, secret: &Path) -> String {
    let secret = toml::Value::String(secret.display().to_string()).to_string();
    target.addresses.fill_in(FILE).replace("\"SECRET\"", &secret)
}

fn options(settings: AllSettings, store: &StoreUrl, args: &DemoArgs) -> Options {
    let mut options = Options::new(store.clone());
    options.listen = args.listen.unwrap_or(Options::LISTEN);
    options.drain_timeout = settings.server.running.drain_timeout;
    (options.policies, options.settings, options.locking) = (settings.policies, settings.work, settings.lock);
    options.server = settings.server;
    if let Some(policy) = options.policies.policy(COOL_DOWN) {
        options.settings.http.destination.breaker.cool_down = policy.as_ref().clone();
    }
    options
}

/// Starts the daemon. If the default port is taken and the user named none, it uses any free port.
async fn start(mut options: Options, may_move: bool) -> Result<(Server, Option<String>), CommandError> {
    let is_taken = |error: &Error| matches!(error, Error::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse);
    match Box::pin(Server::start(options.clone())).await {
        Ok(server) => Ok((server, None)),
        Err(error) if may_move && is_taken(&error) => {
            let moved = format!("Port {} is in use; the daemon uses a free port.", options.listen.port());
            options.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let server = Box::pin(Server::start(options)).await;
            server.map(|server| (server, Some(moved))).map_err(CommandError::failed)
        }
        Err(error) => Err(error.into()),
    }
}

/// Issues API tokens for the dashboard to list. Their secrets are never shown, because loopback needs none.
async fn issue_tokens(token_store: &TokenStore) -> Result<(), CommandError> {
    let tokens = [
        NewToken::new("dashboard", TokenScope::Read).expires(90 * DAY),
        NewToken::new("invoicing", TokenScope::Work).namespace(BILLING),
        NewToken::new("on-call", TokenScope::Admin),
        NewToken::new("old laptop", TokenScope::Admin),
    ];
    let mut last = None;
    for token in &tokens {
        let id = token_store.issue(token).await?.record.id;
        let event = AuditEvent::new("token.create", format!("{id} {} {}", token.scope, token.name)).by(ACTOR);
        token_store.record(&token.namespace.iter().fold(event, AuditEvent::in_namespace)).await?;
        last = Some(id);
    }
    if let Some(id) = last {
        token_store.revoke(&id).await?;
        token_store.record(&AuditEvent::new("token.revoke", id).by(ACTOR)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use holdoff_policy::PolicySet;

    use super::*;

    #[test]
    fn the_configuration_file_is_valid() {
        let settings = config::parse_settings(FILE).unwrap_or_else(|problems| panic!("{problems}"));
        settings.work.check_policies(&settings.policies).unwrap();
        assert!(settings.policies.policy(COOL_DOWN).is_some());
        assert!(settings.work.http.credentials.contains_key("reports"));
    }

    #[test]
    fn the_second_policy_version_differs() {
        let policies = PolicySet::from_toml(FILE).unwrap();
        let (first, second) = versions(FILE, &policies);
        let id = |file: &str| PolicySet::from_toml(file).unwrap().id();
        assert_eq!(id(&first), policies.id());
        assert_ne!(id(&second), policies.id());
    }

    #[tokio::test]
    async fn every_host_in_the_file_is_replaced() {
        let outage = Plan::endless().outage;
        let target = Target::start(FailureModel { seed: 1, outage }, Instant::now()).await.unwrap();
        let file = file(&target, Path::new("/tmp/a \"quoted\" place"));
        assert!(!file.lines().any(|line| !line.starts_with('#') && line.contains(".demo")), "{file}");
        config::parse_settings(&file).unwrap_or_else(|problems| panic!("{problems}"));
    }
}
