//! A majority of the acceptors is lost for good.

use super::*;

async fn rejoin(
    folder: &Path,
    recovery: &RecoveredCouncil,
    at: &[PeerAddress],
) -> Result<Council<Members>, Error> {
    let joining = Joining::open_recovered(folder)?;
    joining.wait::<Members>(recovery.council, at, None, SOON, &LinkOptions::default()).await?;
    drop(joining);
    Ok(open(folder))
}

#[tokio::test(flavor = "multi_thread")]
async fn survivors_continue_after_the_loss_of_a_majority() {
    let (folders, mut old) = (tempfile::tempdir().unwrap(), three().await);
    let path = |name: &str| folders.path().join(name);
    let one = council(&path("one"), &old).await;
    let two = join(&path("two"), &one, "second", &old).await;
    join(&path("away"), &one, "away", &old).await.close().await;
    let options = LinkOptions::default();
    one.close().await;
    // Device one has not seen this decision when the majority is lost, but the acceptor that stays has.
    let (id, late) = (new_id().unwrap(), a_guest());
    let committed = two.submit_with_id(id, late.clone(), None, SOON).await.unwrap();
    let Outcome::Committed(slot) = committed else { panic!("{committed:?}") };
    assert!(two.settle(SOON).await.unwrap());
    let key = two.views.key.borrow().clone();
    let from = two.status().await.unwrap();
    while old[2].latest(from.council, &key).await < slot {
        tokio::task::yield_now().await;
    }
    two.close().await;
    let spare = three().await;
    let at = [old[2].address(), spare[0].address(), spare[1].address()];

    let refused = Council::<Members>::recover(path("one"), &at, &options).await.unwrap_err();
    assert!(matches!(refused, Error::HasMajority), "{refused}");
    for acceptor in &mut old[..2] {
        acceptor.stop().await;
    }
    let recovery = Council::<Members>::recover(path("one"), &at, &options).await.unwrap();
    assert_eq!((recovery.from.council, recovery.from.slot), (from.council, from.applied));
    assert_eq!(
        (recovery.from.chain, recovery.lost.len()),
        (from.chain, 2),
        "no decision of a survivor is lost"
    );

    // The history refers to the old council, and an operation happens once in both.
    let one = open(&path("one"));
    let state = one.state().await.unwrap();
    assert_eq!((state.council(), state.founding().recovered), (recovery.council, Some(recovery.from)));
    assert_eq!(one.submit_with_id(id, late, None, SOON).await.unwrap(), committed);
    assert_committed(&one.submit(a_guest(), None, SOON).await.unwrap());

    // The other members follow with the keys that they have.
    let two = rejoin(&path("two"), &recovery, &at).await.unwrap();
    assert_committed(&two.submit(a_guest(), None, SOON).await.unwrap());
    assert_committed(&two.compact(SOON).await.unwrap());
    assert!(one.catch_up(SOON).await.unwrap());
    let [mine, theirs] = [one.status().await.unwrap(), two.status().await.unwrap()];
    assert_eq!((mine.applied, mine.chain, mine.is_member), (theirs.applied, theirs.chain, theirs.is_member));

    // A device of the old council learns from the acceptor that stayed that the council is closed, and closes those that come
    // back.
    let away = open(&path("away"));
    let is_closed = |it: &AcceptorStatus| it.health == AcceptorHealth::Refusing(RequestRefusal::Closed);
    while !away.status().await.unwrap().acceptors.iter().any(is_closed) {
        tokio::task::yield_now().await;
    }
    for acceptor in &mut old[..2] {
        acceptor.start().await;
    }
    while !away.status().await.unwrap().acceptors.iter().all(is_closed) {
        tokio::task::yield_now().await;
    }
    let outcome = away.submit(a_guest(), None, Duration::from_millis(100)).await.unwrap();
    assert!(!matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
    away.close().await;
    let away = rejoin(&path("away"), &recovery, &at).await.unwrap();
    assert_committed(&away.submit(a_guest(), None, SOON).await.unwrap());
    assert!(one.catch_up(SOON).await.unwrap());
    assert_eq!(one.status().await.unwrap().chain, away.status().await.unwrap().chain);
}
