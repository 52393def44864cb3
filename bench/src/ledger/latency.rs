//! One client, every commit on disk: the time from `submit` to the acknowledgement.
//!
//! Beside each transaction the benchmark measures one bare call over a link, one bare file sync and one bare
//! store commit, so that disturbances of the machine affect all of them.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use holdoff_ledger::Options;
use holdoff_ledger::runtime::{DefaultMachine, Node};
use holdoff_net::{
    AllowList, Handler, HandlerError, Link, LinkOptions, Peer, PeerAddress, SecretKey, Server, ServerOptions,
};

use super::cluster::{Cluster, SubmitTarget};
use crate::measure::{BareDisk, Times, now};
use crate::row::Row;

/// The number of transactions, after a warm-up; fewer if they exceed the time limit.
const TRANSACTIONS: u64 = 400;
const WARM: u64 = 8;
const LIMIT: Duration = Duration::from_secs(5);
/// The approximate size of a sent transaction.
const REQUEST: [u8; 400] = [7; 400];

pub(super) async fn rows() -> Result<Vec<Row>, String> {
    let cluster = Cluster::start(false, Options::default()).await?;
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut bare = BareParts::start(BareDisk::new(folder.path())?).await?;
    let at_leader = measure(&cluster.leader().await?, &mut bare).await?;
    let at_follower = measure(&cluster.follower().await?.1, &mut bare).await?;
    let mut rows = at_leader.rows();
    rows.extend(at_follower.rows_without_bar());
    Ok(rows)
}

async fn measure(node: &Node<DefaultMachine>, bare: &mut BareParts) -> Result<TransactionTimes, String> {
    let mut times = TransactionTimes::default();
    for turn in 0..WARM {
        node.put(0, turn).await?;
        bare.call().await?;
    }
    let end = now() + LIMIT;
    for turn in WARM..WARM + TRANSACTIONS {
        if now() >= end {
            break;
        }
        times.calls.add(bare.call().await?);
        times.syncs.add(bare.disk.sync()?);
        times.stores.add(bare.disk.store()?);
        let start = now();
        let again = node.put(0, turn).await?;
        if again == 0 {
            times.transactions.add(start.elapsed());
        }
    }
    Ok(times)
}

/// The durations of transactions and of their parts.
#[derive(Default)]
struct TransactionTimes {
    transactions: Times,
    calls: Times,
    syncs: Times,
    stores: Times,
}

impl TransactionTimes {
    fn rows(mut self) -> Vec<Row> {
        let [call, sync, store] = [&mut self.calls, &mut self.syncs, &mut self.stores].map(|it| it.ms(500));
        let (median, p99) = (self.transactions.ms(500), self.transactions.ms(990));
        let bound = call + sync + 1.0;
        vec![
            Row::beside("one client at the leader, p50", "ms", median, ("call + fdatasync + 1 ms", bound))
                .bar("≤ 1 ×", median <= bound),
            row("one client at the leader, p99", p99),
            row("  beside: bare call, p50", call),
            row("  beside: bare fdatasync, p50", sync),
            row("  beside: bare redb commit, p50", store),
        ]
    }

    fn rows_without_bar(mut self) -> Vec<Row> {
        vec![
            row("one client at a follower, p50", self.transactions.ms(500)),
            row("one client at a follower, p99", self.transactions.ms(990)),
        ]
    }
}

fn row(what: &str, ours: f64) -> Row {
    Row::beside(what, "ms", ours, ("", f64::NAN))
}

/// The parts of a transaction without any other layer.
struct BareParts {
    link: Link,
    disk: BareDisk,
    _server: Server,
}

/// Returns the request.
struct Echo;

#[async_trait]
impl Handler for Echo {
    async fn call(&self, _: &Peer, request: Bytes) -> Result<Bytes, HandlerError> {
        Ok(request)
    }
}

impl BareParts {
    async fn start(disk: BareDisk) -> Result<Self, String> {
        let [mine, theirs] = [SecretKey::generate(), SecretKey::generate()];
        let (mine, theirs) =
            (mine.map_err(|error| error.to_string())?, theirs.map_err(|error| error.to_string())?);
        let options = ServerOptions { allow: AllowList::only([mine.public()]), ..ServerOptions::default() };
        let server = Server::start(&theirs, "127.0.0.1:0", Echo, options).await;
        let server = server.map_err(|error| error.to_string())?;
        let remote = PeerAddress { key: theirs.public(), address: server.address().to_string() };
        let link = Link::new(&mine, remote, LinkOptions::default());
        let (link, _) = link.map_err(|error| error.to_string())?;
        Ok(Self { link, disk, _server: server })
    }

    /// Measures a round trip over a link like those between nodes.
    async fn call(&self) -> Result<Duration, String> {
        let start = now();
        self.link.call(Bytes::from_static(&REQUEST)).await.map_err(|error| error.to_string())?;
        Ok(start.elapsed())
    }
}
