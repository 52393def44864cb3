//! Invitations, key rotations, and acceptors that move.

use super::*;

/// Lets this device add a member, and changes the council before the member joins.
async fn invited(folder: &Path, by: &Council<Members>) -> Joining {
    let joining = Joining::open(folder).unwrap();
    assert_committed(&by.add(joining.key(), "invited", SOON).await.unwrap());
    assert!(by.settle(SOON).await.unwrap());
    joining
}

async fn accept_invitation(
    joining: Joining,
    by: PublicKey,
    council: CouncilId,
    acceptors: &[acceptor::Acceptor],
) -> Council<Members> {
    let at: Vec<_> = acceptors.iter().map(acceptor::Acceptor::address).collect();
    let options = LinkOptions::default();
    let joined = joining.wait::<Members>(council, &at, Some(by), SOON, &options).await.unwrap();
    assert_eq!(joined, Joined { council, by });
    let path = joining.path().to_owned();
    drop(joining);
    open(&path)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_added_after_the_snapshot_can_invite() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let one = council(&folders.path().join("one"), &acceptors).await;
    fill(&one).await;
    assert_committed(&one.compact(SOON).await.unwrap());
    let two = join(&folders.path().join("two"), &one, "second", &acceptors).await;
    let id = two.status().await.unwrap().council;
    let three = invited(&folders.path().join("three"), &two).await;
    let three = accept_invitation(three, two.key(), id, &acceptors).await;
    assert_committed(&three.submit(a_guest(), None, SOON).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_stays_valid_after_its_sender_rotated_its_key() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let one = council(&folders.path().join("one"), &acceptors).await;
    // With the invited device there are three members, and the two that run endorse the last snapshot.
    let other = join(&folders.path().join("other"), &one, "other", &acceptors).await;
    let guests = fill(&one).await;
    let (id, old) = (one.status().await.unwrap().council, one.key());
    let two = invited(&folders.path().join("two"), &one).await;
    let removals = guests.into_iter().map(|key| {
        let one = one.clone();
        tokio::spawn(async move { one.submit(CouncilChange::Remove { key }, None, SOON).await })
    });
    for removed in removals.collect::<Vec<_>>() {
        assert_committed(&removed.await.unwrap().unwrap());
    }
    assert_committed(&one.rotate(SOON).await.unwrap().1);
    // From here on no member has the key that signed the invitation, and no acceptor the snapshot that it names.
    assert_committed(&one.compact(SOON).await.unwrap());
    let key = one.views.key.borrow().clone();
    for acceptor in &acceptors {
        while !acceptor.has_compacted(id, &key).await {
            tokio::task::yield_now().await;
        }
    }
    assert!(other.status().await.unwrap().is_member);
    let two = accept_invitation(two, old, id, &acceptors).await;
    assert_committed(&two.submit(a_guest(), None, SOON).await.unwrap());
}

/// A council of one with a majority of its acceptors stopped.
async fn without_a_majority(folder: &Path) -> (Council<Members>, Vec<acceptor::Acceptor>) {
    let mut acceptors = three().await;
    let one = council(folder, &acceptors).await;
    for acceptor in &mut acceptors[..2] {
        acceptor.stop().await;
    }
    (one, acceptors)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_rotation_blocks_operations_after_a_restart() {
    let folders = tempfile::tempdir().unwrap();
    let path = folders.path().join("one");
    let (one, mut acceptors) = without_a_majority(&path).await;
    let (turning, old) = (one.clone(), one.key());
    let turning = tokio::spawn(async move { turning.rotate(SOON).await });
    while one.status().await.unwrap().pending.is_empty() {
        tokio::task::yield_now().await;
    }
    one.close().await;
    assert!(matches!(turning.await.unwrap(), Err(Error::Stopped(_))));

    let one = open(&path);
    let brief = Duration::from_millis(300);
    let refused = one.submit(a_guest(), None, brief).await;
    assert!(matches!(refused, Err(Error::Rotating)), "{refused:?}");
    for acceptor in &mut acceptors[..2] {
        acceptor.start().await;
    }
    assert_committed(&one.submit(a_guest(), None, SOON).await.unwrap());
    assert_ne!(one.key(), old);
    one.close().await;
    assert_eq!(Folder::find(&path).unwrap().keys().unwrap(), [open(&path).key()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_failed_rotation_is_deleted() {
    let folders = tempfile::tempdir().unwrap();
    let path = folders.path().join("one");
    let (one, mut acceptors) = without_a_majority(&path).await;
    let (_, outcome) = one.rotate(Duration::from_millis(300)).await.unwrap();
    assert_eq!(outcome, Outcome::Unknown);
    assert_eq!(
        Folder::find(&path).unwrap().keys().unwrap().len(),
        2,
        "the device keeps both keys while the outcome is unknown"
    );
    for acceptor in &mut acceptors[..2] {
        acceptor.start().await;
    }
    assert!(one.settle(SOON).await.unwrap());
    assert_eq!(Folder::find(&path).unwrap().keys().unwrap(), [one.key()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_follows_an_acceptor_to_its_new_address() {
    let (folders, mut acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let path = folders.path().join("two");
    let one = council(&folders.path().join("one"), &acceptors).await;
    join(&path, &one, "second", &acceptors).await.close().await;
    acceptors[2].move_elsewhere().await;
    let status = one.status().await.unwrap();
    let before = status.acceptors.iter().find(|it| it.acceptor.key == acceptors[2].key()).unwrap();
    assert_committed(&one.submit(CouncilChange::RemoveAcceptor(before.id), None, SOON).await.unwrap());
    let (after, outcome) = one.add_acceptor(&acceptors[2].address(), SOON).await.unwrap();
    assert_committed(&outcome);
    assert_eq!(after.id(), before.id, "an acceptor with another address keeps its id");

    // The device learns both changes from one reply, so that for it the acceptor was never removed.
    let two = open(&path);
    assert!(two.catch_up(SOON).await.unwrap());
    acceptors[1].stop().await;
    assert_committed(&two.submit(a_guest(), None, SOON).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_learns_of_a_replacement_from_a_remaining_acceptor() {
    let (folders, mut acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let path = folders.path().join("two");
    let one = council(&folders.path().join("one"), &acceptors).await;
    join(&path, &one, "second", &acceptors).await.close().await;
    let status = one.status().await.unwrap();
    let lost = status.acceptors.iter().find(|it| it.acceptor.key == acceptors[0].key()).unwrap().id;
    acceptors[0].wipe().await;
    assert_committed(&one.submit(CouncilChange::RemoveAcceptor(lost), None, SOON).await.unwrap());
    assert_committed(&one.add_acceptor(&acceptors[0].address(), SOON).await.unwrap().1);
    assert_committed(&one.submit(a_guest(), None, SOON).await.unwrap());

    // Of those it knows one has lost its disk, one is away, and one has stayed.
    acceptors[1].stop().await;
    let two = open(&path);
    assert!(two.catch_up(SOON).await.unwrap(), "{:?}", two.status().await);
    assert_committed(&two.submit(a_guest(), None, SOON).await.unwrap());
}
