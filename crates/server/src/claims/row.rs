//! The ledger rows of a signal: the claim, and the number of signals that it stands for.

use std::time::Duration;

use holdoff_ledger::machine::{Command, Commands, Either, Failed, Key, Value, Values};
use holdoff_ledger::{How, Outcome, TxId};
use holdoff_work::{Fingerprint, TaskId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::pauses::Pauses;
use crate::ledgers::Node;
use crate::problem::{Kind, Problem};

/// The name prefixes of claims and of their counts. The digest follows.
const CLAIMS: &str = "holdoff/signal/";
const COUNTS: &str = "holdoff/signals/";
/// The timeout of the ledger for one answer. The sender of a signal stops waiting sooner.
const PATIENCE: Duration = Duration::from_secs(8);
/// The number of claims in one read.
const PAGE: u32 = 500;

/// The row of a claim.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Row(String);

/// A daemon's claim that it has, or is about to create, the task of a signal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Claim {
    /// The key of the daemon's node.
    daemon: String,
    /// A random value that makes each claim distinct.
    mark: Uuid,
    pub(super) namespace: String,
    fingerprint: String,
    /// `None` while the task is being created.
    task: Option<TaskId>,
}

/// The key of the node of another daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Elsewhere(pub(crate) String);

/// The result of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Said {
    Done(Values),
    /// The claim was not as expected: nothing has changed.
    Differs,
}

impl Claim {
    pub(super) fn new(node: &Node, namespace: &str, fingerprint: Fingerprint) -> Result<Self, Problem> {
        let TxId(mark) = Node::new_tx_id()?;
        Ok(Self {
            daemon: node.key().to_string(),
            mark: Uuid::from_u128(mark),
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

    pub(super) fn task(&self) -> Option<(TaskId, Elsewhere)> {
        Some((self.task?, Elsewhere(self.daemon.clone())))
    }

    pub(super) fn is_made(&self) -> bool {
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
        let text = serde_json::to_string(self).map_err(broken)?;
        Value::text(text).map_err(broken)
    }
}

impl Row {
    pub(super) fn of(namespace: &str, fingerprint: Fingerprint) -> Self {
        Self(Fingerprint::of([namespace.as_bytes(), fingerprint.as_bytes()]).to_string())
    }

    fn claim(&self) -> Result<Key, Problem> {
        Key::new(format!("{CLAIMS}{}", self.0)).map_err(broken)
    }

    fn count_key(&self) -> Result<Key, Problem> {
        Key::new(format!("{COUNTS}{}", self.0)).map_err(broken)
    }

    /// Reads the claim from this node's copy, which may be stale.
    pub(super) async fn at_hand(&self, node: &Node) -> Result<Option<(Value, Claim)>, Problem> {
        let (_, answer) =
            node.read(Either::Second(vec![Command::Get(self.claim()?)]), How::Local, PATIENCE).await?;
        let values = match answer.map_err(broken)? {
            Either::Second(values) => values,
            Either::First(_) => return Ok(None),
        };
        Ok(read(values.into_iter().next().flatten()))
    }

    /// Reads the claim by a transaction, which is ordered after all earlier changes.
    pub(super) async fn newest(&self, node: &Node) -> Result<Option<(Value, Claim)>, Problem> {
        match submit(node, vec![Command::Get(self.claim()?)]).await? {
            Said::Done(values) => Ok(read(values.into_iter().next().flatten())),
            Said::Differs => Ok(None),
        }
    }

    /// Takes the claim if it is unchanged since it was read, and sets its count to one.
    pub(super) async fn take(
        &self,
        node: &Node,
        before: Option<Value>,
        claim: &Claim,
    ) -> Result<Said, Problem> {
        let take = Command::CompareAndSet { key: self.claim()?, expected: before, new: Some(claim.value()?) };
        submit(node, vec![take, Command::Put(self.count_key()?, Value::Integer(1))]).await
    }

    /// Replaces this claim by another. `None` releases the claim and deletes its count.
    pub(super) async fn change(
        &self,
        node: &Node,
        from: &Claim,
        to: Option<&Claim>,
    ) -> Result<Said, Problem> {
        let new = to.map(Claim::value).transpose()?;
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
        let is_still =
            Command::CompareAndSet { key: self.claim()?, expected: expected.clone(), new: expected };
        match submit(node, vec![is_still, Command::Increment(self.count_key()?, 1)]).await? {
            Said::Done(values) => Ok(values.into_iter().nth(1).flatten().and_then(|count| match count {
                Value::Integer(count) => u64::try_from(count).ok(),
                _ => None,
            })),
            Said::Differs => Ok(None),
        }
    }
}

/// Returns the lock that a daemon holds while it is alive.
pub(super) fn lock_of(daemon: &str) -> String {
    format!("daemon:{daemon}")
}

/// Returns all claims of this node's daemon, as far as the node knows.
pub(super) async fn own(node: &Node) -> Result<Vec<(Row, Claim)>, Problem> {
    let prefix = Key::new(CLAIMS).map_err(broken)?;
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let list = Command::List { prefix: Some(prefix.clone()), after: after.take(), most: PAGE };
        let (_, answer) = node.read(Either::Second(vec![list]), How::Local, PATIENCE).await?;
        let Either::Second(values) = answer.map_err(broken)? else { return Ok(found) };
        for pair in values.chunks_exact(2) {
            let [Some(Value::Text(name)), Some(value)] = pair else { break };
            after = Some(Key::new(name.as_str()).map_err(broken)?);
            let row = name.as_str().strip_prefix(CLAIMS).map(|digest| Row(digest.to_owned()));
            found.extend(row.zip(Claim::read(value).filter(|claim| claim.is_of(node))));
        }
        if after.is_none() {
            return Ok(found);
        }
    }
}

fn read(value: Option<Value>) -> Option<(Value, Claim)> {
    let value = value?;
    let claim = Claim::read(&value)?;
    Some((value, claim))
}

/// Submits a transaction and repeats it until its outcome is known.
async fn submit(node: &Node, commands: Commands) -> Result<Said, Problem> {
    let (tx_id, mut pauses) = (Node::new_tx_id()?, Pauses::up_to(PATIENCE));
    loop {
        match node.submit(tx_id, Either::Second(commands.clone()), PATIENCE).await? {
            Outcome::Committed { result: Either::Second(values), .. } => return Ok(Said::Done(values)),
            Outcome::Failed { why: Failed::Differs { .. }, .. } => return Ok(Said::Differs),
            Outcome::Failed { why, .. } => return Err(broken(why)),
            Outcome::NoQuorum | Outcome::TooMany => {
                return Err(Problem::unavailable("the ledger that signals are counted in has no leader now"));
            }
            // A repetition under the same id is the same transaction.
            _ => pauses.wait().await,
        }
    }
}

fn broken(why: impl std::fmt::Display) -> Problem {
    tracing::error!(%why, "a claim of a signal");
    Problem::new(Kind::Internal, "the log says more, under this request's id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_read_as_it_was_written() {
        let fingerprint = Fingerprint::of(["disk", "full"]);
        let claim = Claim {
            daemon: "00".repeat(32),
            mark: Uuid::from_u128(7),
            namespace: "eu".to_owned(),
            fingerprint: fingerprint.to_string(),
            task: None,
        };
        let made = claim.with(TaskId::from_uuid(Uuid::from_u128(8)));
        for claim in [claim, made] {
            let read = Claim::read(&claim.value().unwrap()).unwrap();
            assert_eq!((read.fingerprint(), read), (Some(fingerprint), claim));
        }
        assert_eq!(Claim::read(&Value::Integer(1)), None);
        assert_ne!(Row::of("eu", fingerprint), Row::of("us", fingerprint));
    }
}
