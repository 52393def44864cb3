//! Tokens and the audit log, on every engine.

use std::time::Duration;

use holdoff_server::{AuditPage, Deed, Error, Keep, NewToken, Scope};
use holdoff_testbed::Postgres;

/// Every engine, each with a store of its own.
async fn keeps() -> Vec<(&'static str, Keep, Option<tempfile::TempDir>)> {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("a.db").display());
    let postgres = Postgres::shared().create_database("keep");
    vec![
        ("sqlite", Keep::open(&url).await.unwrap(), Some(folder)),
        ("postgres", Keep::open(&postgres).await.unwrap(), None),
        ("memory", Keep::open("sqlite::memory:").await.unwrap(), None),
    ]
}

#[tokio::test]
async fn a_token_is_made_listed_and_revoked_once() {
    for (engine, keep, _folder) in keeps().await {
        assert!(!keep.has_admin().await.unwrap(), "{engine}");
        let one = keep.issue(&NewToken::new("ci", Scope::Work).namespace("billing")).await.unwrap();
        let hour = Duration::from_secs(3600);
        let two = keep.issue(&NewToken::new("ops", Scope::Admin).expires(hour)).await.unwrap();
        assert_ne!(one.token, two.token);
        assert_eq!(two.record.expires_at.unwrap().since(two.record.created_at), hour, "{engine}");
        assert!(keep.has_admin().await.unwrap(), "{engine}");

        let listed = keep.tokens().await.unwrap();
        assert_eq!(listed, [two.record.clone(), one.record.clone()], "{engine}");
        assert!(keep.revoke(&two.record.id).await.unwrap(), "{engine}");
        assert!(!keep.revoke(&two.record.id).await.unwrap(), "{engine}: it is revoked already");
        assert!(!keep.revoke("nobody's").await.unwrap(), "{engine}");
        assert!(!keep.has_admin().await.unwrap(), "{engine}: a revoked one opens nothing");
        let listed = keep.tokens().await.unwrap();
        assert!(listed[0].revoked_at.is_some() && listed[1].revoked_at.is_none(), "{engine}");
    }
}

#[tokio::test]
async fn an_admin_of_one_namespace_or_of_yesterday_is_none() {
    for (engine, keep, _folder) in keeps().await {
        keep.issue(&NewToken::new("a", Scope::Admin).namespace("billing")).await.unwrap();
        assert!(!keep.has_admin().await.unwrap(), "{engine}");
        let second = Duration::from_secs(1);
        keep.issue(&NewToken::new("b", Scope::Admin).expires(second)).await.unwrap();
        while keep.has_admin().await.unwrap() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let refused = keep.issue(&NewToken::new("", Scope::Admin)).await.unwrap_err();
        assert!(matches!(refused, Error::Token(_)), "{engine}");
    }
}

#[tokio::test]
async fn what_was_done_is_listed_newest_first_and_forgotten_in_the_end() {
    for (engine, keep, _folder) in keeps().await {
        for number in 0..5 {
            let deed = Deed::new("task.cancel", format!("task {number}")).by("ops").times(number);
            let deed = if number % 2 == 0 { deed.within("billing") } else { deed };
            keep.note(&deed).await.unwrap();
        }
        let objects = |entries: &[holdoff_server::AuditEntry]| {
            entries.iter().map(|entry| entry.object.clone()).collect::<Vec<_>>()
        };
        let newest = keep.audit(&AuditPage::newest(2)).await.unwrap();
        assert_eq!(objects(&newest), ["task 4", "task 3"], "{engine}");
        assert_eq!((newest[0].who.as_str(), newest[0].count), ("ops", 4), "{engine}");
        let mut rest = AuditPage::newest(100);
        rest.before = Some(newest[1].id);
        rest.namespace = Some("billing".to_owned());
        assert_eq!(objects(&keep.audit(&rest).await.unwrap()), ["task 2", "task 0"], "{engine}");

        assert_eq!(keep.prune(Duration::from_secs(3600), 100).await.unwrap(), 0, "{engine}");
        assert_eq!(keep.prune(Duration::ZERO, 3).await.unwrap(), 3, "{engine}: no more than was allowed");
        let left = keep.audit(&AuditPage::newest(100)).await.unwrap();
        assert_eq!(objects(&left), ["task 4", "task 3"], "{engine}: the oldest go first");
    }
}

/// Two daemons and a command open a new store at once.
#[tokio::test]
async fn any_number_open_it_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("a.db").display());
    for url in [url, Postgres::shared().create_database("keep")] {
        let opened = tokio::join!(Keep::open(&url), Keep::open(&url), Keep::open(&url));
        let issued = opened.0.unwrap().issue(&NewToken::new("a", Scope::Read)).await.unwrap();
        for other in [opened.1, opened.2] {
            let listed = other.unwrap().tokens().await.unwrap();
            assert_eq!(listed, std::slice::from_ref(&issued.record));
        }
    }
}
