//! One device, three acceptors on loopback: the time from `submit` to the commit.
//!
//! In a fresh slot the device sends a prepare, then an accept. A lone writer receives the promises for the
//! next slot together with the votes for the last one, and sends only an accept. Beside each commit the
//! benchmark measures one bare call to an acceptor, one bare file sync and one bare store commit, so that
//! disturbances of the machine affect all of them.

use std::path::Path;
use std::time::Duration;

use holdoff_council::acceptor::{LinkReply, LinkRequest, ROLE};
use holdoff_council::machine::{CouncilChange, Members};
use holdoff_council::runtime::{Council, Settings};
use holdoff_council::{Outcome, PublicKey};
use holdoff_net::{Link, LinkOptions, PeerAddress, SecretKey};

use super::acceptors::Acceptors;
use crate::measure::{BareDisk, Times, now};
use crate::row::Row;

/// The number of councils whose first slot is measured.
const FRESH: usize = 60;
/// The number of slots of the lone writer, after a warm-up.
const LONE: usize = 400;
const WARM: usize = 8;
const SOON: Duration = Duration::from_secs(30);

pub(super) async fn rows(acceptors: &Acceptors) -> Result<Vec<Row>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut bare = BareParts::new(folder.path(), acceptors)?;
    let mut fresh = CommitTimes::default();
    for number in 0..FRESH {
        let council = open(&folder.path().join(number.to_string()), acceptors).await?;
        fresh.add(&mut bare, &council, new_key()?, 0).await?;
        council.close().await;
    }
    let council = open(&folder.path().join("lone"), acceptors).await?;
    let (mut lone, mut warm, key) = (CommitTimes::default(), CommitTimes::default(), new_key()?);
    for turn in 0..WARM + LONE {
        let times = if turn < WARM { &mut warm } else { &mut lone };
        times.add(&mut bare, &council, key, turn).await?;
    }
    let counts = council.status().await.map_err(|error| error.to_string())?.counts;
    eprintln!("council: the lone writer began {} ballots for {} slots", counts.ballots, counts.slots);
    let mut rows = fresh.rows("fresh slot", 2.0);
    rows.extend(lone.rows("lone writer", 1.0));
    Ok(rows)
}

/// Opens a council with one connected device.
async fn open(folder: &Path, acceptors: &Acceptors) -> Result<Council<Members>, String> {
    let found = Council::create(folder, "bench", &acceptors.addresses(), &LinkOptions::default()).await;
    found.map_err(|error| error.to_string())?;
    let council = Council::open(folder, Settings::default()).map_err(|error| error.to_string())?;
    let is_there = council.catch_up(SOON).await.map_err(|error| error.to_string())?;
    if is_there { Ok(council) } else { Err("the acceptors did not answer in time".to_owned()) }
}

fn new_key() -> Result<PublicKey, String> {
    Ok(SecretKey::generate().map_err(|error| error.to_string())?.public())
}

/// The durations of commits and of their parts.
#[derive(Default)]
struct CommitTimes {
    commits: Times,
    calls: Times,
    syncs: Times,
    stores: Times,
}

impl CommitTimes {
    /// Measures one of each. In even turns a device becomes a member, in odd turns it is removed.
    async fn add(
        &mut self,
        bare: &mut BareParts,
        council: &Council<Members>,
        key: PublicKey,
        turn: usize,
    ) -> Result<(), String> {
        self.calls.add(bare.call().await?);
        self.syncs.add(bare.disk.sync()?);
        self.stores.add(bare.disk.store()?);
        let change = match turn % 2 {
            0 => CouncilChange::Add { key, name: "guest".to_owned() },
            _ => CouncilChange::Remove { key },
        };
        let start = now();
        let outcome = council.submit(change, None, SOON).await.map_err(|error| error.to_string())?;
        self.commits.add(start.elapsed());
        match outcome {
            Outcome::Committed(_) => Ok(()),
            other => Err(format!("an operation was not committed: {other:?}")),
        }
    }

    fn rows(mut self, what: &str, times: f64) -> Vec<Row> {
        let [call, sync, store] = [&mut self.calls, &mut self.syncs, &mut self.stores].map(|it| it.ms(500));
        let (median, p99) = (self.commits.ms(500), self.commits.ms(990));
        let bound = times * (call + sync) + 1.0;
        let label = format!("{times} × (call + fdatasync) + 1 ms");
        let row = |what: &str, ours| Row::beside(what, "ms", ours, ("", f64::NAN));
        vec![
            Row::beside(&format!("commit, {what}, p50"), "ms", median, (&label, bound))
                .bar("≤ 1 ×", median <= bound),
            row(&format!("commit, {what}, p99"), p99),
            row("  beside: bare call, p50", call),
            row("  beside: bare fdatasync, p50", sync),
            row("  beside: bare redb commit, p50", store),
        ]
    }
}

/// The parts of a commit without any other layer.
struct BareParts {
    link: Link,
    disk: BareDisk,
}

impl BareParts {
    fn new(folder: &Path, acceptors: &Acceptors) -> Result<Self, String> {
        let first = acceptors.addresses().into_iter().next().ok_or("there is no acceptor")?;
        let remote = PeerAddress { key: first.key, address: first.address };
        let options = LinkOptions { role: ROLE, ..LinkOptions::default() };
        let key = SecretKey::generate().map_err(|error| error.to_string())?;
        let (link, _) = Link::new(&key, remote, options).map_err(|error| error.to_string())?;
        Ok(Self { link, disk: BareDisk::new(folder)? })
    }

    /// Measures a request that does not involve the disk.
    async fn call(&self) -> Result<Duration, String> {
        // The first call connects.
        self.link.connect().await.map_err(|error| error.to_string())?;
        let start = now();
        let reply: Result<LinkReply, _> = self.link.call_value(&LinkRequest::Identify).await;
        reply.map_err(|error| error.to_string())?;
        Ok(start.elapsed())
    }
}
