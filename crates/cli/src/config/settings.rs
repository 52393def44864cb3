//! Every setting: its key in the file, its environment variable and its value.
//!
//! The keys come from the schema of the file, so that a new key gets its environment variable automatically.

use std::time::Duration;

use holdoff_council::acceptor::{Allowed, Settings as AcceptorSettings};
use holdoff_ledger::runtime::FileSettings as LedgerSettings;
use holdoff_policy::format_duration;
use holdoff_server::StoreUrl;
use holdoff_work::{DestinationLimits, Settings};
use serde_json::Value;

use super::AllSettings;

/// The sections whose settings have environment variables. Policies have none, because they are deployed as a settings.
const SECTIONS: [&str; 7] = ["server", "work", "http", "signals", "lock", "acceptor", "ledger"];

/// A setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Key {
    /// Its path in the file, such as `work.lease`.
    pub(super) path: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Text,
    /// An integer or a text, such as a size.
    Either,
    Number,
    Boolean,
}

impl Key {
    /// Returns the name of its variable: `HOLDOFF_WORK_LEASE` for `work.lease`, and `HOLDOFF_LISTEN` for the daemon's
    /// own `server.listen`.
    pub(super) fn variable(&self) -> String {
        let path = self.path.strip_prefix("server.").unwrap_or(&self.path);
        format!("HOLDOFF_{}", path.replace('.', "_").to_uppercase())
    }

    /// Converts a variable's text into a TOML value of the setting's kind. Text that is not of this kind stays text,
    /// and the reader of the section reports it.
    pub(super) fn value(&self, text: &str) -> toml::Value {
        let number = || {
            let settings = text.parse().map(toml::Value::Integer);
            settings.or_else(|_| text.parse().map(toml::Value::Float)).ok()
        };
        let value = match self.kind {
            Kind::Text => None,
            Kind::Either => text.parse().map(toml::Value::Integer).ok(),
            Kind::Number => number(),
            Kind::Boolean => text.parse().map(toml::Value::Boolean).ok(),
        };
        value.unwrap_or_else(|| toml::Value::String(text.to_owned()))
    }
}

/// Returns every setting, in the order of the file.
pub(super) fn all() -> Vec<Key> {
    let schema = holdoff_policy::schema();
    let mut keys = Vec::new();
    for section in SECTIONS {
        if let Some(node) = schema.pointer(&format!("/properties/{section}")) {
            collect(&schema, section, node, &mut keys);
        }
    }
    keys
}

fn collect(schema: &Value, path: &str, node: &Value, keys: &mut Vec<Key>) {
    let node = resolve(schema, node);
    if let Some(properties) = node.get("properties").and_then(Value::as_object) {
        for (name, inner) in properties {
            collect(schema, &format!("{path}.{name}"), inner, keys);
        }
        return;
    }
    if let Some(kind) = kind(node) {
        keys.push(Key { path: path.to_owned(), kind });
    }
}

/// Follows references and unwraps optional values to the schema of the value.
fn resolve<'s>(schema: &'s Value, node: &'s Value) -> &'s Value {
    if let Some(reference) = node.get("$ref").and_then(Value::as_str) {
        let target = schema.pointer(reference.trim_start_matches('#'));
        return target.map_or(node, |target| resolve(schema, target));
    }
    let choices = node.get("anyOf").and_then(Value::as_array);
    let is_null = |choice: &&Value| choice.get("type").and_then(Value::as_str) == Some("null");
    match choices
        .map(|choices| choices.iter().filter(|choice| !is_null(choice)).collect::<Vec<_>>())
        .as_deref()
    {
        Some([only]) => resolve(schema, only),
        _ => node,
    }
}

/// Returns the kind of a scalar value, or `None` for arrays, tables and unknown types.
fn kind(node: &Value) -> Option<Kind> {
    let types: Vec<&str> = match node.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let has = |name: &str| types.contains(&name);
    match types.as_slice() {
        _ if has("array") || has("object") => None,
        _ if has("boolean") => Some(Kind::Boolean),
        _ if has("integer") || has("number") => Some(Kind::Number),
        [] if node.get("anyOf").is_some() => Some(Kind::Either),
        [] if node.get("oneOf").is_none() => None,
        _ => Some(Kind::Text),
    }
}

/// Returns every setting by its path in the file. A setting that has neither a value nor a default is `None`.
pub(super) fn values(settings: &AllSettings) -> Vec<(&'static str, Option<String>)> {
    let mut values = server(&settings.server);
    values.extend(work(&settings.work));
    values.extend(http(settings));
    let lock = &settings.lock;
    values.extend([
        ("signals.suppress_failed", Some(time(settings.work.signals.suppress_failed))),
        ("signals.wait", Some(time(settings.work.signals.wait))),
        ("signals.max_waiters", Some(plain(&settings.work.signals.max_waiters))),
        ("lock.lease", Some(time(lock.lease()))),
        ("lock.wait", lock.wait().map(time)),
        ("lock.policy", lock.policy_name().map(str::to_owned)),
        ("lock.max_waiters", Some(plain(&lock.max_waiters()))),
        ("lock.ledger", lock.ledger().map(str::to_owned)),
    ]);
    values.extend(acceptor(&settings.acceptor));
    values.extend(ledger(&settings.ledger));
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

fn ledger(file: &LedgerSettings) -> Vec<(&'static str, Option<String>)> {
    let settings = file.at("");
    let (core, gossip) = (&settings.ledger, &settings.gossip);
    let micros = |micros: u64| Some(time(Duration::from_micros(micros)));
    vec![
        ("ledger.listen", Some(plain(&settings.listen))),
        ("ledger.data", file.data.as_ref().map(|path| path.display().to_string())),
        ("ledger.advertise", settings.advertise.clone()),
        ("ledger.name", settings.name.clone()),
        ("ledger.result_timeout", micros(core.result_us)),
        ("ledger.lease", micros(core.lease_us)),
        ("ledger.election", micros(core.log.election_us)),
        ("ledger.heartbeat", micros(core.log.heartbeat_us)),
        ("ledger.kept", Some(plain(&core.kept))),
        ("ledger.kept_bytes", Some(plain(&core.kept_bytes))),
        ("ledger.max_state", Some(plain(&core.max_state_bytes))),
        ("ledger.max_transaction", Some(plain(&settings.max_transaction_bytes))),
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
    ]
}

fn server(server: &holdoff_server::Settings) -> Vec<(&'static str, Option<String>)> {
    let (serve, tls) = (&server.running, server.tls.as_ref());
    vec![
        ("server.listen", Some(plain(&serve.listen))),
        ("server.store", serve.store.as_deref().map(|store| StoreUrl::new(store).redacted())),
        ("server.data", serve.data.as_ref().map(|path| path.display().to_string())),
        ("server.concurrency", Some(plain(&serve.concurrency))),
        ("server.log", serve.log.clone()),
        ("server.log_format", Some(plain(&serve.log_format.name()))),
        ("server.grace", Some(time(serve.grace))),
        ("server.drain_timeout", Some(time(serve.drain_timeout))),
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
        ("work.max_inputs", Some(plain(&work.max_inputs))),
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

fn http(settings: &AllSettings) -> Vec<(&'static str, Option<String>)> {
    let http = &settings.work.http;
    let DestinationLimits { concurrency, rate, budget, retry_floor, breaker, .. } = &http.destination;
    vec![
        ("http.deny_private", Some(plain(&http.deny_private.unwrap_or(settings.server.require_tokens)))),
        ("http.timeout", Some(time(http.timeout))),
        ("http.max_timeout", Some(time(http.max_timeout))),
        ("http.max_response", Some(plain(&http.max_response))),
        ("http.max_redirects", Some(plain(&http.max_redirects))),
        ("http.destination.concurrency", Some(plain(concurrency))),
        ("http.destination.rate", rate.map(|rate| plain(&rate))),
        ("http.destination.budget.ratio", Some(plain(&budget.ratio))),
        ("http.destination.budget.burst", Some(plain(&budget.burst))),
        ("http.destination.budget.floor", Some(plain(retry_floor))),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_its_own_variable() {
        let keys = all();
        let mut variables: Vec<String> = keys.iter().map(Key::variable).collect();
        for wanted in ["HOLDOFF_LISTEN", "HOLDOFF_STORE", "HOLDOFF_LOG_FORMAT", "HOLDOFF_WORK_HISTORY_KEEP"] {
            assert!(variables.iter().any(|variable| variable == wanted), "{wanted} in {variables:?}");
        }
        variables.sort();
        let count = variables.len();
        variables.dedup();
        assert_eq!(variables.len(), count);
    }

    #[test]
    fn a_variable_has_the_type_of_its_key() {
        let keys = all();
        let value = |path: &str, text: &str| keys.iter().find(|key| key.path == path).unwrap().value(text);
        assert_eq!(value("work.lease", "5m"), toml::Value::String("5m".into()));
        assert_eq!(value("work.max_steps", "7"), toml::Value::Integer(7));
        assert_eq!(value("work.max_payload", "7"), toml::Value::Integer(7));
        assert_eq!(value("work.max_payload", "1MiB"), toml::Value::String("1MiB".into()));
        assert_eq!(value("http.deny_private", "true"), toml::Value::Boolean(true));
        assert_eq!(value("http.destination.rate", "0.5"), toml::Value::Float(0.5));
        assert_eq!(value("work.max_steps", "many"), toml::Value::String("many".into()));
    }

    #[test]
    fn every_setting_is_shown() {
        let mut shown: Vec<_> =
            values(&AllSettings::default()).into_iter().map(|(path, _)| path.to_owned()).collect();
        let mut known: Vec<_> = all().into_iter().map(|key| key.path).collect();
        shown.sort();
        known.sort();
        assert_eq!(shown, known);
    }
}
