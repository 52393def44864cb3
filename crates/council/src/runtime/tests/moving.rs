//! Acceptors that go somewhere else, and stay who they are.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_acceptor_is_followed_to_its_new_address_also_by_who_was_away() {
    let (folders, mut acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let path = folders.path().join("two");
    let one = council(&folders.path().join("one"), &acceptors).await;
    join(&path, &one, "second", &acceptors).await.close().await;
    acceptors[2].move_elsewhere().await;
    let status = one.status().await.unwrap();
    let before = status.acceptors.iter().find(|it| it.acceptor.key == acceptors[2].key()).unwrap();
    assert_committed(&one.submit(Change::RemoveAcceptor(before.id), None, SOON).await.unwrap());
    let (after, outcome) = one.add_acceptor(&acceptors[2].address(), SOON).await.unwrap();
    assert_committed(&outcome);
    assert_eq!(after.id(), before.id, "the same one, elsewhere");

    // It hears of both changes in one answer: for it the acceptor was never away.
    let two = open(&path);
    assert!(two.catch_up(SOON).await.unwrap());
    acceptors[1].stop().await;
    assert_committed(&two.submit(a_guest(), None, SOON).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_missed_a_replacement_learns_of_it_from_one_that_stayed() {
    let (folders, mut acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let path = folders.path().join("two");
    let one = council(&folders.path().join("one"), &acceptors).await;
    join(&path, &one, "second", &acceptors).await.close().await;
    let status = one.status().await.unwrap();
    let lost = status.acceptors.iter().find(|it| it.acceptor.key == acceptors[0].key()).unwrap().id;
    acceptors[0].wipe().await;
    assert_committed(&one.submit(Change::RemoveAcceptor(lost), None, SOON).await.unwrap());
    assert_committed(&one.add_acceptor(&acceptors[0].address(), SOON).await.unwrap().1);
    assert_committed(&one.submit(a_guest(), None, SOON).await.unwrap());

    // Of those it knows one has lost its disk, one is away, and one has stayed.
    acceptors[1].stop().await;
    let two = open(&path);
    assert!(two.catch_up(SOON).await.unwrap(), "{:?}", two.status().await);
    assert_committed(&two.submit(a_guest(), None, SOON).await.unwrap());
}
