//! Invitations whose sender is not in the snapshot that they lead to.

use super::*;

/// Has somebody added by this device, and does something else before it comes.
async fn invited(folder: &Path, by: &Council<Members>) -> Joining {
    let joining = Joining::open(folder).unwrap();
    assert_committed(&by.add(joining.key(), "invited", SOON).await.unwrap());
    assert!(by.settle(SOON).await.unwrap());
    joining
}

async fn come(
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
async fn whoever_came_after_the_snapshot_can_invite() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let one = council(&folders.path().join("one"), &acceptors).await;
    fill(&one).await;
    assert_committed(&one.compact(SOON).await.unwrap());
    let two = join(&folders.path().join("two"), &one, "second", &acceptors).await;
    let id = two.status().await.unwrap().council;
    let three = invited(&folders.path().join("three"), &two).await;
    let three = come(three, two.key(), id, &acceptors).await;
    assert_committed(&three.submit(a_guest(), None, SOON).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_stands_when_its_sender_goes_by_another_key() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let one = council(&folders.path().join("one"), &acceptors).await;
    fill(&one).await;
    let (id, old) = (one.status().await.unwrap().council, one.key());
    let two = invited(&folders.path().join("two"), &one).await;
    assert_committed(&one.rotate(SOON).await.unwrap().1);
    // From here on nobody knows the key that has signed the invitation.
    assert_committed(&one.compact(SOON).await.unwrap());
    assert!(one.settle(SOON).await.unwrap());
    let two = come(two, old, id, &acceptors).await;
    assert_committed(&two.submit(a_guest(), None, SOON).await.unwrap());
}
