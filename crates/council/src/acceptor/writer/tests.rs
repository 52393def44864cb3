use std::sync::mpsc as sync;

use holdoff_net::Key;
use holdoff_paxos::slot::{AcceptReply, PromiseReply, Record, Vote};
use holdoff_paxos::{Ballot, Slot};

use super::*;
use crate::acceptor::Sort;
use crate::{Batch, Digest, Ed25519, Quota, Snapshot, Value, node_id};
use holdoff_disk::forgetful::Disk;

/// A connection that keeps all pushed messages.
#[derive(Debug)]
struct Line {
    id: u32,
    heard: sync::Sender<Push>,
}

impl Watcher for Line {
    type Id = u32;

    fn id(&self) -> u32 {
        self.id
    }

    fn push(&self, message: &[u8]) -> bool {
        self.heard.send(postcard::from_bytes(message).unwrap()).is_ok()
    }
}

/// A device with a key of its own.
#[derive(Clone)]
struct Device {
    key: Key,
    asker: Asker,
}

impl Device {
    fn new(number: u8) -> Self {
        let key = Key::from_secret(&[number; 32]);
        let asker = Asker { key: key.public(), node: node_id(&key.public(), 1) };
        Self { key, asker }
    }

    fn ballot(&self, slot: u64, attempt: u64) -> Ballot {
        Ballot::new(Slot(slot), attempt, self.asker.node)
    }

    fn prepare(&self, slot: u64, attempt: u64) -> Ask {
        let ballot = self.ballot(slot, attempt);
        Ask::Prepare { slot: Slot(slot), ballot, announce: Vec::new() }
    }

    fn accept(&self, council: CouncilId, slot: u64, attempt: u64, size: usize) -> Ask {
        let value = self.value(council, slot, size);
        Ask::Accept { slot: Slot(slot), ballot: self.ballot(slot, attempt), value, next: None }
    }

    fn value(&self, council: CouncilId, slot: u64, size: usize) -> Value {
        let withdrawn = vec![crate::OperationId([1; 16]); size / 16];
        let batch = Batch { previous: Digest::default(), operations: Vec::new(), withdrawn, nonce: slot };
        Value::sign(council, Slot(slot), &batch, &self.key).unwrap()
    }
}

const COUNCIL: CouncilId = CouncilId([1; 16]);

fn start(disk: &Disk, limits: Limits) -> Writer<Line> {
    Writer::start(Store::open_with(disk.handle(), 42).unwrap(), limits).unwrap().0
}

/// Opens the store again after the writer has ended.
async fn reopen(disk: &Disk, writer: Writer<Line>) -> Store {
    let health = Arc::downgrade(&writer.shared);
    drop(writer);
    while health.upgrade().is_some() {
        tokio::task::yield_now().await;
    }
    Store::open_with(disk.handle(), 0).unwrap()
}

async fn ask(writer: &Writer<Line>, device: &Device, council: CouncilId, ask: Ask) -> Result<Tell, Stopped> {
    let mut tells = writer.ask(council, device.asker, ask, None, &Ed25519).await?;
    Ok(tells.remove(0))
}

fn refusal(tell: &Tell) -> Option<Refusal> {
    match tell {
        Tell::Refused { why, .. } => Some(*why),
        _ => None,
    }
}

fn is_promised(tell: &Tell) -> bool {
    matches!(tell, Tell::Promise { reply: PromiseReply::Promise { .. }, .. })
}

fn is_accepted(tell: &Tell) -> bool {
    matches!(tell, Tell::Accepted { reply: AcceptReply::Accepted { .. }, .. })
}

/// A device that loses continues with a higher ballot. In every order, the ballots of the votes rise, and no vote
/// is for a refused ballot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_connections_that_race_on_a_promise_are_put_in_one_order() {
    let disk = Disk::default();
    let writer = start(&disk, Limits::default());
    let (heard, told) = sync::channel();
    writer.joined(9);
    let watcher = Some(Line { id: 9, heard });
    let asker = Device::new(9).asker;
    writer.ask(COUNCIL, asker, Ask::Fetch { after: Slot(0) }, watcher, &Ed25519).await.unwrap();
    let race = |number: u8| {
        let (writer, device) = (writer.clone(), Device::new(number));
        tokio::spawn(async move {
            let (mut granted, mut voted) = (Vec::new(), Vec::new());
            for attempt in 1..150 {
                let tell = ask(&writer, &device, COUNCIL, device.prepare(1, attempt)).await.unwrap();
                if !is_promised(&tell) {
                    continue;
                }
                granted.push(device.ballot(1, attempt));
                let accept = device.accept(COUNCIL, 1, attempt, 0);
                if is_accepted(&ask(&writer, &device, COUNCIL, accept).await.unwrap()) {
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
    let votes = |push: Push| match push.tell {
        Tell::Voted { vote, .. } => vote.ballot,
        other => panic!("{other:?}"),
    };
    let order: Vec<_> = told.try_iter().map(votes).collect();
    assert!(order.is_sorted() && order == voted, "votes are told in the one order they were made in");
    let kept = reopen(&disk, writer).await.load(COUNCIL).unwrap();
    let ballots = kept.iter().filter_map(|stored| match stored {
        Stored::Slot(_, Record::Promised(ballot)) => Some(ballot),
        _ => None,
    });
    assert_eq!(ballots.max(), granted.iter().max(), "the highest promise is the one on disk");
}

#[tokio::test]
async fn what_waits_for_the_disk_shares_one_commit() {
    let (disk, device) = (Disk::default(), Device::new(1));
    let writer = start(&disk, Limits::default());
    let before = disk.syncs();
    let asks = (0..200_u8).map(|number| {
        let (writer, device) = (writer.clone(), device.clone());
        tokio::spawn(async move {
            let council = CouncilId([number; 16]);
            is_promised(&ask(&writer, &device, council, device.prepare(1, 1)).await.unwrap())
        })
    });
    let asks: Vec<_> = {
        let _paused = disk.pause();
        let asks = asks.collect();
        // The first request is at the disk by now, or will be; the others wait.
        for _ in 0..300 {
            tokio::task::yield_now().await;
        }
        asks
    };
    for ask in asks {
        assert!(ask.await.unwrap());
    }
    let syncs = disk.syncs() - before;
    assert!(syncs <= 4, "{syncs} syncs for 200 promises");
    assert_eq!(reopen(&disk, writer).await.councils(), 200);
}

#[tokio::test]
async fn a_disk_that_fails_stops_the_acceptor_for_good() {
    let (disk, device) = (Disk::default(), Device::new(1));
    let writer = start(&disk, Limits::default());
    let (heard, told) = sync::channel();
    writer.joined(9);
    let watch = Some(Line { id: 9, heard });
    writer.ask(COUNCIL, device.asker, Ask::Fetch { after: Slot(0) }, watch, &Ed25519).await.unwrap();
    assert!(is_promised(&ask(&writer, &device, COUNCIL, device.prepare(1, 1)).await.unwrap()));
    let look = writer.look();
    assert_eq!(look.stopped(), None);
    disk.stop_syncing();
    let accept = device.accept(COUNCIL, 1, 1, 0);
    assert!(ask(&writer, &device, COUNCIL, accept).await.is_err());
    let stopped = ask(&writer, &device, COUNCIL, Ask::Fetch { after: Slot(0) }).await.unwrap_err();
    assert!(stopped.to_string().contains("does not sync any more"), "{stopped}");
    assert_eq!(look.stopped(), Some(stopped.0.clone()));
    let wish = Wish { sort: Sort::Asked, after: None, limit: 10 };
    assert_eq!(look.councils(wish).await, Err(stopped));
    assert_eq!(look.figures().asked["prepare"], 1, "what was counted before can still be read");
    assert!(told.try_recv().is_err(), "a vote that is not stored is told to nobody");
}

#[tokio::test]
async fn an_acceptor_with_many_councils_forgets_nothing_of_those_it_drops_from_memory() {
    let (disk, device) = (Disk::default(), Device::new(1));
    let writer = start(&disk, Limits { memory_bytes: 4000, ..Limits::default() });
    for round in [2, 1] {
        for number in 0..50 {
            let council = CouncilId([number; 16]);
            let told = ask(&writer, &device, council, device.prepare(1, round)).await.unwrap();
            assert_eq!(is_promised(&told), round == 2, "a promise is kept");
            let told = ask(&writer, &device, council, device.accept(council, 1, round, 300)).await.unwrap();
            assert_eq!(is_accepted(&told), round == 2);
        }
    }
}

#[tokio::test]
async fn who_comes_when_the_acceptor_is_full_is_refused_and_nobody_loses_anything() {
    let (disk, device) = (Disk::default(), Device::new(1));
    let council = Quota { slots: 3, bytes: 3000, ..Quota::default() };
    let writer = start(&disk, Limits { councils: 2, council, ..Limits::default() });
    let [first, second, third] = [1, 2, 3].map(|number| CouncilId([number; 16]));
    for council in [first, second] {
        assert!(is_promised(&ask(&writer, &device, council, device.prepare(1, 1)).await.unwrap()));
    }
    let told = ask(&writer, &device, third, device.prepare(1, 1)).await.unwrap();
    assert_eq!(refusal(&told), Some(Refusal::TooManyCouncils));
    let told = ask(&writer, &device, third, Ask::Fetch { after: Slot(0) }).await.unwrap();
    assert_eq!(refusal(&told), None, "who only reads takes no room");

    let accept = |slot, size| ask(&writer, &device, first, device.accept(first, slot, 1, size));
    assert!(is_accepted(&accept(1, 1600).await.unwrap()));
    assert_eq!(refusal(&accept(2, 1600).await.unwrap()), Some(Refusal::Full), "more bytes than it may have");
    assert!(is_promised(&ask(&writer, &device, first, device.prepare(2, 1)).await.unwrap()));
    assert_eq!(refusal(&accept(2, 1600).await.unwrap()), Some(Refusal::Full), "a promise makes no room");
    assert!(is_accepted(&accept(2, 0).await.unwrap()));
    assert!(is_accepted(&accept(3, 0).await.unwrap()));
    assert_eq!(refusal(&accept(4, 0).await.unwrap()), Some(Refusal::Full), "more slots than it may have");
    assert!(is_accepted(&accept(1, 1600).await.unwrap()), "what is there can be had again");

    let snapshot = Snapshot { slot: Slot(3), bytes: vec![1; 100].into() };
    let told = ask(&writer, &device, first, Ask::Compact { snapshot }).await.unwrap();
    assert!(matches!(told, Tell::Compacted { slot: Slot(3), .. }));
    assert!(is_accepted(&accept(4, 1600).await.unwrap()), "compacted, it goes on");
    let store = reopen(&disk, writer).await;
    assert_eq!((store.councils(), store.knows(&third)), (2, false));
    let kept = store.load(first).unwrap();
    let [Stored::Snapshot(snapshot), Stored::Slot(Slot(4), Record::Accepted(vote))] = &kept[..] else {
        panic!("{kept:?}");
    };
    assert_eq!((snapshot.slot, vote.ballot), (Slot(3), device.ballot(4, 1)));
}

#[tokio::test]
async fn what_is_refused_leaves_no_trace() {
    let (disk, device, other) = (Disk::default(), Device::new(1), Device::new(2));
    let writer = start(&disk, Limits::default());
    assert!(is_accepted(&ask(&writer, &device, COUNCIL, device.accept(COUNCIL, 1, 5, 64)).await.unwrap()));
    let before = disk.image();
    let [slot, ballot] = [Slot(1), Slot(2)].map(|slot| (slot, device.ballot(slot.0, 7)));
    let good = device.value(COUNCIL, 1, 64);
    let accept =
        |ballot, value: &Value| Ask::Accept { slot: Slot(1), ballot, value: value.clone(), next: None };
    let another = CouncilId([8; 16]);
    let mut claimed = good.clone();
    claimed.author = other.key.public();
    let letter = Ask::Post {
        id: crate::OperationId([1; 16]),
        to: device.key.public(),
        message: vec![0; 70_000].into(),
    };
    let snapshot = Snapshot { slot: Slot(1), bytes: vec![0; Snapshot::MAX_BYTES + 1].into() };
    let wrong = [
        (Refusal::TooLarge, device.accept(COUNCIL, 1, 7, Value::MAX_BYTES + 100)),
        (Refusal::TooLarge, Ask::Compact { snapshot }),
        (Refusal::TooLarge, letter),
        (Refusal::Unsigned, accept(slot.1, &device.value(another, 1, 64))),
        (Refusal::Unsigned, accept(slot.1, &device.value(COUNCIL, 2, 64))),
        (Refusal::Unsigned, accept(slot.1, &claimed)),
        (
            Refusal::Unsigned,
            Ask::Decided { slot: Slot(1), vote: Vote { ballot: slot.1, value: device.value(COUNCIL, 2, 0) } },
        ),
        (Refusal::ForeignBallot, accept(other.ballot(1, 7), &good)),
        (Refusal::ForeignBallot, accept(ballot.1, &good)),
        (Refusal::ForeignBallot, other.prepare(1, 9)),
        (
            Refusal::ForeignBallot,
            Ask::Prepare { slot: Slot(0), ballot: device.ballot(0, 9), announce: vec![] },
        ),
        (
            Refusal::ForeignBallot,
            Ask::Decided { slot: Slot(1), vote: Vote { ballot: ballot.1, value: good.clone() } },
        ),
        (
            Refusal::ForeignBallot,
            Ask::Accept {
                slot: Slot(1),
                ballot: slot.1,
                value: good.clone(),
                next: Some(other.ballot(2, 1)),
            },
        ),
    ];
    for (why, wrong) in wrong {
        let told = ask(&writer, &device, COUNCIL, wrong.clone()).await.unwrap();
        assert_eq!(refusal(&told), Some(why), "{wrong:?}");
    }
    assert!(disk.image() == before, "not a byte on the disk has changed");
    assert!(is_accepted(&ask(&writer, &device, COUNCIL, accept(slot.1, &good)).await.unwrap()));
}

#[tokio::test]
async fn who_watches_hears_what_others_have_accepted_until_it_goes() {
    let (disk, device) = (Disk::default(), Device::new(1));
    let writer = start(&disk, Limits { watchers: 2, ..Limits::default() });
    let lines: Vec<_> = (0..4)
        .map(|id| {
            let (heard, told) = sync::channel();
            (Line { id, heard }, told)
        })
        .collect();
    let mut told = Vec::new();
    let asker = device.asker;
    for (line, hears) in lines {
        let id = line.id;
        if id < 3 {
            writer.joined(id);
        }
        writer.ask(COUNCIL, asker, Ask::Fetch { after: Slot(0) }, Some(line), &Ed25519).await.unwrap();
        told.push(hears);
    }
    assert_eq!(writer.watchers(COUNCIL), 2, "the third is beyond the limit, and the fourth was gone");
    let vote = |slot, from: u32| {
        let (heard, _) = sync::channel();
        let accept = device.accept(COUNCIL, slot, 1, 0);
        writer.ask(COUNCIL, asker, accept, Some(Line { id: from, heard }), &Ed25519)
    };
    vote(1, 0).await.unwrap();
    vote(1, 0).await.unwrap();
    vote(2, 7).await.unwrap();
    writer.left(1);
    vote(3, 7).await.unwrap();
    let slots = |number: usize| {
        let slot = |push: Push| match push.tell {
            Tell::Voted { slot, .. } if push.life == 42 && push.council == COUNCIL => slot.0,
            other => panic!("{other:?}"),
        };
        told[number].try_iter().map(slot).collect::<Vec<_>>()
    };
    assert_eq!(slots(0), [2, 3], "who asked is answered, and hears the others");
    assert_eq!(slots(1), [1, 2], "each vote once, until it leaves");
    assert!(slots(2).is_empty() && slots(3).is_empty());
}
