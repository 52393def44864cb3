//! `holdoff lock …`

mod backend;
mod list;
mod release;
mod run;

use std::process::ExitCode;

use clap::Subcommand;
use holdoff_lock::{Locks, Settings, Token};
use holdoff_policy::PolicySet;
use holdoff_server::Error;

use crate::args::{GlobalArgs, StoreArgs, heading};
use crate::config::load_settings;
use crate::error::CommandError;
use crate::{api_client, store};
use backend::LockBackend;

#[derive(clap::Args, Debug)]
pub(crate) struct LockArgs {
    /// Namespace of the lock
    #[arg(long, global = true, value_name = "NAME", default_value = PolicySet::DEFAULT_NAMESPACE)]
    namespace: String,

    #[command(flatten)]
    store: StoreArgs,

    #[arg(
        long,
        global = true,
        value_name = "URL",
        conflicts_with_all = ["store", "data"],
        help_heading = heading::DAEMON,
        help = "Daemon to send the command to, instead of a store; used by default if lock.ledger is set [default: \
                $HOLDOFF_URL, then server.listen]"
    )]
    url: Option<String>,

    #[command(subcommand)]
    command: LockCommand,
}

impl LockArgs {
    /// Returns whether the command asks a daemon. Only members of a ledger have access to its locks, so the command
    /// asks a daemon for them. An explicit `--store` selects that store instead.
    fn uses_daemon(&self, settings: &Settings) -> bool {
        self.url.is_some() || (settings.ledger().is_some() && self.store.store.is_none())
    }
}

#[derive(Subcommand, Debug)]
enum LockCommand {
    /// Run a command while holding a lock
    #[command(after_help = run::AFTER_HELP)]
    Run(run::RunArgs),

    /// List locks by namespace and key
    List(list::ListArgs),

    /// Show the holder of a lock and the number of waiters
    Show {
        /// Key of the lock
        key: String,
    },

    /// Release a lock by force
    Release(release::ReleaseArgs),

    /// Raise the floor of fencing tokens: new tokens exceed it
    #[command(after_help = release::AFTER_HELP)]
    RaiseFloor {
        /// Highest fencing token that a resource has seen
        token: Token,
    },
}

/// The backend of the locks, the namespace, the settings and the output format.
struct LockContext {
    backend: LockBackend,
    namespace: String,
    settings: Settings,
    json: bool,
}

pub(crate) fn run(args: &LockArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Box::pin(execute(args, global)))
}

async fn execute(args: &LockArgs, global: &GlobalArgs) -> Result<ExitCode, CommandError> {
    if let LockCommand::Release(args) = &args.command {
        args.require_force()?;
    }
    let settings = load_settings(global.config.as_deref())?.lock.with_namespace(&args.namespace);
    let backend = if args.uses_daemon(&settings) {
        LockBackend::Daemon(api_client::address(args.url.as_deref(), global.config.as_deref())?)
    } else {
        open(args, global, &settings).await?
    };
    let context = LockContext { backend, namespace: args.namespace.clone(), settings, json: global.json };
    match &args.command {
        LockCommand::Run(args) => return run::run(&context, args).await,
        LockCommand::List(args) => list::list(&context, args).await?,
        LockCommand::Show { key } => list::show(&context, key).await?,
        LockCommand::Release(args) => release::release(&context, args).await?,
        LockCommand::RaiseFloor { token } => release::raise_floor(&context, *token).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the selected store.
async fn open(
    args: &LockArgs,
    global: &GlobalArgs,
    settings: &Settings,
) -> Result<LockBackend, CommandError> {
    let store = store::select(&args.store, global.config.as_deref())?;
    match &args.command {
        LockCommand::Run(_) => store.create()?,
        _ => store::require_existing(&store, "`holdoff serve` or `holdoff lock run`")?,
    }
    let refused = |source| CommandError::failed(Error::Locks { store: store.clone(), source });
    let locks = match store.as_str() {
        "sqlite::memory:" => Locks::memory(),
        url => Locks::open(url).await.map_err(refused)?,
    };
    Ok(LockBackend::Store { locks: locks.with_settings(settings.clone())?, store })
}
