//! The laws that every state machine satisfies, for any goals.

use std::collections::BTreeMap;
use std::fmt::Debug;

use fastrand::Rng;
use holdoff_ledger::machine::{
    Command, Diff, FactRules, Facts, Goal, GoalError, Key, KeyValue, KeyValueRules, Overlay, RowChange,
    Rules, StateMachine, Table, Value,
};
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

const CASES: u32 = 512;

/// `PROPTEST_CASES` sets the number of cases; the soak test sets a larger number.
fn cases() -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(CASES), failure_persistence: None, ..ProptestConfig::default() }
}

/// Rules with a generator of goals.
trait Made: Rules + Clone + PartialEq + Debug {
    fn goal(rng: &mut Rng) -> Self::Goal;
}

impl Made for KeyValueRules {
    fn goal(rng: &mut Rng) -> Vec<Command> {
        (0..rng.usize(1..4)).map(|_| command(rng)).collect()
    }
}

fn value(rng: &mut Rng) -> Value {
    match rng.u8(0..8) {
        0 => Value::symbol("word").unwrap(),
        1 => Value::text("").unwrap(),
        2 => Value::Integer(i64::MAX),
        _ => Value::Integer(rng.i64(-2..3)),
    }
}

fn command(rng: &mut Rng) -> Command {
    let key = |rng: &mut Rng| Key::new(["a", "b", "ba", "bc"][rng.usize(0..4)]).unwrap();
    let maybe = |rng: &mut Rng| rng.bool().then(|| value(rng));
    match rng.u8(0..6) {
        0 => Command::Get(key(rng)),
        1 => Command::Put(key(rng), value(rng)),
        2 => Command::Delete(key(rng)),
        3 => Command::CompareAndSet { key: key(rng), expected: maybe(rng), new: maybe(rng) },
        4 => {
            let some = |rng: &mut Rng| rng.bool().then(|| key(rng));
            Command::List { prefix: some(rng), after: some(rng), most: rng.u32(0..4) }
        }
        _ => Command::Increment(key(rng), rng.i64(-1..2)),
    }
}

impl Made for FactRules {
    fn goal(rng: &mut Rng) -> Goal {
        const GOALS: [&str; 9] = [
            "=> +n(A, B)",
            "=> +n(A, B), +m(A), -n(B, A)",
            "n(A, ?x) => -n(A, ?x), +n(A, ?x + B)",
            "n(?x, ?y), not m(?x) => -n(?x, ?y), +m(?x), +m(?y)",
            "all: n(?x, A) => -n(?x, A)",
            "all: n(?x, ?y), m(?y), ?x <= B => +n(?y, ?x), +m(?x - 1)",
            "only: m(?x), ?x != A => -m(?x), +n(?x, \"text\"), +n(word, ?x)",
            "m(?x), m(?y), ?x < ?y => -m(?x), -m(?y), +n(?x, ?y)",
            "all: m(?x) => -m(?x), +n(?x * ?x, ?x % A)",
        ];
        let number = |rng: &mut Rng| rng.u8(0..4).to_string();
        let goal = GOALS[rng.usize(0..GOALS.len())].replace('A', &number(rng));
        goal.replace('B', &number(rng)).parse().unwrap()
    }
}

fn none<R: Rules>() -> Overlay<R::Key, R::Value> {
    Overlay::default()
}

/// Returns a state that generated goals have produced.
fn state<R: Made>(rng: &mut Rng) -> Table<R> {
    let mut state = Table::<R>::default();
    for _ in 0..rng.usize(0..24) {
        if let Ok((diff, _)) = state.execute(&none::<R>(), &R::goal(rng)) {
            state.apply(&diff).unwrap();
        }
    }
    state
}

fn chunks<R: Made>(state: &Table<R>, limit: usize) -> Vec<Vec<u8>> {
    state.chunks(limit).collect()
}

/// Asserts that state, hash and bytes are equal.
fn assert_same<R: Made>(one: &Table<R>, other: &Table<R>) {
    assert_eq!(one, other);
    assert_eq!(one.hash(&none::<R>()), other.hash(&none::<R>()));
    assert_eq!(chunks(one, 64), chunks(other, 64));
}

fn a_snapshot_restores_the_state_and_its_hash<R: Made>(rng: &mut Rng) {
    let state = state::<R>(rng);
    assert_same(&Table::restore(chunks(&state, 64)).unwrap(), &state);
    let other = self::state::<R>(rng);
    let hashes = (state.hash(&none::<R>()), other.hash(&none::<R>()));
    assert_eq!(chunks(&state, 64) == chunks(&other, 64), hashes.0 == hashes.1);
}

fn a_damaged_snapshot_is_rejected<R: Made>(rng: &mut Rng) {
    // A state without rows has no chunk.
    let Some(chunk) = chunks(&state::<R>(rng), 1 << 20).pop() else { return };
    assert!(Table::<R>::restore([&chunk[..], &[0]].concat().chunks(chunk.len() + 1)).is_err());
    let mut changed = chunk.clone();
    changed[rng.usize(0..chunk.len())] ^= 1 << rng.u8(0..8);
    changed.truncate(rng.usize(0..=chunk.len()));
    if let Ok(other) = Table::<R>::restore([&changed]) {
        assert_eq!(chunks(&other, 1 << 20), [changed], "a state has one snapshot");
    }
}

fn the_inverse_of_a_diff_undoes_it<R: Made>(rng: &mut Rng) {
    let before = state::<R>(rng);
    let Ok((diff, _)) = before.execute(&none::<R>(), &R::goal(rng)) else { return };
    let mut after = before.clone();
    after.apply(&diff).unwrap();
    assert_eq!(after == before, diff.is_empty());
    if !diff.is_empty() {
        let there = after.clone();
        let why = after.apply(&diff).unwrap_err().to_string();
        assert!(why.ends_with("nothing was changed"), "{why}");
        assert_same(&after, &there);
    }
    after.apply(&diff.clone().inverse()).unwrap();
    assert_same(&after, &before);
    assert_eq!(diff.clone().inverse().inverse(), diff);
}

/// In any order of adding, settling and dropping diffs, goals see the same rows as if each diff had been applied at
/// once.
fn an_overlay_is_equivalent_to_the_applied_state<R: Made>(rng: &mut Rng)
where
    R::Answer: PartialEq + Debug,
{
    let mut committed = state::<R>(rng);
    let mut direct = committed.clone();
    let mut over = none::<R>();
    for _ in 0..rng.usize(0..32) {
        let goal = R::goal(rng);
        let done = committed.execute(&over, &goal);
        assert_eq!(done, direct.execute(&none::<R>(), &goal));
        if let Ok((diff, _)) = done {
            direct.apply(&diff).unwrap();
            committed.stage(&mut over, diff).unwrap();
        }
        assert_eq!(committed.hash(&over), direct.hash(&none::<R>()));
        while rng.bool() && committed.commit_oldest(&mut over).unwrap() {
            assert_eq!(committed.hash(&over), direct.hash(&none::<R>()));
        }
        if rng.u8(0..16) == 0 {
            (over, direct) = (none::<R>(), committed.clone());
        }
    }
    while committed.commit_oldest(&mut over).unwrap() {}
    assert_same(&committed, &direct);
    assert_eq!((over.len(), over.touched()), (0, 0));
}

fn a_failing_goal_changes_nothing<R: Made>(rng: &mut Rng) -> bool {
    let state = state::<R>(rng);
    let mut over = none::<R>();
    if let Ok((diff, _)) = state.execute(&over, &R::goal(rng)) {
        state.stage(&mut over, diff).unwrap();
    }
    let (before, laid, hash) = (state.clone(), over.clone(), state.hash(&over));
    let failed = state.execute(&over, &R::goal(rng)).err();
    assert_same(&state, &before);
    assert_eq!((&over, state.hash(&over)), (&laid, hash));
    failed.is_some_and(|failed: GoalError| !failed.to_string().is_empty())
}

/// Serialized diffs and answers are deserialized unchanged.
fn diffs_and_answers_are_serializable<R: Made>(rng: &mut Rng)
where
    R::Key: Serialize + DeserializeOwned,
    R::Value: Serialize + DeserializeOwned,
    R::Answer: Serialize + DeserializeOwned + PartialEq + Debug,
    R::Goal: Serialize + DeserializeOwned + PartialEq + Debug,
{
    fn sent<T: Serialize + DeserializeOwned + PartialEq + Debug>(thing: &T) {
        assert_eq!(postcard::from_bytes::<T>(&postcard::to_stdvec(thing).unwrap()).as_ref(), Ok(thing));
    }
    let (state, goal) = (state::<R>(rng), R::goal(rng));
    sent(&goal);
    match state.execute(&none::<R>(), &goal) {
        Ok((diff, answer)) => {
            sent(&diff);
            sent(&answer);
        }
        Err(failed) => sent(&failed),
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn snapshots_restore_the_state_and_its_hash(seed in any::<u64>()) {
        a_snapshot_restores_the_state_and_its_hash::<KeyValueRules>(&mut Rng::with_seed(seed));
        a_snapshot_restores_the_state_and_its_hash::<FactRules>(&mut Rng::with_seed(seed));
    }

    #[test]
    fn damaged_snapshots_are_rejected(seed in any::<u64>()) {
        a_damaged_snapshot_is_rejected::<KeyValueRules>(&mut Rng::with_seed(seed));
        a_damaged_snapshot_is_rejected::<FactRules>(&mut Rng::with_seed(seed));
    }

    #[test]
    fn the_inverses_of_diffs_undo_them(seed in any::<u64>()) {
        the_inverse_of_a_diff_undoes_it::<KeyValueRules>(&mut Rng::with_seed(seed));
        the_inverse_of_a_diff_undoes_it::<FactRules>(&mut Rng::with_seed(seed));
    }

    #[test]
    fn overlays_are_equivalent_to_the_applied_state(seed in any::<u64>()) {
        an_overlay_is_equivalent_to_the_applied_state::<KeyValueRules>(&mut Rng::with_seed(seed));
        an_overlay_is_equivalent_to_the_applied_state::<FactRules>(&mut Rng::with_seed(seed));
    }

    #[test]
    fn goals_diffs_and_answers_are_serializable(seed in any::<u64>()) {
        diffs_and_answers_are_serializable::<KeyValueRules>(&mut Rng::with_seed(seed));
        diffs_and_answers_are_serializable::<FactRules>(&mut Rng::with_seed(seed));
    }

    /// Commands change the table as they would change a map.
    #[test]
    fn commands_change_the_table_like_a_map(seed in any::<u64>()) {
        let mut rng = Rng::with_seed(seed);
        let (mut table, mut map) = (KeyValue::default(), BTreeMap::new());
        for _ in 0..rng.usize(0..16) {
            let commands = KeyValueRules::goal(&mut rng);
            let mut changed = map.clone();
            let each = commands.iter().map(|command| directly(&mut changed, command));
            let wanted = each.collect::<Result<Vec<_>, Fails>>().map(|answers| answers.concat());
            let done = table.execute(&Overlay::default(), &commands);
            prop_assert_eq!(done.as_ref().ok().map(|(_, answers)| answers), wanted.as_ref().ok(), "{:?}", commands);
            if let Ok((diff, _)) = done {
                table.apply(&diff).unwrap();
                map = changed;
            }
            let over = Overlay::default();
            let first = Key::new("A").unwrap();
            let rows = table.view(&over).starting_at(&first);
            prop_assert_eq!(rows.map(|(key, value)| (key.clone(), value.clone())).collect::<BTreeMap<_, _>>(), map.clone());
        }
    }
}

/// The goal fails as a whole.
#[derive(Debug)]
struct Fails;

fn directly(map: &mut BTreeMap<Key, Value>, command: &Command) -> Result<Vec<Option<Value>>, Fails> {
    let answer = match command.clone() {
        Command::Get(key) => Ok(map.get(&key).cloned()),
        Command::Put(key, value) => Ok(map.insert(key, value)),
        Command::Delete(key) => Ok(map.remove(&key)),
        Command::CompareAndSet { key, expected, new } => {
            let before = map.remove(&key);
            new.map(|new| map.insert(key, new));
            if before == expected { Ok(before) } else { Err(Fails) }
        }
        Command::Increment(key, by) => match map.get(&key).unwrap_or(&Value::Integer(0)) {
            Value::Integer(number) => {
                let sum = Value::Integer(number.checked_add(by).ok_or(Fails)?);
                map.insert(key, sum.clone());
                Ok(Some(sum))
            }
            _ => Err(Fails),
        },
        Command::List { prefix, after, most } => {
            let prefix = prefix.as_ref().map_or("", Key::as_str);
            let wanted = |key: &&Key| {
                key.as_str().starts_with(prefix) && after.as_ref().is_none_or(|after| *key > after)
            };
            let keys: Vec<_> = map.keys().filter(wanted).take(usize::try_from(most).unwrap()).collect();
            let row = |key: &Key| [Value::text(key.as_str()).ok(), map.get(key).cloned()];
            return Ok(keys.into_iter().flat_map(row).chain([None]).collect());
        }
        _ => Err(Fails),
    };
    answer.map(|answer| vec![answer])
}

#[test]
fn failed_goals_change_nothing() {
    let mut failed = [0; 2];
    for seed in 0..u64::from(CASES) {
        failed[0] += u32::from(a_failing_goal_changes_nothing::<KeyValueRules>(&mut Rng::with_seed(seed)));
        failed[1] += u32::from(a_failing_goal_changes_nothing::<FactRules>(&mut Rng::with_seed(seed)));
    }
    assert!(
        failed.iter().all(|failed| *failed * 10 > CASES),
        "{failed:?} of {CASES} failed: too few failures to test the law"
    );
}

#[test]
fn a_diff_out_of_order_is_rejected() {
    let change = |name: &str, before| RowChange { key: Key::new(name).unwrap(), before, after: Some(()) };
    let is_diff = |changes: Vec<_>| Diff::try_from(changes).is_ok();
    assert!(is_diff(vec![change("a", None), change("b", None)]));
    assert!(!is_diff(vec![change("a", None), change("a", None)]), "a diff changes each row once");
    assert!(!is_diff(vec![change("b", None), change("a", None)]), "the rows of a diff are sorted");
    assert!(!is_diff(vec![change("a", Some(()))]), "a diff contains no unchanged row");
}

#[test]
fn a_snapshot_of_another_kind_is_refused() {
    let mut values = KeyValue::default();
    let goal = vec![Command::Increment(Key::new("a").unwrap(), 1)];
    values.apply(&values.execute(&Overlay::default(), &goal).unwrap().0).unwrap();
    let why = Facts::restore(values.chunks(64)).unwrap_err().to_string();
    assert_eq!(why, "invalid snapshot of a `facts` table: it has another kind; fetch it from another node");
}
