//! Notifications by webhook.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdoff_work::{
    Error, Fault, InvalidTask, NotifyRule, PageRequest, Settings, StepFilter, StepState, Task, Work,
};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use crate::conformance::test_store::{
    TestStore, claim, claimer, eventually, filter, list, on_every_store, settings, submit,
};

/// The operation of notifications, as it appears in lists.
const OPERATION: &str = "holdoff.notification";

/// A webhook receiver: it keeps the posted messages, and responds with these statuses in turn, the last one forever.
struct Hook {
    url: String,
    posted: Arc<Mutex<Vec<Value>>>,
    serving: AbortHandle,
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Hook {
    async fn answering(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let posted = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&posted);
        let serving = tokio::spawn(async move {
            let count = AtomicUsize::new(0);
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let Some(body) = read(&mut stream).await else { continue };
                log.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                let turn = count.fetch_add(1, Ordering::Relaxed);
                let status = statuses.get(turn).or(statuses.last()).unwrap();
                let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { url, posted, serving: serving.abort_handle() }
    }

    fn posted(&self) -> Vec<Value> {
        self.posted.lock().unwrap().clone()
    }

    fn tells(&self) -> NotifyRule {
        NotifyRule { url: self.url.clone(), ..NotifyRule::default() }
    }
}

async fn read(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let head = loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length?.trim().parse().ok()?;
    while bytes.len() < head + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    Some(bytes[head..].to_vec())
}

fn telling(notify: Vec<NotifyRule>) -> Settings {
    let mut settings = settings();
    settings.notify = notify;
    settings
}

async fn notifications(work: &Work) -> Vec<StepState> {
    let matching = filter(|filter| filter.operation = Some(OPERATION.to_owned()));
    list(work, &matching).await.iter().map(|step| step.state).collect()
}

/// Waits until all notifications are delivered or have failed, and returns their states.
async fn settled(work: &Work, count: usize) -> Vec<StepState> {
    let look = || async {
        let states = notifications(work).await;
        (states.len() == count && !states.iter().any(|state| state.is_live())).then_some(states)
    };
    eventually("the notifications", look).await
}

async fn notifications_have_a_reserved_namespace(store: TestStore) {
    let hook = Hook::answering(&[200]).await;
    let work = store.open_with(telling(vec![hook.tells()])).await;
    submit(&work, Task::new("mail").namespace("eu").policy("quick")).await;
    let claimer = claimer(&work, &["mail"]).await;
    claimer.fail(&claim(&claimer).await, Fault::permanent("no")).await.unwrap();
    let of = |namespace: &str| filter(|filter| filter.namespace = Some(namespace.to_owned()));
    assert!(list(&work, &of("default")).await.is_empty());
    let notified = list(&work, &of("holdoff.notifications")).await;
    assert_eq!((notified.len(), notified[0].operation.as_str()), (1, OPERATION));
    let intruding = Task::new("mail").namespace("holdoff.notifications");
    let refused = work.submit(intruding).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(InvalidTask::Reserved { .. })), "{refused}");
    // A worker that runs the HTTP steps of all namespaces runs notifications too.
    let worker = work.worker().http().start().await.unwrap();
    assert_eq!(settled(&work, 1).await, [StepState::Succeeded]);
    worker.shutdown().await;
}

async fn each_failure_and_conflict_causes_one_notification(store: TestStore) {
    let hook = Hook::answering(&[200]).await;
    let work = store.open_with(telling(vec![hook.tells()])).await;
    let worker = work.worker().http().start().await.unwrap();
    let claimer = claimer(&work, &["mail"]).await;
    let failed = submit(&work, Task::new("mail").queue("slow")).await;
    claimer.fail(&claim(&claimer).await, Fault::transient("busy")).await.unwrap();
    let claimed = claim(&claimer).await;
    for _ in 0..3 {
        // The store accepts only the first report.
        claimer.fail(&claimed, Fault::permanent("no mailbox, token=abc")).await.unwrap();
    }
    let conflicted = submit(&work, Task::new("mail")).await;
    claimer.fail(&claim(&claimer).await, Fault::conflict("it is there")).await.unwrap();
    assert_eq!(settled(&work, 2).await, [StepState::Succeeded; 2]);
    let posted = hook.posted();
    assert_eq!(posted.len(), 2, "{posted:?}");
    let about = |task: &str| posted.iter().find(|message| message["task"] == task).unwrap();
    let message = about(&failed.to_string());
    for (key, value) in [
        ("event", "failed"),
        ("operation", "mail"),
        ("queue", "slow"),
        ("namespace", "default"),
        ("class", "permanent"),
        ("message", "no mailbox, token=…"),
    ] {
        assert_eq!(message[key], value, "{message}");
    }
    assert_eq!((message["step"].as_i64(), message["attempts"].as_i64()), (Some(0), Some(2)));
    assert_eq!(about(&conflicted.to_string())["event"], "conflicted");
    worker.shutdown().await;
}

async fn only_matching_rules_are_notified(store: TestStore) {
    let [by_operation, by_queue, by_namespace] =
        [Hook::answering(&[200]).await, Hook::answering(&[200]).await, Hook::answering(&[200]).await];
    let rules = vec![
        NotifyRule { operation: Some("card.*".to_owned()), ..by_operation.tells() },
        NotifyRule { queue: Some("slow".to_owned()), ..by_queue.tells() },
        NotifyRule {
            namespace: Some("eu".to_owned()),
            operation: Some("mail".to_owned()),
            ..by_namespace.tells()
        },
    ];
    let work = store.open_with(telling(rules)).await;
    let worker = work.worker().http().start().await.unwrap();
    let claimer = claimer(&work, &["mail", "card.charge"]).await;
    let tasks = [
        (Task::new("card.charge").queue("slow"), 2),
        (Task::new("mail").queue("slow"), 1),
        (Task::new("mail").namespace("eu"), 1),
        (Task::new("card.charge").namespace("eu"), 1),
        (Task::new("mail"), 0),
    ];
    let mut expected = 0;
    for (task, notified) in tasks {
        submit(&work, task).await;
        claimer.fail(&claim(&claimer).await, Fault::permanent("no")).await.unwrap();
        expected += notified;
        settled(&work, expected).await;
    }
    let counts = [&by_operation, &by_queue, &by_namespace].map(|hook| hook.posted().len());
    assert_eq!(counts, [2, 2, 1]);
    worker.shutdown().await;
}

async fn a_notification_to_a_failing_url_is_retried(store: TestStore) {
    let hook = Hook::answering(&[503, 503, 204]).await;
    let work = store.open_with(telling(vec![hook.tells()])).await;
    let worker = work.worker().http().start().await.unwrap();
    let claimer = claimer(&work, &["mail"]).await;
    submit(&work, Task::new("mail")).await;
    claimer.fail(&claim(&claimer).await, Fault::permanent("no")).await.unwrap();
    assert_eq!(settled(&work, 1).await, [StepState::Succeeded]);
    let posted = hook.posted();
    assert_eq!(posted.len(), 3);
    assert!(posted.iter().all(|message| *message == posted[0]));
    worker.shutdown().await;
}

async fn a_failed_notification_causes_no_notification(store: TestStore) {
    let hook = Hook::answering(&[503, 400]).await;
    let work = store.open_with(telling(vec![hook.tells()])).await;
    let worker = work.worker().http().start().await.unwrap();
    let claimer = claimer(&work, &["mail"]).await;
    submit(&work, Task::new("mail")).await;
    claimer.fail(&claim(&claimer).await, Fault::permanent("no")).await.unwrap();
    assert_eq!(settled(&work, 1).await, [StepState::Failed]);
    // The failed notification is listed, and caused no further notification.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(notifications(&work).await, [StepState::Failed]);
    assert_eq!(work.list(&StepFilter::default(), &PageRequest::default()).await.unwrap().len(), 2);
    assert_eq!(hook.posted().len(), 2);
    worker.shutdown().await;
}

async fn a_step_that_failed_by_rescues_is_notified(store: TestStore) {
    let hook = Hook::answering(&[200]).await;
    let mut settings = telling(vec![hook.tells()]);
    (settings.max_rescues, settings.lease) = (0, Duration::from_millis(300));
    let work = store.open_with(settings).await;
    let claimer = claimer(&work, &["mail"]).await;
    submit(&work, Task::new("mail")).await;
    claimer.claim(1, Duration::from_millis(1)).await.unwrap();
    let worker = work.worker().http().start().await.unwrap();
    settled(&work, 1).await;
    let posted = hook.posted();
    assert_eq!((posted[0]["event"].as_str(), posted[0]["class"].as_str()), (Some("failed"), Some("timeout")));
    worker.shutdown().await;
}

on_every_store!(
    notifications_have_a_reserved_namespace,
    each_failure_and_conflict_causes_one_notification,
    only_matching_rules_are_notified,
    a_notification_to_a_failing_url_is_retried,
    a_failed_notification_causes_no_notification,
    a_step_that_failed_by_rescues_is_notified,
);
