//! The acceptor in a daemon, over the API: its contact, its councils and its metrics.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use holdoff_council::acceptor::{LinkReply, LinkRequest, ROLE};
use holdoff_council::{AcceptorRequest, Digest, Founding, OperationId};
use holdoff_net::{Link, LinkOptions, PeerAddress, SecretKey};
use holdoff_server::StoreUrl;
use serde_json::{Value, json};

use crate::support::{Daemon, answer, options};

async fn start(folder: &tempfile::TempDir) -> Daemon {
    let mut options = options(StoreUrl::in_directory(folder.path()));
    options.acceptor.data = Some(folder.path().join("acceptor"));
    options.acceptor.listen.set_port(0);
    Daemon::start_with(options).await
}

async fn get(daemon: &Daemon, path: &str) -> Value {
    answer(daemon.get(path).await, 200).await
}

fn founding(number: u8) -> Founding {
    let members = [SecretKey::from_secret(&[7; 32]).public()].into();
    Founding { members, state: Digest::default(), nonce: [number; 16], recovered: None }
}

/// Sends so many messages to each of these councils, one council after the other.
async fn post(acceptor: &str, councils: &[(u8, u8)]) -> Link {
    let key = SecretKey::from_secret(&[7; 32]);
    let (peer, address) = acceptor.split_once('@').unwrap();
    let remote = PeerAddress { key: peer.parse().unwrap(), address: address.to_owned() };
    let (link, _pushes) =
        Link::new(&key, remote, LinkOptions { role: ROLE, ..LinkOptions::default() }).unwrap();
    for (number, messages) in councils {
        let (founding, to) = (founding(*number), key.public());
        let message = |message| {
            let id = OperationId([message; 16]);
            AcceptorRequest::Post { id, to, message: "come".into() }
        };
        for request in [founding.introduction()].into_iter().chain((0..*messages).map(message)) {
            let request = LinkRequest::Council { incarnation: 1, council: founding.council(), request };
            let reply: LinkReply = link.call_value(&request).await.unwrap();
            assert_eq!(reply.replies.len(), 1);
        }
    }
    link
}

fn short_id(number: u8) -> String {
    founding(number).council().short_id().to_string()
}

#[tokio::test]
async fn a_missing_node_is_a_404_with_instructions() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(StoreUrl::in_directory(folder.path())).await;
    for path in ["/v1/acceptor", "/v1/acceptor/councils"] {
        let problem = answer(daemon.get(path).await, 404).await;
        assert_eq!(problem["type"], "/problems/no-acceptor");
        assert!(problem["detail"].as_str().unwrap().contains("[acceptor] data"), "{problem}");
    }
}

#[tokio::test]
async fn the_acceptor_lists_councils_by_short_id() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(&folder).await;
    let shown = get(&daemon, "/v1/acceptor").await;
    let name = shown["acceptor"].as_str().unwrap().to_owned();
    assert_eq!(name, format!("{}@{}", shown["key"].as_str().unwrap(), shown["address"].as_str().unwrap()));
    assert_eq!(
        (&shown["stopped"], &shown["requests"], &shown["connections"]),
        (&json!(null), &json!({}), &json!(0))
    );

    let link = post(&name, &[(1, 3), (2, 1), (3, 2)]).await;
    let shown = get(&daemon, "/v1/acceptor").await;
    let requests = json!({ "introduce": 3, "post": 6 });
    assert_eq!((&shown["requests"], &shown["recent"]["requests"]), (&requests, &json!(9)));
    assert!(
        shown["recent"]["commit_p99_us"].as_u64() >= shown["recent"]["commit_p50_us"].as_u64(),
        "{shown}"
    );
    assert!(shown["recent"]["commit_p50_us"].as_u64() > Some(0), "{shown}");
    assert_eq!((&shown["connections"], shown["peers"].as_array().unwrap().len()), (&json!(1), 1));
    let short_ids = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|council| council["short_id"].as_str().unwrap().to_owned()).collect()
    };
    let page = get(&daemon, "/v1/acceptor/councils").await;
    assert_eq!(short_ids(&page), [short_id(3), short_id(2), short_id(1)], "the latest request is first");
    assert_eq!((&page["items"][2]["mail_messages"], &page["items"][2]["bytes"]), (&json!(3), &json!(12)));
    let page = get(&daemon, "/v1/acceptor/councils?sort=mail&limit=2").await;
    assert_eq!(short_ids(&page), [short_id(1), short_id(3)]);
    let next = page["next"].as_str().unwrap();
    let page = get(&daemon, &format!("/v1/acceptor/councils?sort=mail&limit=2&cursor={next}")).await;
    assert_eq!((short_ids(&page), &page["next"]), (vec![short_id(2)], &Value::Null));
    for wrong in ["sort=size", "cursor=1", "limit=0", "limit=1001", "order=asc"] {
        let problem = answer(daemon.get(&format!("/v1/acceptor/councils?{wrong}")).await, 400).await;
        assert_eq!(problem["type"], "/problems/invalid-query", "{wrong}: {problem}");
    }
    drop(link);
    daemon.server.shutdown().await;
}

/// An event tells open pages to reload.
#[tokio::test]
async fn acceptor_requests_are_streamed_as_events() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(&folder).await;
    let name = get(&daemon, "/v1/acceptor").await["acceptor"].as_str().unwrap().to_owned();
    let mut stream = daemon.get("/v1/events").await;
    let mut text = String::new();
    let mut until = async |what: &str| {
        while !text.contains(what) {
            let chunk =
                tokio::time::timeout(CONDITION_TIMEOUT, stream.chunk()).await.unwrap().unwrap().unwrap();
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    };
    until("event: ready").await;
    let _link = post(&name, &[(1, 2)]).await;
    until("event: acceptor\ndata: [{\"requests\":3,\"connections\":1,\"stopped\":false}]\n").await;
}

/// Every metric has a help text, and promtool accepts those of links and acceptors.
#[tokio::test]
async fn every_metric_has_a_help_text() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = start(&folder).await;
    let name = get(&daemon, "/v1/acceptor").await["acceptor"].as_str().unwrap().to_owned();
    let _link = post(&name, &[(1, 1)]).await;
    let metrics = daemon.get("/metrics").await.text().await.unwrap();
    let documented = |what: &str| -> BTreeSet<String> {
        let lines = metrics.lines().filter_map(|line| line.strip_prefix(what));
        lines.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
    };
    let (helped, typed) = (documented("# HELP "), documented("# TYPE "));
    for expected in ["holdoff_net_connections", "holdoff_net_frames_total", "holdoff_acceptor_requests_total"]
    {
        assert!(typed.contains(expected), "no {expected} in {typed:?}");
    }
    assert_eq!(typed.difference(&helped).collect::<Vec<_>>(), Vec::<&String>::new(), "without a help text");

    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("promtool is needed: {error}"));
    promtool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{printed}");
}
