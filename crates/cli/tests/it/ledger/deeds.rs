//! The submitted transactions and their acknowledgements. No acknowledged transaction is lost, and none takes effect
//! twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use fastrand::Rng;
use serde_json::Value;

use crate::ledger::place::{CONDITION_TIMEOUT, Told, Way};

/// The transactions of one ledger. Each adds a fact and fails if the fact already exists.
#[derive(Default)]
pub(crate) struct Deeds {
    next: AtomicU64,
    acknowledged: Mutex<BTreeMap<String, Deed>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Deed {
    number: u64,
    index: u64,
}

/// A transaction to submit, with its id.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) tx_id: String,
    number: u64,
    goal: String,
}

impl Wish {
    /// Returns the arguments of the command that submits it.
    pub(crate) fn words(&self) -> [&str; 6] {
        ["submit", &self.goal, "--tx-id", &self.tx_id, "--timeout", "25s"]
    }
}

impl Deeds {
    pub(crate) fn wish(&self) -> Wish {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let goal = format!("not done({number}) => +done({number})");
        Wish { tx_id: format!("{:032x}", Rng::new().u128(..)), number, goal }
    }

    /// Submits a new transaction to these daemons in turn, under one id, until its outcome is known.
    pub(crate) fn submit(&self, ways: &[Way]) -> u64 {
        self.insist(&self.wish(), ways)
    }

    /// Submits a transaction that may have been submitted before.
    pub(crate) fn insist(&self, wish: &Wish, ways: &[Way]) -> u64 {
        let end = Instant::now() + CONDITION_TIMEOUT;
        for way in ways.iter().cycle() {
            let told = way.ask(&wish.words());
            if let Some(index) = self.note(wish, &told) {
                return index;
            }
            assert!(Instant::now() < end, "it is never known what comes of {wish:?}: {told:?}");
        }
        panic!("there is no way");
    }

    /// Records a response. Returns the index of the transaction if it is committed.
    pub(crate) fn note(&self, wish: &Wish, told: &Told) -> Option<u64> {
        match told.code {
            0 => {}
            // No daemon answers, there is no majority, or the outcome is unknown.
            1 if told.json.is_null() => return None,
            75 | 124 => {
                assert_eq!(told.json["tx_id"], *wish.tx_id, "{told:?}");
                return None;
            }
            _ => panic!("{wish:?} has come to {told:?}"),
        }
        assert_eq!(told.json["outcome"], "committed", "{told:?}");
        let deed = Deed { number: wish.number, index: told.json["index"].as_u64().unwrap() };
        let mut acknowledged = self.acknowledged.lock().unwrap();
        let before = acknowledged.entry(wish.tx_id.clone()).or_insert_with(|| deed.clone());
        assert_eq!(*before, deed, "one name, two places");
        Some(deed.index)
    }

    pub(crate) fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Submits transactions to random daemons until `enough` is set.
    pub(crate) fn go_on(&self, ways: &[Way], enough: &AtomicBool) {
        let mut ways = ways.to_vec();
        let mut rng = Rng::new();
        while !enough.load(Ordering::Relaxed) {
            rng.shuffle(&mut ways);
            self.submit(&ways);
        }
    }

    /// Asserts that every daemon has all acknowledged facts. In the history of the first daemon, each transaction
    /// occurs at most once, and each acknowledged one is at its acknowledged index.
    pub(crate) fn check(&self, ways: &[Way]) {
        let acknowledged = self.acknowledged.lock().unwrap();
        for way in ways {
            let told = way.must(&["get", "--how", "local", "--goal", "all: done(?n)"]);
            let facts = numbers(&told);
            for deed in acknowledged.values() {
                assert!(facts.contains(&deed.number), "{deed:?} is lost: {told}");
            }
        }
        let mut places: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for entry in history(&ways[0]) {
            let Some(tx_id) = entry["tx_id"].as_str() else { continue };
            places.entry(tx_id.to_owned()).or_default().push(entry["index"].as_u64().unwrap());
        }
        for (tx_id, places) in &places {
            assert_eq!(places.len(), 1, "{tx_id} has happened at {places:?}");
        }
        for (tx_id, deed) in acknowledged.iter() {
            assert_eq!(places.get(tx_id), Some(&vec![deed.index]), "{tx_id} is not where it was said to be");
        }
    }
}

/// Returns all entries that a daemon retains.
pub(crate) fn history(way: &Way) -> Vec<Value> {
    let (mut entries, mut after) = (Vec::new(), 0);
    loop {
        let page = way.must(&["history", "--limit", "1000", "--after", &after.to_string()]);
        let page = page["entries"].as_array().unwrap();
        let Some(last) = page.last() else { return entries };
        after = last["index"].as_u64().unwrap();
        entries.extend(page.iter().cloned());
    }
}

/// Returns the integers in a response.
fn numbers(told: &Value) -> BTreeSet<u64> {
    let text = told["result"].to_string();
    let digits = text.split(|sign: char| !sign.is_ascii_digit()).filter(|digits| !digits.is_empty());
    digits.map(|digits| digits.parse().unwrap()).collect()
}
