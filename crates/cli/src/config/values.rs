//! What is in force, value by value.

use std::time::Duration;

use holdoff_policy::format_duration;
use holdoff_work::{Destination, Settings};

use super::Whole;

/// Every value that can be set, by its place in the file. Nothing where nothing is set, and no default stands for it.
pub(crate) fn values(whole: &Whole) -> Vec<(&'static str, Option<String>)> {
    let mut values = server(&whole.server);
    values.extend(work(&whole.work));
    values.extend(http(&whole.work));
    let lock = &whole.lock;
    values.extend([
        ("signals.suppress_failed", time(whole.work.signals.suppress_failed)),
        ("signals.wait", time(whole.work.signals.wait)),
        ("signals.max_waiters", plain(whole.work.signals.max_waiters)),
        ("lock.lease", time(lock.lease())),
        ("lock.wait", lock.wait().and_then(time)),
        ("lock.policy", lock.policy_name().map(str::to_owned)),
        ("lock.max_waiters", plain(lock.most_waiters())),
    ]);
    values
}

fn server(server: &holdoff_server::Settings) -> Vec<(&'static str, Option<String>)> {
    let (serve, tls) = (&server.running, server.tls.as_ref());
    vec![
        ("server.listen", plain(serve.listen)),
        ("server.store", serve.store.as_deref().map(masked)),
        ("server.data", serve.data.as_ref().map(|path| path.display().to_string())),
        ("server.concurrency", plain(serve.concurrency)),
        ("server.log", serve.log.clone()),
        ("server.log_format", plain(serve.log_format.name())),
        ("server.grace", time(serve.grace)),
        ("server.patience", time(serve.patience)),
        ("server.tokens", plain(if server.require_tokens { "required" } else { "none" })),
        ("server.rate", server.rate.and_then(plain)),
        ("server.audit_keep", time(server.audit_keep)),
        ("server.insecure", plain(server.insecure)),
        ("server.tls.cert", tls.map(|tls| tls.cert.display().to_string())),
        ("server.tls.key", tls.map(|tls| tls.key.display().to_string())),
    ]
}

fn work(work: &Settings) -> Vec<(&'static str, Option<String>)> {
    vec![
        ("work.lease", time(work.lease)),
        ("work.poll", time(work.poll)),
        ("work.stale_after", time(work.stale_after)),
        ("work.max_rescues", plain(work.max_rescues)),
        ("work.max_payload", plain(work.max_payload)),
        ("work.max_output", plain(work.max_output)),
        ("work.max_steps", plain(work.max_steps)),
        ("work.max_depth", plain(work.max_depth)),
        ("work.dedup_retention", time(work.dedup_retention)),
        ("work.requeue.shutdown", time(work.requeue.shutdown)),
        ("work.requeue.rescue", time(work.requeue.rescue)),
        ("work.requeue.busy", time(work.requeue.busy)),
        ("work.history.keep", time(work.history.keep)),
        ("work.history.keep_failed", time(work.history.keep_failed)),
        ("work.history.max_rows", plain(work.history.max_rows)),
    ]
}

fn http(work: &Settings) -> Vec<(&'static str, Option<String>)> {
    let http = &work.http;
    let Destination { concurrency, rate, budget, breaker, .. } = &http.destination;
    vec![
        ("http.deny_private", plain(http.deny_private)),
        ("http.timeout", time(http.timeout)),
        ("http.max_response", plain(http.max_response)),
        ("http.max_redirects", plain(http.max_redirects)),
        ("http.destination.concurrency", plain(concurrency)),
        ("http.destination.rate", rate.and_then(plain)),
        ("http.destination.budget.ratio", plain(budget.ratio)),
        ("http.destination.budget.burst", plain(budget.burst)),
        ("http.destination.breaker.failure_ratio", plain(breaker.failure_ratio)),
        ("http.destination.breaker.min_calls", plain(breaker.min_calls)),
        ("http.destination.breaker.window", time(breaker.window)),
        ("http.destination.breaker.probes", plain(breaker.probes)),
    ]
}

fn plain(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

fn time(duration: Duration) -> Option<String> {
    Some(format_duration(duration))
}

/// An address without its password, and without the options among which one may stand.
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
