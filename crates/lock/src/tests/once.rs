use std::convert::Infallible;
use std::result::Result;
use std::sync::Mutex;

use super::*;
use crate::{Once, OnceError};

/// The value to be created, and the number of creations.
#[derive(Clone, Default)]
struct CreatedValue(Arc<(Mutex<Option<u32>>, AtomicU32)>);

impl CreatedValue {
    async fn probe(self) -> Result<Option<u32>, Infallible> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(*self.0.0.lock().unwrap())
    }

    async fn create(self, number: u32) -> Result<u32, Infallible> {
        self.0.1.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(SECOND).await;
        *self.0.0.lock().unwrap() = Some(number);
        Ok(number)
    }

    async fn once(&self, locks: &Locks, number: u32) -> Once<u32> {
        let (probed, created) = (self.clone(), self.clone());
        let once = locks.once("k", move || probed.clone().probe(), move |_| created.create(number));
        once.await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_callers_in_three_processes_create_one_value() {
    let (locks, store) = locks();
    let processes = [locks, another_process(&store), another_process(&store)];
    let value = CreatedValue::default();
    let mut tasks = Vec::new();
    for number in 0..100 {
        let (value, locks) = (value.clone(), processes[number as usize % 3].clone());
        tasks.push(tokio::spawn(async move { value.once(&locks, number).await }));
    }
    let mut created = Vec::new();
    let mut all = Vec::new();
    for task in tasks {
        let made = task.await.unwrap();
        created.extend(matches!(made, Once::Created(_)).then_some(made));
        all.push(made.into_inner());
    }
    assert_eq!((created.len(), value.0.1.load(Ordering::Relaxed)), (1, 1));
    assert!(all.iter().all(|made| *made == all[0]), "all callers return the same value");
    assert!(store.requests() < 50, "most callers found the value without a request: {}", store.requests());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_caller_finds_the_value_of_another_process() {
    let (locks, store) = locks();
    let value = CreatedValue::default();
    let _guard = another_process(&store).acquire("k").await.unwrap();
    let (waiting, finds) = (value.clone(), locks.clone());
    let waiting = tokio::spawn(async move { waiting.once(&finds, 1).await });
    tokio::time::sleep(SECOND).await;
    *value.0.0.lock().unwrap() = Some(9);
    assert_eq!(waiting.await.unwrap(), Once::Found(9));
    assert_eq!(locks.inspect("k").await.unwrap().unwrap().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn a_value_created_before_the_grant_is_found_under_the_lock() {
    let (locks, _) = locks();
    let looks = Arc::new(AtomicU32::new(0));
    let probe = move || {
        let look = looks.fetch_add(1, Ordering::Relaxed);
        async move { Ok::<_, Infallible>((look == 1).then_some("theirs")) }
    };
    let once = locks.once("k", probe, |_| async { Ok("mine") });
    assert_eq!(once.await.unwrap(), Once::Found("theirs"));
    settle().await;
    assert!(locks.try_acquire("k").await.unwrap().is_some(), "the lock was released");
}

#[tokio::test(start_paused = true)]
async fn errors_of_probe_and_create_release_the_lock() {
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
async fn create_receives_the_token_or_none_without_the_lock() {
    let (locks, store) = locks();
    let nothing = || async { Ok::<_, Infallible>(None) };
    let made = locks.once("k", nothing, |token| async move { Ok(token) }).await.unwrap();
    assert!(matches!(made, Once::Created(Some(_))), "{made:?}");
    let _guard = another_process(&store).acquire("k").await.unwrap();
    let hurried = || locks.acquire("k").deadline(SECOND).once(nothing, |token| async move { Ok(token) });
    assert!(matches!(hurried().await, Err(OnceError::Lock(Error::DeadlineExceeded { .. }))));
    assert_eq!(hurried().or_create_anyway().await.unwrap(), Once::Created(None));
}

#[tokio::test(start_paused = true)]
async fn create_is_stopped_when_the_lock_is_lost() {
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
