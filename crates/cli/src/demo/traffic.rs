//! The submitted tasks, their times and the services that they call: a function of the seed.

use std::collections::BTreeMap;
use std::time::Duration;

use holdoff::client::{HttpRequest, NewStep, NewTask};
use serde_json::json;

/// The kind of a submitted task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TaskKind {
    /// Charges a customer. The payment service limits the rate of some requests.
    Charge,
    /// Sends a mail. The mail service has outages.
    Mail,
    /// Updates a customer record. The service refuses an update that is based on an old revision.
    Sync { is_stale: bool },
    /// Adds a page to the search index, which is sometimes slow.
    Index,
    /// Builds a report. Its access tokens expire.
    Report,
    /// Exports to a system that rejects the request.
    Export,
    /// Processes an order of five dependent steps.
    Order,
    /// Resizes a photo. A worker pulls the step.
    Photo,
    /// Issues an invoice, in another namespace.
    Invoice,
    /// Sends a newsletter, into a paused queue.
    Newsletter,
}

impl TaskKind {
    /// Returns the number of steps.
    pub(super) const fn steps(self) -> u64 {
        match self {
            Self::Order => 5,
            _ => 1,
        }
    }
}

/// The next task to submit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ScheduledTask {
    /// The time since the start.
    pub(super) at: Duration,
    /// The sequence number, from 0.
    pub(super) number: u64,
    pub(super) kind: TaskKind,
}

/// The first tasks, chosen so that within seconds every kind is present.
const FIRST: [TaskKind; 18] = [
    TaskKind::Photo,
    TaskKind::Photo,
    TaskKind::Photo,
    TaskKind::Newsletter,
    TaskKind::Order,
    TaskKind::Mail,
    TaskKind::Sync { is_stale: true },
    TaskKind::Export,
    TaskKind::Report,
    TaskKind::Charge,
    TaskKind::Newsletter,
    TaskKind::Mail,
    TaskKind::Invoice,
    TaskKind::Sync { is_stale: true },
    TaskKind::Index,
    TaskKind::Newsletter,
    TaskKind::Photo,
    TaskKind::Mail,
];

/// The weight of each kind after that.
const SHARES: [(TaskKind, u32); 11] = [
    (TaskKind::Charge, 18),
    (TaskKind::Mail, 20),
    (TaskKind::Sync { is_stale: false }, 8),
    (TaskKind::Sync { is_stale: true }, 3),
    (TaskKind::Index, 14),
    (TaskKind::Report, 8),
    (TaskKind::Export, 2),
    (TaskKind::Order, 7),
    (TaskKind::Photo, 10),
    (TaskKind::Invoice, 6),
    (TaskKind::Newsletter, 4),
];

/// The shortest and the longest pause between two tasks, in milliseconds: about six tasks a second.
const PAUSES_MS: std::ops::RangeInclusive<u64> = 60..=240;

/// All submitted tasks, without end.
pub(super) struct Traffic {
    rng: fastrand::Rng,
    at: Duration,
    number: u64,
}

impl Traffic {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), at: Duration::ZERO, number: 0 }
    }

    fn draw(&mut self) -> TaskKind {
        let all = SHARES.iter().map(|(_, share)| share).sum();
        let mut index = self.rng.u32(0..all);
        for (kind, share) in SHARES {
            match index.checked_sub(share) {
                Some(rest) => index = rest,
                None => return kind,
            }
        }
        TaskKind::Charge
    }
}

impl Iterator for Traffic {
    type Item = ScheduledTask;

    fn next(&mut self) -> Option<ScheduledTask> {
        let number = self.number;
        let first = usize::try_from(number).ok().and_then(|index| FIRST.get(index).copied());
        let kind = first.unwrap_or_else(|| self.draw());
        self.at += Duration::from_millis(self.rng.u64(PAUSES_MS));
        self.number += 1;
        Some(ScheduledTask { at: self.at, number, kind })
    }
}

/// The current revision of the customer records, and the revision of a stale request.
pub(super) const REVISION: u64 = 8;
const OLD_REVISION: u64 = 7;

/// The timeout of requests to the search index.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(1);

/// The operation that workers pull.
pub(super) const PHOTO: &str = "photos.resize";
/// The paused queue.
pub(super) const NEWSLETTERS: &str = "newsletter";
/// The second namespace, beside the default.
pub(super) const BILLING: &str = "billing";
/// The credential of requests for reports.
const REPORTS: &str = "reports";

/// Returns the task to submit.
pub(super) fn task(scheduled: &ScheduledTask, at: &Addresses) -> NewTask {
    let number = scheduled.number;
    let call =
        |operation: &str, service, path: &str| NewStep::new(operation).http(post(at, service, path, number));
    match scheduled.kind {
        TaskKind::Charge => NewTask::of(call("payments.charge", Service::Payments, "charges")),
        TaskKind::Mail => NewTask::of(call("mail.send", Service::Mail, "mails")),
        TaskKind::Sync { is_stale } => {
            let revision = if is_stale { OLD_REVISION } else { REVISION };
            let body = json!({ "number": number, "customer": number % 100, "revision": revision });
            let request = HttpRequest::post(at.url(Service::Crm, "customers")).json(body);
            NewTask::of(NewStep::new("crm.sync").http(request))
        }
        TaskKind::Index => {
            let request = post(at, Service::Search, "pages", number).timeout(SEARCH_TIMEOUT);
            NewTask::of(NewStep::new("search.index").http(request).priority(7))
        }
        TaskKind::Report => {
            let request = post(at, Service::Reports, "reports", number).credential(REPORTS);
            NewTask::of(NewStep::new("reports.build").http(request))
        }
        TaskKind::Export => NewTask::of(call("legacy.export", Service::Legacy, "exports")),
        TaskKind::Order => NewTask::graph()
            .step("reserve", call("stock.reserve", Service::Warehouse, "reservations"))
            .step("charge", call("payments.charge", Service::Payments, "charges").after("reserve"))
            .step("pack", call("parcel.pack", Service::Warehouse, "parcels").after("reserve"))
            .step("ship", call("parcel.ship", Service::Warehouse, "shipments").after("charge").after("pack"))
            .step("notify", call("mail.send", Service::Mail, "mails").after("ship")),
        TaskKind::Photo => NewTask::new(PHOTO, json!({ "photo": format!("img-{number}.jpg"), "width": 800 })),
        TaskKind::Invoice => {
            NewTask::of(call("invoice.issue", Service::Payments, "invoices")).namespace(BILLING)
        }
        TaskKind::Newsletter => {
            NewTask::of(call("mail.newsletter", Service::Mail, "newsletters").queue(NEWSLETTERS).priority(9))
        }
    }
}

fn post(at: &Addresses, service: Service, path: &str, number: u64) -> HttpRequest {
    HttpRequest::post(at.url(service, path)).json(json!({ "number": number }))
}

/// A service that steps call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Service {
    Crm,
    Legacy,
    Mail,
    Pager,
    Payments,
    Reports,
    Search,
    Warehouse,
}

impl Service {
    pub(super) const ALL: [Self; 8] = [
        Self::Crm,
        Self::Legacy,
        Self::Mail,
        Self::Pager,
        Self::Payments,
        Self::Reports,
        Self::Search,
        Self::Warehouse,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Crm => "crm",
            Self::Legacy => "legacy",
            Self::Mail => "mail",
            Self::Pager => "pager",
            Self::Payments => "payments",
            Self::Reports => "reports",
            Self::Search => "search",
            Self::Warehouse => "warehouse",
        }
    }
}

/// The addresses of the services. Host and port distinguish destinations.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses(BTreeMap<Service, String>);

impl Addresses {
    pub(super) fn new(all: impl IntoIterator<Item = (Service, String)>) -> Self {
        Self(all.into_iter().collect())
    }

    pub(super) fn url(&self, service: Service, path: &str) -> String {
        format!("http://{}/{path}", self.host(service))
    }

    /// Returns the demo's configuration file with the actual addresses.
    pub(super) fn fill_in(&self, file: &str) -> String {
        Service::ALL.iter().fold(file.to_owned(), |file, service| {
            file.replace(&format!("{}.demo", service.name()), self.host(*service))
        })
    }

    fn host(&self, service: Service) -> &str {
        self.0.get(&service).map_or("127.0.0.1:9", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn first_minute(seed: u64) -> Vec<ScheduledTask> {
        Traffic::new(seed).take_while(|task| task.at < Duration::from_secs(60)).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_traffic() {
        assert_eq!(first_minute(7), first_minute(7));
        assert_ne!(first_minute(7), first_minute(8));
    }

    #[test]
    fn the_rate_is_bounded_and_every_kind_occurs() {
        for seed in 0..20 {
            let minute = first_minute(seed);
            assert!((300..=600).contains(&minute.len()), "{}", minute.len());
            for (kind, _) in SHARES {
                assert!(
                    minute.iter().any(|scheduled| scheduled.kind == kind),
                    "no {kind:?} with seed {seed}"
                );
            }
        }
    }

    #[test]
    fn every_kind_occurs_in_the_first_seconds() {
        let soon: Vec<_> = Traffic::new(1).take_while(|task| task.at < Duration::from_secs(5)).collect();
        for kind in FIRST {
            assert!(soon.iter().any(|scheduled| scheduled.kind == kind), "no {kind:?}");
        }
    }

    #[test]
    fn the_number_of_steps_matches_the_task() {
        for scheduled in Traffic::new(3).take(300) {
            let sent = serde_json::to_value(task(&scheduled, &Addresses::default())).unwrap();
            let steps = sent["steps"].as_array().map_or(1, Vec::len);
            assert_eq!(steps as u64, scheduled.kind.steps(), "{sent}");
        }
    }

    #[test]
    fn the_stale_revision_is_in_the_body_of_the_request() {
        let scheduled =
            |is_stale| ScheduledTask { at: Duration::ZERO, number: 4, kind: TaskKind::Sync { is_stale } };
        let revision = |is_stale| -> Value {
            let sent = serde_json::to_value(task(&scheduled(is_stale), &Addresses::default())).unwrap();
            sent["http"]["body"]["revision"].clone()
        };
        assert_eq!(revision(true), OLD_REVISION);
        assert_eq!(revision(false), REVISION);
    }
}
