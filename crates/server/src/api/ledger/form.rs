//! Request bodies, queries and path parameters of ledgers.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use holdoff_ledger::machine::{Either, Machine};
use holdoff_ledger::runtime::{Books, MAX_NAME_BYTES, Member};
use holdoff_ledger::{How, TxId};
use holdoff_net::PublicKey;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::{IntoParams, ToSchema};

use super::super::forms::{self, Wait};
use super::super::{body, input};
use super::MAX_BODY;
use crate::app::App;
use crate::problem::{Kind, Problem};
use crate::schema::WaitText;
use crate::show::ShownCommand;

/// The default and the maximum wait. A response takes little longer than the maximum.
const USUAL_WAIT: Duration = Duration::from_secs(15);
const LONGEST_WAIT: Duration = Duration::from_secs(25);
/// The number of leading digits of a key that serve as the name of a member without a name.
const SHORT_KEY: usize = 8;

/// A goal of a ledger.
pub(super) type Wanted = <Books as Machine>::Goal;

/// A JSON body of this type.
pub(super) struct Sent<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<App> for Sent<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let headers = request.headers().clone();
        let bytes = body::read(&headers, Bytes::from_request(request, app).await, MAX_BODY)?;
        forms::parse(&bytes).map(Self).map_err(invalid)
    }
}

/// The key that a path names by `{key}`.
pub(super) struct NamedKey(pub(super) String);

impl FromRequestParts<App> for NamedKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, app).await {
            Ok(Path(key)) => Ok(Self(key)),
            Err(wrong) => Err(Problem::new(Kind::InvalidQuery, wrong.body_text())),
        }
    }
}

/// Which ledger.
#[derive(Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[schema(as = NamedLedger)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    /// The ledger's name; the token's own namespace, or `default`, unless it is said.
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
    commands: Option<Vec<ShownCommand>>,
    /// Its name: the same name again is the same transaction. One is drawn unless it is said.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    tx_id: Option<String>,
    /// How long to wait for what becomes of it: `15s` unless it is said, `25s` at most.
    #[schema(value_type = Option<WaitText>)]
    timeout: Option<Wait>,
}

/// A look: a `goal` over facts, or `commands` over values. What these would change is not changed.
#[derive(Deserialize, ToSchema)]
#[schema(as = LedgerRead)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadForm {
    pub(super) namespace: Option<String>,
    #[schema(min_length = 1, max_length = 65536)]
    goal: Option<String>,
    #[schema(min_items = 1, max_items = 64)]
    commands: Option<Vec<ShownCommand>>,
    #[serde(default)]
    pub(super) how: HowWord,
    /// How long to look for whoever leads: `15s` unless it is said, `25s` at most.
    #[schema(value_type = Option<WaitText>)]
    timeout: Option<Wait>,
}

/// How fresh an answer must be: what this node has (`local`), or all that was acknowledged before the question, by asking
/// a majority (`quorum`) or by the leader's lease (`lease`).
#[derive(Clone, Copy, Default, Deserialize, ToSchema)]
#[schema(as = LedgerHow)]
#[serde(rename_all = "lowercase")]
pub(super) enum HowWord {
    Local,
    #[default]
    Quorum,
    Lease,
}

/// Somebody who becomes a member, or of whom something else is said from now on.
#[derive(Deserialize, ToSchema)]
#[schema(as = NewMember)]
#[serde(deny_unknown_fields)]
pub(super) struct MemberForm {
    pub(super) namespace: Option<String>,
    #[schema(pattern = "^[0-9a-f]{64}$")]
    key: String,
    /// Where it listens: a host and a port.
    #[schema(min_length = 3, max_length = 64)]
    address: String,
    /// What people call it; the first digits of its key unless it is said.
    #[schema(min_length = 1, max_length = 64)]
    name: Option<String>,
    /// Whether it shall vote; it shall unless it is said. Who does not, learns.
    votes: Option<bool>,
}

/// Who shall lead.
#[derive(Deserialize, ToSchema)]
#[schema(as = StepDown)]
#[serde(deny_unknown_fields)]
pub(super) struct StepDownForm {
    pub(super) namespace: Option<String>,
    /// The key of a voter; whoever has come furthest unless it is said.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    to: Option<String>,
}

impl TransactionForm {
    pub(super) fn wanted(&mut self) -> Result<Wanted, Problem> {
        wanted(self.goal.take(), self.commands.take())
    }

    pub(super) fn tx_id(&self) -> Result<Option<TxId>, Problem> {
        let Some(text) = &self.tx_id else { return Ok(None) };
        let is_written_so = text.len() == 32 && !text.contains('+');
        let number = u128::from_str_radix(text, 16).ok().filter(|_| is_written_so);
        let strange = || invalid("tx_id: expected 32 hexadecimal digits");
        number.map(|number| Some(TxId(number))).ok_or_else(strange)
    }

    pub(super) fn timeout(&self) -> Result<Duration, Problem> {
        timeout(self.timeout.as_ref())
    }
}

impl ReadForm {
    pub(super) fn wanted(&mut self) -> Result<Wanted, Problem> {
        wanted(self.goal.take(), self.commands.take())
    }

    pub(super) fn timeout(&self) -> Result<Duration, Problem> {
        timeout(self.timeout.as_ref())
    }
}

impl MemberForm {
    pub(super) fn member(self) -> Result<(PublicKey, Member), Problem> {
        let Self { key, address, name, votes, .. } = self;
        let key = read_key("key", &key)?;
        let has_port = address
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0));
        if !has_port || address.contains(char::is_whitespace) {
            return Err(invalid("address: expected a host and a port, such as one.example.org:4848"));
        }
        let short = || key.to_string().chars().take(SHORT_KEY).collect();
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(short);
        for (what, text) in [("name", &name), ("address", &address)] {
            input::check_text(what, text, MAX_NAME_BYTES).map_err(invalid)?;
            if text.len() > MAX_NAME_BYTES {
                return Err(invalid(format!("{what}: expected at most {MAX_NAME_BYTES} bytes")));
            }
        }
        Ok((key, Member { name, address, votes: votes.unwrap_or(true), life: None }))
    }
}

impl StepDownForm {
    pub(super) fn to(&self) -> Result<Option<PublicKey>, Problem> {
        self.to.as_deref().map(|to| read_key("to", to)).transpose()
    }
}

impl From<HowWord> for How {
    fn from(word: HowWord) -> Self {
        match word {
            HowWord::Local => Self::Local,
            HowWord::Quorum => Self::Quorum,
            HowWord::Lease => Self::Lease,
        }
    }
}

pub(super) fn read_key(what: &str, text: &str) -> Result<PublicKey, Problem> {
    text.parse().map_err(|why| invalid(format!("{what}: {why}")))
}

pub(super) fn usual_wait() -> Duration {
    USUAL_WAIT
}

fn wanted(goal: Option<String>, commands: Option<Vec<ShownCommand>>) -> Result<Wanted, Problem> {
    match (goal, commands) {
        (Some(goal), None) => goal.parse().map(Either::First).map_err(|why| invalid(format!("goal: {why}"))),
        (None, Some(commands)) => {
            let read = |(place, command): (usize, ShownCommand)| {
                command.read().map_err(|why| invalid(format!("commands[{place}]: {why}")))
            };
            Ok(Either::Second(commands.into_iter().enumerate().map(read).collect::<Result<_, _>>()?))
        }
        (Some(_), Some(_)) => Err(invalid("expected `goal` or `commands`, and there are both")),
        (None, None) => Err(invalid("expected `goal`, a text, or `commands`, a list")),
    }
}

fn timeout(said: Option<&Wait>) -> Result<Duration, Problem> {
    let wait = said.map_or(USUAL_WAIT, |Wait(wait)| *wait);
    if wait > LONGEST_WAIT {
        return Err(invalid(format!("timeout: at most {}s", LONGEST_WAIT.as_secs())));
    }
    Ok(wait)
}

fn invalid(why: impl Into<String>) -> Problem {
    Problem::new(Kind::InvalidBody, why)
}
