//! More than a device takes: whoever is turned away, and whoever is too slow, is told so.

use super::*;

/// So many may wait for the same thing.
const PLACES: usize = 256;
const BEYOND: usize = 40;

/// How many of them were told that the device is busy; the others have waited in vain.
async fn busy<T>(asking: impl Iterator<Item = T>) -> usize
where
    T: Future<Output = Result<bool, Error>> + Send + 'static,
{
    let asking: Vec<_> = asking.map(tokio::spawn).collect();
    let mut busy = 0;
    for asked in asking {
        match asked.await.unwrap() {
            Err(Error::Busy) => busy += 1,
            other => assert!(matches!(other, Ok(false)), "{other:?}"),
        }
    }
    busy
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_beyond_the_limit_is_told_that_the_device_is_busy() {
    let (folders, mut acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let one = council(&folders.path().join("one"), &acceptors).await;
    for acceptor in &mut acceptors[..2] {
        acceptor.stop().await;
    }
    let (while_busy, add) = (Duration::from_secs(3), Duration::from_millis(10));
    assert_eq!(one.submit(a_guest(), None, add).await.unwrap(), Outcome::Unknown);
    let reading =
        (0..PLACES + BEYOND).map(|_| one.clone()).map(|one| async move { one.catch_up(while_busy).await });
    let settling =
        (0..PLACES + BEYOND).map(|_| one.clone()).map(|one| async move { one.settle(while_busy).await });
    assert_eq!(tokio::join!(busy(reading), busy(settling)), (BEYOND, BEYOND));
    acceptors[0].start().await;
    assert!(one.catch_up(SOON).await.unwrap(), "those who have gone take no room");
    assert!(one.settle(SOON).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_reads_too_slowly_is_told_how_many_it_has_missed() {
    let (folders, acceptors) = (tempfile::tempdir().unwrap(), three().await);
    let path = folders.path().join("one");
    council(&path, &acceptors).await.close().await;
    let one = Council::<Members>::open(&path, Settings { news: 4, ..Settings::default() }).unwrap();
    let mut news = one.subscribe().unwrap();
    for _ in 0..10 {
        assert_committed(&one.submit(a_guest(), None, SOON).await.unwrap());
    }
    let end = one.state().await.unwrap().applied();
    assert_eq!(news.next().await, Some(News::Lagged(end.0 - 4)));
    for slot in end.0 - 3..=end.0 {
        let Some(News::Applied(applied)) = news.next().await else { panic!("slot {slot} was not told") };
        assert_eq!(applied.slot, Slot(slot));
    }
}
