//! The ledger rows of a signal: the claim, and the number of signals that it stands for.

use std::time::Duration;

use holdoff_ledger::machine::{Command, Commands, Either, GoalError, Key, Value, Values};
use holdoff_ledger::{Consistency, Outcome, TxId, TxKey};
use holdoff_work::{Fingerprint, TaskId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ledgers::Node;
use crate::problem::{Kind, Problem};

/// The name prefixes of claims and of their counts. The digest follows.
const CLAIMS: &str = "holdoff/signal/";
const COUNTS: &str = "holdoff/signals/";
/// The timeout of the ledger for one answer. The sender of a signal stops waiting sooner.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(8);
/// The number of claims in one read.
const PAGE: u32 = 500;

/// The row of a claim.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct ClaimKey(String);

/// A daemon's claim that it has, or is about to create, the task of a signal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct SignalClaim {
    /// The key of the daemon's node.
    daemon: String,
    /// A random value that makes each claim distinct.
    nonce: Uuid,
    pub(super) namespace: String,
    fingerprint: String,
    /// `None` while the task is being created.
    task: Option<TaskId>,
}

/// The key of the node of another daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RemoteDaemon(pub(crate) String);

/// The result of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ChangeOutcome {
    Applied(Values),
    /// The claim was not as expected: nothing has changed.
    Conflict,
}

impl SignalClaim {
    pub(super) fn new(node: &Node, namespace: &str, fingerprint: Fingerprint) -> Result<Self, Problem> {
        let TxKey { id: TxId(nonce), .. } = node.new_tx()?;
        Ok(Self {
            daemon: node.key().to_string(),
            nonce: Uuid::from_u128(nonce),
            namespace: namespace.to_owned(),
            fingerprint: fingerprint.to_string(),
            task: None,
        })
    }

    /// Returns the same claim, with its task.
    pub(super) fn with(&self, task: TaskId) -> Self {
        Self { task: Some(task), ..self.clone() }
    }

    pub(super) fn is_of(&self, node: &Node) -> bool {
        self.daemon == node.key().to_string()
    }

    pub(super) fn is_for(&self, node: &Node, task: TaskId) -> bool {
        self.is_of(node) && self.task == Some(task)
    }

    pub(super) fn task(&self) -> Option<(TaskId, RemoteDaemon)> {
        Some((self.task?, RemoteDaemon(self.daemon.clone())))
    }

    pub(super) fn has_task(&self) -> bool {
        self.task.is_some()
    }

    /// Returns the lock that the claim's daemon holds while it is alive.
    pub(super) fn lock(&self) -> String {
        lock_of(&self.daemon)
    }

    pub(super) fn fingerprint(&self) -> Option<Fingerprint> {
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(self.fingerprint.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Fingerprint::from_bytes(bytes)).filter(|_| self.fingerprint.len() == 64)
    }

    fn read(value: &Value) -> Option<Self> {
        let Value::Text(text) = value else { return None };
        serde_json::from_str(text.as_str()).ok()
    }

    fn value(&self) -> Result<Value, Problem> {
        let text = serde_json::to_string(self).map_err(internal)?;
        Value::text(text).map_err(internal)
    }
}

impl ClaimKey {
    pub(super) fn of(namespace: &str, fingerprint: Fingerprint) -> Self {
        Self(Fingerprint::of([namespace.as_bytes(), fingerprint.as_bytes()]).to_string())
    }

    fn claim(&self) -> Result<Key, Problem> {
        Key::new(format!("{CLAIMS}{}", self.0)).map_err(internal)
    }

    fn count_key(&self) -> Result<Key, Problem> {
        Key::new(format!("{COUNTS}{}", self.0)).map_err(internal)
    }

    /// Reads the claim from this node's copy, which may be stale.
    pub(super) async fn read_local(&self, node: &Node) -> Result<Option<(Value, SignalClaim)>, Problem> {
        let (_, answer) = node
            .read(Either::Second(vec![Command::Get(self.claim()?)]), Consistency::Local, LEDGER_TIMEOUT)
            .await?;
        let values = match answer.map_err(internal)? {
            Either::Second(values) => values,
            Either::First(_) => return Ok(None),
        };
        Ok(read(values.into_iter().next().flatten()))
    }

    /// Reads the claim by a transaction, which is ordered after all earlier changes.
    pub(super) async fn read_latest(&self, node: &Node) -> Result<Option<(Value, SignalClaim)>, Problem> {
        match submit(node, vec![Command::Get(self.claim()?)]).await? {
            ChangeOutcome::Applied(values) => Ok(read(values.into_iter().next().flatten())),
            ChangeOutcome::Conflict => Ok(None),
        }
    }

    /// Takes the claim if it is unchanged since it was read, and sets its count to one.
    pub(super) async fn acquire(
        &self,
        node: &Node,
        before: Option<Value>,
        claim: &SignalClaim,
    ) -> Result<ChangeOutcome, Problem> {
        let acquire =
            Command::CompareAndSet { key: self.claim()?, expected: before, new: Some(claim.value()?) };
        submit(node, vec![acquire, Command::Put(self.count_key()?, Value::Integer(1))]).await
    }

    /// Replaces this claim by another. `None` releases the claim and deletes its count.
    pub(super) async fn replace(
        &self,
        node: &Node,
        from: &SignalClaim,
        to: Option<&SignalClaim>,
    ) -> Result<ChangeOutcome, Problem> {
        let new = to.map(SignalClaim::value).transpose()?;
        let is_over = new.is_none();
        let mut commands =
            vec![Command::CompareAndSet { key: self.claim()?, expected: Some(from.value()?), new }];
        if is_over {
            commands.push(Command::Delete(self.count_key()?));
        }
        submit(node, commands).await
    }

    /// Increments the count of this claim. Returns the new count, or `None` if the claim has changed.
    pub(super) async fn count(&self, node: &Node, claim: Value) -> Result<Option<u64>, Problem> {
        let expected = Some(claim);
        let is_unchanged =
            Command::CompareAndSet { key: self.claim()?, expected: expected.clone(), new: expected };
        match submit(node, vec![is_unchanged, Command::Increment(self.count_key()?, 1)]).await? {
            ChangeOutcome::Applied(values) => {
                Ok(values.into_iter().nth(1).flatten().and_then(|count| match count {
                    Value::Integer(count) => u64::try_from(count).ok(),
                    _ => None,
                }))
            }
            ChangeOutcome::Conflict => Ok(None),
        }
    }
}

/// Returns the lock that a daemon holds while it is alive.
pub(super) fn lock_of(daemon: &str) -> String {
    format!("daemon:{daemon}")
}

/// Returns all claims of this node's daemon, as far as the node knows.
pub(super) async fn own(node: &Node) -> Result<Vec<(ClaimKey, SignalClaim)>, Problem> {
    let prefix = Key::new(CLAIMS).map_err(internal)?;
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let list = Command::List { prefix: Some(prefix.clone()), after: after.take(), most: PAGE };
        let (_, answer) = node.read(Either::Second(vec![list]), Consistency::Local, LEDGER_TIMEOUT).await?;
        let Either::Second(values) = answer.map_err(internal)? else { return Ok(found) };
        for pair in values.chunks_exact(2) {
            let [Some(Value::Text(name)), Some(value)] = pair else { break };
            after = Some(Key::new(name.as_str()).map_err(internal)?);
            let key = name.as_str().strip_prefix(CLAIMS).map(|digest| ClaimKey(digest.to_owned()));
            found.extend(key.zip(SignalClaim::read(value).filter(|claim| claim.is_of(node))));
        }
        if after.is_none() {
            return Ok(found);
        }
    }
}

fn read(value: Option<Value>) -> Option<(Value, SignalClaim)> {
    let value = value?;
    let claim = SignalClaim::read(&value)?;
    Some((value, claim))
}

/// Submits a transaction, and returns its effect.
async fn submit(node: &Node, commands: Commands) -> Result<ChangeOutcome, Problem> {
    let (tx, goal) = (node.new_tx()?, Either::Second(commands));
    match node.submit_until_known(tx, goal, LEDGER_TIMEOUT).await? {
        Outcome::Committed { result: Either::Second(values), .. } => Ok(ChangeOutcome::Applied(values)),
        Outcome::Failed { why: GoalError::Differs { .. }, .. } => Ok(ChangeOutcome::Conflict),
        Outcome::Failed { why, .. } => Err(internal(why)),
        Outcome::NoQuorum | Outcome::TooMany | Outcome::Overtaken { .. } => {
            Err(Problem::unavailable("the ledger that counts signals has no leader, or is overloaded"))
        }
        Outcome::Expired { .. } => Err(Problem::unavailable(
            "the ledger that counts signals did not answer in time: the signal may have been counted",
        )),
        other => Err(internal(format!("unexpected outcome of a transaction: {other:?}"))),
    }
}

fn internal(why: impl std::fmt::Display) -> Problem {
    tracing::error!(%why, "failed to process the claim of a signal");
    Problem::new(Kind::Internal, "internal error; the log has the details under this request's id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_survives_a_round_trip() {
        let fingerprint = Fingerprint::of(["disk", "full"]);
        let claim = SignalClaim {
            daemon: "00".repeat(32),
            nonce: Uuid::from_u128(7),
            namespace: "eu".to_owned(),
            fingerprint: fingerprint.to_string(),
            task: None,
        };
        let with_task = claim.with(TaskId::from_uuid(Uuid::from_u128(8)));
        for claim in [claim, with_task] {
            let read = SignalClaim::read(&claim.value().unwrap()).unwrap();
            assert_eq!((read.fingerprint(), read), (Some(fingerprint), claim));
        }
        assert_eq!(SignalClaim::read(&Value::Integer(1)), None);
        assert_ne!(ClaimKey::of("eu", fingerprint), ClaimKey::of("us", fingerprint));
    }
}
