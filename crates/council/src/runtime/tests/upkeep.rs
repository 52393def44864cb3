//! What acceptors keep does not grow for ever.

use super::acceptor::Acceptor;
use super::*;
use crate::Quota;
use crate::acceptor::Limits;

/// Changes of the list, one after the other.
async fn change(council: &Council<Members>, times: u32) {
    for _ in 0..times {
        let wish = Change::Add { key: a_key(), name: "somebody".into() };
        let outcome = council.submit(wish, None, SOON).await.unwrap();
        assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    }
}

async fn until_all_have_compacted(council: CouncilId, acceptors: &[Acceptor]) {
    let all = async {
        for acceptor in acceptors {
            while !acceptor.has_compacted(council).await {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(SOON, all).await.expect("everybody has the snapshot");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_council_is_compacted_without_anybody_asking_for_it() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let path = folders.path().join("one");
    council(&path, &acceptors).await.close().await;
    let device = Options { compact_slots: 8, ..Options::default() };
    let one = Council::<Members>::open(&path, Settings { device, ..Settings::default() }).unwrap();
    change(&one, 12).await;
    let status = one.status().await.unwrap();
    assert!(status.compacted > Slot(0), "{status:?}");
    until_all_have_compacted(status.council, &acceptors).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_council_that_is_full_goes_on() {
    let folders = tempfile::tempdir().unwrap();
    let limits = Limits { council: Quota { slots: 6, ..Quota::default() }, ..Limits::default() };
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
async fn an_invitation_is_kept_until_who_is_invited_has_come_and_no_longer() {
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
            while acceptor.letters(id, &key).await > 0 {
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::time::timeout(SOON, all_gone).await.expect("the letters are gone");
}
