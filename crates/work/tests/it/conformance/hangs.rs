//! A store that hangs: a Postgres whose processes are suspended keeps its connections and answers nothing.

use std::sync::Arc;
use std::time::Duration;

use holdoff_testbed::{CONDITION_TIMEOUT, Postgres};
use holdoff_work::{Context, Fault, Settings, StepState, Task, TaskState, Work};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use crate::conformance::test_store::{HOUR, SECOND, ends, policies, settings, step, submit};

const LEASE: Duration = Duration::from_secs(2);

async fn open(server: &Postgres) -> Work {
    let mut settings: Settings = settings();
    settings.lease = LEASE;
    Work::open_with(&server.create_database("hangs"), policies(), settings).await.unwrap()
}

/// Another worker may run the step once its lease has ended, so this one must stop by then, whatever the store does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_ends_with_its_lease_and_is_repeated() {
    let server = Postgres::start();
    let work = open(&server).await;
    let (events, mut seen) = mpsc::unbounded_channel();
    let end = Arc::new(Notify::new());
    let ended = Arc::clone(&end);
    let worker = work.worker().handle("slow", move |context: Context, (): ()| {
        let (events, ended) = (events.clone(), Arc::clone(&ended));
        async move {
            events.send("begun").unwrap();
            tokio::select! {
                () = context.cancelled() => {
                    events.send("cancelled").unwrap();
                    std::future::pending::<()>().await;
                }
                () = ended.notified() => {}
            }
            Ok::<_, Fault>(())
        }
    });
    let worker = worker.start().await.unwrap();
    let task = submit(&work, Task::new("slow")).await;
    assert_eq!(seen.recv().await, Some("begun"));

    let hung = server.hang();
    let since = Instant::now();
    assert_eq!(seen.recv().await, Some("cancelled"));
    // A renewal may have come before, and this machine may be busy.
    assert!(since.elapsed() < LEASE + 5 * SECOND, "{:?}", since.elapsed());
    drop(hung);

    let again = tokio::time::timeout(CONDITION_TIMEOUT, seen.recv()).await;
    assert_eq!(again.expect("the step is rescued"), Some("begun"));
    end.notify_one();
    ends(&work, task, TaskState::Succeeded).await;
    assert_eq!(step(&work, task.step(0)).await.rescues, 1);
    worker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_ends_although_the_last_report_cannot_be_written() {
    let server = Postgres::start();
    let work = open(&server).await;
    let (begun, mut begins) = mpsc::unbounded_channel();
    let end = Arc::new(Notify::new());
    let ended = Arc::clone(&end);
    let worker = work.worker().handle("slow", move |_: Context, (): ()| {
        let (begun, ended) = (begun.clone(), Arc::clone(&ended));
        async move {
            begun.send(()).unwrap();
            ended.notified().await;
            Ok::<_, Fault>(())
        }
    });
    let worker = worker.start().await.unwrap();
    let task = submit(&work, Task::new("slow")).await;
    begins.recv().await.unwrap();

    let hung = server.hang();
    end.notify_one();
    tokio::time::timeout(CONDITION_TIMEOUT, worker.shutdown_within(SECOND)).await.expect("the shutdown ends");
    drop(hung);
    assert_ne!(step(&work, task.step(0)).await.state, StepState::Failed);
}

/// Forwards connections to the server. Connections that are open when the sender is told go silent: they stay open, and
/// carry nothing any more, like those whose state a firewall has forgotten. Returns the URL.
async fn silencing_relay(server: &str, silenced: watch::Receiver<()>) -> String {
    let (address, database) = server.trim_start_matches("postgres://postgres@").split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://postgres@{}/{database}", listener.local_addr().unwrap());
    let address = address.to_owned();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (server, mut silenced) = (TcpStream::connect(&address).await.unwrap(), silenced.clone());
            silenced.mark_unchanged();
            let (from, to) = client.into_split();
            let (back_from, back_to) = server.into_split();
            for (mut from, mut to) in [(from, back_to), (back_from, to)] {
                let mut silenced = silenced.clone();
                tokio::spawn(async move {
                    let mut bytes = vec![0; 65_536];
                    loop {
                        tokio::select! {
                            read = from.read(&mut bytes) => match read {
                                Ok(1..) => drop(to.write_all(&bytes[..read.unwrap()]).await),
                                _ => return,
                            },
                            _ = silenced.changed() => std::future::pending().await,
                        }
                    }
                });
            }
        }
    });
    url
}

/// A listener only waits, so that TCP never tells it that the server is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_arrive_again_after_the_network_has_forgotten_the_connections() {
    let direct = Postgres::shared().create_database("silent");
    let (silence, silenced) = watch::channel(());
    let mut settings = settings();
    // Only a notification leads to a claim.
    settings.poll = HOUR;
    let beyond =
        Work::open_with(&silencing_relay(&direct, silenced).await, policies(), settings.clone()).await;
    let (work, beyond) = (Work::open_with(&direct, policies(), settings).await.unwrap(), beyond.unwrap());
    let worker =
        beyond.worker().handle("x", |_: Context, (): ()| async { Ok::<_, Fault>(()) }).start().await.unwrap();
    let before = submit(&work, Task::new("x")).await;
    ends(&work, before, TaskState::Succeeded).await;
    silence.send(()).unwrap();
    let after = submit(&work, Task::new("x")).await;
    ends(&work, after, TaskState::Succeeded).await;
    worker.shutdown().await;
}
