//! Two machines in one history.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::{BadSnapshot, DiffMismatch, GoalError, StateHash, StateMachine};

const KIND: &str = "pair";

/// Two machines side by side. Each goal is for one of them, and one history orders all goals.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Pair<A, B> {
    /// The first machine.
    pub first: A,
    /// The second machine.
    pub second: B,
}

/// An item of the first or of the second machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Either<A, B> {
    /// An item of the first machine.
    First(A),
    /// An item of the second machine.
    Second(B),
}

/// The uncommitted diffs of both machines, and the order in which the machines received them.
#[derive(Clone, PartialEq, Debug)]
pub struct PairOverlay<A, B> {
    first: A,
    second: B,
    order: VecDeque<Side>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    First,
    Second,
}

impl<A: Default, B: Default> Default for PairOverlay<A, B> {
    fn default() -> Self {
        Self { first: A::default(), second: B::default(), order: VecDeque::new() }
    }
}

impl<A: Default, B> Default for Either<A, B> {
    fn default() -> Self {
        Self::First(A::default())
    }
}

impl<A: StateMachine, B: StateMachine> StateMachine for Pair<A, B> {
    type Goal = Either<A::Goal, B::Goal>;
    type Diff = Either<A::Diff, B::Diff>;
    type Answer = Either<A::Answer, B::Answer>;
    type Overlay = PairOverlay<A::Overlay, B::Overlay>;

    fn execute(
        &self,
        over: &Self::Overlay,
        goal: &Self::Goal,
    ) -> Result<(Self::Diff, Self::Answer), GoalError> {
        match goal {
            Either::First(goal) => {
                let (diff, answer) = self.first.execute(&over.first, goal)?;
                Ok((Either::First(diff), Either::First(answer)))
            }
            Either::Second(goal) => {
                let (diff, answer) = self.second.execute(&over.second, goal)?;
                Ok((Either::Second(diff), Either::Second(answer)))
            }
        }
    }

    fn stage(&self, over: &mut Self::Overlay, diff: Self::Diff) -> Result<(), DiffMismatch> {
        let side = match diff {
            Either::First(diff) => self.first.stage(&mut over.first, diff).map(|()| Side::First),
            Either::Second(diff) => self.second.stage(&mut over.second, diff).map(|()| Side::Second),
        };
        over.order.push_back(side?);
        Ok(())
    }

    fn commit_oldest(&mut self, over: &mut Self::Overlay) -> Result<bool, DiffMismatch> {
        let settled = match over.order.front() {
            None => return Ok(false),
            Some(Side::First) => self.first.commit_oldest(&mut over.first)?,
            Some(Side::Second) => self.second.commit_oldest(&mut over.second)?,
        };
        over.order.pop_front();
        Ok(settled)
    }

    fn apply(&mut self, diff: &Self::Diff) -> Result<(), DiffMismatch> {
        match diff {
            Either::First(diff) => self.first.apply(diff),
            Either::Second(diff) => self.second.apply(diff),
        }
    }

    fn hash(&self, over: &Self::Overlay) -> StateHash {
        StateHash::of_both(&self.first.hash(&over.first), &self.second.hash(&over.second))
    }

    fn bytes(&self, over: &Self::Overlay) -> u64 {
        self.first.bytes(&over.first) + self.second.bytes(&over.second)
    }

    fn growth(diff: &Self::Diff) -> i64 {
        match diff {
            Either::First(diff) => A::growth(diff),
            Either::Second(diff) => B::growth(diff),
        }
    }

    /// The last byte of a chunk tells to which machine it belongs.
    fn chunks(&self, limit: usize) -> impl Iterator<Item = Vec<u8>> {
        let of_side = |side: u8| {
            move |mut chunk: Vec<u8>| {
                chunk.push(side);
                chunk
            }
        };
        self.first.chunks(limit).map(of_side(0)).chain(self.second.chunks(limit).map(of_side(1)))
    }

    fn add_chunk(&mut self, chunk: &[u8]) -> Result<(), BadSnapshot> {
        match chunk.split_last() {
            // The rows of the first machine come first, so that a state has one snapshot.
            Some((0, chunk)) if self.second.bytes(&B::Overlay::default()) == 0 => self.first.add_chunk(chunk),
            Some((1, chunk)) => self.second.add_chunk(chunk),
            _ => Err(BadSnapshot::new(KIND, "a chunk belongs to neither machine")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, Facts, Key, KeyValue};
    use super::*;

    type Two = Pair<Facts, KeyValue>;

    fn fact(goal: &str) -> <Two as StateMachine>::Goal {
        Either::First(goal.parse().unwrap())
    }

    fn add(by: i64) -> <Two as StateMachine>::Goal {
        Either::Second(vec![Command::Increment(Key::new("sum").unwrap(), by)])
    }

    #[test]
    fn diffs_commit_in_the_order_in_which_they_were_staged() {
        let (mut two, mut over) = (Two::default(), <_>::default());
        let mut applied = Two::default();
        for goal in [fact("=> +a(1)"), add(1), add(2), fact("a(1) => -a(1), +a(2)"), add(3)] {
            let (diff, _) = two.execute(&over, &goal).unwrap();
            two.stage(&mut over, diff.clone()).unwrap();
            applied.apply(&diff).unwrap();
        }
        assert_eq!(two.hash(&over), applied.hash(&<_>::default()));
        while two.commit_oldest(&mut over).unwrap() {}
        assert_eq!(two, applied);
        assert_eq!(Two::restore(two.chunks(8)).unwrap(), two);
    }

    #[test]
    fn equal_rows_in_the_other_machine_are_another_state() {
        let empty = Pair::<KeyValue, KeyValue>::default();
        let goal = vec![Command::Increment(Key::new("a").unwrap(), 1)];
        let mut hashes = Vec::new();
        for goal in [Either::First(goal.clone()), Either::Second(goal)] {
            let mut pair = empty.clone();
            let (diff, _) = pair.execute(&<_>::default(), &goal).unwrap();
            pair.apply(&diff).unwrap();
            hashes.push(pair.hash(&<_>::default()));
        }
        assert_ne!(hashes[0], hashes[1]);
    }

    #[test]
    fn chunks_of_another_kind_or_in_another_order_are_rejected() {
        let mut two = Two::default();
        for goal in [fact("=> +a(1)"), add(1)] {
            let (diff, _) = two.execute(&<_>::default(), &goal).unwrap();
            two.apply(&diff).unwrap();
        }
        let chunks: Vec<_> = two.chunks(1024).collect();
        assert_eq!(chunks.len(), 2);
        assert!(Two::restore(chunks.iter().rev()).is_err());
        assert!(Two::restore(two.first.chunks(1024)).is_err());
        assert!(Two::restore([&chunks[1][..chunks[1].len() - 1]]).is_err());
    }
}
