//! The submitted transactions and their acknowledgements. No acknowledged transaction is lost, and none takes effect
//! twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use fastrand::Rng;
use serde_json::Value;

use crate::ledger::environment::{CONDITION_TIMEOUT, CommandOutput, DaemonAccess};

/// The transactions of one ledger. Each adds a fact and fails if the fact already exists.
#[derive(Default)]
pub(crate) struct Transactions {
    next: AtomicU64,
    acknowledged: Mutex<BTreeMap<String, Acknowledgement>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Acknowledgement {
    number: u64,
    index: u64,
}

/// A transaction to submit, with its id.
#[derive(Clone, Debug)]
pub(crate) struct PendingTransaction {
    pub(crate) tx_id: String,
    number: u64,
    goal: String,
}

impl PendingTransaction {
    /// Returns the arguments of the command that submits it. The ledger remembers all transactions of a test.
    pub(crate) fn words(&self) -> [&str; 8] {
        ["submit", &self.goal, "--tx-id", &self.tx_id, "--birth", "0", "--timeout", "25s"]
    }
}

impl Transactions {
    pub(crate) fn new_transaction(&self) -> PendingTransaction {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let goal = format!("not done({number}) => +done({number})");
        PendingTransaction { tx_id: format!("{:032x}", Rng::new().u128(..)), number, goal }
    }

    /// Submits a new transaction to these daemons in turn, under one id, until its outcome is known.
    pub(crate) fn submit(&self, accesses: &[DaemonAccess]) -> u64 {
        self.submit_until_known(&self.new_transaction(), accesses)
    }

    /// Submits a transaction that may have been submitted before.
    pub(crate) fn submit_until_known(
        &self,
        transaction: &PendingTransaction,
        accesses: &[DaemonAccess],
    ) -> u64 {
        let end = Instant::now() + CONDITION_TIMEOUT;
        for access in accesses.iter().cycle() {
            let output = access.try_run(&transaction.words());
            if let Some(index) = self.record(transaction, &output) {
                return index;
            }
            assert!(Instant::now() < end, "the outcome of {transaction:?} stays unknown: {output:?}");
        }
        panic!("expected at least one daemon");
    }

    /// Records a response. Returns the index of the transaction if it is committed.
    pub(crate) fn record(&self, transaction: &PendingTransaction, output: &CommandOutput) -> Option<u64> {
        match output.code {
            0 => {}
            // No daemon answers, there is no majority, or the outcome is unknown.
            1 if output.json.is_null() => return None,
            75 | 124 => {
                assert_eq!(output.json["tx_id"], *transaction.tx_id, "{output:?}");
                return None;
            }
            _ => panic!("unexpected output for {transaction:?}: {output:?}"),
        }
        assert_eq!(output.json["outcome"], "committed", "{output:?}");
        let acknowledgement =
            Acknowledgement { number: transaction.number, index: output.json["index"].as_u64().unwrap() };
        let mut acknowledged = self.acknowledged.lock().unwrap();
        let before = acknowledged.entry(transaction.tx_id.clone()).or_insert_with(|| acknowledgement.clone());
        assert_eq!(*before, acknowledgement, "one transaction id has two indexes");
        Some(acknowledgement.index)
    }

    pub(crate) fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Submits transactions to random daemons until `enough` is set.
    pub(crate) fn submit_until(&self, accesses: &[DaemonAccess], enough: &AtomicBool) {
        let mut accesses = accesses.to_vec();
        let mut rng = Rng::new();
        while !enough.load(Ordering::Relaxed) {
            rng.shuffle(&mut accesses);
            self.submit(&accesses);
        }
    }

    /// Asserts that every daemon has all acknowledged facts. In the history of the first daemon, each transaction
    /// occurs at most once, and each acknowledged one is at its acknowledged index.
    pub(crate) fn check(&self, accesses: &[DaemonAccess]) {
        let acknowledged = self.acknowledged.lock().unwrap();
        for access in accesses {
            let output = access.run(&["get", "--consistency", "local", "--goal", "all: done(?n)"]);
            let facts = numbers(&output);
            for acknowledgement in acknowledged.values() {
                assert!(facts.contains(&acknowledgement.number), "{acknowledgement:?} is lost: {output}");
            }
        }
        let mut places: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for entry in history(&accesses[0]) {
            let Some(tx_id) = entry["tx_id"].as_str() else { continue };
            places.entry(tx_id.to_owned()).or_default().push(entry["index"].as_u64().unwrap());
        }
        for (tx_id, places) in &places {
            assert_eq!(places.len(), 1, "{tx_id} was committed at {places:?}");
        }
        for (tx_id, acknowledgement) in acknowledged.iter() {
            assert_eq!(
                places.get(tx_id),
                Some(&vec![acknowledgement.index]),
                "{tx_id} is not at its acknowledged index"
            );
        }
    }
}

/// Returns all entries that a daemon retains.
pub(crate) fn history(access: &DaemonAccess) -> Vec<Value> {
    let (mut entries, mut after) = (Vec::new(), 0);
    loop {
        let page = access.run(&["history", "--limit", "1000", "--after", &after.to_string()]);
        let page = page["entries"].as_array().unwrap();
        let Some(last) = page.last() else { return entries };
        after = last["index"].as_u64().unwrap();
        entries.extend(page.iter().cloned());
    }
}

/// Returns the integers in a response.
fn numbers(output: &Value) -> BTreeSet<u64> {
    let text = output["result"].to_string();
    let digits = text.split(|sign: char| !sign.is_ascii_digit()).filter(|digits| !digits.is_empty());
    digits.map(|digits| digits.parse().unwrap()).collect()
}
