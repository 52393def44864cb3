//! The JSON representation of ledgers: their status and the entries of their history.

mod value;

use holdoff_ledger::machine::{Command, Either, GoalError, RowChange};
use holdoff_ledger::runtime::{
    AnswerOf, DefaultMachine, GoalOf, HistoryEntry, LedgerMember, LedgerStatus, MemberStatus,
    MembershipChange, NodeState, Role,
};
use holdoff_ledger::{EntryPayload, Term, TransactionOf};
use serde::Serialize;
use utoipa::ToSchema;

use crate::ledgers::Ledgers;
use value::{AnswerView, is_own_key};

pub(crate) use value::{CommandView, ResultView, ValueView, read_key};

/// The status of this daemon's node of a ledger. Before the node has joined, most fields are unknown.
#[derive(Serialize, ToSchema)]
#[schema(as = Ledger)]
pub(crate) struct LedgerView {
    namespace: String,
    /// The contact of this node for other nodes, as one word: the key and the address.
    contact: String,
    /// The key of this node.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    key: String,
    /// `leader`, `follower`, `candidate` (no leader is known), `learner` (without a vote), or `joining`.
    role: &'static str,
    /// The id of the ledger.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    ledger: Option<String>,
    /// The id of this node: its key and the incarnation of its storage.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    node: Option<String>,
    leader: Option<LeaderView>,
    term: Option<TermView>,
    /// The time since the last change of the leader, in milliseconds.
    leader_for_ms: Option<u64>,
    /// The index of the last applied entry.
    index: Option<u64>,
    /// The hash of that entry and all entries before it.
    #[schema(pattern = "^[0-9a-f]{64}$")]
    hash: Option<String>,
    /// The hash of the state.
    state_hash: Option<String>,
    /// The last index that a majority has signed.
    certified: Option<u64>,
    /// The number of pending transactions of this node.
    pending: Option<usize>,
    members: Vec<MemberView>,
    counts: Option<CountsView>,
}

/// The leader.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerLeader)]
struct LeaderView {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    key: String,
    name: Option<String>,
}

/// A term: its first index, and the number of the election attempt.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerTerm)]
pub(crate) struct TermView {
    pub(crate) start: u64,
    pub(crate) attempt: u64,
}

/// A member, and its status as known to this node.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerMember)]
struct MemberView {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    key: String,
    name: String,
    address: String,
    /// Whether the member votes now.
    votes: bool,
    /// Whether the member should vote, according to its membership.
    should_vote: bool,
    /// Whether the node has heard from the member recently.
    reachable: bool,
    /// The last applied index that the member reported recently.
    index: Option<u64>,
    /// The distance from the highest known index.
    lag: Option<u64>,
}

/// Counters of a node since its start.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerCounts)]
struct CountsView {
    /// Changes of the leader.
    leader_changes: u64,
    /// Transactions rerouted to another leader.
    rerouted: u64,
    /// Messages from unknown senders.
    unknown_senders: u64,
    /// Malformed messages.
    malformed: u64,
    /// Gossip with an invalid signature.
    forged_gossip: u64,
    /// Signature shares with an invalid signature.
    forged_signatures: u64,
    /// Certificates without valid signatures of a majority.
    forged_certificates: u64,
    /// Rejected histories and states: tampered with, or not connected to the local history.
    tampered: u64,
    /// Transactions whose result did not arrive in time.
    late: u64,
    /// Requests to other nodes for missing entries.
    fetches: u64,
    /// Histories and states sent to other nodes.
    served: u64,
    /// Divergences: another node had another hash at the same index.
    diverged: u64,
    /// Suspicions of the leader.
    suspected: u64,
    gossip_messages: u64,
    gossip_bytes: u64,
}

impl LedgerView {
    /// Returns the representation of a ledger that this node has joined.
    pub(crate) fn joined(ledgers: &Ledgers, status: &LedgerStatus) -> Self {
        let name = |key| status.members.iter().find(|member| member.key == key);
        let (start, attempt) = status.term;
        let highest = highest(status);
        Self {
            role: role(status.role),
            ledger: Some(status.ledger.to_string()),
            node: Some(format!("{:032x}", status.node.0)),
            leader: status.leader.map(|key| LeaderView {
                key: key.to_string(),
                name: name(key).map(|member| member.member.name.clone()),
            }),
            term: Some(TermView { start: start.0, attempt }),
            leader_for_ms: Some(u64::try_from(status.tenure.as_millis()).unwrap_or(u64::MAX)),
            index: Some(status.head.index.0),
            hash: Some(status.head.hash.to_string()),
            state_hash: Some(status.state_hash.to_string()),
            certified: Some(status.certified.0),
            pending: Some(status.pending),
            members: status.members.iter().map(|member| show_member(member, highest)).collect(),
            counts: Some(counts(status)),
            ..Self::joining(ledgers, &status.namespace)
        }
    }

    /// Returns the representation of a ledger to which no member has added this node yet.
    pub(crate) fn joining(ledgers: &Ledgers, namespace: &str) -> Self {
        let contact = ledgers.contact();
        Self {
            namespace: namespace.to_owned(),
            contact: contact.to_string(),
            key: contact.key.to_string(),
            role: "joining",
            ledger: None,
            node: None,
            leader: None,
            term: None,
            leader_for_ms: None,
            index: None,
            hash: None,
            state_hash: None,
            certified: None,
            pending: None,
            members: Vec::new(),
            counts: None,
        }
    }
}

/// Returns the highest index that the node knows of.
pub(crate) fn highest(status: &LedgerStatus) -> u64 {
    let heads = status.members.iter().filter_map(|member| member.head);
    heads.map(|head| head.index.0).max().unwrap_or(0).max(status.head.index.0)
}

/// Returns the word for a node's role.
pub(crate) const fn role(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Learner => "learner",
        _ => "candidate",
    }
}

fn show_member(status: &MemberStatus, highest: u64) -> MemberView {
    let index = status.head.map(|head| head.index.0);
    MemberView {
        key: status.key.to_string(),
        name: status.member.name.clone(),
        address: status.member.address.clone(),
        votes: status.votes,
        should_vote: status.member.votes,
        reachable: status.is_reachable,
        index,
        lag: index.map(|index| highest.saturating_sub(index)),
    }
}

fn counts(status: &LedgerStatus) -> CountsView {
    let (counts, core, hint) = (status.counts, status.core, status.hint);
    CountsView {
        leader_changes: core.leader_changes,
        rerouted: core.rerouted,
        unknown_senders: counts.unknown_senders,
        malformed: counts.malformed,
        forged_gossip: hint.forged,
        forged_signatures: core.forged_signatures,
        forged_certificates: core.forged_certificates,
        tampered: core.refused,
        late: core.late,
        fetches: core.fetches,
        served: core.served + core.states_served,
        diverged: counts.diverged,
        suspected: hint.suspected,
        gossip_messages: counts.gossip_messages,
        gossip_bytes: counts.gossip_bytes,
    }
}

impl From<Term> for TermView {
    fn from(term: Term) -> Self {
        Self { start: term.start().0, attempt: term.attempt() }
    }
}

type WrittenEntry = TransactionOf<NodeState<DefaultMachine>>;

/// An entry of the history.
#[derive(Serialize, ToSchema)]
#[schema(as = LedgerEntry)]
pub(crate) struct EntryView {
    index: u64,
    /// The term of the entry.
    term: TermView,
    /// `transaction`, `daemon` (locks or signals, without values and `tx_id`), `members` (a change of a member), `voters` (a
    /// new set of voters), or `no-op` (the first entry of a leader).
    kind: &'static str,
    #[schema(pattern = "^[0-9a-f]{32}$", nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    tx_id: Option<String>,
    /// The goal over facts, or a change of members as text.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<String>,
    /// The commands over values.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    commands: Option<Vec<CommandView>>,
    /// `committed`, or `failed` (the entry changed nothing).
    status: &'static str,
    #[schema(inline)]
    #[serde(flatten)]
    result: ResultView,
    /// The changes: a line for each removed (`-`) or added (`+`) row.
    diff: Vec<String>,
    /// The ids of the new voters.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    voters: Option<Vec<String>>,
    /// The hash of the previous entry.
    #[schema(pattern = "^[0-9a-f]{64}$", nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    prev_hash: Option<String>,
    /// The hash of the state after this entry.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    state_hash: Option<String>,
}

impl From<&HistoryEntry<DefaultMachine>> for EntryView {
    fn from(page: &HistoryEntry<DefaultMachine>) -> Self {
        let plain = Self {
            index: page.index.0,
            term: page.entry.term.into(),
            kind: "no-op",
            tx_id: None,
            goal: None,
            commands: None,
            status: "committed",
            result: ResultView::default(),
            diff: Vec::new(),
            voters: None,
            prev_hash: None,
            state_hash: None,
        };
        match &page.entry.payload {
            EntryPayload::NoOp => plain,
            EntryPayload::Configuration(voters) => {
                let ids = voters.acceptors().iter().map(|voter| format!("{:032x}", voter.0));
                Self { kind: "voters", voters: Some(ids.collect()), ..plain }
            }
            EntryPayload::Value(written) => plain.written(written),
        }
    }
}

impl EntryView {
    fn written(self, written: &WrittenEntry) -> Self {
        if is_own(written) {
            return Self {
                kind: "daemon",
                status: if written.result.is_ok() { "committed" } else { "failed" },
                diff: diff_lines(written),
                prev_hash: Some(written.prev_hash.to_string()),
                state_hash: Some(written.state_hash.to_string()),
                ..self
            };
        }
        let (kind, goal, commands) = match &written.goal {
            Either::First(_) => ("members", Some(goal_text(&written.goal)), None),
            Either::Second(Either::First(_)) => ("transaction", Some(goal_text(&written.goal)), None),
            Either::Second(Either::Second(commands)) => {
                ("transaction", None, Some(commands.iter().map(Into::into).collect()))
            }
        };
        Self {
            kind,
            goal,
            commands,
            tx_id: Some(written.tx_id.to_string()),
            status: if written.result.is_ok() { "committed" } else { "failed" },
            result: view_result(&written.result),
            diff: diff_lines(written),
            prev_hash: Some(written.prev_hash.to_string()),
            state_hash: Some(written.state_hash.to_string()),
            ..self
        }
    }
}

fn view_result(result: &Result<AnswerOf<DefaultMachine>, GoalError>) -> ResultView {
    match result {
        Ok(Either::First(())) => ResultView::default(),
        Ok(Either::Second(answer)) => ResultView::answered(answer),
        Err(why) => ResultView::failed(why),
    }
}

impl From<&<DefaultMachine as holdoff_ledger::machine::StateMachine>::Answer> for AnswerView {
    fn from(answer: &<DefaultMachine as holdoff_ledger::machine::StateMachine>::Answer) -> Self {
        match answer {
            Either::First(answer) => Self::Facts(answer.into()),
            Either::Second(values) => {
                Self::Values(values.iter().map(|value| value.as_ref().map(Into::into)).collect())
            }
        }
    }
}

/// Returns whether a transaction uses the rows that are reserved for daemons. These rows prove the ownership of locks.
/// So does the answer, which any caller that knows the transaction's id could request again.
pub(crate) fn is_own(written: &WrittenEntry) -> bool {
    let is_of_daemon = |command: &Command| match command {
        Command::Get(key) | Command::Put(key, _) | Command::Delete(key) | Command::Increment(key, _) => {
            is_own_key(key)
        }
        Command::CompareAndSet { key, .. } => is_own_key(key),
        // Only daemons can list rows.
        _ => true,
    };
    match &written.goal {
        Either::Second(Either::Second(commands)) => commands.iter().any(is_of_daemon),
        _ => false,
    }
}

/// Returns the goal as text.
pub(crate) fn goal_text(goal: &GoalOf<DefaultMachine>) -> String {
    match goal {
        Either::First(MembershipChange::Add(key, member)) => {
            format!("add member {}", member_text(key, member))
        }
        Either::First(MembershipChange::Connect(key, life)) => {
            format!("{key} appears with storage {life:016x}")
        }
        Either::First(MembershipChange::Remove(key)) => format!("remove member {key}"),
        Either::First(MembershipChange::Move(key, address)) => format!("{key} moves to {address}"),
        Either::First(MembershipChange::Recover { lost, through, comment }) => {
            let lost: Vec<_> = lost.iter().map(ToString::to_string).collect();
            format!("recover from the log up to {through} without {}: {comment}", lost.join(", "))
        }
        Either::Second(Either::First(goal)) => goal.to_string(),
        Either::Second(Either::Second(commands)) => {
            let text = |command| serde_json::to_string(&CommandView::from(command)).unwrap_or_default();
            commands.iter().map(text).collect::<Vec<_>>().join("\n")
        }
    }
}

/// Returns the lines of an entry's diff.
pub(crate) fn diff_lines(written: &WrittenEntry) -> Vec<String> {
    match &written.diff {
        Either::First(diff) => rows(diff, member_text),
        Either::Second(Either::First(diff)) => rows(diff, |fact, ()| fact.to_string()),
        Either::Second(Either::Second(diff)) => {
            rows(
                diff,
                |key, value| {
                    if is_own_key(key) { key.to_string() } else { format!("{key} = {value}") }
                },
            )
        }
    }
}

fn rows<'d, K: 'd, V: 'd>(
    changes: impl IntoIterator<Item = &'d RowChange<K, V>>,
    text: impl Fn(&K, &V) -> String,
) -> Vec<String> {
    let mut lines = Vec::new();
    for RowChange { key, before, after } in changes {
        lines.extend(before.as_ref().map(|before| format!("- {}", text(key, before))));
        lines.extend(after.as_ref().map(|after| format!("+ {}", text(key, after))));
    }
    lines
}

fn member_text(key: &holdoff_net::PublicKey, member: &LedgerMember) -> String {
    let LedgerMember { name, address, votes, .. } = member;
    format!("{key} ({name}) at {address}, {}", if *votes { "voting" } else { "without a vote" })
}
