//! Going over to another key, with interruptions.

use super::*;

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
async fn after_a_restart_nothing_overtakes_the_new_key() {
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
async fn a_key_that_is_never_gone_over_to_is_forgotten() {
    let folders = tempfile::tempdir().unwrap();
    let path = folders.path().join("one");
    let (one, mut acceptors) = without_a_majority(&path).await;
    let (_, outcome) = one.rotate(Duration::from_millis(300)).await.unwrap();
    assert_eq!(outcome, Outcome::Unknown);
    assert_eq!(Folder::find(&path).unwrap().keys().unwrap().len(), 2, "it may still be needed");
    for acceptor in &mut acceptors[..2] {
        acceptor.start().await;
    }
    assert!(one.settle(SOON).await.unwrap());
    assert_eq!(Folder::find(&path).unwrap().keys().unwrap(), [one.key()]);
}
