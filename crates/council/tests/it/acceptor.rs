//! An acceptor with real sockets and a real disk: tests of access, answers and stored data.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use holdoff_council::acceptor::{
    AcceptorInspector, AcceptorService, Allowed, CouncilQuery, LinkMessage, LinkPush, LinkReply, LinkRequest,
    ROLE, Settings, Sort, StartError,
};
use holdoff_council::{
    AcceptorReply, AcceptorRequest, Batch, CouncilId, Digest, Founding, NodeId, OperationId, RequestRefusal,
    Slot, SlotValue,
};
use holdoff_net::{Error, Link, LinkOptions, PeerAddress, PushEvent, PushReceiver, SecretKey};
use holdoff_paxos::Ballot;
use holdoff_paxos::slot::{AcceptReply, PromiseReply};

const INCARNATION: u64 = 11;
const GRACE: Duration = Duration::from_secs(5);

/// The founding record of a council with two members.
fn founding() -> Founding {
    let members = [1, 2].map(|secret| SecretKey::from_secret(&[secret; 32]).public()).into();
    Founding { members, state: Digest::default(), nonce: [5; 16], recovered: None }
}

fn council() -> CouncilId {
    founding().council()
}

struct Device {
    key: SecretKey,
    node: NodeId,
    link: Link,
    pushes: PushReceiver,
}

impl Device {
    fn new(secret: u8, acceptor: &AcceptorService) -> Self {
        let key = SecretKey::from_secret(&[secret; 32]);
        let remote = PeerAddress { key: acceptor.key(), address: acceptor.address().to_string() };
        let options = LinkOptions { role: ROLE, ..LinkOptions::default() };
        let (link, pushes) = Link::new(&key, remote, options).unwrap();
        let node = NodeId::derive(key.public().as_bytes(), INCARNATION);
        Self { key, node, link, pushes }
    }

    async fn request(&self, request: AcceptorRequest) -> Result<LinkReply, Error> {
        self.link
            .call_value(&LinkRequest::Council { incarnation: INCARNATION, council: council(), request })
            .await
    }

    async fn reply_to(&self, request: AcceptorRequest) -> AcceptorReply {
        // The answer to a fetch also contains the last slot of the snapshot.
        let expected = if matches!(request, AcceptorRequest::Fetch { .. }) { 2 } else { 1 };
        let mut reply = self.request(request).await.unwrap();
        assert_eq!(reply.replies.len(), expected);
        reply.replies.remove(0)
    }

    async fn next_push(&mut self) -> LinkPush {
        loop {
            match self.pushes.next().await.unwrap() {
                PushEvent::Push(bytes) => return holdoff_net::decode(&bytes).unwrap(),
                PushEvent::Connected => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn prepare(&self, slot: u64, attempt: u64) -> AcceptorRequest {
        let (slot, announce) = (Slot(slot), Vec::new());
        AcceptorRequest::Prepare { slot, ballot: Ballot::new(slot, attempt, self.node), announce }
    }

    fn accept(&self, slot: u64, attempt: u64) -> AcceptorRequest {
        let (slot, previous) = (Slot(slot), Digest::default());
        let batch = Batch { previous, operations: Vec::new(), withdrawn: Vec::new(), nonce: attempt };
        let value = SlotValue::sign(council(), slot, &batch, None, false, &self.key).unwrap();
        AcceptorRequest::Accept { slot, ballot: Ballot::new(slot, attempt, self.node), value, next: None }
    }
}

fn is_promised(reply: &AcceptorReply) -> bool {
    matches!(reply, AcceptorReply::Promise { reply: PromiseReply::Promise { .. }, .. })
}

fn is_accepted(reply: &AcceptorReply) -> bool {
    matches!(reply, AcceptorReply::Accepted { reply: AcceptReply::Accepted { .. }, .. })
}

async fn votes(device: &Device) -> usize {
    match device.reply_to(AcceptorRequest::Fetch { after: Slot(0) }).await {
        AcceptorReply::History { votes, .. } => votes.len(),
        other => panic!("{other:?}"),
    }
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.listen.set_port(0);
    settings
}

async fn start(directory: &Path) -> AcceptorService {
    let acceptor = AcceptorService::start(directory, &settings()).await.unwrap();
    introduce(&acceptor).await;
    acceptor
}

async fn introduce(acceptor: &AcceptorService) {
    let reply = Device::new(1, acceptor).reply_to(founding().introduction()).await;
    assert!(matches!(reply, AcceptorReply::Report(_)), "{reply:?}");
}

#[tokio::test]
async fn a_vote_is_pushed_to_watchers_and_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let acceptor = start(directory.path()).await;
    let (who, node) = (acceptor.key(), acceptor.node());
    let (writer, mut watcher) = (Device::new(1, &acceptor), Device::new(2, &acceptor));
    let reply: LinkReply = writer.link.call_value(&LinkRequest::Identify).await.unwrap();
    assert_eq!((reply.incarnation, reply.replies), (acceptor.incarnation(), Vec::new()));
    assert_eq!(votes(&watcher).await, 0);

    assert!(is_promised(&writer.reply_to(writer.prepare(1, 3)).await));
    assert!(is_accepted(&writer.reply_to(writer.accept(1, 3)).await));
    let pushed = watcher.next_push().await;
    assert_eq!((pushed.incarnation, pushed.council, pushed.tag), (acceptor.incarnation(), council(), 0));
    assert!(matches!(pushed.reply, AcceptorReply::Voted { slot: Slot(1), .. }));
    acceptor.stop(GRACE).await;

    let acceptor = start(directory.path()).await;
    assert_eq!(
        (acceptor.key(), acceptor.node()),
        (who, node),
        "a restarted acceptor keeps its key and its id"
    );
    let late = Device::new(2, &acceptor);
    assert!(!is_promised(&late.reply_to(late.prepare(1, 2)).await), "a restarted acceptor keeps its promise");
    assert_eq!(votes(&late).await, 1);
    acceptor.stop(GRACE).await;

    std::fs::remove_file(directory.path().join("acceptor.redb")).unwrap();
    let wiped = start(directory.path()).await;
    assert_eq!(wiped.key(), who);
    assert_ne!(wiped.node(), node, "an acceptor with a new store is another node");
}

#[tokio::test]
async fn merged_messages_are_answered_in_order_by_pushes_with_their_tags() {
    let directory = tempfile::tempdir().unwrap();
    let acceptor = start(directory.path()).await;
    let mut device = Device::new(1, &acceptor);
    let requests = [device.prepare(1, 3), device.accept(1, 3), AcceptorRequest::Fetch { after: Slot(0) }];
    let message = |(tag, request)| LinkMessage { incarnation: INCARNATION, council: council(), tag, request };
    let frame: Vec<_> = (7..).zip(requests).map(message).collect();
    device.link.send(holdoff_net::encode(&frame).unwrap()).await.unwrap();
    let mut pushes = Vec::new();
    for _ in 0..4 {
        pushes.push(device.next_push().await);
    }
    assert_eq!(pushes.iter().map(|push| push.tag).collect::<Vec<_>>(), [7, 8, 9, 9]);
    assert!(pushes.iter().all(|push| push.incarnation == acceptor.incarnation()));
    assert!(is_promised(&pushes[0].reply) && is_accepted(&pushes[1].reply), "{pushes:?}");
    assert!(
        matches!(&pushes[2].reply, AcceptorReply::History { votes, .. } if votes.len() == 1),
        "{pushes:?}"
    );
}

#[tokio::test]
async fn a_malformed_request_is_refused_and_the_next_one_answered() {
    let directory = tempfile::tempdir().unwrap();
    let acceptor = start(directory.path()).await;
    let device = Device::new(1, &acceptor);
    for garbage in [&b""[..], b"\x07", &[255; 1000], b"\x00trailing"] {
        let refused = device.link.call(Bytes::copy_from_slice(garbage)).await.unwrap_err();
        assert!(matches!(&refused, Error::Handler(error) if !error.is_transient), "{refused}");
        device.link.send(Bytes::copy_from_slice(garbage)).await.unwrap();
    }
    let request = device.prepare(1, 1);
    let another = LinkRequest::Council { incarnation: INCARNATION + 1, council: council(), request };
    let reply: LinkReply = device.link.call_value(&another).await.unwrap();
    let refused = AcceptorReply::Refused { slot: Some(Slot(1)), why: RequestRefusal::ForeignBallot };
    assert_eq!(reply.replies, [refused], "a ballot of another incarnation belongs to another node");
    assert!(is_promised(&device.reply_to(device.prepare(1, 1)).await));
}

#[tokio::test]
async fn a_key_that_is_not_listed_cannot_connect() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("keys");
    std::fs::write(&list, SecretKey::from_secret(&[1; 32]).public().to_string()).unwrap();
    let mut settings = settings();
    settings.allow = Some(Allowed::File(list));
    let acceptor = AcceptorService::start(&directory.path().join("data"), &settings).await.unwrap();
    introduce(&acceptor).await;
    let (listed, unlisted) = (Device::new(1, &acceptor), Device::new(2, &acceptor));
    let refused = unlisted.request(AcceptorRequest::Collect).await.unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    assert_eq!(listed.reply_to(AcceptorRequest::Collect).await, AcceptorReply::Mail(Vec::new()));
    let id = OperationId([1; 16]);
    let (to, message) = (listed.key.public(), Bytes::from_static(b"welcome"));
    assert_eq!(
        listed.reply_to(AcceptorRequest::Post { id, to, message: message.clone() }).await,
        AcceptorReply::Posted { id }
    );
    assert_eq!(listed.reply_to(AcceptorRequest::Collect).await, AcceptorReply::Mail(vec![(id, message)]));
}

#[tokio::test]
async fn a_public_address_requires_an_allow_list() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = settings();
    settings.listen = "0.0.0.0:0".parse().unwrap();
    let refused = AcceptorService::start(directory.path(), &settings).await.unwrap_err();
    assert!(matches!(refused, StartError::NotLoopback(_)), "{refused}");
    settings.allow = Some(Allowed::Anyone);
    AcceptorService::start(directory.path(), &settings).await.unwrap();
}

/// The first page of councils.
const FIRST: CouncilQuery = CouncilQuery { sort: Sort::LastRequest, after: None, limit: 10 };

#[tokio::test]
async fn inspection_shows_the_activity_without_disk_access() {
    let directory = tempfile::tempdir().unwrap();
    let acceptor = AcceptorService::start(directory.path(), &settings()).await.unwrap();
    let inspector: AcceptorInspector = acceptor.inspector();
    assert_eq!((inspector.node(), inspector.address()), (acceptor.node(), acceptor.address()));
    assert_eq!(inspector.councils(FIRST).await.unwrap().count, 0);

    let device = Device::new(1, &acceptor);
    assert_eq!(device.reply_to(AcceptorRequest::Collect).await, AcceptorReply::Mail(Vec::new()));
    assert_eq!(inspector.councils(FIRST).await.unwrap().count, 0, "a read stores no council");
    device.reply_to(founding().introduction()).await;
    for slot in [1, 2, 3] {
        assert!(is_promised(&device.reply_to(device.prepare(slot, 1)).await));
        assert!(is_accepted(&device.reply_to(device.accept(slot, 1)).await));
    }
    let to = SecretKey::generate().unwrap().public();
    let mail = AcceptorRequest::Post { id: OperationId([1; 16]), to, message: Bytes::from("hello") };
    device.reply_to(mail).await;
    let foreign = AcceptorRequest::Prepare {
        slot: Slot(9),
        ballot: Ballot::new(Slot(9), 1, NodeId(7)),
        announce: vec![],
    };
    assert!(matches!(device.reply_to(foreign).await, AcceptorReply::Refused { .. }));

    let shown = inspector.councils(FIRST).await.unwrap();
    let (line, usage) = (shown.councils[0], shown.councils[0].usage.unwrap());
    assert_eq!((shown.count, shown.councils.len(), line.short_id), (1, 1, council().short_id()));
    assert_eq!((usage.latest, usage.floor, usage.slots, usage.mail_messages), (Slot(3), Slot(0), 3, 1));
    assert!(usage.bytes > 5 && line.last_request.is_some(), "{line:?}");
    let stats = inspector.stats();
    assert_eq!(
        (stats.requests["prepare"], stats.requests["accept"], stats.refused["foreign_ballot"]),
        (4, 3, 1)
    );
    assert_eq!((stats.total_requests(), stats.recent.requests, stats.recent.commits), (10, 10, 8));
    assert!(stats.recent.commit_p99 >= stats.recent.commit_p50 && stats.recent.commit_p50.is_some());
    let [connected] = inspector.connected().try_into().unwrap();
    assert_eq!((connected.key, connected.from.len()), (device.key.public(), 1));

    // Holding the lookout does not keep the acceptor running. A new process reads no council from the disk to show
    // it.
    acceptor.stop(GRACE).await;
    assert!(inspector.councils(FIRST).await.is_err());
    let acceptor = AcceptorService::start(directory.path(), &settings()).await.unwrap();
    let shown = acceptor.inspector().councils(FIRST).await.unwrap();
    assert_eq!(
        (shown.count, shown.councils[0].short_id, shown.councils[0].usage),
        (1, council().short_id(), None)
    );
    let device = Device::new(1, &acceptor);
    assert_eq!(votes(&device).await, 3);
    assert_eq!(acceptor.inspector().councils(FIRST).await.unwrap().councils[0].usage, Some(usage));
    acceptor.stop(GRACE).await;
}
