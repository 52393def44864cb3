//! Requests to real servers on loopback, with many kinds of misbehaviour.

mod addresses;
mod credentials;
mod limits;
mod responses;
mod server;

use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Class, ClassMap};
use serde_json::Value;

use super::client::{AddressRules, NetworkAccess, ResolveFn, system_resolver};
use super::{HttpRunner, HttpStep};
use crate::fault::FaultKind;
use crate::{Context, Fault, HttpSettings, Kind, Lane, Payload, TaskId};

/// Returns the context of attempt `attempt` of a step.
fn context(attempt: u32) -> Context {
    let lane = Lane {
        namespace: "default".into(),
        queue: "default".into(),
        operation: "call".into(),
        kind: Kind::Http,
        priority: 5,
    };
    let step = TaskId::fresh().step(3);
    Context {
        step,
        lane: Arc::new(lane),
        attempt,
        token: 7,
        has_children: false,
        since: Duration::ZERO,
        inputs: None,
        trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        lease: crate::worker::StepLease::new(step, 1, Duration::ZERO),
    }
}

fn settings() -> HttpSettings {
    HttpSettings { timeout: Duration::from_secs(10), ..HttpSettings::default() }
}

/// A runner that may call loopback addresses.
fn runner(settings: &HttpSettings) -> Arc<HttpRunner> {
    resolving(settings, system_resolver)
}

fn resolving(settings: &HttpSettings, names: ResolveFn) -> Arc<HttpRunner> {
    let rules = Arc::new(AddressRules::new(settings));
    let reach = NetworkAccess { rules, max_redirects: settings.max_redirects, proxies: false, names };
    Arc::new(HttpRunner::with_reach(settings, ClassMap::new(), reach).unwrap())
}

/// Permits the servers' own address, although it is private, and refuses all other private addresses.
fn all_but_the_servers() -> HttpSettings {
    HttpSettings { deny_private: Some(true), allow: vec!["127.0.0.1".to_owned()], ..settings() }
}

async fn run(runner: &HttpRunner, step: &HttpStep) -> Result<Value, Fault> {
    let output = runner.run(&context(1), &step.payload().unwrap()).await?;
    Ok(output.read().unwrap())
}

async fn fault(runner: &HttpRunner, step: &HttpStep) -> Fault {
    run(runner, step).await.unwrap_err()
}

fn class(fault: &Fault) -> Class {
    fault.failure().unwrap_or_else(|| panic!("{fault:?}")).class()
}

fn busy(fault: &Fault) -> Duration {
    let FaultKind::Busy { wait } = fault.kind else { panic!("{fault:?}") };
    wait
}

#[tokio::test]
async fn an_invalid_request_fails_permanently_without_a_call() {
    let runner = runner(&settings());
    let payload =
        Payload::json(&serde_json::json!({"url": "http://h/", "headers": {"x-key": 123_456}})).unwrap();
    let fault = runner.run(&context(1), &payload).await.unwrap_err();
    assert_eq!(class(&fault), Class::Permanent);
    assert!(!fault.message().contains("123456"), "{fault}");
    for url in ["http://u:hush@h/", "ftp://h/"] {
        let payload = Payload::json(&serde_json::json!({ "url": url })).unwrap();
        let fault = runner.run(&context(1), &payload).await.unwrap_err();
        assert_eq!(class(&fault), Class::Permanent);
        assert!(!fault.message().contains("hush"), "{fault}");
    }
    let fault = runner.run(&context(1), &Payload::empty()).await.unwrap_err();
    assert_eq!(class(&fault), Class::Permanent);
}
