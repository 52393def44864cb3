//! Request bodies, queries and path parameters of ledgers.

use std::time::Duration;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use holdoff_ledger::machine::{Either, StateMachine};
use holdoff_ledger::runtime::{DefaultMachine, LedgerMember, MAX_NAME_BYTES};
use holdoff_ledger::{Consistency, Slot, TxId, TxKey};
use holdoff_net::PublicKey;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::super::input;
use super::super::input::HumanDuration;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::schema::DurationText;
use crate::view::CommandView;

/// The default and the maximum wait. A response takes little longer than the maximum.
const DEFAULT_WAIT: Duration = Duration::from_secs(15);
const MAX_WAIT: Duration = Duration::from_secs(25);
/// The number of leading digits of a key that serve as the name of a member without a name.
const SHORT_KEY_DIGITS: usize = 8;

/// A goal of a ledger.
pub(super) type LedgerGoal = <DefaultMachine as StateMachine>::Goal;

/// The key that a path names by `{key}`.
pub(super) struct KeyPath(pub(super) String);

impl FromRequestParts<App> for KeyPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, app).await {
            Ok(Path(key)) => Ok(Self(key)),
            Err(wrong) => Err(Problem::new(Kind::InvalidQuery, wrong.body_text())),
        }
    }
}

/// A reference to a ledger.
#[derive(Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[schema(as = LedgerRef)]
#[serde(deny_unknown_fields)]
pub(super) struct LedgerRef {
    /// The ledger's name. The default is the namespace of the API token, or else `default`.
    pub(super) namespace: Option<String>,
}

/// A transaction: a `goal` over facts, or `commands` over values.
#[derive(Deserialize, ToSchema)]
#[schema(as = NewTransaction)]
#[serde(deny_unknown_fields)]
pub(super) struct TransactionForm {
    pub(super) namespace: Option<String>,
    #[schema(min_length = 1, max_length = 65536)]
    goal: Option<String>,
    #[schema(min_items = 1, max_items = 64)]
    commands: Option<Vec<CommandView>>,
    /// The transaction's id: the same id is the same transaction. The default is a random id.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    tx_id: Option<String>,
    /// An index that the client knew before it first submitted the transaction; a repeated submission must name it. The
    /// default is the last index that this daemon has applied.
    birth: Option<u64>,
    /// How long to wait for the outcome: `15s` by default, `25s` at most.
    #[schema(value_type = Option<DurationText>)]
    timeout: Option<HumanDuration>,
}

/// A read: a `goal` over facts, or `commands` over values. Its writes are discarded.
#[derive(Deserialize, ToSchema)]
#[schema(as = LedgerRead)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadForm {
    pub(super) namespace: Option<String>,
    #[schema(min_length = 1, max_length = 65536)]
    goal: Option<String>,
    #[schema(min_items = 1, max_items = 64)]
    commands: Option<Vec<CommandView>>,
    #[serde(default)]
    pub(super) consistency: ReadConsistency,
    /// How long to wait for the leader: `15s` by default, `25s` at most.
    #[schema(value_type = Option<DurationText>)]
    timeout: Option<HumanDuration>,
}

/// The consistency of a read: the state of this node (`local`), or every transaction acknowledged before the read,
/// confirmed by a majority (`quorum`) or by the leader's lease (`lease`).
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[schema(as = ReadConsistency)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReadConsistency {
    Local,
    #[default]
    Quorum,
    Lease,
}

/// A new member, or new attributes of an existing member.
#[derive(Deserialize, ToSchema)]
#[schema(as = NewMember)]
#[serde(deny_unknown_fields)]
pub(super) struct MemberForm {
    pub(super) namespace: Option<String>,
    #[schema(pattern = "^[0-9a-f]{64}$")]
    key: String,
    /// The member's listen address: a host and a port.
    #[schema(min_length = 3, max_length = 64)]
    address: String,
    /// The member's display name. The default is the first digits of its key.
    #[schema(min_length = 1, max_length = 64)]
    name: Option<String>,
    /// Whether the member votes; `true` by default. A member without a vote is a learner.
    votes: Option<bool>,
}

/// The requested leader.
#[derive(Deserialize, ToSchema)]
#[schema(as = StepDown)]
#[serde(deny_unknown_fields)]
pub(super) struct StepDownForm {
    pub(super) namespace: Option<String>,
    /// The key of a voter. The default is the most up-to-date voter.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    to: Option<String>,
}

impl TransactionForm {
    pub(super) fn goal(&mut self) -> Result<LedgerGoal, Problem> {
        parse_goal(self.goal.take(), self.commands.take())
    }

    /// Returns the id and the birth of the transaction. Their defaults come from `new`.
    pub(super) fn tx(&self, new: TxKey) -> Result<TxKey, Problem> {
        let id = match &self.tx_id {
            None if self.birth.is_some() => return Err(invalid("birth: expected with `tx_id` only")),
            None => new.id,
            Some(text) => {
                let is_canonical = text.len() == 32 && !text.contains('+');
                let number = u128::from_str_radix(text, 16).ok().filter(|_| is_canonical);
                TxId(number.ok_or_else(|| invalid("tx_id: expected 32 hexadecimal digits"))?)
            }
        };
        // A node that is behind the client may name its own index: it is earlier, and thus valid as well.
        let birth = self.birth.map_or(new.birth, |birth| Slot(birth).min(new.birth));
        Ok(TxKey { id, birth })
    }

    pub(super) fn timeout(&self) -> Result<Duration, Problem> {
        timeout(self.timeout.as_ref())
    }
}

impl ReadForm {
    pub(super) fn goal(&mut self) -> Result<LedgerGoal, Problem> {
        parse_goal(self.goal.take(), self.commands.take())
    }

    pub(super) fn timeout(&self) -> Result<Duration, Problem> {
        timeout(self.timeout.as_ref())
    }
}

impl MemberForm {
    pub(super) fn member(self) -> Result<(PublicKey, LedgerMember), Problem> {
        let Self { key, address, name, votes, .. } = self;
        let key = read_key("key", &key)?;
        let has_port = address
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
        if !has_port || address.contains(char::is_whitespace) {
            return Err(invalid("address: expected a host and a port, such as one.example.org:4848"));
        }
        let short = || key.to_string().chars().take(SHORT_KEY_DIGITS).collect();
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(short);
        for (what, text) in [("name", &name), ("address", &address)] {
            input::check_text(what, text, MAX_NAME_BYTES).map_err(invalid)?;
            if text.len() > MAX_NAME_BYTES {
                return Err(invalid(format!("{what}: expected at most {MAX_NAME_BYTES} bytes")));
            }
        }
        Ok((key, LedgerMember { name, address, votes: votes.unwrap_or(true), incarnation: None }))
    }
}

impl StepDownForm {
    pub(super) fn to(&self) -> Result<Option<PublicKey>, Problem> {
        self.to.as_deref().map(|to| read_key("to", to)).transpose()
    }
}

impl From<ReadConsistency> for Consistency {
    fn from(consistency: ReadConsistency) -> Self {
        match consistency {
            ReadConsistency::Local => Self::Local,
            ReadConsistency::Quorum => Self::Quorum,
            ReadConsistency::Lease => Self::Lease,
        }
    }
}

pub(super) fn read_key(what: &str, text: &str) -> Result<PublicKey, Problem> {
    text.parse().map_err(|why| invalid(format!("{what}: {why}")))
}

pub(super) fn default_wait() -> Duration {
    DEFAULT_WAIT
}

fn parse_goal(goal: Option<String>, commands: Option<Vec<CommandView>>) -> Result<LedgerGoal, Problem> {
    match (goal, commands) {
        (Some(goal), None) => goal.parse().map(Either::First).map_err(|why| invalid(format!("goal: {why}"))),
        (None, Some(commands)) => {
            let read = |(index, command): (usize, CommandView)| {
                command.read().map_err(|why| invalid(format!("commands[{index}]: {why}")))
            };
            Ok(Either::Second(commands.into_iter().enumerate().map(read).collect::<Result<_, _>>()?))
        }
        (Some(_), Some(_)) => Err(invalid("expected `goal` or `commands`, got both")),
        (None, None) => Err(invalid("expected `goal` (a text) or `commands` (a list)")),
    }
}

fn timeout(requested: Option<&HumanDuration>) -> Result<Duration, Problem> {
    let wait = requested.map_or(DEFAULT_WAIT, |HumanDuration(wait)| *wait);
    if wait > MAX_WAIT {
        return Err(invalid(format!("timeout: expected at most {}s", MAX_WAIT.as_secs())));
    }
    Ok(wait)
}

fn invalid(why: impl Into<String>) -> Problem {
    Problem::new(Kind::InvalidBody, why)
}
