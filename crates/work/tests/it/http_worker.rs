//! HTTP steps in a worker, from submission to the end, against a real server that refuses, conflicts and limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdoff_policy::PolicySet;
use holdoff_work::{
    Action, AttemptOutcome, Credential, HttpStep, Payload, Secret, Settings, StepFilter, StepState,
    Submitted, Task, TaskState, Work,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// The counters of the server.
#[derive(Default)]
struct ReceivedCalls {
    tokens: AtomicUsize,
    limited: AtomicUsize,
}

/// Issues the tokens `t1`, `t2`, …; accepts only the second; responds with a conflict unless the body is `"new"`;
/// limits the rate once.
fn answer(request: &str, seen: &ReceivedCalls) -> (u16, &'static str, String) {
    let path = request.split(' ').nth(1).unwrap_or_default();
    match path {
        "/token" => {
            let count = seen.tokens.fetch_add(1, Ordering::SeqCst) + 1;
            (200, "content-type: application/json", format!("{{\"access_token\":\"t{count}\"}}"))
        }
        "/guarded" if request.to_lowercase().contains("authorization: bearer t2") => {
            (200, "x: y", "in".to_owned())
        }
        "/guarded" => (401, "x: y", String::new()),
        "/conflict" if request.ends_with("\"new\"") => (200, "x: y", "settled".to_owned()),
        "/conflict" => (409, "x: y", "taken".to_owned()),
        "/limited" if seen.limited.fetch_add(1, Ordering::SeqCst) == 0 => {
            (429, "retry-after: 1", String::new())
        }
        "/limited" => (200, "x: y", String::new()),
        _ => (503, "x: y", String::new()),
    }
}

async fn serve(seen: Arc<ReceivedCalls>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                let mut request = vec![0; 16 * 1024];
                let mut length = 0;
                // A head and a short body arrive in one or two pieces.
                while let Ok(read @ 1..) = stream.read(&mut request[length..]).await {
                    length += read;
                    let text = String::from_utf8_lossy(&request[..length]).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let wanted = head
                        .to_lowercase()
                        .lines()
                        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                    if body.len() < wanted.unwrap_or(0) {
                        continue;
                    }
                    let (status, header, body) = answer(&text, &seen);
                    let answer = format!(
                        "HTTP/1.1 {status} X\r\n{header}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                        body.len()
                    );
                    let _ = stream.write_all(answer.as_bytes()).await;
                    return;
                }
            });
        }
    });
    url
}

struct Bed {
    work: Work,
    url: String,
    seen: Arc<ReceivedCalls>,
    _dir: tempfile::TempDir,
}

async fn bed() -> Bed {
    let dir = tempfile::tempdir().unwrap();
    let seen = Arc::new(ReceivedCalls::default());
    let url = serve(Arc::clone(&seen)).await;
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "s3cret").unwrap();
    let mut settings = Settings::default();
    let credential = Credential::Refresh { url: format!("{url}/token"), secret: Secret::File(secret) };
    settings.http.credentials.insert("api".to_owned(), credential);
    settings.http.credential_hosts.insert("api".to_owned(), vec!["127.0.0.1".to_owned()]);
    let policies = PolicySet::from_toml(
        "default = \"quick\"\n[policies.quick]\ngrowth = \"constant\"\ndelay = \"10ms\"\nattempts = 3\n",
    );
    let store = format!("sqlite:{}", dir.path().join("work.db").display());
    let work = Work::open_with(&store, policies.unwrap(), settings).await.unwrap();
    Bed { work, url, seen, _dir: dir }
}

#[tokio::test]
async fn a_rejected_credential_is_refreshed_and_the_step_retried() {
    let bed = bed().await;
    let worker = bed.work.worker().http().start().await.unwrap();
    let request = HttpStep::post(format!("{}/guarded", bed.url)).credential("api");
    let task = bed.work.submit(Task::http("guarded", &request)).await.unwrap().task();
    let done = bed.work.wait(task).await.unwrap();
    assert_eq!(done.state, TaskState::Succeeded);
    assert_eq!(bed.seen.tokens.load(Ordering::SeqCst), 2);
    let attempts: Vec<_> = done.attempts.iter().map(|attempt| (attempt.outcome, attempt.delay)).collect();
    assert_eq!(attempts, [(AttemptOutcome::Retried, Some(Duration::ZERO))]);
    worker.shutdown().await;
}

#[tokio::test]
async fn a_resolved_conflict_continues_with_the_new_payload() {
    let bed = bed().await;
    let worker = bed.work.worker().http().start().await.unwrap();
    let request = |body: &str| HttpStep::post(format!("{}/conflict", bed.url)).json(body);
    let task = bed.work.submit(Task::http("conflict", &request("old"))).await.unwrap().task();
    let stuck = bed.work.wait(task).await.unwrap();
    assert_eq!(stuck.steps[0].state, StepState::Conflicted);
    assert_eq!(stuck.attempts.len(), 1, "never retried");
    let payload: Payload = request("new").payload().unwrap();
    let resolved = bed.work.act(&StepFilter::task(task), &Action::Resolve(Some(payload))).await.unwrap();
    assert_eq!(resolved, 1);
    assert_eq!(bed.work.wait(task).await.unwrap().state, TaskState::Succeeded);
    worker.shutdown().await;
}

#[tokio::test]
async fn retry_after_is_honoured_and_failed_steps_are_retried_in_bulk() {
    let bed = bed().await;
    let worker = bed.work.worker().http().start().await.unwrap();
    let limited = HttpStep::get(format!("{}/limited", bed.url));
    let task = bed.work.submit(Task::http("limited", &limited)).await.unwrap().task();
    let done = bed.work.wait(task).await.unwrap();
    assert_eq!(done.state, TaskState::Succeeded);
    assert!(done.attempts[0].delay.unwrap() >= Duration::from_secs(1), "{:?}", done.attempts);

    let broken = HttpStep::get(format!("{}/broken", bed.url));
    // The number is low enough to keep the breaker of the destination closed.
    let tasks = (0..2).map(|_| Task::http("broken", &broken)).collect();
    let tasks: Vec<_> = bed.work.submit_all(tasks).await.unwrap().iter().map(Submitted::task).collect();
    for task in &tasks {
        let failed = bed.work.wait(*task).await.unwrap();
        assert_eq!((failed.state, failed.attempts.len()), (TaskState::Failed, 3));
    }
    let mut filter = StepFilter::states([StepState::Failed]);
    filter.operation = Some("brok*".to_owned());
    assert_eq!(bed.work.act(&filter, &Action::Retry).await.unwrap(), 2);
    for task in &tasks {
        assert_eq!(bed.work.wait(*task).await.unwrap().attempts.len(), 6);
    }
    worker.shutdown().await;
}
