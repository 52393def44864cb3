//! The real `holdoff acceptor`, killed under load. After a restart it still has every promise and vote that it has
//! answered.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use holdoff_council::acceptor::{ROLE, Reply, Request};
use holdoff_council::{Ask, Batch, CouncilId, Digest, Slot, Tell, Value, node_id};
use holdoff_net::{Key, Link, LinkOptions, Remote};
use holdoff_paxos::Ballot;
use holdoff_paxos::slot::{AcceptReply, PromiseReply};

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

    fn link(&self, key: &Key) -> Link {
        let pasted = self.greeting["acceptor"].as_str().unwrap();
        let (peer, address) = pasted.split_once('@').unwrap();
        let remote = Remote { key: peer.parse().unwrap(), address: address.to_owned() };
        let options = LinkOptions {
            role: ROLE.to_owned(),
            call_timeout: Duration::from_secs(20),
            ..LinkOptions::default()
        };
        Link::new(key, remote, options).unwrap().0
    }
}

/// The acceptor's answers by slot: the highest promise and the highest vote.
type Answered = BTreeMap<u64, (Option<Ballot>, Option<Ballot>)>;

struct Writer {
    key: Key,
    council: CouncilId,
    answered: Answered,
}

impl Writer {
    fn new(number: u8) -> Self {
        let council = CouncilId([number; 16]);
        Self { key: Key::from_secret(&[number + 1; 32]), council, answered: Answered::new() }
    }

    async fn told(&self, link: &Link, ask: Ask) -> Option<Tell> {
        let request = Request::Ask { life: 1, council: self.council, ask };
        let reply: Reply = link.ask(&request).await.ok()?;
        reply.tells.into_iter().next()
    }

    /// Has the acceptor promise and accept slot after slot until it no longer answers.
    async fn write(&mut self, link: &Link, round: u64, told: &Sender<()>) {
        let node = node_id(&self.key.public(), 1);
        for number in 1.. {
            let slot = Slot(number);
            let ballot = Ballot::new(slot, round, node);
            let prepare = Ask::Prepare { slot, ballot, announce: Vec::new() };
            let Some(tell) = self.told(link, prepare).await else { return };
            assert!(matches!(tell, Tell::Promise { reply: PromiseReply::Promise { .. }, .. }), "{tell:?}");
            self.answered.entry(number).or_default().0 = Some(ballot);
            let (previous, nonce) = (Digest::default(), round);
            let batch = Batch { previous, operations: Vec::new(), withdrawn: Vec::new(), nonce };
            let value = Value::sign(self.council, slot, &batch, &self.key).unwrap();
            let accept = Ask::Accept { slot, ballot, value, next: None };
            let Some(tell) = self.told(link, accept).await else { return };
            assert!(matches!(tell, Tell::Accepted { reply: AcceptReply::Accepted { .. }, .. }), "{tell:?}");
            self.answered.entry(number).or_default().1 = Some(ballot);
            let _ = told.send(());
        }
    }

    /// Checks that the acceptor still has every answer: it refuses a lower ballot and returns the votes.
    async fn check(&self, link: &Link) -> usize {
        let node = node_id(&self.key.public(), 1);
        for (number, (promised, voted)) in &self.answered {
            let slot = Slot(*number);
            let prepare = Ask::Prepare { slot, ballot: Ballot::new(slot, 0, node), announce: Vec::new() };
            match self.told(link, prepare).await.expect("an answer") {
                Tell::Promise { reply: PromiseReply::Nack { promised: kept, .. }, .. } => {
                    assert!(Some(kept) >= *promised, "slot {slot}: promised {promised:?}, kept {kept:?}");
                }
                other => panic!("a promise is lost in slot {slot}: {other:?}"),
            }
            if voted.is_some() {
                let Some(Tell::History { votes, .. }) =
                    self.told(link, Ask::Fetch { after: Slot(number - 1) }).await
                else {
                    panic!("no history");
                };
                let (first, vote) = votes.first().expect("a vote");
                assert_eq!(*first, slot, "a vote is lost");
                assert!(Some(vote.ballot) >= *voted, "an older vote is there in slot {slot}");
            }
        }
        self.answered.len()
    }
}

#[test]
fn what_a_killed_acceptor_has_answered_is_there_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let _entered = runtime.enter();
    let mut writers: Vec<_> = (0..WRITERS).map(Writer::new).collect();
    let mut node = None;
    for round in 1..=ROUNDS {
        let mut acceptor = Acceptor::start(folder.path());
        let who = acceptor.greeting["node"].clone();
        assert_eq!(*node.get_or_insert(who.clone()), who, "the same one, in the same life");
        let checked: usize = runtime.block_on(async {
            let mut checked = 0;
            for writer in &writers {
                checked += writer.check(&acceptor.link(&writer.key)).await;
            }
            checked
        });
        let (told, answers) = channel();
        let under_way: Vec<_> = writers
            .drain(..)
            .map(|mut writer| {
                let (link, told) = (acceptor.link(&writer.key), told.clone());
                runtime.spawn(async move {
                    writer.write(&link, round, &told).await;
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
fn a_second_acceptor_on_the_same_directory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let _first = Acceptor::start(folder.path());
    let second = Command::new(env!("CARGO_BIN_EXE_holdoff"))
        .args(["acceptor", "--listen", "127.0.0.1:0", "--data", "acceptor"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1));
    assert!(said.contains("another process has this acceptor's store open"), "{said}");
}
