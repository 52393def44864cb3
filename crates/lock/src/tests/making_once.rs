use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::{Error, Once, OnceError, Token};

/// The value to be created, and the number of creations.
#[derive(Clone, Default)]
struct Place(Arc<(Mutex<Option<u32>>, AtomicU32)>);

impl Place {
    async fn look(self) -> Result<Option<u32>, Infallible> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(*self.0.0.lock().unwrap())
    }

    async fn make(self, number: u32) -> Result<u32, Infallible> {
        self.0.1.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(SECOND).await;
        *self.0.0.lock().unwrap() = Some(number);
        Ok(number)
    }

    async fn once(&self, locks: &Locks, number: u32) -> Once<u32> {
        let (looked, made) = (self.clone(), self.clone());
        let once = locks.once("k", move || looked.clone().look(), move |_| made.make(number));
        once.await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_in_three_processes_make_one() {
    let (locks, store) = locks();
    let processes = [locks, neighbour(&store), neighbour(&store)];
    let place = Place::default();
    let mut tasks = Vec::new();
    for number in 0..100 {
        let (place, locks) = (place.clone(), processes[number as usize % 3].clone());
        tasks.push(tokio::spawn(async move { place.once(&locks, number).await }));
    }
    let mut created = Vec::new();
    let mut all = Vec::new();
    for task in tasks {
        let made = task.await.unwrap();
        created.extend(matches!(made, Once::Created(_)).then_some(made));
        all.push(made.into_inner());
    }
    assert_eq!((created.len(), place.0.1.load(Ordering::Relaxed)), (1, 1));
    assert!(all.iter().all(|made| *made == all[0]), "and all have the same");
    assert!(store.asked() < 50, "most found it without asking the store: {}", store.asked());
}

#[tokio::test(start_paused = true)]
async fn what_was_made_meanwhile_is_found_while_waiting() {
    let (locks, store) = locks();
    let place = Place::default();
    let _guard = neighbour(&store).acquire("k").await.unwrap();
    let (waiting, finds) = (place.clone(), locks.clone());
    let waiting = tokio::spawn(async move { waiting.once(&finds, 1).await });
    tokio::time::sleep(SECOND).await;
    *place.0.0.lock().unwrap() = Some(9);
    assert_eq!(waiting.await.unwrap(), Once::Found(9));
    assert_eq!(locks.inspect("k").await.unwrap().unwrap().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn what_was_made_just_before_the_lock_was_had_is_found_under_it() {
    let (locks, _) = locks();
    let looks = Arc::new(AtomicU32::new(0));
    let probe = move || {
        let look = looks.fetch_add(1, Ordering::Relaxed);
        async move { Ok::<_, Infallible>((look == 1).then_some("theirs")) }
    };
    let once = locks.once("k", probe, |_| async { Ok("mine") });
    assert_eq!(once.await.unwrap(), Once::Found("theirs"));
    settle().await;
    assert!(locks.try_acquire("k").await.unwrap().is_some(), "and the lock is let go");
}

#[tokio::test(start_paused = true)]
async fn errors_of_both_sides_pass_through_and_let_the_lock_go() {
    let (locks, _) = locks();
    let nothing = || async { Ok::<Option<u8>, &str>(None) };
    let failed = locks.once("k", nothing, |_| async { Err("no disk") }).await;
    assert!(matches!(failed, Err(OnceError::Create("no disk"))));
    let failed = locks.once("k", || async { Err("no net") }, |_| async { Ok(1) }).await;
    assert!(matches!(failed, Err(OnceError::Probe("no net"))));
    settle().await;
    assert!(locks.try_acquire("k").await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn the_maker_is_given_the_token_or_makes_it_without_if_allowed() {
    let (locks, store) = locks();
    let nothing = || async { Ok::<_, Infallible>(None) };
    let made = locks.once("k", nothing, |token| async move { Ok(token) }).await.unwrap();
    assert_eq!(made, Once::Created(Some(Token::new(1))));
    let _guard = neighbour(&store).acquire("k").await.unwrap();
    let hurried = || locks.acquire("k").deadline(SECOND).once(nothing, |token| async move { Ok(token) });
    assert!(matches!(hurried().await, Err(OnceError::Lock(Error::DeadlineExceeded { .. }))));
    assert_eq!(hurried().or_create_anyway().await.unwrap(), Once::Created(None));
}

#[tokio::test(start_paused = true)]
async fn a_maker_whose_lock_is_lost_is_stopped() {
    let (locks, store) = locks();
    let nothing = || async { Ok::<_, Infallible>(None) };
    let never = |_| async {
        std::future::pending::<()>().await;
        Ok(1)
    };
    let making = tokio::spawn(locks.once("k", nothing, never).into_future());
    settle().await;
    store.is_down.store(true, Ordering::Relaxed);
    assert!(matches!(making.await.unwrap(), Err(OnceError::Lock(Error::Lost { .. }))));
}
