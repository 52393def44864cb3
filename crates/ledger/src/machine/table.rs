//! Rows in order, with their sum: the machine that both kinds of rules run on.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};

use super::sum::Sum;
use super::{Coded, Diff, Failed, Machine, Misfit, Overlay, StateHash, View, coded};

/// What a table's rows are, and how goals change them.
pub trait Rules {
    /// What kind of table it is, in snapshots and hashes.
    const KIND: &'static str;
    /// What tells rows apart, and their order.
    type Key: Ord + Clone + Debug + Display + Coded;
    /// What a row has beside its key.
    type Value: Eq + Clone + Debug + Coded;
    /// What somebody wants.
    type Goal;
    /// What whoever wanted it gets to know.
    type Answer;

    /// The rows as the goal wants them, and the answer.
    fn run(view: View<'_, Self::Key, Self::Value>, goal: &Self::Goal) -> Result<Ran<Self>, Failed>;
}

/// The rows as a goal wants them, and its answer.
pub type Ran<R> = (BTreeMap<<R as Rules>::Key, Option<<R as Rules>::Value>>, <R as Rules>::Answer);

/// Rows in order, and rules by which goals change them.
#[derive(Clone, PartialEq, Debug)]
pub struct Table<R: Rules> {
    rows: BTreeMap<R::Key, R::Value>,
    sum: Sum,
}

impl<R: Rules> Default for Table<R> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), sum: Sum::default() }
    }
}

/// These bytes are no snapshot of such a table. Fetch it from somebody else.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this is no snapshot of a `{kind}` table: {what}; fetch it from somebody else")]
pub struct BadSnapshot {
    kind: &'static str,
    what: &'static str,
}

impl BadSnapshot {
    pub(super) const fn new(kind: &'static str, what: &'static str) -> Self {
        Self { kind, what }
    }
}

impl<R: Rules> Table<R> {
    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows with an overlay on top.
    pub fn view<'a>(&'a self, over: &'a Overlay<R::Key, R::Value>) -> View<'a, R::Key, R::Value> {
        View::new(&self.rows, over)
    }

    /// What this row has.
    pub fn get(&self, key: &R::Key) -> Option<&R::Value> {
        self.rows.get(key)
    }

    /// All rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&R::Key, &R::Value)> {
        self.rows.iter()
    }

    fn insert(&mut self, key: R::Key, value: R::Value) {
        self.sum.add(&row(&key, &value));
        self.rows.insert(key, value);
    }
}

fn row(key: &impl Coded, value: &impl Coded) -> Vec<u8> {
    let mut bytes = Vec::new();
    key.encode(&mut bytes);
    value.encode(&mut bytes);
    bytes
}

/// Follows the changes.
fn follow<K: Coded, V: Coded>(sum: &mut Sum, diff: &Diff<K, V>) {
    for change in diff {
        if let Some(before) = &change.before {
            sum.take_away(&row(&change.key, before));
        }
        if let Some(after) = &change.after {
            sum.add(&row(&change.key, after));
        }
    }
}

impl<R: Rules> Machine for Table<R> {
    type Goal = R::Goal;
    type Diff = Diff<R::Key, R::Value>;
    type Answer = R::Answer;
    type Overlay = Overlay<R::Key, R::Value>;

    fn execute(&self, over: &Self::Overlay, goal: &R::Goal) -> Result<(Self::Diff, R::Answer), Failed> {
        let view = self.view(over);
        let (wanted, answer) = R::run(view, goal)?;
        Ok((Diff::towards(view, wanted)?, answer))
    }

    fn lay(&self, over: &mut Self::Overlay, diff: Self::Diff) -> Result<(), Misfit> {
        diff.fits(self.view(over))?;
        let mut sum = over.sum().unwrap_or(&self.sum).clone();
        follow(&mut sum, &diff);
        over.lay(diff, sum);
        Ok(())
    }

    fn settle(&mut self, over: &mut Self::Overlay) -> Result<bool, Misfit> {
        let Some(oldest) = over.oldest() else { return Ok(false) };
        self.apply(oldest)?;
        over.lift();
        Ok(true)
    }

    fn apply(&mut self, diff: &Self::Diff) -> Result<(), Misfit> {
        diff.fits(self.view(&Overlay::default()))?;
        follow(&mut self.sum, diff);
        for change in diff {
            match change.after.clone() {
                Some(value) => drop(self.rows.insert(change.key.clone(), value)),
                None => drop(self.rows.remove(&change.key)),
            }
        }
        Ok(())
    }

    fn hash(&self, over: &Self::Overlay) -> StateHash {
        over.sum().unwrap_or(&self.sum).hash(R::KIND)
    }

    fn snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        coded::put_text(R::KIND, &mut bytes);
        coded::put_length(self.rows.len(), &mut bytes);
        for (key, value) in &self.rows {
            key.encode(&mut bytes);
            value.encode(&mut bytes);
        }
        bytes
    }

    /// Only what [`Machine::snapshot`] writes is read, so that a state has one snapshot.
    fn restore(mut bytes: &[u8]) -> Result<Self, BadSnapshot> {
        let bad = |what| BadSnapshot::new(R::KIND, what);
        let from = &mut bytes;
        if coded::take_text(from).as_deref() != Some(R::KIND) {
            return Err(bad("it begins otherwise"));
        }
        let count = coded::take_length(from).ok_or(bad("it is cut off"))?;
        let mut table = Self::default();
        for _ in 0..count {
            let row = R::Key::decode(from).and_then(|key| Some((key, R::Value::decode(from)?)));
            let (key, value) = row.ok_or(bad("a row cannot be read"))?;
            if table.rows.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(bad("its rows are out of order"));
            }
            table.insert(key, value);
        }
        if from.is_empty() { Ok(table) } else { Err(bad("something follows its last row")) }
    }
}
