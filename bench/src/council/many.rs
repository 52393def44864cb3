//! A thousand councils on one set of acceptors, each with a writer that submits operations one after the other: operations
//! that leave the members as they are, and changes of the members, which the acceptors store, too.
//!
//! The writers are the devices' core in this process, without disks, over a few links: the benchmark measures
//! the acceptors. Every acceptor commits before it replies, and one commit serves all waiting requests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use holdoff_council::acceptor::{LinkReply, LinkRequest, ROLE};
use holdoff_council::machine::{AcceptorInfo, Members};
use holdoff_council::runtime::{Settings, identify_acceptor};
use holdoff_council::{
    AcceptorReply, CouncilId, CouncilState, Device, Ed25519, Input, NodeId, OperationId, Outcome, Output,
};
use holdoff_driver::{Driver, WriteOptions};
use holdoff_net::{Link, LinkOptions, PeerAddress, SecretKey};
use tokio::task::JoinSet;

use super::acceptors::{Acceptors, CommitCounters};
use super::register::{Load, Register};
use crate::measure::{Times, now};
use crate::row::Row;

const COUNCILS: usize = 1000;
/// The number of links to each acceptor, because a link has a limit of concurrent requests.
const LINKS: usize = 8;
const WARM: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(10);
const SOON_US: u64 = 30_000_000;
/// The incarnation of the writers' storage, which does not exist.
const INCARNATION: u64 = 1;

pub(super) async fn rows(acceptors: &mut Acceptors) -> Result<Vec<Row>, String> {
    let one = round::<Register>(acceptors, 1).await?;
    let many = round::<Register>(acceptors, COUNCILS).await?;
    let one_changes = round::<Members>(acceptors, 1).await?.per_second;
    let changes = round::<Members>(acceptors, COUNCILS).await?.per_second;
    let row = |name: &str, unit, pick: fn(&RoundFigures) -> f64| {
        Row::beside(name, unit, pick(&many), ("one council", pick(&one)))
    };
    Ok(vec![
        row("1000 councils: commits in all", "/s", |round| round.per_second),
        row("1000 councils: a commit takes, p50", "ms", |round| round.median_ms),
        row("1000 councils: a commit takes, p99", "ms", |round| round.p99_ms),
        row("1000 councils: requests in a batch", "", |round| round.batch),
        row("1000 councils: fsyncs for a commit", "", |round| round.syncs),
        row("1000 councils: an fsync takes, mean", "ms", |round| round.sync_ms),
        Row::beside("1000 councils: changes of members in all", "/s", changes, ("one council", one_changes)),
    ])
}

/// The figures of a round. Batches and fsyncs are the average of one acceptor.
struct RoundFigures {
    per_second: f64,
    median_ms: f64,
    p99_ms: f64,
    batch: f64,
    syncs: f64,
    sync_ms: f64,
}

async fn round<M>(acceptors: &mut Acceptors, councils: usize) -> Result<RoundFigures, String>
where
    M: Load + Send + 'static,
    M::Change: Send,
{
    let key = SecretKey::generate().map_err(|error| error.to_string())?;
    let options = LinkOptions { role: ROLE, ..LinkOptions::default() };
    let mut deciding = Vec::new();
    for address in acceptors.addresses() {
        deciding.push(identify_acceptor(&key, &address, &options).await.map_err(|error| error.to_string())?);
    }
    let mut links = Vec::new();
    for _ in 0..LINKS.min(councils) {
        links.push(Arc::new(connect(&key, &deciding, &options)?));
    }
    let begin = now() + WARM;
    let end = begin + MEASURED;
    let mut writers = JoinSet::new();
    for links in links.iter().cycle().take(councils) {
        let writer = CouncilWriter::<M>::new(key.clone(), &deciding, links.clone())?;
        writers.spawn(writer.write(begin, end));
    }
    tokio::time::sleep_until(begin.into()).await;
    let before = acceptors.counters()?;
    tokio::time::sleep_until(end.into()).await;
    let after = acceptors.counters()?;
    let mut times = Times::default();
    while let Some(written) = writers.join_next().await {
        times.join(written.map_err(|error| error.to_string())??);
    }
    Ok(figures(times, after.into_iter().zip(before).map(|(after, before)| after.since(before))))
}

#[expect(clippy::cast_precision_loss, reason = "a few figures of a count are enough")]
fn figures(mut times: Times, counters: impl ExactSizeIterator<Item = CommitCounters>) -> RoundFigures {
    let (commits, acceptors) = (times.len() as f64, counters.len() as f64);
    let sum = counters.fold(CommitCounters::default(), |sum, one| CommitCounters {
        requests: sum.requests + one.requests,
        batches: sum.batches + one.batches,
        commits: sum.commits + one.commits,
        commit_us: sum.commit_us + one.commit_us,
    });
    RoundFigures {
        per_second: commits / MEASURED.as_secs_f64(),
        median_ms: times.ms(500),
        p99_ms: times.ms(990),
        batch: sum.requests as f64 / sum.batches as f64,
        syncs: sum.commits as f64 / acceptors / commits,
        sync_ms: sum.commit_us as f64 / sum.commits as f64 / 1e3,
    }
}

type Links = BTreeMap<NodeId, Link>;

fn connect(key: &SecretKey, acceptors: &[AcceptorInfo], options: &LinkOptions) -> Result<Links, String> {
    let link = |acceptor: &AcceptorInfo| {
        let remote = PeerAddress { key: acceptor.key, address: acceptor.address.clone() };
        let (link, _) = Link::new(key, remote, options.clone()).map_err(|error| error.to_string())?;
        Ok((acceptor.id(), link))
    };
    acceptors.iter().map(link).collect()
}

/// The writer of one council.
struct CouncilWriter<M: Load> {
    council: CouncilId,
    driver: Driver<Device<M>>,
    links: Arc<Links>,
    guest: holdoff_council::PublicKey,
    rolls: Rng,
    started: Instant,
    calls: JoinSet<(NodeId, Vec<AcceptorReply>)>,
    ended: Option<Outcome>,
}

impl<M: Load> CouncilWriter<M> {
    fn new(key: SecretKey, acceptors: &[AcceptorInfo], links: Arc<Links>) -> Result<Self, String> {
        let mut rolls = Rng::new();
        let mut nonce = [0; 16];
        rolls.fill(&mut nonce);
        let public = key.public();
        let machine = M::create(public, acceptors).map_err(|error| error.to_string())?;
        let state = CouncilState::found(machine, nonce);
        let council = state.council();
        let me = NodeId::derive(public.as_bytes(), INCARNATION);
        let device = Device::new(me, Box::new(key), Box::new(Ed25519), state, Settings::default().device);
        let guest = SecretKey::generate().map_err(|error| error.to_string())?.public();
        let (started, calls) = (now(), JoinSet::new());
        let driver = Driver::new(device, WriteOptions::default());
        Ok(Self { council, driver, links, guest, rolls, started, calls, ended: None })
    }

    /// Commits one change after the other; returns the durations of those that ended in time.
    async fn write(mut self, begin: Instant, end: Instant) -> Result<Times, String> {
        let mut times = Times::default();
        for turn in 0_u64.. {
            let start = now();
            if start >= end {
                break;
            }
            match self.commit(turn).await {
                Outcome::Committed(_) => {}
                other => return Err(format!("an operation was not committed: {other:?}")),
            }
            let done = now();
            if (begin..end).contains(&done) {
                times.add(done - start);
            }
        }
        Ok(times)
    }

    async fn commit(&mut self, turn: u64) -> Outcome {
        let change = M::change(turn, self.guest);
        let mut id = [0; 16];
        self.rolls.fill(&mut id);
        let deadline_us = self.now_us() + SOON_US;
        self.step(Input::Submit { id: OperationId(id), change, mail: None, deadline_us });
        loop {
            if let Some(outcome) = self.ended.take() {
                return outcome;
            }
            let wake = self.started + Duration::from_micros(self.driver.core().wake_at());
            tokio::select! {
                Some(Ok((from, replies))) = self.calls.join_next() => {
                    for reply in replies {
                        self.step(Input::Reply { from, reply });
                    }
                }
                () = tokio::time::sleep_until(wake.into()) => self.step(Input::Tick),
            }
        }
    }

    fn step(&mut self, input: Input<M::Change>) {
        let now_us = self.now_us();
        let rolls = &mut self.rolls;
        self.driver.step(now_us, &mut || rolls.u32(..), input);
        let Ok(()) = self.driver.write_through(now_us, &mut || rolls.u32(..), |_| Ok::<_, Infallible>(()));
        for output in self.driver.take_outputs() {
            match output {
                Output::Send { to, request } => {
                    let Some(link) = self.links.get(&to).cloned() else { continue };
                    let request =
                        LinkRequest::Council { incarnation: INCARNATION, council: self.council, request };
                    self.calls.spawn(async move {
                        // Lost requests are sent again.
                        let reply: Result<LinkReply, _> = link.call_value(&request).await;
                        (to, reply.map(|reply| reply.replies).unwrap_or_default())
                    });
                }
                Output::Ended { outcome, .. } => self.ended = Some(outcome),
                _ => {}
            }
        }
    }

    fn now_us(&self) -> u64 {
        holdoff_policy::as_micros_u64(self.started.elapsed())
    }
}
