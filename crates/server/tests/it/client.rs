//! The Rust client of the facade, against a real daemon.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use holdoff::client::{
    Client, Error, HttpRequest, NewStep, NewTask, PulledStep, Signal, StepFault, StepState, TaskState,
};
use holdoff::policy::{Growth, Jitter, Policy};
use holdoff_policy::PolicySet;
use holdoff_server::StoreUrl;
use holdoff_work::{PageRequest, Settings, StepFilter, Work};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::support::{Daemon, Target};

/// A client with a policy of short waits.
fn client(url: &str) -> Client {
    let quick = Policy::builder(Growth::constant(Duration::from_millis(5))).jitter(Jitter::None).attempts(10);
    Client::builder(url).policy(quick.build().unwrap()).build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_submitted_and_awaited() {
    let daemon = Daemon::start(StoreUrl::new("sqlite::memory:")).await;
    let (client, target) = (client(&daemon.url), Target::start(&[503]).await);

    let order = NewTask::graph()
        .step(
            "charge",
            NewStep::new("card.charge").http(HttpRequest::post(&target.url).json(json!({ "cents": 150 }))),
        )
        .step("ship", NewStep::new("parcel.ship").http(HttpRequest::post(&target.url)).after("charge"))
        .dedup("order 17");
    let taken = client.submit(&order).await.unwrap();
    assert!(!taken.duplicate);
    let again = client.submit(&order).await.unwrap();
    assert!(again.duplicate && again.id == taken.id, "{again:?}");

    let done = client.wait(&taken.id).await.unwrap();
    assert_eq!(done.state, TaskState::Succeeded, "{done:?}");
    assert_eq!((done.steps[0].name.as_deref(), done.steps[0].failures), (Some("charge"), 1));
    assert!(done.steps.iter().all(|step| step.state == StepState::Succeeded));
    assert_eq!(done.steps[0].output.as_ref().unwrap()["status"], 200);
    assert_eq!(target.calls()[0].1, r#"{"cents":150}"#);

    let unknown_task = "0190f5fe-0000-7000-8000-000000000000";
    assert!(client.task(unknown_task).await.unwrap().is_none());
    assert!(matches!(client.wait(unknown_task).await, Err(Error::NoSuchTask(_))));
    let refused = client.submit(&NewTask::graph()).await.unwrap_err();
    assert_eq!(
        refused.problem().map(|problem| (problem.kind(), problem.status)),
        Some(("invalid-task", 400))
    );
}

/// A proxy that answers the first requests with this status, and drops the response to the next ones.
async fn trouble_before(
    daemon: SocketAddr,
    status: &'static str,
    (refused, dropped): (usize, usize),
) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let call = count.fetch_add(1, Ordering::SeqCst);
            if call < refused {
                let _ = stream.read(&mut [0; 4096]).await;
                let rest = "Retry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                stream.write_all(format!("HTTP/1.1 {status}\r\n{rest}").as_bytes()).await.unwrap();
                continue;
            }
            let mut behind = TcpStream::connect(daemon).await.unwrap();
            if call < refused + dropped {
                let mut request = [0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                behind.write_all(&request[..length]).await.unwrap();
                let answered = behind.read(&mut [0; 4096]).await.unwrap();
                assert!(answered > 0, "the daemon answered the request");
                continue;
            }
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut stream, &mut behind).await });
        }
    });
    (url, calls)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_with_a_lost_response_is_accepted_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("work.db").display());
    let daemon = Daemon::start(StoreUrl::new(&store)).await;
    let (url, calls) = trouble_before(daemon.server.address(), "503 Not now", (1, 1)).await;

    let taken = client(&url).submit(&NewTask::new("mail", json!({ "to": "ada" }))).await.unwrap();
    assert!(!taken.duplicate, "the repeated request returns the submitted task");
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    let work = Work::attach(&store, PolicySet::default(), Settings::default()).await.unwrap();
    let steps = work.list(&StepFilter::default(), &PageRequest::first(10)).await.unwrap();
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].id.task.to_string(), taken.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_signals_create_one_task() {
    let daemon = Daemon::start(StoreUrl::new("sqlite::memory:")).await;
    let client = client(&daemon.url);
    let alarm = Signal::of("disk full on a", NewTask::new("page.operator", json!({})));
    let first = client.signal(&alarm).await.unwrap();
    let second = client.signal(&alarm).await.unwrap();
    assert!(first.created && !second.created);
    assert_eq!((second.task, second.occurrences), (first.task, 2));
    let data = json!({ "host": "a", "free": 3 }).as_object().unwrap().clone();
    let by_host = Signal::of_fields(["host"], data, NewTask::new("page.operator", json!({})));
    assert!(client.signal(&by_host).await.unwrap().created);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_renews_its_lock_until_it_is_dropped() {
    let daemon = Daemon::start(StoreUrl::new("sqlite::memory:")).await;
    let client = client(&daemon.url);
    let lease = Duration::from_millis(600);
    let guard = client.lock("deploy").lease(lease).name("first").acquire().await.unwrap();

    let refused = client.lock("deploy").wait(Duration::ZERO).acquire().await.unwrap_err();
    assert_eq!(refused.problem().unwrap().kind(), "lock-held");
    loop {
        let shown: serde_json::Value = daemon.get("/v1/locks/show?key=deploy").await.json().await.unwrap();
        assert_eq!(shown["holder"]["name"], "first", "the client renews its lease: {shown}");
        if shown["holder"]["held_for"].as_f64().unwrap() > 2.0 * lease.as_secs_f64() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(guard.is_held());

    let next = tokio::spawn(client.lock("deploy").lease(lease).acquire());
    let token = guard.token();
    guard.release().await.unwrap();
    let next = next.await.unwrap().unwrap();
    assert!(next.token() > token);
    drop(next);
    let last = client.lock("deploy").lease(lease).acquire().await.unwrap();

    let seized = daemon.client.post(format!("{}/v1/locks/force-release", daemon.url));
    assert_eq!(seized.json(&json!({ "key": "deploy" })).send().await.unwrap().status(), 200);
    last.lost().await;
    assert!(!last.is_held());
}

#[tokio::test]
async fn client_errors_contain_no_secret() {
    assert!(matches!(Client::new("ftp://a"), Err(Error::Address { .. })));
    assert!(matches!(Client::new("no url"), Err(Error::Address { .. })));
    let builder = Client::builder("http://127.0.0.1:1").api_token("hunter2");
    assert!(!format!("{builder:?}").contains("hunter2"));
    let once = Policy::builder(Growth::constant(Duration::ZERO)).attempts(1).build().unwrap();
    let client = builder.policy(once).build().unwrap();
    assert!(!format!("{client:?}").contains("hunter2"));
    let error = client.task("x").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(Client::builder("http://a").api_token("a\nb").build().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_worker_claims_runs_and_reports_steps() {
    let daemon = Daemon::start(StoreUrl::new("sqlite::memory:")).await;
    let client = client(&daemon.url);
    let graph = NewTask::graph()
        .step("ask", NewStep::new("mail.ask").payload(json!({ "to": "ada" })))
        .step("answer", NewStep::new("mail.answer").after("ask"));
    let asked = client.submit(&graph).await.unwrap();
    let hopeless = client.submit(&NewTask::new("mail.hopeless", json!(1))).await.unwrap();

    let lease = Duration::from_secs(1);
    let attempts = AtomicU32::new(0);
    let handler = move |step: PulledStep| {
        let is_first = step.operation == "mail.ask" && attempts.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            match step.operation.as_str() {
                "mail.ask" if is_first => {
                    // Longer than the lease: the client renews it.
                    tokio::time::sleep(lease * 5 / 2).await;
                    Err(StepFault::transient("busy").retry_after(Duration::from_millis(1)))
                }
                "mail.ask" => Ok(json!({ "asked": step.payload["to"], "attempt": step.attempt })),
                "mail.answer" => Ok(step.inputs[0].output.clone()),
                _ => Err(StepFault::permanent("never")),
            }
        }
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker =
        client.worker("w1").operation("mail.ask").operation("mail.answer").operation("mail.hopeless");
    let working = tokio::spawn(worker.lease(lease).run(handler, async { stopped.await.unwrap_or(()) }));
    let done = client.wait(&asked.id).await.unwrap();
    assert_eq!(done.state, TaskState::Succeeded, "{done:?}");
    assert_eq!(done.steps[1].output, Some(json!({ "asked": "ada", "attempt": 2 })));
    let failed = client.wait(&hopeless.id).await.unwrap();
    assert_eq!((failed.state, failed.steps[0].class.as_deref()), (TaskState::Failed, Some("permanent")));
    stop.send(()).unwrap();
    working.await.unwrap().unwrap();
}

/// Reports the end of a handler, when it is dropped.
struct HandlerEnd(mpsc::UnboundedSender<&'static str>);

impl Drop for HandlerEnd {
    fn drop(&mut self) {
        let _ = self.0.send("ended");
    }
}

/// Starts a worker whose handler never ends by itself, and waits until it runs a step.
async fn endless(
    client: &Client,
    lease: Duration,
) -> (JoinHandle<Result<(), Error>>, mpsc::UnboundedReceiver<&'static str>) {
    let (events, mut seen) = mpsc::unbounded_channel();
    let handler = move |_: PulledStep| {
        let events = events.clone();
        async move {
            events.send("begun").unwrap();
            let _end = HandlerEnd(events);
            std::future::pending().await
        }
    };
    client.submit(&NewTask::new("mail.ask", json!(1))).await.unwrap();
    let worker = client.worker("w1").operation("mail.ask").lease(lease);
    let working = tokio::spawn(worker.run(handler, std::future::pending()));
    assert_eq!(seen.recv().await, Some("begun"));
    (working, seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_worker_that_is_dropped_drops_its_handlers() {
    let daemon = Daemon::start(StoreUrl::new("sqlite::memory:")).await;
    let (working, mut seen) = endless(&client(&daemon.url), Duration::from_secs(60)).await;
    working.abort();
    assert_eq!(seen.recv().await, Some("ended"));
}

/// Another worker may run the step when the lease has ended, so this one must not run it any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_worker_drops_a_handler_whose_lease_it_cannot_renew() {
    let daemon = Daemon::start(StoreUrl::new("sqlite::memory:")).await;
    let (working, mut seen) = endless(&client(&daemon.url), Duration::from_secs(2)).await;
    daemon.server.shutdown().await;
    assert_eq!(seen.recv().await, Some("ended"));
    working.abort();
}

/// One output is above the limit of outputs, the other above the limit of bodies.
#[tokio::test(flavor = "multi_thread")]
async fn a_pulled_step_with_an_output_above_the_limit_succeeds() {
    let daemon = Daemon::start(StoreUrl::new("sqlite::memory:")).await;
    let client = client(&daemon.url);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let handler = |step: PulledStep| async move {
        Ok(json!("x".repeat(serde_json::from_value(step.payload).unwrap())))
    };
    let worker = client.worker("w1").operation("mail.ask");
    let working = tokio::spawn(worker.run(handler, async { stopped.await.unwrap_or(()) }));
    for size in [300 << 10, 1 << 20] {
        let asked = client.submit(&NewTask::new("mail.ask", json!(size))).await.unwrap();
        let done = client.wait(&asked.id).await.unwrap();
        let (state, note) = (done.state, done.steps[0].message.as_deref().unwrap_or_default());
        let expected =
            format!("the output of {} bytes was dropped: the limit is 262144 (work.max_output)", size + 2);
        assert_eq!((state, note), (TaskState::Succeeded, expected.as_str()));
    }
    stop.send(()).unwrap();
    working.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_pulled_step_is_a_failure() {
    let daemon = Daemon::start(StoreUrl::new("sqlite::memory:")).await;
    let client = client(&daemon.url);
    let asked = client.submit(&NewTask::new("mail.ask", json!(1))).await.unwrap();
    let handler = |step: PulledStep| async move {
        assert!(step.attempt > 1, "the first attempt panics");
        Ok(json!("asked"))
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = client.worker("w1").operation("mail.ask");
    let working = tokio::spawn(worker.run(handler, async { stopped.await.unwrap_or(()) }));
    let done = client.wait(&asked.id).await.unwrap();
    assert_eq!((done.state, done.steps[0].failures), (TaskState::Succeeded, 1));
    stop.send(()).unwrap();
    working.await.unwrap().unwrap();
}

/// The worker's own policy permits one attempt, so that the refusal reaches the worker.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_worker_continues_after_too_many_requests() {
    let daemon = Daemon::start(StoreUrl::new("sqlite::memory:")).await;
    let (url, calls) = trouble_before(daemon.server.address(), "429 Too Many Requests", (1, 0)).await;
    let asked = client(&daemon.url).submit(&NewTask::new("mail.ask", json!(1))).await.unwrap();
    let once = Policy::builder(Growth::constant(Duration::ZERO)).attempts(1).build().unwrap();
    let worker = Client::builder(&url).policy(once).build().unwrap().worker("w1").operation("mail.ask");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let handler = |_: PulledStep| async { Ok(json!("asked")) };
    let mut working = tokio::spawn(worker.run(handler, async { stopped.await.unwrap_or(()) }));
    let daemon = client(&daemon.url);
    let done = tokio::select! {
        done = daemon.wait(&asked.id) => done.unwrap(),
        ended = &mut working => panic!("the worker ended: {ended:?}"),
    };
    assert_eq!(done.state, TaskState::Succeeded);
    assert!(calls.load(Ordering::SeqCst) > 1, "the first claim was refused");
    stop.send(()).unwrap();
    working.await.unwrap().unwrap();
}
