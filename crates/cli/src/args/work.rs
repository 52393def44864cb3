//! `holdoff work …`

use std::time::Duration;

use clap::Subcommand;
use holdoff_policy::{Class, parse_duration};
use holdoff_work::{NotAnId, Page, Step, StepId, StepState, TaskId};

use super::PlaceArgs;

#[derive(clap::Args, Debug)]
pub(crate) struct WorkArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    #[command(subcommand)]
    pub(crate) command: WorkCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum WorkCommand {
    /// Submit a task of one step; prints its id when it is durable
    Submit(SubmitArgs),

    /// List steps, the newest first
    List(ListArgs),

    /// Show a task: its steps, and every attempt that did not succeed
    Show {
        /// The task
        task: TaskId,

        /// With payloads and outputs
        #[arg(long)]
        payloads: bool,
    },

    /// Try failed and conflicted steps again, with all their tries before them
    Retry(ActArgs),

    /// Cancel tasks: everything of them that is not finished
    Cancel(ActArgs),

    /// Give failed and conflicted steps up; what depends on them stays blocked
    Discard(ActArgs),

    /// Let a conflicted step go on, with another payload if one is given
    Resolve(ResolveArgs),

    /// Stop giving out the steps of a queue or an operation; what runs goes on
    Pause(PauseArgs),

    /// Give the steps of a queue or an operation out again
    Resume(PauseArgs),

    /// Count steps by state, for each queue and operation
    Stats,
}

#[derive(clap::Args, Debug)]
pub(crate) struct SubmitArgs {
    /// The operation: the handler's name, and what policies and lists know the step by
    pub(crate) operation: String,

    /// What the handler gets: JSON, @FILE or - for stdin
    #[arg(long, value_name = "JSON", conflicts_with = "http", allow_hyphen_values = true)]
    pub(crate) json_payload: Option<String>,

    /// Make this request
    #[arg(long, num_args = 2, value_names = ["METHOD", "URL"])]
    pub(crate) http: Option<Vec<String>>,

    /// A header of the request, such as accept:text/plain
    #[arg(long = "header", value_name = "NAME:VALUE", requires = "http")]
    pub(crate) headers: Vec<String>,

    /// The body of the request: text, @FILE or - for stdin; what is JSON is sent as JSON
    #[arg(long, value_name = "TEXT", requires = "http", allow_hyphen_values = true)]
    pub(crate) body: Option<String>,

    /// The namespace
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,

    /// The queue
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,

    /// From 0, which goes first, to 9
    #[arg(long, value_name = "N", default_value_t = Step::NORMAL, value_parser = clap::value_parser!(u8).range(0..=i64::from(Step::LOWEST)))]
    pub(crate) priority: u8,

    /// Not before this much time has passed
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) delay: Option<Duration>,

    /// The policy [default: the operation's]
    #[arg(long, value_name = "NAME")]
    pub(crate) policy: Option<String>,

    /// Taken in once: another task with this key is the same task
    #[arg(long, value_name = "KEY")]
    pub(crate) dedup: Option<String>,
}

#[derive(clap::Args, Debug, Default)]
pub(crate) struct FilterArgs {
    /// In this state, or in one of several
    #[arg(long = "state", value_name = "STATE", value_delimiter = ',')]
    pub(crate) states: Vec<StepState>,

    /// Of this operation; * stands for any run of characters
    #[arg(long, value_name = "NAME")]
    pub(crate) operation: Option<String>,

    /// In this queue
    #[arg(long, value_name = "NAME")]
    pub(crate) queue: Option<String>,

    /// In this namespace
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,

    /// Whose last failure was of this class
    #[arg(long, value_name = "CLASS")]
    pub(crate) class: Option<Class>,

    /// Of this task
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<TaskId>,

    /// With this text in the name or the last message
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,

    /// Submitted at least this long ago
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) older_than: Option<Duration>,

    /// Ready or running for longer than the file allows
    #[arg(long)]
    pub(crate) stale: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// The most steps
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(Page::MOST)))]
    pub(crate) limit: u32,

    /// Only steps after this one: the last of the list before
    #[arg(long, value_name = "STEP")]
    pub(crate) after: Option<StepId>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct ActArgs {
    /// A task, or a step: TASK/NUMBER
    #[arg(value_name = "TASK[/STEP]", conflicts_with_all = ["states", "operation", "queue", "namespace", "class", "task", "text", "older_than", "stale"])]
    pub(crate) target: Option<Target>,

    #[command(flatten)]
    pub(crate) filter: FilterArgs,

    /// Do it without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

/// The target of a command: a task or one of its steps.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Task(TaskId),
    Step(StepId),
}

impl std::str::FromStr for Target {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('/') { text.parse().map(Self::Step) } else { text.parse().map(Self::Task) }
    }
}

#[derive(clap::Args, Debug)]
pub(crate) struct ResolveArgs {
    /// The step: TASK/NUMBER
    pub(crate) step: StepId,

    /// What goes into it from now on: JSON, @FILE or - for stdin
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) payload: Option<String>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct PauseArgs {
    /// The queue
    #[arg(long, value_name = "NAME", conflicts_with = "operation")]
    pub(crate) queue: Option<String>,

    /// The operation
    #[arg(long, value_name = "NAME")]
    pub(crate) operation: Option<String>,

    /// Its namespace
    #[arg(long, value_name = "NAME", default_value = holdoff_policy::PolicySet::DEFAULT_NAMESPACE)]
    pub(crate) namespace: String,
}
