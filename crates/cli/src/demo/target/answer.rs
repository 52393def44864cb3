//! The target's responses: a function of the seed, the request and the time.

use std::time::Duration;

use serde_json::{Value, json};

use crate::demo::service::Service;
use crate::demo::task::REVISION;

/// The failures of the target.
#[derive(Clone, Debug)]
pub(in crate::demo) struct Temper {
    pub(in crate::demo) seed: u64,
    pub(in crate::demo) outage: Outage,
}

/// The recurring outage of the mail service.
#[derive(Clone, Copy, Debug)]
pub(in crate::demo) struct Outage {
    pub(in crate::demo) every: Duration,
    /// Its start in each period.
    pub(in crate::demo) from: Duration,
    pub(in crate::demo) lasts: Duration,
}

impl Outage {
    pub(in crate::demo) fn is_on(&self, at: Duration) -> bool {
        let into = at.as_micros() % self.every.as_micros().max(1);
        (self.from.as_micros()..(self.from + self.lasts).as_micros()).contains(&into)
    }
}

/// A received request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) service: Service,
    /// The number of times that this key was requested, from 1.
    pub(super) time: u32,
    /// The time since the start.
    pub(super) at: Duration,
    pub(super) body: &'a Value,
    pub(super) token: Option<&'a str>,
}

/// A response.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// In seconds.
    pub(super) retry_after: Option<u64>,
    /// The time until the response.
    pub(super) takes: Duration,
    pub(super) body: Value,
}

/// The lifetime of an access token, and the duration of a slow response, which exceeds every caller's timeout.
const TOKEN_LASTS: Duration = Duration::from_secs(10);
const SLOW: Duration = Duration::from_secs(3);

/// The share of failed requests, in thousandths.
const RATE_LIMITED: u64 = 300;
const LATE: u64 = 250;
const HICCUP: u64 = 60;

/// Returns the access token that is valid at this time.
pub(super) fn token(at: Duration) -> String {
    format!("report-{}", at.as_secs() / TOKEN_LASTS.as_secs())
}

impl Temper {
    /// Decides on the response. A request takes effect if and only if the response is a success.
    pub(super) fn reply(&self, asked: &Asked<'_>) -> Reply {
        let chance = self.chance(asked);
        let done = Reply::new(200, json!({ "done": true })).taking(Duration::from_millis(5 + chance % 40));
        match asked.service {
            Service::Payments if chance < RATE_LIMITED => {
                let wait = 1 + chance % 2;
                Reply { retry_after: Some(wait), ..refusal(429, "too many charges at once") }
            }
            Service::Mail if self.outage.is_on(asked.at) => refusal(503, "the mail service is down"),
            Service::Crm if asked.body.get("revision").and_then(Value::as_u64) != Some(REVISION) => {
                let said = format!("the record is at revision {REVISION}; send that, if you have seen it");
                refusal(409, &said)
            }
            // Only the first request for a key is slow.
            Service::Search if chance < LATE && asked.time == 1 => done.taking(SLOW),
            Service::Reports if asked.token != Some(&token(asked.at)) => {
                refusal(401, "the token has expired")
            }
            Service::Legacy => refusal(400, "the field `currency` is missing"),
            Service::Warehouse if chance < HICCUP => refusal(502, "no answer from the warehouse"),
            _ => done,
        }
    }

    /// Returns a number from 0 to 999 that depends only on the seed, the request and its repetition, not on other
    /// requests.
    fn chance(&self, asked: &Asked<'_>) -> u64 {
        let number = asked.body.get("number").and_then(Value::as_u64).unwrap_or_default();
        let parts = [asked.service as u64, number, u64::from(asked.time)];
        let seed = parts.iter().fold(self.seed, |seed, part| {
            fastrand::Rng::with_seed(seed.rotate_left(21) ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15)).u64(..)
        });
        seed % 1000
    }
}

impl Reply {
    fn new(status: u16, body: Value) -> Self {
        Self { status, retry_after: None, takes: Duration::ZERO, body }
    }

    fn taking(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }

    pub(super) const fn is_done(&self) -> bool {
        self.status == 200
    }
}

fn refusal(status: u16, said: &str) -> Reply {
    Reply::new(status, json!({ "error": said }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn temper(seed: u64) -> Temper {
        Temper { seed, outage: Outage { every: 60 * SECOND, from: 3 * SECOND, lasts: 20 * SECOND } }
    }

    fn ask(service: Service, number: u64, time: u32, at: Duration) -> Reply {
        let body = json!({ "number": number });
        temper(1).reply(&Asked { service, time, at, body: &body, token: None })
    }

    fn share(service: Service, time: u32, is_meant: impl Fn(&Reply) -> bool) -> usize {
        (0..1000).filter(|number| is_meant(&ask(service, *number, time, Duration::ZERO))).count()
    }

    #[test]
    fn outages_come_and_go() {
        let down: Vec<_> = (0..120).filter(|at| temper(1).outage.is_on(SECOND * *at)).collect();
        assert_eq!(down, (3..23).chain(63..83).collect::<Vec<_>>());
        assert_eq!(ask(Service::Mail, 1, 1, 4 * SECOND).status, 503);
        assert_eq!(ask(Service::Mail, 1, 2, 30 * SECOND).status, 200);
    }

    #[test]
    fn some_are_told_to_come_back_and_all_get_through() {
        let told = share(Service::Payments, 1, |reply| reply.status == 429 && reply.retry_after.is_some());
        assert!((200..400).contains(&told), "{told}");
        for number in 0..1000 {
            let is_through = |time: &u32| ask(Service::Payments, number, *time, Duration::ZERO).is_done();
            assert!((1..=12).any(|time| is_through(&time)), "{number} never gets through");
        }
    }

    #[test]
    fn the_search_is_slow_once() {
        let slow = |reply: &Reply| reply.takes >= SLOW;
        assert!((150..350).contains(&share(Service::Search, 1, slow)));
        assert_eq!(share(Service::Search, 2, slow), 0);
    }

    #[test]
    fn a_conflict_is_over_when_the_revision_is_right() {
        let ask = |revision: u64| {
            let body = json!({ "number": 5, "revision": revision });
            let asked = Asked { service: Service::Crm, time: 1, at: SECOND, body: &body, token: None };
            temper(1).reply(&asked).status
        };
        assert_eq!((ask(REVISION - 1), ask(REVISION)), (409, 200));
    }

    #[test]
    fn a_token_is_good_until_it_is_not() {
        let ask = |token: &str, at: Duration| {
            let asked =
                Asked { service: Service::Reports, time: 1, at, body: &Value::Null, token: Some(token) };
            temper(1).reply(&asked).status
        };
        let first = token(Duration::ZERO);
        assert_eq!(ask(&first, 9 * SECOND), 200);
        assert_eq!(ask(&first, 10 * SECOND), 401);
        assert_eq!(ask(&token(10 * SECOND), 10 * SECOND), 200);
    }

    #[test]
    fn nothing_helps_the_legacy_system() {
        assert_eq!(share(Service::Legacy, 3, |reply| reply.status == 400), 1000);
    }

    #[test]
    fn chance_follows_from_the_seed() {
        let body = json!({ "number": 12 });
        let chances = |seed| {
            let asked =
                |time| Asked { service: Service::Payments, time, at: SECOND, body: &body, token: None };
            (1..50).map(|time| temper(seed).chance(&asked(time))).collect::<Vec<_>>()
        };
        assert_eq!(chances(1), chances(1));
        assert_ne!(chances(1), chances(2));
    }
}
