//! Requests through the writer, as they arrive from the network: many at once behind one commit, for councils that
//! are loaded and evicted, in processes that are killed. The answers must equal those of the acceptors alone.

use std::collections::BTreeMap;
use std::thread::JoinHandle;

use fastrand::Rng;
use futures_util::future::join_all;
use holdoff_council::acceptor::{AcceptorLimits, LinkRequest, Store, Watcher, Writer};
use holdoff_council::{
    AcceptorReply, AcceptorRequest, CouncilAcceptor, CouncilId, Digest, NodeId, PublicKey, Quota, Recipient,
    RequestRefusal, Requester,
};
use holdoff_disk::faulty::FaultyDisk;
use holdoff_testbed::Seeds;
use tokio::task::coop::unconstrained;

use super::{TestSigner, mutated_request, requester};

/// A small quota, so that a council is full within the short life of a process.
const QUOTA: Quota = Quota { slots: 6, bytes: 1000, announced: 8, mail_messages: 2 };

/// The number of requests that wait for the disk at once.
const AT_ONCE: u64 = 64;
/// The number of such batches before the process is killed.
const BATCHES: u64 = 16;
/// The number of councils in the requests, and the limit of councils.
const COUNCILS: u8 = 5;
const MAX_COUNCILS: usize = 4;

fn limits() -> AcceptorLimits {
    // Two of the four councils fit into memory.
    AcceptorLimits {
        councils: MAX_COUNCILS,
        council: QUOTA,
        memory_bytes: 16_000,
        ..AcceptorLimits::default()
    }
}

#[derive(Clone, Debug)]
struct NullWatcher;

impl Watcher for NullWatcher {
    type Id = u8;

    fn id(&self) -> u8 {
        1
    }

    fn key(&self) -> PublicKey {
        requester().key
    }

    fn push(&self, _: &[u8]) -> bool {
        true
    }
}

/// The expected state of the acceptor.
#[derive(Default)]
struct Mirror {
    acceptors: BTreeMap<CouncilId, CouncilAcceptor>,
    counts: DeviceCounters,
}

#[derive(Default, Debug)]
struct DeviceCounters {
    requested: u64,
    read: u64,
    refused: BTreeMap<&'static str, u64>,
    stored: u64,
    kills: u64,
}

impl Mirror {
    fn answer(
        &mut self,
        council: CouncilId,
        requester: &Requester,
        request: AcceptorRequest,
    ) -> Vec<AcceptorReply> {
        let is_known = self.acceptors.contains_key(&council);
        let introduces = matches!(request, AcceptorRequest::Introduce { .. });
        if introduces && !is_known && self.acceptors.len() >= MAX_COUNCILS {
            *self.counts.refused.entry(RequestRefusal::TooManyCouncils.name()).or_default() += 1;
            return vec![AcceptorReply::Refused { slot: None, why: RequestRefusal::TooManyCouncils }];
        }
        let mut acceptor =
            self.acceptors.remove(&council).unwrap_or_else(|| CouncilAcceptor::new(council, QUOTA));
        let held = acceptor.answer(requester, request, &TestSigner);
        let is_stored = held.record().is_some();
        self.counts.stored += u64::from(is_stored);
        if is_known || is_stored {
            self.acceptors.insert(council, acceptor);
        }
        let answers = held.release(|_| Ok::<_, ()>(())).unwrap();
        let replies =
            answers.into_iter().filter(|answer| answer.to == Recipient::Requester).map(|answer| answer.reply);
        let replies: Vec<_> = replies.collect();
        if let Some(AcceptorReply::Refused { why, .. }) = replies.first() {
            *self.counts.refused.entry(why.name()).or_default() += 1;
        }
        replies
    }
}

/// Removes what is in memory only and is lost with it: the announced operations and the offered snapshot.
fn durable(mut replies: Vec<AcceptorReply>) -> Vec<AcceptorReply> {
    for reply in &mut replies {
        if let AcceptorReply::Promise { announced, .. } | AcceptorReply::Accepted { announced, .. } = reply {
            announced.clear();
        }
        if let AcceptorReply::Report(report) = reply {
            report.offered = Digest::default();
        }
    }
    replies
}

fn summary(acceptor: &CouncilAcceptor) -> impl PartialEq + std::fmt::Debug + use<> {
    (acceptor.bytes(), acceptor.slots(), acceptor.latest(), acceptor.floor(), acceptor.mail_count())
}

fn start(disk: &FaultyDisk) -> (Writer<NullWatcher>, JoinHandle<()>) {
    Writer::start(Store::open_with(disk.handle(), 7).unwrap(), limits()).unwrap()
}

/// Sends all these requests at once, and compares the answers.
async fn request(writer: &Writer<NullWatcher>, mirror: &mut Mirror, seeds: std::ops::Range<u64>) {
    let (mut requests, mut expected) = (Vec::new(), Vec::new());
    for seed in seeds.clone() {
        let mut rng = Rng::with_seed(seed);
        let number = rng.u8(0..COUNCILS);
        let bytes = mutated_request(&mut rng, number);
        mirror.counts.requested += 1;
        let Ok(LinkRequest::Council { incarnation, council, request }) = holdoff_net::decode(&bytes) else {
            continue;
        };
        mirror.counts.read += 1;
        let requester =
            Requester { node: NodeId::derive(requester().key.as_bytes(), incarnation), ..requester() };
        expected.push(mirror.answer(council, &requester, request.clone()));
        requests.push(writer.request(
            council,
            requester,
            request,
            rng.bool().then_some(NullWatcher),
            &TestSigner,
        ));
    }
    // The requests enter the queue in this order and are answered in it, unless tokio suspends some of them before
    // that.
    let replies = unconstrained(join_all(requests)).await;
    for (replies, expected) in replies.into_iter().zip(expected) {
        let replies = replies.unwrap_or_else(|stopped| panic!("{}: {stopped}", replay(&seeds)));
        assert_eq!(durable(replies), durable(expected), "{}", replay(&seeds));
    }
}

fn replay(seeds: &std::ops::Range<u64>) -> String {
    let cases = AT_ONCE * BATCHES;
    let first = seeds.start - seeds.start % cases;
    format!(
        "replay: HOLDOFF_SEED={first} HOLDOFF_SEEDS={cases} cargo test -p holdoff-council \
         --all-features --test it fuzz::writer"
    )
}

/// Checks that another process finds the state on which the answers of this one depend.
fn check_stored(disk: &FaultyDisk, mirror: &Mirror) {
    let store = Store::open_with(disk.handle(), 0).unwrap();
    assert_eq!((store.incarnation(), store.councils()), (7, mirror.acceptors.len()));
    for (council, acceptor) in &mirror.acceptors {
        let mut again = CouncilAcceptor::new(*council, QUOTA);
        store.load(*council).unwrap().into_iter().for_each(|record| again.restore(record));
        assert_eq!(summary(&again), summary(acceptor));
    }
}

#[tokio::test]
async fn a_writer_survives_malformed_requests() {
    let seeds = Seeds::new(300_000, 300_000);
    let (start_at, cases) = (seeds.range().start, seeds.count());
    let mut mirror = Mirror::default();
    for incarnation in (start_at..start_at + cases).step_by(usize::try_from(AT_ONCE * BATCHES).unwrap()) {
        mirror.acceptors.clear();
        let (disk, mut rng) = (FaultyDisk::default(), Rng::with_seed(incarnation));
        let (writer, thread) = start(&disk);
        writer.joined(1);
        for batch in 0..BATCHES {
            let first = incarnation + batch * AT_ONCE;
            request(&writer, &mut mirror, first..(first + AT_ONCE).min(start_at + cases)).await;
        }
        drop(writer);
        thread.join().unwrap();
        disk.crash(|| rng.u32(..));
        mirror.counts.kills += 1;
        check_stored(&disk, &mirror);
    }
    let counts = &mirror.counts;
    println!("{counts:?}");
    assert_eq!(counts.requested, cases, "every case was requested");
    let refusals = ["foreign_ballot", "unsigned", "full", "too_many_councils"];
    let is_hit = |refusal: &&str| counts.refused.get(*refusal).is_some_and(|times| times * 1000 > cases);
    assert!(
        cases < 10_000 || refusals.iter().all(is_hit),
        "too few requests were refused for each reason: {counts:?}"
    );
    assert!(cases < 10_000 || counts.stored * 20 > cases, "{counts:?}");
}
