//! Devices as they run, against acceptors that stop, come back and lose their disks.

mod acceptor;
mod limits;
mod membership;
mod recovery;

use std::path::Path;
use std::time::Duration;

use holdoff_net::SecretKey;

use super::*;
use crate::{NotCommitted, Outcome, RequestRefusal};
use acceptor::three;

const SOON: Duration = Duration::from_secs(20);

/// A council of one, with a device that runs.
async fn council(folder: &Path, acceptors: &[acceptor::Acceptor]) -> Council<Members> {
    let addresses: Vec<_> = acceptors.iter().map(acceptor::Acceptor::address).collect();
    Council::create(folder, "founder", &addresses, &LinkOptions::default()).await.unwrap();
    open(folder)
}

fn open(folder: &Path) -> Council<Members> {
    Council::open(folder, Settings::default()).unwrap()
}

/// Adds a new device to the council, and opens it.
async fn join(
    folder: &Path,
    by: &Council<Members>,
    name: &str,
    acceptors: &[acceptor::Acceptor],
) -> Council<Members> {
    let joining = Joining::open(folder).unwrap();
    let council = by.status().await.unwrap().council;
    let at: Vec<_> = acceptors.iter().map(acceptor::Acceptor::address).collect();
    let outcome = by.add(joining.key(), name, SOON).await.unwrap();
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    let options = LinkOptions::default();
    let joined = joining.wait::<Members>(council, &at, Some(by.key()), SOON, &options).await.unwrap();
    assert_eq!((joined.council, joined.by), (council, by.key()));
    drop(joining);
    let device = open(folder);
    assert!(device.catch_up(SOON).await.unwrap());
    device
}

/// Adds so many members that the state is too large for a mail message. They have no devices.
async fn fill(one: &Council<Members>) -> Vec<PublicKey> {
    let keys: Vec<_> = (0..240).map(|_| a_key()).collect();
    let add = |key: &PublicKey| {
        let (one, key, name) = (one.clone(), *key, "n".repeat(200));
        tokio::spawn(async move { one.submit(CouncilChange::Add { key, name }, None, SOON).await })
    };
    let adding: Vec<_> = keys.iter().map(add).collect();
    for added in adding {
        assert_committed(&added.await.unwrap().unwrap());
    }
    keys
}

fn a_guest() -> CouncilChange {
    CouncilChange::Add { key: a_key(), name: "guest".into() }
}

#[track_caller]
fn assert_committed(outcome: &Outcome) {
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
}

fn a_key() -> PublicKey {
    SecretKey::generate().unwrap().public()
}

fn names(state: &CouncilState<Members>) -> Vec<String> {
    state.machine().members().values().map(|member| member.name.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_devices_create_join_and_change_a_council() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let one = council(&folders.path().join("one"), &acceptors).await;
    let two = join(&folders.path().join("two"), &one, "second", &acceptors).await;
    let third = a_key();
    let outcome =
        two.submit(CouncilChange::Add { key: third, name: "third".into() }, None, SOON).await.unwrap();
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    assert!(one.catch_up(SOON).await.unwrap());
    let (mine, theirs) = (one.state().await.unwrap(), two.state().await.unwrap());
    assert_eq!(mine.machine().members().len(), 3);
    assert_eq!((mine.applied(), mine.chain()), (theirs.applied(), theirs.chain()));

    let again =
        one.submit(CouncilChange::Add { key: third, name: "third".into() }, None, SOON).await.unwrap();
    assert_eq!(again, Outcome::NotCommitted(NotCommitted::AlreadySatisfied));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_operations_all_commit_and_devices_agree() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let one = council(&folders.path().join("0"), &acceptors).await;
    let mut devices = vec![one.clone()];
    for name in ["1", "2", "3", "4"] {
        devices.push(join(&folders.path().join(name), &one, name, &acceptors).await);
    }
    let adding = devices.iter().map(|device| {
        let device = device.clone();
        tokio::spawn(async move {
            for _ in 0..4 {
                let change = CouncilChange::Add { key: a_key(), name: "guest".into() };
                let outcome = device.submit(change, None, SOON).await.unwrap();
                assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
            }
        })
    });
    for added in adding.collect::<Vec<_>>() {
        added.await.unwrap();
    }
    let mut ends = Vec::new();
    for device in &devices {
        assert!(device.catch_up(SOON).await.unwrap());
        let state = device.state().await.unwrap();
        assert_eq!(state.machine().members().len(), 25);
        ends.push((state.applied(), state.chain()));
    }
    assert!(ends.iter().all(|end| *end == ends[0]), "{ends:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_device_continues_where_it_stopped() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let path = folders.path().join("one");
    let one = council(&path, &acceptors).await;
    let key = a_key();
    let id = new_id().unwrap();
    let add = || CouncilChange::Add { key, name: "kept".into() };
    let first = one.submit_with_id(id, add(), None, SOON).await.unwrap();
    let busy = Council::<Members>::open(&path, Settings::default()).unwrap_err();
    assert!(matches!(busy, Error::InUse(_)), "{busy}");
    let before = one.status().await.unwrap();
    one.close().await;

    let one = open(&path);
    let after = one.status().await.unwrap();
    assert_eq!((after.key, after.applied, after.chain), (before.key, before.applied, before.chain));
    assert_eq!(
        one.submit_with_id(id, add(), None, SOON).await.unwrap(),
        first,
        "an operation with a known id is applied once"
    );
    assert_eq!(names(&one.state().await.unwrap()).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_operations_are_decided_after_a_restart() {
    let (folders, mut acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let path = folders.path().join("one");
    let one = council(&path, &acceptors).await;
    for acceptor in &mut acceptors[..2] {
        acceptor.stop().await;
    }
    let add = CouncilChange::Add { key: a_key(), name: "late".into() };
    let outcome = one.submit(add, None, Duration::from_millis(400)).await.unwrap();
    assert_eq!(outcome, Outcome::Unknown);
    let (mail, key) = (one.invitation(a_key()).await.unwrap(), a_key());
    let waiting = one.clone();
    let add = CouncilChange::Add { key, name: "later".into() };
    let submitted = tokio::spawn(async move { waiting.submit(add, Some(mail), SOON).await });
    while one.status().await.unwrap().pending.len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    one.close().await;
    assert!(matches!(submitted.await.unwrap(), Err(Error::Stopped(_))));

    for acceptor in &mut acceptors[..2] {
        acceptor.start().await;
    }
    let one = open(&path);
    assert!(one.settle(SOON).await.unwrap(), "{:?}", one.status().await);
    assert!(names(&one.state().await.unwrap()).contains(&"later".to_owned()));
    assert_eq!(one.status().await.unwrap().unposted_mail, 0, "the mail was posted");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_acceptor_is_reported_and_not_counted() {
    let (folders, mut acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let one = council(&folders.path().join("one"), &acceptors).await;
    acceptors[0].wipe().await;
    acceptors[1].stop().await;
    let add = || CouncilChange::Add { key: a_key(), name: "guest".into() };
    assert_eq!(one.submit(add(), None, Duration::from_secs(1)).await.unwrap(), Outcome::Unknown);
    let status = one.status().await.unwrap();
    let health =
        |id| status.acceptors.iter().find(|watched| watched.acceptor.key == id).unwrap().health.clone();
    assert!(matches!(health(acceptors[0].key()), AcceptorHealth::Wiped { .. }), "{status:?}");
    assert!(matches!(health(acceptors[1].key()), AcceptorHealth::Unreachable(_)), "{status:?}");

    acceptors[1].start().await;
    let wiped = status.acceptors.iter().find(|watched| watched.acceptor.key == acceptors[0].key()).unwrap();
    let outcome = one.submit(CouncilChange::RemoveAcceptor(wiped.id), None, SOON).await.unwrap();
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    let (anew, outcome) = one.add_acceptor(&acceptors[0].address(), SOON).await.unwrap();
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    assert_ne!(anew.id(), wiped.id);
    acceptors[1].stop().await;
    assert!(
        matches!(one.submit(add(), None, SOON).await.unwrap(), Outcome::Committed(_)),
        "the replaced acceptor counts"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_replaces_and_deletes_the_old_key() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let path = folders.path().join("one");
    let one = council(&path, &acceptors).await;
    let old = one.key();
    let (new, outcome) = one.rotate(SOON).await.unwrap();
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    assert_eq!(one.status().await.unwrap().key, new);
    let add = CouncilChange::Add { key: a_key(), name: "after".into() };
    let outcome = one.submit(add, None, SOON).await.unwrap();
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    one.close().await;

    let one = open(&path);
    assert!(one.catch_up(SOON).await.unwrap());
    let state = one.state().await.unwrap();
    assert_eq!((one.key(), state.machine().members().contains_key(&old)), (new, false));
    assert_eq!(Folder::find(&path).unwrap().keys().unwrap(), [new]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_rotation_is_finished_at_the_next_start() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let path = folders.path().join("one");
    let one = council(&path, &acceptors).await;
    let old = one.key();
    let file = path.join("keys").join(format!("{old}.key"));
    let aside = folders.path().join("aside");
    std::fs::copy(&file, &aside).unwrap();
    let (new, _) = one.rotate(SOON).await.unwrap();
    one.close().await;
    // The state between the decision of the rotation and the switch: the old key is present and active.
    std::fs::copy(&aside, &file).unwrap();
    store::Store::open(&path.join("device.redb")).unwrap().set_key(&old).unwrap();

    let one = open(&path);
    assert_eq!(one.key(), new);
    let outcome =
        one.submit(CouncilChange::Add { key: a_key(), name: "on".into() }, None, SOON).await.unwrap();
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_joins_after_a_compaction_starts_from_the_snapshot() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let one = council(&folders.path().join("one"), &acceptors).await;
    let outcome = one.compact(SOON).await.unwrap();
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    assert!(one.settle(SOON).await.unwrap());
    let id = one.status().await.unwrap().council;
    let key = one.views.key.borrow().clone();
    for acceptor in &acceptors {
        assert!(acceptor.has_compacted(id, &key).await);
    }
    let two = join(&folders.path().join("two"), &one, "second", &acceptors).await;
    assert_eq!(two.state().await.unwrap().chain(), one.state().await.unwrap().chain());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_council_too_large_for_a_mail_message_is_joined_by_its_snapshot() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let one = council(&folders.path().join("one"), &acceptors).await;
    fill(&one).await;
    assert!(Invitation::needs_snapshot(&*one.state().await.unwrap()));
    let two = join(&folders.path().join("two"), &one, "second", &acceptors).await;
    let (mine, theirs) = (one.state().await.unwrap(), two.state().await.unwrap());
    assert_eq!((mine.applied(), mine.chain()), (theirs.applied(), theirs.chain()));
    assert_eq!(theirs.machine().members().len(), 242);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_is_confirmed_against_the_latest_state() {
    let (folders, mut acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let path = folders.path().join("two");
    let one = council(&folders.path().join("one"), &acceptors).await;
    let two = join(&path, &one, "second", &acceptors).await;
    let (key, name) = (a_key(), "guest".to_owned());
    two.submit(CouncilChange::Add { key, name: name.clone() }, None, SOON).await.unwrap();
    two.close().await;
    one.submit(CouncilChange::Remove { key }, None, SOON).await.unwrap();
    // The device knows the guest, and does not know yet that it was removed.
    let two = open(&path);
    let outcome = two.submit(CouncilChange::Add { key, name }, None, SOON).await.unwrap();
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    for acceptor in &mut acceptors {
        acceptor.stop().await;
    }
    let brief = Duration::from_millis(300);
    let outcome = two.submit(CouncilChange::Add { key, name: "guest".into() }, None, brief).await.unwrap();
    assert_eq!(outcome, Outcome::NotCommitted(NotCommitted::Deadline), "no acceptor confirms the rejection");
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_without_a_majority_are_decided_again_without_delay() {
    let (folders, mut acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let path = folders.path().join("two");
    let one = council(&folders.path().join("one"), &acceptors).await;
    join(&path, &one, "second", &acceptors).await.close().await;
    acceptors[2].stop().await;
    for _ in 0..30 {
        let add = CouncilChange::Add { key: a_key(), name: "guest".into() };
        let outcome = one.submit(add, None, SOON).await.unwrap();
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    }
    let end = one.state().await.unwrap();
    one.close().await;
    acceptors[0].wipe().await;
    acceptors[2].start().await;
    // Thirty slots that no majority can report any more. Each takes a round; a wait before each would take a minute.
    let two = open(&path);
    assert!(two.catch_up(SOON).await.unwrap(), "{:?}", two.status().await);
    let state = two.state().await.unwrap();
    assert_eq!((state.applied(), state.chain()), (end.applied(), end.chain()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_receives_every_applied_slot() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let one = council(&folders.path().join("one"), &acceptors).await;
    let mut events = one.subscribe().unwrap();
    let key = a_key();
    one.submit(CouncilChange::Add { key, name: "heard".into() }, None, SOON).await.unwrap();
    let Some(CouncilEvent::Applied(applied)) = events.next().await else { panic!("no event arrived") };
    let (operation, result) = &applied.operations[0];
    assert_eq!((applied.slot, result), (Slot(1), &Ok(())));
    assert_eq!(CouncilChange::read(&operation.body), Some(CouncilChange::Add { key, name: "heard".into() }));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_from_another_key_is_ignored() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let one = council(&folders.path().join("one"), &acceptors).await;
    let joining = Joining::open(folders.path().join("two")).unwrap();
    one.add(joining.key(), "second", SOON).await.unwrap();
    assert!(one.settle(SOON).await.unwrap());
    let council = one.status().await.unwrap().council;
    let (at, options) = ([acceptors[0].address()], LinkOptions::default());
    let brief = Duration::from_millis(300);
    let refused = joining.wait::<Members>(council, &at, Some(a_key()), brief, &options).await.unwrap_err();
    assert!(matches!(refused, Error::NotInvited(_)), "{refused}");
    joining.wait::<Members>(council, &at, Some(one.key()), SOON, &options).await.unwrap();
}
