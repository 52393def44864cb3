//! Converts a wish into the task to submit.

use std::time::Duration;

use holdoff::client::{NewStep, NewTask, Request};
use serde_json::json;

use super::service::{Addresses, Service};
use super::traffic::{Due, Wish};

/// The current revision of the customer records, and the revision of a stale request.
pub(super) const REVISION: u64 = 8;
const OLD_REVISION: u64 = 7;

/// The timeout of requests to the search index.
const SEARCH_PATIENCE: Duration = Duration::from_secs(1);

/// The operation that workers pull.
pub(super) const PHOTO: &str = "photos.resize";
/// The paused queue.
pub(super) const NEWSLETTERS: &str = "newsletter";
/// The second namespace, beside the default.
pub(super) const BILLING: &str = "billing";
/// The credential of requests for reports.
const REPORTS: &str = "reports";

pub(super) fn task(due: &Due, at: &Addresses) -> NewTask {
    let number = due.number;
    let call =
        |operation: &str, service, path: &str| NewStep::new(operation).http(post(at, service, path, number));
    match due.wish {
        Wish::Charge => NewTask::of(call("payments.charge", Service::Payments, "charges")),
        Wish::Mail => NewTask::of(call("mail.send", Service::Mail, "mails")),
        Wish::Sync { is_stale } => {
            let revision = if is_stale { OLD_REVISION } else { REVISION };
            let body = json!({ "number": number, "customer": number % 100, "revision": revision });
            let request = Request::post(at.url(Service::Crm, "customers")).json(body);
            NewTask::of(NewStep::new("crm.sync").http(request))
        }
        Wish::Index => {
            let request = post(at, Service::Search, "pages", number).timeout(SEARCH_PATIENCE);
            NewTask::of(NewStep::new("search.index").http(request).priority(7))
        }
        Wish::Report => {
            let request = post(at, Service::Reports, "reports", number).credential(REPORTS);
            NewTask::of(NewStep::new("reports.build").http(request))
        }
        Wish::Export => NewTask::of(call("legacy.export", Service::Legacy, "exports")),
        Wish::Order => NewTask::graph()
            .step("reserve", call("stock.reserve", Service::Warehouse, "reservations"))
            .step("charge", call("payments.charge", Service::Payments, "charges").after("reserve"))
            .step("pack", call("parcel.pack", Service::Warehouse, "parcels").after("reserve"))
            .step("ship", call("parcel.ship", Service::Warehouse, "shipments").after("charge").after("pack"))
            .step("notify", call("mail.send", Service::Mail, "mails").after("ship")),
        Wish::Photo => NewTask::new(PHOTO, json!({ "photo": format!("img-{number}.jpg"), "width": 800 })),
        Wish::Invoice => NewTask::of(call("invoice.issue", Service::Payments, "invoices")).namespace(BILLING),
        Wish::Newsletter => {
            NewTask::of(call("mail.newsletter", Service::Mail, "newsletters").queue(NEWSLETTERS).priority(9))
        }
    }
}

fn post(at: &Addresses, service: Service, path: &str, number: u64) -> Request {
    Request::post(at.url(service, path)).json(json!({ "number": number }))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::demo::traffic::Traffic;

    #[test]
    fn a_task_has_as_many_steps_as_are_counted() {
        for due in Traffic::new(3).take(300) {
            let sent = serde_json::to_value(task(&due, &Addresses::default())).unwrap();
            let steps = sent["steps"].as_array().map_or(1, Vec::len);
            assert_eq!(steps as u64, due.wish.steps(), "{sent}");
        }
    }

    #[test]
    fn what_is_stale_says_so_where_an_operator_can_correct_it() {
        let due = |is_stale| Due { at: Duration::ZERO, number: 4, wish: Wish::Sync { is_stale } };
        let revision = |is_stale| -> Value {
            let sent = serde_json::to_value(task(&due(is_stale), &Addresses::default())).unwrap();
            sent["http"]["body"]["revision"].clone()
        };
        assert_eq!(revision(true), OLD_REVISION);
        assert_eq!(revision(false), REVISION);
    }
}
