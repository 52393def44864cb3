//! An acceptor with real sockets and a real disk: tests of access, answers and stored data.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use holdoff_council::acceptor::{
    AcceptorService, Allowed, Lookout, Push, ROLE, Reply, Request, Settings, Sort, StartError, Wish,
};
use holdoff_council::{
    Ask, Batch, CouncilId, Digest, NodeId, OperationId, Refusal, Slot, Tell, Value, node_id,
};
use holdoff_net::{Error, Heard, Hearing, Key, Link, LinkOptions, Remote};
use holdoff_paxos::Ballot;
use holdoff_paxos::slot::{AcceptReply, PromiseReply};

const COUNCIL: CouncilId = CouncilId([5; 16]);
const LIFE: u64 = 11;
const GRACE: Duration = Duration::from_secs(5);

struct Device {
    key: Key,
    node: NodeId,
    link: Link,
    hearing: Hearing,
}

impl Device {
    fn new(secret: u8, acceptor: &AcceptorService) -> Self {
        let key = Key::from_secret(&[secret; 32]);
        let remote = Remote { key: acceptor.key(), address: acceptor.address().to_string() };
        let options = LinkOptions { role: ROLE.to_owned(), ..LinkOptions::default() };
        let (link, hearing) = Link::new(&key, remote, options).unwrap();
        let node = node_id(&key.public(), LIFE);
        Self { key, node, link, hearing }
    }

    async fn ask(&self, ask: Ask) -> Result<Reply, Error> {
        self.link.ask(&Request::Ask { life: LIFE, council: COUNCIL, ask }).await
    }

    async fn told(&self, ask: Ask) -> Tell {
        // The answer to a fetch also contains the last slot of the snapshot.
        let expected = if matches!(ask, Ask::Fetch { .. }) { 2 } else { 1 };
        let mut reply = self.ask(ask).await.unwrap();
        assert_eq!(reply.tells.len(), expected);
        reply.tells.remove(0)
    }

    fn prepare(&self, slot: u64, attempt: u64) -> Ask {
        let (slot, announce) = (Slot(slot), Vec::new());
        Ask::Prepare { slot, ballot: Ballot::new(slot, attempt, self.node), announce }
    }

    fn accept(&self, slot: u64, attempt: u64) -> Ask {
        let (slot, previous) = (Slot(slot), Digest::default());
        let batch = Batch { previous, operations: Vec::new(), withdrawn: Vec::new(), nonce: attempt };
        let value = Value::sign(COUNCIL, slot, &batch, &self.key).unwrap();
        Ask::Accept { slot, ballot: Ballot::new(slot, attempt, self.node), value, next: None }
    }
}

fn is_promised(tell: &Tell) -> bool {
    matches!(tell, Tell::Promise { reply: PromiseReply::Promise { .. }, .. })
}

fn is_accepted(tell: &Tell) -> bool {
    matches!(tell, Tell::Accepted { reply: AcceptReply::Accepted { .. }, .. })
}

async fn votes(device: &Device) -> usize {
    match device.told(Ask::Fetch { after: Slot(0) }).await {
        Tell::History { votes, .. } => votes.len(),
        other => panic!("{other:?}"),
    }
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.listen.set_port(0);
    settings
}

async fn start(directory: &Path) -> AcceptorService {
    AcceptorService::start(directory, &settings()).await.unwrap()
}

#[tokio::test]
async fn a_vote_is_told_to_who_watches_and_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let acceptor = start(directory.path()).await;
    let (who, node) = (acceptor.key(), acceptor.node());
    let (writer, mut watcher) = (Device::new(1, &acceptor), Device::new(2, &acceptor));
    let reply: Reply = writer.link.ask(&Request::Who).await.unwrap();
    assert_eq!((reply.life, reply.tells), (acceptor.life(), Vec::new()));
    assert_eq!(votes(&watcher).await, 0);

    assert!(is_promised(&writer.told(writer.prepare(1, 3)).await));
    assert!(is_accepted(&writer.told(writer.accept(1, 3)).await));
    let pushed = loop {
        match watcher.hearing.next().await.unwrap() {
            Heard::Push(bytes) => break holdoff_net::decode::<Push>(&bytes).unwrap(),
            Heard::Connected => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((pushed.life, pushed.council), (acceptor.life(), COUNCIL));
    assert!(matches!(pushed.tell, Tell::Voted { slot: Slot(1), .. }));
    acceptor.stop(GRACE).await;

    let acceptor = start(directory.path()).await;
    assert_eq!((acceptor.key(), acceptor.node()), (who, node), "the same one, in the same life");
    let late = Device::new(2, &acceptor);
    assert!(!is_promised(&late.told(late.prepare(1, 2)).await), "what was promised is kept");
    assert_eq!(votes(&late).await, 1);
    acceptor.stop(GRACE).await;

    std::fs::remove_file(directory.path().join("acceptor.redb")).unwrap();
    let wiped = start(directory.path()).await;
    assert_eq!(wiped.key(), who);
    assert_ne!(wiped.node(), node, "who lost its disk is somebody else");
}

#[tokio::test]
async fn garbage_is_refused_with_a_reason_and_the_next_question_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    let acceptor = start(directory.path()).await;
    let device = Device::new(1, &acceptor);
    for garbage in [&b""[..], b"\x07", &[255; 1000], b"\x00trailing"] {
        let refused = device.link.call(Bytes::copy_from_slice(garbage)).await.unwrap_err();
        assert!(matches!(&refused, Error::Fault(fault) if !fault.is_transient), "{refused}");
        device.link.tell(Bytes::copy_from_slice(garbage)).await.unwrap();
    }
    let ask = device.prepare(1, 1);
    let another = Request::Ask { life: LIFE + 1, council: COUNCIL, ask };
    let reply: Reply = device.link.ask(&another).await.unwrap();
    let refused = Tell::Refused { slot: Some(Slot(1)), why: Refusal::ForeignBallot };
    assert_eq!(reply.tells, [refused], "a ballot of another life is somebody else's");
    assert!(is_promised(&device.told(device.prepare(1, 1)).await));
}

#[tokio::test]
async fn who_is_not_on_the_list_is_not_let_in() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("keys");
    std::fs::write(&list, Key::from_secret(&[1; 32]).public().to_string()).unwrap();
    let mut settings = settings();
    settings.allow = Some(Allowed::File(list));
    let acceptor = AcceptorService::start(&directory.path().join("data"), &settings).await.unwrap();
    let (friend, stranger) = (Device::new(1, &acceptor), Device::new(2, &acceptor));
    let refused = stranger.ask(Ask::Collect).await.unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    assert_eq!(friend.told(Ask::Collect).await, Tell::Mail(Vec::new()));
    let id = OperationId([1; 16]);
    let (to, message) = (friend.key.public(), Bytes::from_static(b"welcome"));
    assert_eq!(friend.told(Ask::Post { id, to, message: message.clone() }).await, Tell::Posted { id });
    assert_eq!(friend.told(Ask::Collect).await, Tell::Mail(vec![(id, message)]));
}

#[tokio::test]
async fn off_loopback_it_must_be_said_who_may_ask() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = settings();
    settings.listen = "0.0.0.0:0".parse().unwrap();
    let refused = AcceptorService::start(directory.path(), &settings).await.unwrap_err();
    assert!(matches!(refused, StartError::NotLoopback(_)), "{refused}");
    settings.allow = Some(Allowed::Anyone);
    AcceptorService::start(directory.path(), &settings).await.unwrap();
}

/// The first page of councils.
const FIRST: Wish = Wish { sort: Sort::Asked, after: None, limit: 10 };

#[tokio::test]
async fn what_people_see_of_it_is_what_it_does_and_costs_no_disk() {
    let directory = tempfile::tempdir().unwrap();
    let acceptor = AcceptorService::start(directory.path(), &settings()).await.unwrap();
    let lookout: Lookout = acceptor.lookout();
    assert_eq!((lookout.node(), lookout.address()), (acceptor.node(), acceptor.address()));
    assert_eq!(lookout.councils(FIRST).await.unwrap().count, 0);

    let device = Device::new(1, &acceptor);
    assert_eq!(votes(&device).await, 0);
    assert_eq!(lookout.councils(FIRST).await.unwrap().count, 0, "who only reads leaves nothing behind");
    for slot in [1, 2, 3] {
        assert!(is_promised(&device.told(device.prepare(slot, 1)).await));
        assert!(is_accepted(&device.told(device.accept(slot, 1)).await));
    }
    let to = Key::generate().unwrap().public();
    let letter = Ask::Post { id: OperationId([1; 16]), to, message: Bytes::from("hello") };
    device.told(letter).await;
    let foreign =
        Ask::Prepare { slot: Slot(9), ballot: Ballot::new(Slot(9), 1, NodeId(7)), announce: vec![] };
    assert!(matches!(device.told(foreign).await, Tell::Refused { .. }));

    let shown = lookout.councils(FIRST).await.unwrap();
    let (line, kept) = (shown.lines[0], shown.lines[0].kept.unwrap());
    assert_eq!((shown.count, shown.lines.len(), line.mark), (1, 1, COUNCIL.mark()));
    assert_eq!((kept.latest, kept.floor, kept.slots, kept.letters), (Slot(3), Slot(0), 3, 1));
    assert!(kept.bytes > 5 && line.asked.is_some(), "{line:?}");
    let figures = lookout.figures();
    assert_eq!(
        (figures.asked["prepare"], figures.asked["accept"], figures.refused["foreign_ballot"]),
        (4, 3, 1)
    );
    assert_eq!((figures.questions(), figures.lately.questions, figures.lately.commits), (9, 9, 7));
    assert!(figures.lately.commit_p99 >= figures.lately.commit_p50 && figures.lately.commit_p50.is_some());
    let [connected] = lookout.connected().try_into().unwrap();
    assert_eq!((connected.key, connected.from.len()), (device.key.public(), 1));

    // Holding the lookout does not keep the acceptor running. A new process reads no council from the disk to show
    // it.
    acceptor.stop(GRACE).await;
    assert!(lookout.councils(FIRST).await.is_err());
    let acceptor = AcceptorService::start(directory.path(), &settings()).await.unwrap();
    let shown = acceptor.lookout().councils(FIRST).await.unwrap();
    assert_eq!((shown.count, shown.lines[0].mark, shown.lines[0].kept), (1, COUNCIL.mark(), None));
    let device = Device::new(1, &acceptor);
    assert_eq!(votes(&device).await, 3);
    assert_eq!(acceptor.lookout().councils(FIRST).await.unwrap().lines[0].kept, Some(kept));
    acceptor.stop(GRACE).await;
}
