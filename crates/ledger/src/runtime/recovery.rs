//! Recovery after a majority of the voters is lost for good: an operator's explicit act on the directory of a stopped
//! node.
//!
//! The node takes its whole log as decided, and appends two entries: a configuration of which it is the only voter, and a
//! transaction that names the lost voters, the last index of the node's log, and the operator's comment. Both are on disk in
//! one transaction before the act ends.

use std::path::Path;

use holdoff_driver::{Driver, WriteOptions};
use holdoff_net::{NoRandomness, PublicKey, SecretKey};
use holdoff_paxos::log::{Entry, EntryPayload, Record, Term};
use holdoff_paxos::{Configuration, NodeId, Slot};

use super::identity::NodeNotary;
use super::roster::MembershipChange;
use super::store::{LedgerInfo, Store};
use super::{DefaultMachine, Error, NodeState, host};
use crate::entry::{TxId, TxKey};
use crate::ledger::{Input, Ledger, Options, Outcome, Output, Recovered, Refounding, SubmissionId};
use crate::machine::Either;

/// The interval of the core's ticks, and the time after which it must have committed the transaction of a recovery.
const TICK_US: usize = 25_000;
const LIMIT_US: u64 = 60_000_000;

/// The log of a stopped node, by which an operator finds the node with the longest history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogPosition {
    /// The key of the node.
    pub key: PublicKey,
    /// The first index of the node's configuration, and the attempt and the tie-breaker of the term in which it accepted its
    /// log under it: 0 if it has not. The highest position counts, compared from the first number on.
    pub accepted: (Slot, u64, u64),
    /// The last index of the log. Among nodes that accepted it in the same term, the longer log counts.
    pub last: Slot,
    /// The voters after that index, as the roster names them. A voter that is not in the roster has no key.
    pub voters: Vec<(NodeId, Option<PublicKey>, String)>,
}

/// An operator's decision to recover a ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// The voters that are lost for good: so many that the others are no majority.
    pub lost: Vec<PublicKey>,
    /// The last index of the node's log, which [`log_position`] returns. Transactions after it may be lost.
    pub through: Slot,
    /// The reason, for the history.
    pub comment: String,
}

/// The reason why a ledger is not recovered. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoveryRejection {
    /// The confirmed index is not the last one.
    #[error(
        "the log ends at index {0}, which is not the confirmed index: check what may be lost, and confirm {0}"
    )]
    OtherIndex(Slot),
    /// A named voter does not vote.
    #[error("{0} is not one of the other voters: run the command without a lost voter to list them")]
    NotAVoter(PublicKey),
    /// The other voters are a majority.
    #[error("{left} of {voters} voters are left, which is a majority: start them instead")]
    MajorityLeft {
        /// The voters that are not lost.
        left: usize,
        /// All voters.
        voters: usize,
    },
    /// The new configuration could not commit the transaction.
    #[error("the roster does not accept the recovery: {0}")]
    NotCommitted(String),
}

/// A stopped node.
struct StoppedNode {
    key: SecretKey,
    store: Store,
    info: LedgerInfo,
    id: NodeId,
    accepted: (Slot, u64, u64),
    recovered: Recovered<NodeState<DefaultMachine>>,
}

impl StoppedNode {
    fn open(data: &Path, namespace: &str) -> Result<Self, Error> {
        let (key, store) = host::open_existing(data, namespace)?;
        let info = store.ledger_info()?.ok_or_else(|| host::unknown(data, namespace))?;
        let mut recovered = store.recover(&info)?;
        let id = NodeId::derive(key.public().as_bytes(), store.incarnation());
        let accepted = match recovered.store.accepted() {
            term if term.start() < recovered.store.start() => (recovered.store.start(), 0, 0),
            term => (term.start(), term.attempt(), term.tie_breaker()),
        };
        // An entry that was not decided cannot be overwritten any more once its log founds a configuration.
        recovered.store.apply(Record::Decided(recovered.store.last()));
        Ok(Self { key, store, info, id, accepted, recovered })
    }

    fn core(&self) -> Result<Ledger<NodeState<DefaultMachine>, NodeNotary>, Error> {
        let notary = NodeNotary::new(self.info.ledger, self.key.clone(), self.store.incarnation());
        let Recovered { store, content, refounded, .. } = &self.recovered;
        let (store, content, refounded) = (store.clone(), content.clone(), *refounded);
        let recovered = Recovered { store, content, refounded, incomplete: None };
        Ok(Ledger::new(self.id, Options::default(), notary, recovered, 0, 0)?)
    }

    fn position(&self) -> Result<LogPosition, Error> {
        let (log, core) = (&self.recovered.store, self.core()?);
        let roster = &core.state().machine().first;
        let voter = |id: &NodeId| {
            let member = roster.iter().find(|(key, member)| member.id(key) == Some(*id));
            let name = member.map_or(String::new(), |(_, member)| member.name.clone());
            (*id, member.map(|(key, _)| *key), name)
        };
        Ok(LogPosition {
            key: self.key.public(),
            accepted: self.accepted,
            last: log.last(),
            voters: log.configuration().acceptors().iter().map(voter).collect(),
        })
    }

    fn check(&self, recovery: &Recovery) -> Result<(), Error> {
        let LogPosition { last, voters, key, .. } = self.position()?;
        if recovery.through != last {
            return Err(RecoveryRejection::OtherIndex(last).into());
        }
        let votes = |lost: &PublicKey| voters.iter().any(|(_, key, _)| *key == Some(*lost));
        if let Some(other) = recovery.lost.iter().find(|lost| **lost == key || !votes(lost)) {
            return Err(RecoveryRejection::NotAVoter(*other).into());
        }
        let is_left =
            |(_, key, _): &&(_, Option<PublicKey>, _)| !key.is_some_and(|key| recovery.lost.contains(&key));
        let left = voters.iter().filter(is_left).count();
        if left > voters.len() / 2 {
            return Err(RecoveryRejection::MajorityLeft { left, voters: voters.len() }.into());
        }
        Ok(())
    }

    /// Returns the records that found the new configuration.
    fn founding_records(&self) -> Result<Vec<crate::ledger::Record<NodeState<DefaultMachine>>>, Error> {
        let log = &self.recovered.store;
        let attempt = log.promised().attempt().max(log.accepted().attempt()).saturating_add(1);
        let (term, slot) = (Term::new(log.start(), attempt, self.id), log.last().next());
        let voters = Configuration::new([self.id]).map_err(holdoff_disk::DiskError::new)?;
        Ok(vec![
            Record::Promised(term.into()),
            Record::Decided(log.last()),
            Record::Entry { slot, entry: Entry { term, payload: EntryPayload::Configuration(voters) } },
            Record::Accepted { term, last: slot },
            Record::Decided(slot),
        ])
    }

    fn recover(mut self, recovery: Recovery) -> Result<Slot, Error> {
        let mut records = self.founding_records()?;
        for record in &records {
            self.recovered.store.apply(record.clone());
        }
        self.recovered.refounded = Some(Refounding { start: self.recovered.store.start(), by: self.id });
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(NoRandomness::from)?;
        let core = self.core()?;
        let tx = TxKey { id: TxId(u128::from_be_bytes(id)), birth: core.state().index() };
        let Recovery { lost, through, comment } = recovery;
        let mut goal = Some(Either::First(MembershipChange::Recover { lost, through, comment }));
        let mut driver = Driver::new(core, WriteOptions::default());
        for now_us in (0..LIMIT_US).step_by(TICK_US) {
            driver.step(now_us, &mut || 0, Input::Tick);
            if driver.core().is_ready()
                && let Some(goal) = goal.take()
            {
                let submission = SubmissionId(0);
                driver.step(now_us, &mut || 0, Input::Submit { submission, tx, goal, deadline_us: LIMIT_US });
            }
            let Ok(()) = driver.write_through(now_us, &mut || 0, |more| {
                records.extend(more);
                Ok::<_, std::convert::Infallible>(())
            });
            for output in driver.take_outputs() {
                match output {
                    Output::Ended(_, Outcome::Committed { index, .. }) => {
                        let refounded = self.recovered.refounded;
                        self.store.refound(&LedgerInfo { refounded, ..self.info }, records)?;
                        return Ok(index);
                    }
                    Output::Ended(_, other) => {
                        return Err(RecoveryRejection::NotCommitted(format!("{other:?}")).into());
                    }
                    _ => {}
                }
            }
        }
        Err(RecoveryRejection::NotCommitted("no leader within a minute of its own time".to_owned()).into())
    }
}

/// Returns the position of a stopped node's log.
pub fn log_position(data: &Path, namespace: &str) -> Result<LogPosition, Error> {
    StoppedNode::open(data, namespace)?.position()
}

/// Makes a stopped node the only voter of its ledger. Returns the index of the entry that records the act.
///
/// Transactions that the lost voters committed after the node's last index are lost. Entries of the node's log that were not
/// committed are committed now. Use it only if the lost voters never return, on the node whose [`log_position`] is the latest.
pub fn recover(data: &Path, namespace: &str, recovery: Recovery) -> Result<Slot, Error> {
    let node = StoppedNode::open(data, namespace)?;
    node.check(&recovery)?;
    node.recover(recovery)
}
