//! The active configuration, value by value.

use std::time::Duration;

use holdoff_council::acceptor::{Allowed, Settings as AcceptorSettings};
use holdoff_ledger::runtime::Written as WrittenLedger;
use holdoff_policy::format_duration;
use holdoff_work::{Destination, Settings};

use super::Whole;

/// Returns every setting by its path in the file. A setting that has neither a value nor a default is `None`.
pub(crate) fn values(whole: &Whole) -> Vec<(&'static str, Option<String>)> {
    let mut values = server(&whole.server);
    values.extend(work(&whole.work));
    values.extend(http(&whole.work));
    let lock = &whole.lock;
    values.extend([
        ("signals.suppress_failed", Some(time(whole.work.signals.suppress_failed))),
        ("signals.wait", Some(time(whole.work.signals.wait))),
        ("signals.max_waiters", Some(plain(&whole.work.signals.max_waiters))),
        ("lock.lease", Some(time(lock.lease()))),
        ("lock.wait", lock.wait().map(time)),
        ("lock.policy", lock.policy_name().map(str::to_owned)),
        ("lock.max_waiters", Some(plain(&lock.most_waiters()))),
        ("lock.ledger", lock.ledger().map(str::to_owned)),
    ]);
    values.extend(acceptor(&whole.acceptor));
    values.extend(ledger(&whole.ledger));
    values
}

fn acceptor(acceptor: &AcceptorSettings) -> Vec<(&'static str, Option<String>)> {
    let allow = acceptor.allow.as_ref().map(|allow| match allow {
        Allowed::File(path) => path.display().to_string(),
        _ => Allowed::ANYONE.to_owned(),
    });
    vec![
        ("acceptor.listen", Some(plain(&acceptor.listen))),
        ("acceptor.data", acceptor.data.as_ref().map(|path| path.display().to_string())),
        ("acceptor.allow", allow),
        ("acceptor.max_councils", Some(plain(&acceptor.limits.councils))),
        ("acceptor.max_council_bytes", Some(plain(&acceptor.limits.council.bytes))),
        ("acceptor.max_council_slots", Some(plain(&acceptor.limits.council.slots))),
        ("acceptor.max_memory", Some(plain(&acceptor.limits.memory_bytes))),
        ("acceptor.max_connections", Some(plain(&acceptor.max_connections))),
    ]
}

fn ledger(written: &WrittenLedger) -> Vec<(&'static str, Option<String>)> {
    let how = written.at("");
    let (core, gossip) = (&how.ledger, &how.gossip);
    let micros = |micros: u64| Some(time(Duration::from_micros(micros)));
    vec![
        ("ledger.listen", Some(plain(&how.listen))),
        ("ledger.data", written.data.as_ref().map(|path| path.display().to_string())),
        ("ledger.advertise", how.advertise.clone()),
        ("ledger.name", how.name.clone()),
        ("ledger.result_timeout", micros(core.result_us)),
        ("ledger.lease", micros(core.lease_us)),
        ("ledger.election", micros(core.log.election_us)),
        ("ledger.heartbeat", micros(core.log.heartbeat_us)),
        ("ledger.kept", Some(plain(&core.kept))),
        ("ledger.max_pending", Some(plain(&core.pending))),
        ("ledger.gossip.round", Some(time(gossip.round))),
        ("ledger.gossip.diameter", Some(plain(&gossip.diameter))),
        ("ledger.gossip.dissemination", Some(time(gossip.dissemination))),
        ("ledger.gossip.clock_tolerance", Some(time(gossip.clock_tolerance))),
        ("ledger.gossip.fan_out", Some(plain(&gossip.fan_out))),
        ("ledger.gossip.election", Some(time(gossip.election()))),
        ("ledger.gossip.listening", Some(time(gossip.listening()))),
        ("ledger.gossip.suspicion", Some(time(gossip.suspicion()))),
        ("ledger.gossip.minimum_tenure", Some(time(gossip.minimum_tenure()))),
        ("ledger.gossip.exchange_rounds", Some(plain(&gossip.exchange_rounds))),
    ]
}

fn server(server: &holdoff_server::Settings) -> Vec<(&'static str, Option<String>)> {
    let (serve, tls) = (&server.running, server.tls.as_ref());
    vec![
        ("server.listen", Some(plain(&serve.listen))),
        ("server.store", serve.store.as_deref().map(masked)),
        ("server.data", serve.data.as_ref().map(|path| path.display().to_string())),
        ("server.concurrency", Some(plain(&serve.concurrency))),
        ("server.log", serve.log.clone()),
        ("server.log_format", Some(plain(&serve.log_format.name()))),
        ("server.grace", Some(time(serve.grace))),
        ("server.patience", Some(time(serve.patience))),
        ("server.tokens", Some(plain(&if server.require_tokens { "required" } else { "none" }))),
        ("server.rate", server.rate.map(|rate| plain(&rate))),
        ("server.audit_keep", Some(time(server.audit_keep))),
        ("server.insecure", Some(plain(&server.insecure))),
        ("server.prefix", Some(&server.prefix).filter(|prefix| !prefix.is_empty()).map(plain)),
        ("server.tls.cert", tls.map(|tls| tls.cert.display().to_string())),
        ("server.tls.key", tls.map(|tls| tls.key.display().to_string())),
    ]
}

fn work(work: &Settings) -> Vec<(&'static str, Option<String>)> {
    vec![
        ("work.lease", Some(time(work.lease))),
        ("work.poll", Some(time(work.poll))),
        ("work.stale_after", Some(time(work.stale_after))),
        ("work.max_rescues", Some(plain(&work.max_rescues))),
        ("work.max_payload", Some(plain(&work.max_payload))),
        ("work.max_output", Some(plain(&work.max_output))),
        ("work.max_steps", Some(plain(&work.max_steps))),
        ("work.max_depth", Some(plain(&work.max_depth))),
        ("work.max_lanes", Some(plain(&work.max_lanes))),
        ("work.max_namespace_lanes", Some(plain(&work.max_namespace_lanes))),
        ("work.dedup_retention", Some(time(work.dedup_retention))),
        ("work.requeue.shutdown", Some(time(work.requeue.shutdown))),
        ("work.requeue.rescue", Some(time(work.requeue.rescue))),
        ("work.requeue.busy", Some(time(work.requeue.busy))),
        ("work.history.keep", Some(time(work.history.keep))),
        ("work.history.keep_failed", Some(time(work.history.keep_failed))),
        ("work.history.max_rows", Some(plain(&work.history.max_rows))),
    ]
}

fn http(work: &Settings) -> Vec<(&'static str, Option<String>)> {
    let http = &work.http;
    let Destination { concurrency, rate, budget, breaker, .. } = &http.destination;
    vec![
        ("http.deny_private", Some(plain(&http.deny_private))),
        ("http.timeout", Some(time(http.timeout))),
        ("http.max_response", Some(plain(&http.max_response))),
        ("http.max_redirects", Some(plain(&http.max_redirects))),
        ("http.destination.concurrency", Some(plain(concurrency))),
        ("http.destination.rate", rate.map(|rate| plain(&rate))),
        ("http.destination.budget.ratio", Some(plain(&budget.ratio))),
        ("http.destination.budget.burst", Some(plain(&budget.burst))),
        ("http.destination.breaker.failure_ratio", Some(plain(&breaker.failure_ratio))),
        ("http.destination.breaker.min_calls", Some(plain(&breaker.min_calls))),
        ("http.destination.breaker.window", Some(time(breaker.window))),
        ("http.destination.breaker.probes", Some(plain(&breaker.probes))),
    ]
}

fn plain(value: &impl ToString) -> String {
    value.to_string()
}

fn time(duration: Duration) -> String {
    format_duration(duration)
}

/// Returns a URL without its password and without its query, which may also contain one.
fn masked(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (address, options) = rest.split_once('?').map_or((rest, ""), |(address, _)| (address, "?…"));
    let Some((user, host)) = address.rsplit_once('@') else {
        return format!("{scheme}://{address}{options}");
    };
    let user = user.split_once(':').map_or_else(|| user.to_owned(), |(name, _)| format!("{name}:…"));
    format!("{scheme}://{user}@{host}{options}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_can_be_set_is_shown() {
        let mut shown: Vec<_> =
            values(&Whole::default()).into_iter().map(|(path, _)| path.to_owned()).collect();
        let mut known: Vec<_> = super::super::keys::all().into_iter().map(|key| key.path).collect();
        shown.sort();
        known.sort();
        assert_eq!(shown, known);
    }

    #[test]
    fn passwords_are_masked() {
        assert_eq!(masked("postgres://me:secret@db/x?password=again"), "postgres://me:…@db/x?…");
        assert_eq!(masked("postgres://me:p@ss@db/x"), "postgres://me:…@db/x");
        assert_eq!(masked("postgres://me@db/x"), "postgres://me@db/x");
        assert_eq!(masked("sqlite:a.db"), "sqlite:a.db");
    }
}
