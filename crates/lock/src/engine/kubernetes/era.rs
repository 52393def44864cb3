//! The record of a namespace: the fencing epoch, and the highest token of all pruned locks.

use std::collections::BTreeMap;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};

use super::TRIES;
use super::api::{Leases, Tried, Trouble};
use super::entry::{self, Entry};
use crate::{Error, Token};

const NAME: &str = "holdoff-record";
const ERA: &str = "holdoff/era";
const FLOOR: &str = "holdoff/floor";

/// The fencing epoch, and the lower bound of the tokens of new locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) era: u64,
    pub(super) floor: Token,
}

/// Returns the current record, and creates it if there is none.
pub(super) async fn read(leases: &Leases) -> Result<Record, Error> {
    Ok(change(leases, |record| record).await?)
}

pub(super) async fn raise_floor(leases: &Leases, floor: Token) -> Result<(), Error> {
    change(leases, |record| Record { floor: record.floor.max(floor), ..record }).await?;
    Ok(())
}

/// Raises the fencing epoch, and returns the new one.
pub(super) async fn raise_era(leases: &Leases) -> Result<u64, Error> {
    let raised = change(leases, |record| Record { era: record.era.saturating_add(1), ..record }).await?;
    Ok(raised.era)
}

async fn change(leases: &Leases, change: impl Fn(Record) -> Record) -> Tried<Record> {
    for _ in 0..TRIES {
        let Some(mut found) = leases.get(NAME).await? else {
            make(leases).await?;
            continue;
        };
        let record = of(&found);
        let changed = change(record);
        if changed == record {
            return Ok(record);
        }
        let notes = found.0.metadata.annotations.get_or_insert_default();
        notes.extend(annotations(changed));
        match leases.put(&found).await {
            Ok(_) => return Ok(changed),
            Err(Trouble::Conflict) => {}
            Err(trouble) => return Err(trouble),
        }
    }
    Err(Trouble::Conflict)
}

/// Creates the record. If another client deleted it, the remaining locks still record the fencing epoch.
async fn make(leases: &Leases) -> Tried<()> {
    let known = leases.list(entry::SELECTOR).await?;
    let highest = known.iter().filter_map(Entry::highest).max();
    let era = highest.map_or(0, Token::era);
    let mut lease = Lease { spec: Some(LeaseSpec::default()), ..Lease::default() };
    lease.metadata.name = Some(NAME.to_owned());
    lease.metadata.labels = Some(BTreeMap::from(
        [("app.kubernetes.io/managed-by", "holdoff"), ("holdoff/kind", "record")]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
    ));
    lease.metadata.annotations =
        Some(annotations(Record { era, floor: Token::new(0) }).into_iter().collect());
    match leases.create(&Entry(lease)).await {
        Ok(_) | Err(Trouble::Conflict) => Ok(()),
        Err(trouble) => Err(trouble),
    }
}

fn of(entry: &Entry) -> Record {
    let notes = entry.0.metadata.annotations.as_ref();
    let number = |name: &str| {
        notes.and_then(|notes| notes.get(name)).and_then(|number| number.parse().ok()).unwrap_or_default()
    };
    Record { era: number(ERA), floor: Token::new(number(FLOOR)) }
}

fn annotations(record: Record) -> [(String, String); 2] {
    [(ERA.to_owned(), record.era.to_string()), (FLOOR.to_owned(), record.floor.to_string())]
}
