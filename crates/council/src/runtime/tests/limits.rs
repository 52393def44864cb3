//! Limits of devices, and compaction, which limits the data of acceptors.

use super::acceptor::Acceptor;
use super::*;
use crate::Quota;
use crate::acceptor::AcceptorLimits;

/// The maximum number of callers that wait for the same operation.
const LIMIT: usize = 256;
const BEYOND: usize = 40;

/// Returns the number of calls that fail with [`Error::Busy`]. The others must time out.
async fn busy<T>(calls: impl Iterator<Item = T>) -> usize
where
    T: Future<Output = Result<bool, Error>> + Send + 'static,
{
    let calls: Vec<_> = calls.map(tokio::spawn).collect();
    let mut busy = 0;
    for call in calls {
        match call.await.unwrap() {
            Err(Error::Busy) => busy += 1,
            other => assert!(matches!(other, Ok(false)), "{other:?}"),
        }
    }
    busy
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_beyond_the_limit_gets_busy() {
    let (folders, mut acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let one = council(&folders.path().join("one"), &acceptors).await;
    for acceptor in &mut acceptors[..2] {
        acceptor.stop().await;
    }
    let (while_busy, add) = (Duration::from_secs(3), Duration::from_millis(10));
    assert_eq!(one.submit(a_guest(), None, add).await.unwrap(), Outcome::Unknown);
    let reading =
        (0..LIMIT + BEYOND).map(|_| one.clone()).map(|one| async move { one.catch_up(while_busy).await });
    let settling =
        (0..LIMIT + BEYOND).map(|_| one.clone()).map(|one| async move { one.settle(while_busy).await });
    assert_eq!(tokio::join!(busy(reading), busy(settling)), (BEYOND, BEYOND));
    acceptors[0].start().await;
    assert!(one.catch_up(SOON).await.unwrap(), "callers that have timed out do not count towards the limit");
    assert!(one.settle(SOON).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_subscriber_learns_how_many_events_it_missed() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let path = folders.path().join("one");
    council(&path, &acceptors).await.close().await;
    let one = Council::<Members>::open(&path, Settings { event_queue: 4, ..Settings::default() }).unwrap();
    let mut events = one.subscribe().unwrap();
    for _ in 0..10 {
        assert_committed(&one.submit(a_guest(), None, SOON).await.unwrap());
    }
    let end = one.state().await.unwrap().applied();
    assert_eq!(events.next().await, Some(CouncilEvent::Lagged(end.0 - 4)));
    for slot in end.0 - 3..=end.0 {
        let Some(CouncilEvent::Applied(applied)) = events.next().await else {
            panic!("there is no event of slot {slot}")
        };
        assert_eq!(applied.slot, Slot(slot));
    }
}

/// Submits this many changes, one after the other. They do not change the members: a guest endorses no snapshot.
async fn change(council: &Council<Members>, times: u32) {
    let away = AcceptorInfo { key: a_key(), incarnation: 1, address: "127.0.0.1:1".into() };
    for time in 0..times {
        let change = match time % 2 {
            0 => CouncilChange::AddAcceptor(away.clone()),
            _ => CouncilChange::RemoveAcceptor(away.id()),
        };
        let outcome = council.submit(change, None, SOON).await.unwrap();
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    }
}

async fn until_all_have_compacted(one: &Council<Members>, acceptors: &[Acceptor]) {
    let (council, key) = (one.status().await.unwrap().council, one.views.key.borrow().clone());
    let all = async {
        for acceptor in acceptors {
            while !acceptor.has_compacted(council, &key).await {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(SOON, all).await.expect("all acceptors have the snapshot");
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_compact_a_council_without_a_request() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let path = folders.path().join("one");
    council(&path, &acceptors).await.close().await;
    let device = Options { compact_slots: 8, ..Options::default() };
    let one = Council::<Members>::open(&path, Settings { device, ..Settings::default() }).unwrap();
    change(&one, 12).await;
    let status = one.status().await.unwrap();
    assert!(status.compacted > Slot(0), "{status:?}");
    until_all_have_compacted(&one, &acceptors).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_council_continues() {
    let folders = tempfile::tempdir().unwrap();
    let limits =
        AcceptorLimits { council: Quota { slots: 6, ..Quota::default() }, ..AcceptorLimits::default() };
    let mut acceptors = Vec::new();
    for _ in 0..3 {
        acceptors.push(Acceptor::with(limits).await);
    }
    let one = council(&folders.path().join("one"), &acceptors).await;
    change(&one, 20).await;
    let status = one.status().await.unwrap();
    assert!(status.counts.refused > 0 && status.compacted > Slot(0), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_is_kept_until_the_invited_device_connects() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let one = council(&folders.path().join("one"), &acceptors).await;
    let id = one.status().await.unwrap().council;
    let path = folders.path().join("two");
    let joining = Joining::open(&path).unwrap();
    let at: Vec<_> = acceptors.iter().map(Acceptor::address).collect();
    one.add(joining.key(), "second", SOON).await.unwrap();
    assert!(one.settle(SOON).await.unwrap());
    let options = LinkOptions::default();
    joining.wait::<Members>(id, &at, None, SOON, &options).await.unwrap();
    drop(joining);
    let two = open(&path);
    let key = two.views.key.borrow().clone();
    let all_gone = async {
        for acceptor in &acceptors {
            while acceptor.mail(id, &key).await > 0 {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(SOON, all_gone).await.expect("the acceptors have deleted the mail");
}
