//! Injected defects that the model and the simulation must find. They alter the inputs of a node or add inputs; the
//! production code knows nothing of them.

use holdoff_driver::{Core, Roll, StepOf};
use holdoff_testbed::fault::is_injected;

use super::election::Votes;
use super::node::Role;
use super::{EntrySize, Input, Message, Node};
use crate::{Configuration, NodeId, Slot};

/// A defect that a real system had, or that the correctness proof excludes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LogFault {
    /// A follower appends an entry without the log-matching check on the entry before it.
    AppendWithoutMatch,
    /// A leader decides an inherited entry by counting the replicas that hold it, although these replicas have not
    /// accepted the whole inherited log in the leader's term (compare figure 8 of the Raft paper).
    CommitInherited,
    /// A leader that sends entries before they are on its own disk counts itself as a replica that has stored them.
    CountUnstored,
    /// A voter compares the terms in which logs were accepted, although they belong to different configurations. Nodes
    /// ignore decided changes in refusals, too: each of the two rules prevents the consequence alone.
    CompareAcrossConfigurations,
    /// A candidate or leader ignores that a voter knows a later configuration.
    IgnoreDecidedChange,
    /// A candidate keeps its candidacy when its configuration changes, and counts votes among the new voters.
    KeepCandidacy,
}

/// A node with the injected defect, if there is one.
#[derive(Clone, Debug)]
pub(super) struct FaultyNode<V, S>(pub(super) Node<V, S>);

impl<V: Clone + EntrySize, S: Clone> Core for FaultyNode<V, S> {
    type Input = Input<V, S>;
    type Record = super::Record<V, S>;
    type Output = super::Output<V, S>;

    fn step(&mut self, now_us: u64, roll: Roll<'_>, input: Input<V, S>) -> StepOf<Self> {
        step(&mut self.0, now_us, roll(), input)
    }
}

/// Performs a step of a node with the injected defect, if there is one.
pub(super) fn step<V: Clone + EntrySize, S: Clone>(
    node: &mut Node<V, S>,
    now_us: u64,
    roll: u32,
    input: Input<V, S>,
) -> StepOf<Node<V, S>> {
    let input = if is_injected(LogFault::AppendWithoutMatch) { without_match(node, input) } else { input };
    if is_injected(LogFault::CompareAcrossConfigurations) && is_refused_across(node, &input) {
        return StepOf::<Node<V, S>>::default();
    }
    let ignores_changes =
        is_injected(LogFault::IgnoreDecidedChange) || is_injected(LogFault::CompareAcrossConfigurations);
    let input = if ignores_changes { without_change(input) } else { input };
    let is_candidate = matches!(node.role, Role::Candidate { is_pre_vote: false, .. });
    let start = node.store().start();
    let candidacy = (is_candidate && is_injected(LogFault::KeepCandidacy)).then(|| node.role.clone());
    let is_acknowledgement = matches!(input, Input::Message(_, Message::AppendAccepted { .. }));
    let mut step = node.step(now_us, roll, input);
    if let Some(before) = candidacy {
        if node.store().start() != start && matches!(node.role, Role::Follower(None)) {
            node.role = before;
        }
        if let Some(next) = count_kept_votes(node, now_us, roll) {
            step.append(next);
        }
    }
    if is_injected(LogFault::CommitInherited)
        && is_acknowledgement
        && let Some(next) = count_inherited(node, now_us, roll)
    {
        step.append(next);
    }
    if is_injected(LogFault::CountUnstored)
        && let Some(next) = count_unstored(node, now_us, roll)
    {
        step.append(next);
    }
    step
}

/// Returns whether a voter would refuse this candidate if it ignored configurations.
fn is_refused_across<V: Clone + EntrySize, S: Clone>(node: &Node<V, S>, input: &Input<V, S>) -> bool {
    let Input::Message(_, Message::RequestVote(asked)) = input else { return false };
    (asked.accepted, asked.last) < (node.store().accepted(), node.store().last())
}

/// Removes the decided change from a refusal.
fn without_change<V, S>(input: Input<V, S>) -> Input<V, S> {
    match input {
        Input::Message(from, mut message) => {
            if let Message::VoteReply { decided_change, .. } | Message::StaleTerm { decided_change, .. } =
                &mut message
            {
                *decided_change = None;
            }
            Input::Message(from, message)
        }
        other => other,
    }
}

/// Begins a candidate's term under an earlier configuration as soon as its votes are a majority of the new voters.
fn count_kept_votes<V: Clone + EntrySize, S: Clone>(
    node: &mut Node<V, S>,
    now_us: u64,
    roll: u32,
) -> Option<StepOf<Node<V, S>>> {
    let Role::Candidate { is_pre_vote: false, term, votes } = &node.role else { return None };
    let (term, voters) = (*term, node.store().configuration());
    if term.start() >= node.store().start() || !has_votes_of(votes, voters) {
        return None;
    }
    node.begin_term(term);
    Some(node.step(now_us, roll, Input::Announce))
}

fn has_votes_of(votes: &Votes, voters: &Configuration) -> bool {
    let missing: Vec<_> = votes.tally.missing(&votes.voters).collect();
    let has_voted = |voter: &&NodeId| votes.voters.contains(**voter) && !missing.contains(voter);
    voters.acceptors().iter().filter(has_voted).count() >= voters.majority()
}

/// Makes an append request claim that the leader has the follower's own entry before the entries that it sends.
fn without_match<V: Clone + EntrySize, S: Clone>(node: &Node<V, S>, input: Input<V, S>) -> Input<V, S> {
    match input {
        Input::Message(from, Message::Append(mut append)) => {
            append.before = node.store().log_id(append.before.slot).unwrap_or(append.before);
            Input::Message(from, Message::Append(append))
        }
        other => other,
    }
}

/// Lets a leader count its replicas as if it had begun with an empty log.
fn count_inherited<V: Clone + EntrySize, S: Clone>(
    node: &mut Node<V, S>,
    now_us: u64,
    roll: u32,
) -> Option<StepOf<Node<V, S>>> {
    let Role::Leader(leader) = &mut node.role else { return None };
    let (term, inherited, stored) = (leader.term, std::mem::take(&mut leader.inherited), leader.stored);
    let step = node.step(now_us, roll, Input::Stored { term, slot: Slot(0) });
    if let Role::Leader(leader) = &mut node.role
        && leader.term == term
    {
        (leader.inherited, leader.stored) = (inherited, stored);
    }
    Some(step)
}

/// Tells a leader that its whole log is on its disk, whether it is or not.
fn count_unstored<V: Clone + EntrySize, S: Clone>(
    node: &mut Node<V, S>,
    now_us: u64,
    roll: u32,
) -> Option<StepOf<Node<V, S>>> {
    let Role::Leader(leader) = &node.role else { return None };
    let (term, slot) = (leader.term, node.store().last());
    let is_behind = leader.stored.is_some_and(|stored| stored < slot);
    is_behind.then(|| node.step(now_us, roll, Input::Stored { term, slot }))
}
