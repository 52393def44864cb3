use std::sync::mpsc as sync;

use holdoff_net::SecretKey;
use holdoff_paxos::slot::{AcceptReply, PromiseReply, Record, Vote};
use holdoff_paxos::{Ballot, Slot};

use super::*;
use crate::acceptor::Sort;
use crate::{
    AcceptorRecord, AccessChange, Batch, CouncilSnapshot, Digest, Ed25519, Endorsement, Founding, NodeId,
    Quota, RequestRefusal, SlotValue,
};
use holdoff_disk::faulty::FaultyDisk;

/// A connection that keeps all pushed messages.
#[derive(Clone, Debug)]
struct TestWatcher {
    id: u32,
    key: PublicKey,
    pushes: sync::Sender<LinkPush>,
}

impl Watcher for TestWatcher {
    type Id = u32;

    fn id(&self) -> u32 {
        self.id
    }

    fn key(&self) -> PublicKey {
        self.key
    }

    fn push(&self, message: &[u8]) -> bool {
        self.pushes.send(postcard::from_bytes(message).unwrap()).is_ok()
    }
}

/// A device with a key of its own.
#[derive(Clone)]
struct Device {
    key: SecretKey,
    requester: Requester,
}

impl Device {
    fn new(number: u8) -> Self {
        let key = SecretKey::from_secret(&[number; 32]);
        let requester = Requester { key: key.public(), node: NodeId::derive(key.public().as_bytes(), 1) };
        Self { key, requester }
    }

    fn ballot(&self, slot: u64, attempt: u64) -> Ballot {
        Ballot::new(Slot(slot), attempt, self.requester.node)
    }

    fn prepare(&self, slot: u64, attempt: u64) -> AcceptorRequest {
        let ballot = self.ballot(slot, attempt);
        AcceptorRequest::Prepare { slot: Slot(slot), ballot, announce: Vec::new() }
    }

    fn accept(&self, council: CouncilId, slot: u64, attempt: u64, size: usize) -> AcceptorRequest {
        let value = self.value(council, slot, size);
        AcceptorRequest::Accept { slot: Slot(slot), ballot: self.ballot(slot, attempt), value, next: None }
    }

    fn value(&self, council: CouncilId, slot: u64, size: usize) -> SlotValue {
        let withdrawn = vec![crate::OperationId([1; 16]); size / 16];
        let batch = Batch { previous: Digest::default(), operations: Vec::new(), withdrawn, nonce: slot };
        SlotValue::sign(council, Slot(slot), &batch, None, false, &self.key).unwrap()
    }
}

/// Returns the founding record of a council with the devices 1, 2 and 9.
fn founding(number: u8) -> Founding {
    let members = [1, 2, 9].map(|device| Device::new(device).key.public()).into();
    Founding { members, state: Digest::default(), nonce: [number; 16], recovered: None }
}

fn council(number: u8) -> CouncilId {
    founding(number).council()
}

/// Starts a writer that knows council 1.
async fn start(disk: &FaultyDisk, limits: AcceptorLimits) -> Writer<TestWatcher> {
    let writer = Writer::start(Store::open_with(disk.handle(), 42).unwrap(), limits).unwrap().0;
    introduce(&writer, 1).await;
    writer
}

async fn introduce(writer: &Writer<TestWatcher>, number: u8) -> AcceptorReply {
    request(writer, &Device::new(1), council(number), founding(number).introduction()).await.unwrap()
}

/// Opens the store again after the writer has ended.
async fn reopen(disk: &FaultyDisk, writer: Writer<TestWatcher>) -> Store {
    let health = Arc::downgrade(&writer.shared);
    drop(writer);
    while health.upgrade().is_some() {
        tokio::task::yield_now().await;
    }
    Store::open_with(disk.handle(), 0).unwrap()
}

async fn request(
    writer: &Writer<TestWatcher>,
    device: &Device,
    council: CouncilId,
    request: AcceptorRequest,
) -> Result<AcceptorReply, AcceptorStopped> {
    let mut replies = writer.request(council, device.requester, request, None, &Ed25519).await?;
    Ok(replies.remove(0))
}

fn refusal(reply: &AcceptorReply) -> Option<RequestRefusal> {
    match reply {
        AcceptorReply::Refused { why, .. } => Some(*why),
        _ => None,
    }
}

fn is_promised(reply: &AcceptorReply) -> bool {
    matches!(reply, AcceptorReply::Promise { reply: PromiseReply::Promise { .. }, .. })
}

fn is_accepted(reply: &AcceptorReply) -> bool {
    matches!(reply, AcceptorReply::Accepted { reply: AcceptReply::Accepted { .. }, .. })
}

/// A device that loses continues with a higher ballot. In every order, the ballots of the votes rise, and no vote
/// is for a refused ballot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_writer_serializes_racing_prepare_requests() {
    let disk = FaultyDisk::default();
    let writer = start(&disk, AcceptorLimits::default()).await;
    let (pushes, received) = sync::channel();
    writer.joined(9);
    let watcher = Some(TestWatcher { id: 9, key: Device::new(9).key.public(), pushes });
    let requester = Device::new(9).requester;
    writer
        .request(council(1), requester, AcceptorRequest::Fetch { after: Slot(0) }, watcher, &Ed25519)
        .await
        .unwrap();
    let race = |number: u8| {
        let (writer, device) = (writer.clone(), Device::new(number));
        tokio::spawn(async move {
            let (mut granted, mut voted) = (Vec::new(), Vec::new());
            for attempt in 1..150 {
                let reply = request(&writer, &device, council(1), device.prepare(1, attempt)).await.unwrap();
                if !is_promised(&reply) {
                    continue;
                }
                granted.push(device.ballot(1, attempt));
                let accept = device.accept(council(1), 1, attempt, 0);
                if is_accepted(&request(&writer, &device, council(1), accept).await.unwrap()) {
                    voted.push(device.ballot(1, attempt));
                }
            }
            (granted, voted)
        })
    };
    let (one, other) = (race(1), race(2));
    let (mut granted, mut voted) = one.await.unwrap();
    let (other_granted, other_voted) = other.await.unwrap();
    granted.extend(other_granted);
    voted.extend(other_voted);
    voted.sort_unstable();
    let votes = |push: LinkPush| match push.reply {
        AcceptorReply::Voted { vote, .. } => vote.ballot,
        other => panic!("{other:?}"),
    };
    let order: Vec<_> = received.try_iter().map(votes).collect();
    assert!(order.is_sorted() && order == voted, "votes are pushed in the order of their acceptance");
    let usage = reopen(&disk, writer).await.load(council(1)).unwrap();
    let ballots = usage.iter().filter_map(|stored| match stored {
        AcceptorRecord::Slot(_, Record::Promised(ballot)) => Some(ballot),
        _ => None,
    });
    assert_eq!(ballots.max(), granted.iter().max(), "the highest promise is the one on disk");
}

#[tokio::test]
async fn queued_requests_share_one_commit() {
    let (disk, device) = (FaultyDisk::default(), Device::new(1));
    let writer = start(&disk, AcceptorLimits::default()).await;
    for number in 0..200 {
        introduce(&writer, number).await;
    }
    let before = disk.syncs();
    let requests = (0..200_u8).map(|number| {
        let (writer, device) = (writer.clone(), device.clone());
        tokio::spawn(async move {
            let council = council(number);
            is_promised(&request(&writer, &device, council, device.prepare(1, 1)).await.unwrap())
        })
    });
    let requests: Vec<_> = {
        let _paused = disk.pause();
        let requests = requests.collect();
        // The first request is at the disk by now, or will be; the others wait.
        for _ in 0..300 {
            tokio::task::yield_now().await;
        }
        requests
    };
    for request in requests {
        assert!(request.await.unwrap());
    }
    let syncs = disk.syncs() - before;
    assert!(syncs <= 4, "{syncs} syncs for 200 promises");
    assert_eq!(reopen(&disk, writer).await.councils(), 200);
}

#[tokio::test]
async fn a_disk_failure_stops_the_acceptor() {
    let (disk, device) = (FaultyDisk::default(), Device::new(1));
    let writer = start(&disk, AcceptorLimits::default()).await;
    let (pushes, received) = sync::channel();
    writer.joined(9);
    let watch = Some(TestWatcher { id: 9, key: Device::new(9).key.public(), pushes });
    writer
        .request(council(1), device.requester, AcceptorRequest::Fetch { after: Slot(0) }, watch, &Ed25519)
        .await
        .unwrap();
    assert!(is_promised(&request(&writer, &device, council(1), device.prepare(1, 1)).await.unwrap()));
    let look = writer.inspector();
    assert_eq!(look.stopped(), None);
    disk.stop_syncing();
    let accept = device.accept(council(1), 1, 1, 0);
    assert!(request(&writer, &device, council(1), accept).await.is_err());
    let stopped =
        request(&writer, &device, council(1), AcceptorRequest::Fetch { after: Slot(0) }).await.unwrap_err();
    assert!(stopped.to_string().contains("does not sync any more"), "{stopped}");
    assert_eq!(look.stopped(), Some(stopped.0.clone()));
    let sources = std::iter::successors(std::error::Error::source(&stopped), |error| error.source());
    let causes: Vec<_> = sources.collect();
    assert!(causes.iter().any(|cause| cause.is::<StoreError>()), "{causes:?}");
    assert!(causes.iter().any(|cause| cause.is::<holdoff_disk::DiskError>()), "{causes:?}");
    assert_eq!(stopped.classify(&ClassMap::default()), Failure::permanent());
    let query = CouncilQuery { sort: Sort::LastRequest, after: None, limit: 10 };
    assert_eq!(look.councils(query).await, Err(stopped));
    assert_eq!(look.stats().requests["prepare"], 1, "the counts stay readable after a failure");
    assert!(received.try_recv().is_err(), "an unstored vote is not pushed");
}

#[tokio::test]
async fn an_evicted_council_keeps_its_promises() {
    let (disk, device) = (FaultyDisk::default(), Device::new(1));
    let writer = start(&disk, AcceptorLimits { memory_bytes: 4000, ..AcceptorLimits::default() }).await;
    for round in [2, 1] {
        for number in 0..50 {
            let council = council(number);
            introduce(&writer, number).await;
            let reply = request(&writer, &device, council, device.prepare(1, round)).await.unwrap();
            assert_eq!(is_promised(&reply), round == 2, "the acceptor keeps its promise");
            let reply =
                request(&writer, &device, council, device.accept(council, 1, round, 300)).await.unwrap();
            assert_eq!(is_accepted(&reply), round == 2);
        }
    }
}

#[tokio::test]
async fn a_full_acceptor_refuses_new_councils_and_keeps_the_others() {
    let (disk, device) = (FaultyDisk::default(), Device::new(1));
    let quota = Quota { slots: 3, bytes: 3000, ..Quota::default() };
    let writer =
        start(&disk, AcceptorLimits { councils: 2, council: quota, ..AcceptorLimits::default() }).await;
    let [first, second, third] = [1, 2, 3].map(council);
    introduce(&writer, 2).await;
    for council in [first, second] {
        assert!(is_promised(&request(&writer, &device, council, device.prepare(1, 1)).await.unwrap()));
    }
    assert_eq!(refusal(&introduce(&writer, 3).await), Some(RequestRefusal::TooManyCouncils));
    let reply = request(&writer, &device, third, AcceptorRequest::Collect).await.unwrap();
    assert_eq!(refusal(&reply), None, "a read does not count towards the limit");

    let accept = |slot, size| request(&writer, &device, first, device.accept(first, slot, 1, size));
    assert!(is_accepted(&accept(1, 1600).await.unwrap()));
    assert_eq!(
        refusal(&accept(2, 1600).await.unwrap()),
        Some(RequestRefusal::Full),
        "the value exceeds the bytes of the quota"
    );
    assert!(is_promised(&request(&writer, &device, first, device.prepare(2, 1)).await.unwrap()));
    assert_eq!(
        refusal(&accept(2, 1600).await.unwrap()),
        Some(RequestRefusal::Full),
        "a promise does not raise the quota"
    );
    assert!(is_accepted(&accept(2, 0).await.unwrap()));
    assert!(is_accepted(&accept(3, 0).await.unwrap()));
    assert_eq!(
        refusal(&accept(4, 0).await.unwrap()),
        Some(RequestRefusal::Full),
        "the slot exceeds the slots of the quota"
    );
    assert!(is_accepted(&accept(1, 1600).await.unwrap()), "a repeated request for a stored slot is accepted");

    let snapshot = CouncilSnapshot { slot: Slot(3), bytes: vec![1; 100].into() };
    for member in [&device, &Device::new(2)] {
        let endorsement = Endorsement::sign(first, Slot(3), snapshot.digest(), Slot(0), &member.key);
        request(&writer, member, first, AcceptorRequest::Endorse(endorsement)).await.unwrap();
    }
    let offer = AcceptorRequest::Compact { snapshot, certificate: Vec::new() };
    let reply = request(&writer, &device, first, offer).await.unwrap();
    assert!(matches!(reply, AcceptorReply::Report(report) if report.floor == Slot(3)), "{reply:?}");
    assert!(is_accepted(&accept(4, 1600).await.unwrap()), "the council has room after the compaction");
    let store = reopen(&disk, writer).await;
    assert_eq!((store.councils(), store.knows(&third)), (2, false));
    let usage = store.load(first).unwrap();
    let [
        AcceptorRecord::Snapshot(snapshot, _),
        AcceptorRecord::Access(_),
        AcceptorRecord::Slot(Slot(4), Record::Accepted(vote)),
    ] = &usage[..]
    else {
        panic!("{usage:?}");
    };
    assert_eq!((snapshot.slot, vote.ballot), (Slot(3), device.ballot(4, 1)));
}

#[tokio::test]
async fn a_refused_request_changes_nothing() {
    let (disk, device, other) = (FaultyDisk::default(), Device::new(1), Device::new(2));
    let writer = start(&disk, AcceptorLimits::default()).await;
    assert!(is_accepted(
        &request(&writer, &device, council(1), device.accept(council(1), 1, 5, 64)).await.unwrap()
    ));
    let before = disk.image();
    let [slot, ballot] = [Slot(1), Slot(2)].map(|slot| (slot, device.ballot(slot.0, 7)));
    let good = device.value(council(1), 1, 64);
    let accept = |ballot, value: &SlotValue| AcceptorRequest::Accept {
        slot: Slot(1),
        ballot,
        value: value.clone(),
        next: None,
    };
    let another = council(8);
    let mut claimed = good.clone();
    claimed.author = other.key.public();
    let mail = AcceptorRequest::Post {
        id: crate::OperationId([1; 16]),
        to: device.key.public(),
        message: vec![0; 70_000].into(),
    };
    let snapshot = CouncilSnapshot { slot: Slot(1), bytes: vec![0; CouncilSnapshot::MAX_BYTES + 1].into() };
    let wrong = [
        (RequestRefusal::TooLarge, device.accept(council(1), 1, 7, SlotValue::MAX_BYTES + 100)),
        (RequestRefusal::TooLarge, AcceptorRequest::Compact { snapshot, certificate: vec![] }),
        (RequestRefusal::TooLarge, mail),
        (RequestRefusal::Unsigned, accept(slot.1, &device.value(another, 1, 64))),
        (RequestRefusal::Unsigned, accept(slot.1, &device.value(council(1), 2, 64))),
        (RequestRefusal::Unsigned, accept(slot.1, &claimed)),
        (
            RequestRefusal::Unsigned,
            AcceptorRequest::Decided {
                slot: Slot(1),
                vote: Vote { ballot: slot.1, value: device.value(council(1), 2, 0) },
            },
        ),
        (RequestRefusal::ForeignBallot, accept(other.ballot(1, 7), &good)),
        (RequestRefusal::ForeignBallot, accept(ballot.1, &good)),
        (RequestRefusal::ForeignBallot, other.prepare(1, 9)),
        (
            RequestRefusal::ForeignBallot,
            AcceptorRequest::Prepare { slot: Slot(0), ballot: device.ballot(0, 9), announce: vec![] },
        ),
        (
            RequestRefusal::ForeignBallot,
            AcceptorRequest::Decided { slot: Slot(1), vote: Vote { ballot: ballot.1, value: good.clone() } },
        ),
        (
            RequestRefusal::ForeignBallot,
            AcceptorRequest::Accept {
                slot: Slot(1),
                ballot: slot.1,
                value: good.clone(),
                next: Some(other.ballot(2, 1)),
            },
        ),
    ];
    for (why, wrong) in wrong {
        let reply = request(&writer, &device, council(1), wrong.clone()).await.unwrap();
        assert_eq!(refusal(&reply), Some(why), "{wrong:?}");
    }
    assert!(disk.image() == before, "a refused request does not change the disk");
    assert!(is_accepted(&request(&writer, &device, council(1), accept(slot.1, &good)).await.unwrap()));
}

#[tokio::test]
async fn a_watcher_receives_votes_until_it_disconnects() {
    let (disk, device) = (FaultyDisk::default(), Device::new(1));
    let writer = start(&disk, AcceptorLimits { watchers: 2, ..AcceptorLimits::default() }).await;
    let connections: Vec<_> = (0..4)
        .map(|id| {
            let (pushes, received) = sync::channel();
            (TestWatcher { id, key: device.key.public(), pushes }, received)
        })
        .collect();
    let mut watchers = Vec::new();
    let requester = device.requester;
    for (watcher, received) in connections {
        let id = watcher.id;
        if id < 3 {
            writer.joined(id);
        }
        writer
            .request(
                council(1),
                requester,
                AcceptorRequest::Fetch { after: Slot(0) },
                Some(watcher),
                &Ed25519,
            )
            .await
            .unwrap();
        watchers.push(received);
    }
    assert_eq!(
        writer.watchers(council(1)),
        2,
        "the third watcher exceeds the limit, and the fourth had disconnected"
    );
    let vote = |slot, from: u32| {
        let (pushes, _) = sync::channel();
        let accept = device.accept(council(1), slot, 1, 0);
        writer.request(
            council(1),
            requester,
            accept,
            Some(TestWatcher { id: from, key: requester.key, pushes }),
            &Ed25519,
        )
    };
    vote(1, 0).await.unwrap();
    vote(1, 0).await.unwrap();
    vote(2, 7).await.unwrap();
    writer.left(1);
    vote(3, 7).await.unwrap();
    let slots = |number: usize| {
        let slot = |push: LinkPush| match push.reply {
            AcceptorReply::Voted { slot, .. } if push.incarnation == 42 && push.council == council(1) => {
                slot.0
            }
            other => panic!("{other:?}"),
        };
        watchers[number].try_iter().map(slot).collect::<Vec<_>>()
    };
    assert_eq!(slots(0), [2, 3], "a voter receives no push of its own vote");
    assert_eq!(slots(1), [1, 2], "a watcher receives each vote once until it disconnects");
    assert!(slots(2).is_empty() && slots(3).is_empty());
}

/// The watcher is a member that is removed between two votes.
#[tokio::test]
async fn pushes_to_a_removed_member_end() {
    let (disk, device, removed) = (FaultyDisk::default(), Device::new(1), Device::new(2));
    let writer = start(&disk, AcceptorLimits::default()).await;
    let (pushes, received) = sync::channel();
    writer.joined(2);
    let watcher = TestWatcher { id: 2, key: removed.key.public(), pushes };
    let fetch = || AcceptorRequest::Fetch { after: Slot(0) };
    let watch = async || {
        writer.request(council(1), removed.requester, fetch(), Some(watcher.clone()), &Ed25519).await.unwrap()
    };
    watch().await;
    assert!(is_accepted(
        &request(&writer, &device, council(1), device.accept(council(1), 1, 1, 0)).await.unwrap()
    ));
    assert!(matches!(received.try_recv(), Ok(push) if matches!(push.reply, AcceptorReply::Voted { .. })));

    let batch = Batch { previous: Digest::default(), operations: vec![], withdrawn: vec![], nonce: 1 };
    let change = AccessChange { after: Slot(0), added: vec![], removed: vec![removed.key.public()] };
    let value = SlotValue::sign(council(1), Slot(1), &batch, Some(change), false, &device.key).unwrap();
    let changes = value.signed_access(Slot(1)).into_iter().collect();
    let reply = request(&writer, &device, council(1), AcceptorRequest::Access { changes }).await.unwrap();
    assert_eq!(refusal(&reply), None);
    watch().await;
    assert!(is_accepted(
        &request(&writer, &device, council(1), device.accept(council(1), 2, 1, 0)).await.unwrap()
    ));
    assert!(received.try_recv().is_err(), "no push after the removal");
    assert_eq!(writer.watchers(council(1)), 0);
}
