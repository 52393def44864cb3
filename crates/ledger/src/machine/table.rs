//! Rows in order, with their sum: the machine under both sets of rules.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};

use super::pages::Pages;
use super::sum::Sum;
use super::{Codec, Diff, DiffMismatch, GoalError, Overlay, StateHash, StateMachine, TableView, codec};

/// The types of a table's rows, and the rules by which goals change them.
pub trait Rules: Clone {
    /// The kind of the table, in snapshots and hashes.
    const KIND: &'static str;
    /// The key of a row, which also determines the order.
    type Key: Ord + Clone + Debug + Display + Codec;
    /// The content of a row beside its key.
    type Value: Eq + Clone + Debug + Codec;
    /// The request of a caller.
    type Goal;
    /// The answer that the caller receives.
    type Answer;

    /// Executes a goal and returns the wanted rows and the answer.
    fn run(
        view: TableView<'_, Self::Key, Self::Value>,
        goal: &Self::Goal,
    ) -> Result<Execution<Self>, GoalError>;
}

/// The rows that a goal wants, and its answer.
pub type Execution<R> = (BTreeMap<<R as Rules>::Key, Option<<R as Rules>::Value>>, <R as Rules>::Answer);

/// Rows in order, and the rules by which goals change them.
#[derive(Clone, PartialEq, Debug)]
pub struct Table<R: Rules> {
    rows: Pages<R::Key, R::Value>,
    sum: Sum,
}

impl<R: Rules> Default for Table<R> {
    fn default() -> Self {
        Self { rows: Pages::default(), sum: Sum::default() }
    }
}

/// The error for bytes that are not a snapshot of such a table. Fetch the snapshot from another node.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid snapshot of a `{kind}` table: {what}; fetch it from another node")]
pub struct BadSnapshot {
    kind: &'static str,
    what: &'static str,
}

impl BadSnapshot {
    pub(crate) const fn new(kind: &'static str, what: &'static str) -> Self {
        Self { kind, what }
    }
}

impl<R: Rules> Table<R> {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 0
    }

    /// Returns a view of the rows with an overlay.
    pub fn view<'a>(&'a self, over: &'a Overlay<R::Key, R::Value>) -> TableView<'a, R::Key, R::Value> {
        TableView::new(&self.rows, over)
    }

    /// Returns the value of a row.
    pub fn get(&self, key: &R::Key) -> Option<&R::Value> {
        self.rows.get(key)
    }

    /// Returns all rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&R::Key, &R::Value)> {
        self.rows.iter()
    }
}

fn row(key: &impl Codec, value: &impl Codec) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    value.encode(&mut bytes);
    bytes
}

/// Updates the sum by the changes of a diff.
fn follow<K: Codec, V: Codec>(sum: &mut Sum, diff: &Diff<K, V>) {
    for change in diff {
        if let Some(before) = &change.before {
            sum.take_away(&row(&change.key, before));
        }
        if let Some(after) = &change.after {
            sum.add(&row(&change.key, after));
        }
    }
}

impl<R: Rules> StateMachine for Table<R> {
    type Goal = R::Goal;
    type Diff = Diff<R::Key, R::Value>;
    type Answer = R::Answer;
    type Overlay = Overlay<R::Key, R::Value>;

    fn execute(&self, over: &Self::Overlay, goal: &R::Goal) -> Result<(Self::Diff, R::Answer), GoalError> {
        let view = self.view(over);
        let (wanted, answer) = R::run(view, goal)?;
        Ok((Diff::towards(view, wanted)?, answer))
    }

    fn stage(&self, over: &mut Self::Overlay, diff: Self::Diff) -> Result<(), DiffMismatch> {
        diff.fits(self.view(over))?;
        let mut sum = over.sum().unwrap_or(&self.sum).clone();
        follow(&mut sum, &diff);
        over.stage(diff, sum);
        Ok(())
    }

    fn commit_oldest(&mut self, over: &mut Self::Overlay) -> Result<bool, DiffMismatch> {
        let Some(oldest) = over.oldest() else { return Ok(false) };
        self.apply(oldest)?;
        over.drop_oldest();
        Ok(true)
    }

    fn apply(&mut self, diff: &Self::Diff) -> Result<(), DiffMismatch> {
        diff.fits(self.view(&Overlay::default()))?;
        follow(&mut self.sum, diff);
        for change in diff {
            match change.after.clone() {
                Some(value) => self.rows.insert(change.key.clone(), value),
                None => self.rows.remove(&change.key),
            }
        }
        Ok(())
    }

    fn hash(&self, over: &Self::Overlay) -> StateHash {
        over.sum().unwrap_or(&self.sum).hash(R::KIND)
    }

    fn bytes(&self, over: &Self::Overlay) -> u64 {
        over.sum().unwrap_or(&self.sum).bytes()
    }

    fn growth(diff: &Self::Diff) -> i64 {
        let bytes = |key: &R::Key, value: &Option<R::Value>| {
            value.as_ref().map_or(0, |value| i64::try_from(row(key, value).len()).unwrap_or(i64::MAX))
        };
        diff.into_iter()
            .map(|change| bytes(&change.key, &change.after) - bytes(&change.key, &change.before))
            .sum()
    }

    fn chunks(&self, limit: usize) -> impl Iterator<Item = Vec<u8>> {
        let mut rows = self.rows.iter().peekable();
        std::iter::from_fn(move || {
            rows.peek()?;
            let mut chunk = Vec::new();
            codec::put_text(R::KIND, &mut chunk);
            for (key, value) in rows.by_ref() {
                key.encode(&mut chunk);
                value.encode(&mut chunk);
                if chunk.len() >= limit {
                    break;
                }
            }
            Some(chunk)
        })
    }

    fn add_chunk(&mut self, mut chunk: &[u8]) -> Result<(), BadSnapshot> {
        let bad = |what| BadSnapshot::new(R::KIND, what);
        if codec::take_text(&mut chunk).as_deref() != Some(R::KIND) {
            return Err(bad("it has another kind"));
        }
        if chunk.is_empty() {
            return Err(bad("a chunk has no rows"));
        }
        while !chunk.is_empty() {
            let begin = chunk;
            let from = &mut chunk;
            let row = R::Key::decode(from).and_then(|key| Some((key, R::Value::decode(from)?)));
            let (key, value) = row.ok_or(bad("a row cannot be decoded"))?;
            if self.rows.last_key().is_some_and(|last| *last >= key) {
                return Err(bad("its rows are out of order"));
            }
            self.sum.add(begin.get(..begin.len() - chunk.len()).unwrap_or_default());
            self.rows.insert(key, value);
        }
        Ok(())
    }
}
