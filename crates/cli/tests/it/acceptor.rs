//! The real `holdoff acceptor`, killed under load, and `holdoff serve` with an acceptor.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use holdoff_council::acceptor::{LinkReply, LinkRequest, ROLE};
use holdoff_council::{
    AcceptorReply, AcceptorRequest, Batch, Digest, Founding, NodeId, OperationId, PublicKey, Slot, SlotValue,
};
use holdoff_net::{Link, LinkOptions, PeerAddress, SecretKey};
use holdoff_paxos::Ballot;
use holdoff_paxos::slot::{AcceptReply, PromiseReply};
use holdoff_testbed::CONDITION_TIMEOUT;
use serde_json::json;

use crate::process::Process;

const WRITERS: u8 = 4;
const ROUNDS: u64 = 4;
/// The number of votes answered in a round before the kill.
const VOTES: usize = 100;
/// A running acceptor and its greeting.
struct Acceptor {
    process: Process,
    greeting: serde_json::Value,
}

impl Acceptor {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdoff"));
        command.args(["acceptor", "--listen", "127.0.0.1:0", "--data", "acceptor", "--json"]);
        let mut process = Process::start(command.current_dir(folder).env("HOLDOFF_LOG", "warn"));
        let [greeting] = process.greeting();
        Self { process, greeting: serde_json::from_str(&greeting).unwrap() }
    }

    fn link(&self, key: &SecretKey) -> Link {
        let pasted = self.greeting["acceptor"].as_str().unwrap();
        let (peer, address) = pasted.split_once('@').unwrap();
        let remote = PeerAddress { key: peer.parse().unwrap(), address: address.to_owned() };
        let options =
            LinkOptions { role: ROLE, call_timeout: Duration::from_secs(20), ..LinkOptions::default() };
        Link::new(key, remote, options).unwrap().0
    }
}

/// The acceptor's answers by slot: the highest promise and the highest vote.
type Answered = BTreeMap<u64, (Option<Ballot>, Option<Ballot>)>;

/// The founding record of the council with this number, which has one member.
pub(crate) fn founding(number: u8, member: PublicKey) -> Founding {
    Founding { members: [member].into(), state: Digest::default(), nonce: [number; 16], recovered: None }
}

struct Writer {
    key: SecretKey,
    founding: Founding,
    answered: Answered,
}

impl Writer {
    fn new(number: u8) -> Self {
        let key = SecretKey::from_secret(&[number + 1; 32]);
        Self { founding: founding(number, key.public()), key, answered: Answered::new() }
    }

    async fn request(&self, link: &Link, request: AcceptorRequest) -> Option<AcceptorReply> {
        let request = LinkRequest::Council { incarnation: 1, council: self.founding.council(), request };
        let reply: LinkReply = link.call_value(&request).await.ok()?;
        reply.replies.into_iter().next()
    }

    /// Has the acceptor promise and accept slot after slot until it no longer answers.
    async fn write(&mut self, link: &Link, round: u64, on_write: &Sender<()>) {
        let node = NodeId::derive(self.key.public().as_bytes(), 1);
        let Some(introduced) = self.request(link, self.founding.introduction()).await else { return };
        assert!(matches!(introduced, AcceptorReply::Report(_)), "{introduced:?}");
        for number in 1.. {
            let slot = Slot(number);
            let ballot = Ballot::new(slot, round, node);
            let prepare = AcceptorRequest::Prepare { slot, ballot, announce: Vec::new() };
            let Some(acceptor_reply) = self.request(link, prepare).await else { return };
            assert!(
                matches!(acceptor_reply, AcceptorReply::Promise { reply: PromiseReply::Promise { .. }, .. }),
                "{acceptor_reply:?}"
            );
            self.answered.entry(number).or_default().0 = Some(ballot);
            let (previous, nonce) = (Digest::default(), round);
            let batch = Batch { previous, operations: Vec::new(), withdrawn: Vec::new(), nonce };
            let value =
                SlotValue::sign(self.founding.council(), slot, &batch, None, false, &self.key).unwrap();
            let accept = AcceptorRequest::Accept { slot, ballot, value, next: None };
            let Some(acceptor_reply) = self.request(link, accept).await else { return };
            assert!(
                matches!(acceptor_reply, AcceptorReply::Accepted { reply: AcceptReply::Accepted { .. }, .. }),
                "{acceptor_reply:?}"
            );
            self.answered.entry(number).or_default().1 = Some(ballot);
            let _ = on_write.send(());
        }
    }

    /// Checks that the acceptor still has every answer: it refuses a lower ballot and returns the votes.
    async fn check(&self, link: &Link) -> usize {
        let node = NodeId::derive(self.key.public().as_bytes(), 1);
        for (number, (promised, voted)) in &self.answered {
            let slot = Slot(*number);
            let prepare =
                AcceptorRequest::Prepare { slot, ballot: Ballot::new(slot, 0, node), announce: Vec::new() };
            match self.request(link, prepare).await.expect("an answer") {
                AcceptorReply::Promise { reply: PromiseReply::Nack { promised: kept, .. }, .. } => {
                    assert!(Some(kept) >= *promised, "slot {slot}: promised {promised:?}, kept {kept:?}");
                }
                other => panic!("a promise is lost in slot {slot}: {other:?}"),
            }
            if voted.is_some() {
                let Some(AcceptorReply::History { votes, .. }) =
                    self.request(link, AcceptorRequest::Fetch { after: Slot(number - 1) }).await
                else {
                    panic!("no history");
                };
                let (first, vote) = votes.first().expect("a vote");
                assert_eq!(*first, slot, "a vote is lost");
                assert!(Some(vote.ballot) >= *voted, "slot {slot} has an older vote");
            }
        }
        self.answered.len()
    }
}

#[test]
fn a_killed_acceptor_keeps_every_answered_promise_and_vote() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let _entered = runtime.enter();
    let mut writers: Vec<_> = (0..WRITERS).map(Writer::new).collect();
    let mut node = None;
    for round in 1..=ROUNDS {
        let mut acceptor = Acceptor::start(folder.path());
        let who = acceptor.greeting["node"].clone();
        assert_eq!(*node.get_or_insert(who.clone()), who, "the same key and incarnation");
        let checked: usize = runtime.block_on(async {
            let mut checked = 0;
            for writer in &writers {
                checked += writer.check(&acceptor.link(&writer.key)).await;
            }
            checked
        });
        let (on_write, answers) = channel();
        let under_way: Vec<_> = writers
            .drain(..)
            .map(|mut writer| {
                let (link, on_write) = (acceptor.link(&writer.key), on_write.clone());
                runtime.spawn(async move {
                    writer.write(&link, round, &on_write).await;
                    writer
                })
            })
            .collect();
        // Kills the acceptor while the writers are active.
        for _ in 0..VOTES {
            answers.recv_timeout(CONDITION_TIMEOUT).unwrap();
        }
        acceptor.process.kill();
        for writer in under_way {
            writers.push(runtime.block_on(writer).unwrap());
        }
        let answered: usize = writers.iter().map(|writer| writer.answered.len()).sum();
        println!("round {round}: {checked} slots were there, {answered} are answered by now");
    }
    let acceptor = Acceptor::start(folder.path());
    for writer in &writers {
        assert!(runtime.block_on(writer.check(&acceptor.link(&writer.key))) > 0);
    }
    assert_eq!(acceptor.process.terminate(), Some(0));
}

#[test]
fn an_acceptor_rejects_a_directory_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let _first = Acceptor::start(folder.path());
    let second = Command::new(env!("CARGO_BIN_EXE_holdoff"))
        .args(["acceptor", "--listen", "127.0.0.1:0", "--data", "acceptor"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1));
    assert!(error.contains("another process has this acceptor's store open"), "{error}");
}

const FILE: &str = "[acceptor]\ndata = \"acceptor\"\nlisten = \"127.0.0.1:0\"\n";

/// A daemon with an acceptor, in its own folder.
struct Daemon {
    process: Process,
    url: String,
    acceptor: String,
}

impl Daemon {
    /// Starts the daemon in a shell that first runs this line.
    fn start(folder: &Path, first: &str) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("holdoff.toml"), FILE).unwrap();
        let serve = "exec \"$HOLDOFF\" serve --json --listen 127.0.0.1:0 --data data --log off";
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{first}\n{serve}")]).current_dir(folder);
        command.env("HOLDOFF", env!("CARGO_BIN_EXE_holdoff")).env_remove("RUST_LOG");
        let mut process = Process::start(&mut command);
        let [greeting] = process.greeting();
        let greeting: serde_json::Value = serde_json::from_str(&greeting).unwrap();
        let field = |name: &str| greeting[name].as_str().unwrap().to_owned();
        Self { process, url: field("url"), acceptor: field("acceptor") }
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let answer = reqwest::get(format!("{}{path}", self.url)).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn json(&self, path: &str) -> serde_json::Value {
        let (status, text) = self.get(path).await;
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }
}

/// Runs a command of a device. Returns the last line of its output.
fn council(directory: &Path, words: &[&str]) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_holdoff"))
        .args(["council", "--json", "--deadline", "60s", "--dir"])
        .arg(directory)
        .args(words)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{words:?}: {out}{err}");
    serde_json::from_str(out.lines().last().unwrap()).unwrap()
}

#[tokio::test]
async fn a_council_on_three_daemons_tolerates_a_killed_one() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let mut daemons = ["a", "b", "c"].map(|name| Daemon::start(&place(name), ""));
    let mut words = vec!["init", "--name", "laptop"];
    for daemon in &daemons {
        words.extend(["--acceptor", &daemon.acceptor]);
    }
    let device = place("laptop");
    let id = council(&device, &words)["council"].as_str().unwrap().to_owned();
    daemons[2].process.kill();
    let key = SecretKey::from_secret(&[9; 32]).public().to_string();
    let added = council(&device, &["add", &key, "--name", "phone"]);
    let status = council(&device, &["status"]);
    assert_eq!(status["council"], *id, "{added}");

    for daemon in &daemons[..2] {
        let shown = daemon.json("/v1/acceptor").await;
        assert_eq!((&shown["acceptor"], &shown["stopped"]), (&json!(daemon.acceptor), &json!(null)));
        let kept = daemon.json("/v1/acceptor/councils").await;
        assert_eq!(kept["items"].as_array().unwrap().len(), 1, "{kept}");
        assert_eq!(
            kept["items"][0]["short_id"], status["short_id"],
            "the device shows the short id of its council"
        );
        assert_eq!(
            kept["items"][0]["mail_messages"], 1,
            "the council has one message, the invitation: {kept}"
        );
        assert!(kept["items"][0]["latest"].as_u64() >= status["slot"].as_u64(), "{kept} {status}");
        for path in ["/v1/acceptor", "/v1/acceptor/councils", "/councils", "/metrics"] {
            let (_, text) = daemon.get(path).await;
            assert!(!text.contains(&id), "{path} contains the council's id");
        }
    }
    let [first, second, _] = daemons;
    assert_eq!([first, second].map(|daemon| daemon.process.terminate()), [Some(0); 2]);
}

/// Has the acceptor vote for large values until it no longer answers.
async fn fill(acceptor: &str) {
    let key = SecretKey::from_secret(&[7; 32]);
    let founding = founding(3, key.public());
    let council = founding.council();
    let (peer, address) = acceptor.split_once('@').unwrap();
    let remote = PeerAddress { key: peer.parse().unwrap(), address: address.to_owned() };
    let options = LinkOptions { role: ROLE, call_timeout: CONDITION_TIMEOUT, ..LinkOptions::default() };
    let (link, _pushes) = Link::new(&key, remote, options).unwrap();
    let introduction = LinkRequest::Council { incarnation: 1, council, request: founding.introduction() };
    let _: LinkReply = link.call_value(&introduction).await.unwrap();
    for slot in (1..=200).map(Slot) {
        let withdrawn = vec![OperationId([1; 16]); 12_000];
        let batch = Batch { previous: Digest::default(), operations: Vec::new(), withdrawn, nonce: 1 };
        let value = SlotValue::sign(council, slot, &batch, None, false, &key).unwrap();
        let ballot = Ballot::new(slot, 1, NodeId::derive(key.public().as_bytes(), 1));
        let request = AcceptorRequest::Accept { slot, ballot, value, next: None };
        let reply: Result<LinkReply, _> =
            link.call_value(&LinkRequest::Council { incarnation: 1, council, request }).await;
        if reply.is_err() {
            return;
        }
    }
    panic!("the disk never became full");
}

/// No file of the daemon can grow beyond 8 MiB. The system refuses further writes, as a full disk does.
#[tokio::test]
async fn a_daemon_whose_acceptor_disk_is_full_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(folder.path(), "trap '' XFSZ\nulimit -f 16384");
    assert_eq!(daemon.get("/readyz").await.0, 200);
    fill(&daemon.acceptor).await;

    let end = Instant::now() + CONDITION_TIMEOUT;
    let body = loop {
        let (status, body) = daemon.get("/readyz").await;
        if status == 503 {
            break body;
        }
        assert!(Instant::now() < end, "{status} {body}");
        tokio::time::sleep(Duration::from_millis(30)).await;
    };
    assert!(body.contains("the acceptor has stopped: the acceptor's disk has failed"), "{body}");
    assert!(
        body.contains("File too large"),
        "the problem contains the error of the operating system: {body}"
    );
    let shown = daemon.json("/v1/acceptor").await;
    assert!(shown["stopped"].as_str().unwrap().contains("File too large"), "{shown}");
    assert!(
        shown["requests"]["accept"].as_u64() > Some(0),
        "the count of earlier requests is still shown: {shown}"
    );
    let (status, body) = daemon.get("/v1/acceptor/councils").await;
    assert!(status == 503 && body.contains("File too large"), "{status} {body}");
    let (status, page) = daemon.get("/councils").await;
    assert!(
        status == 200 && page.contains("The acceptor has stopped") && page.contains("File too large"),
        "{page}"
    );
    let (_, metrics) = daemon.get("/metrics").await;
    assert!(metrics.lines().any(|line| line == "holdoff_acceptor_stopped 1"), "{metrics}");

    // The daemon stays alive and serves everything else. The operator decides when to restart it.
    assert_eq!(daemon.get("/healthz").await.0, 200);
    let task = reqwest::Client::new().post(format!("{}/v1/tasks", daemon.url));
    let taken = task.json(&json!({ "operation": "mail.send" })).send().await.unwrap();
    assert_eq!(taken.status(), 201);
    assert_eq!(daemon.process.terminate(), Some(0));
}
