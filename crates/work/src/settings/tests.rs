//! Tests that every key is read and that the JSON schema of the file has the same keys.

use std::path::PathBuf;
use std::time::Duration;

use holdoff_policy::{PolicySet, schema, schema_keys};

use super::*;

const FULL: &str = include_str!("../../tests/corpus/full.toml");

fn problems(text: &str) -> String {
    Settings::from_toml(text).unwrap_err().to_string()
}

/// Returns the positions and messages of all problems, without the quoted lines.
fn messages(text: &str) -> Vec<String> {
    let problems = Settings::from_toml(text).unwrap_err();
    problems
        .iter()
        .map(|problem| format!("{}:{} {}", problem.line, problem.column, problem.message))
        .collect()
}

#[test]
fn a_file_without_settings_means_the_defaults() {
    assert_eq!(Settings::from_toml(""), Ok(Settings::default()));
    assert_eq!(Settings::from_toml("default = \"nonsense\"\n[policies.x]\n"), Ok(Settings::default()));
}

#[test]
fn every_key_is_read() {
    let seconds = Duration::from_secs;
    let settings = Settings::from_toml(FULL).unwrap();
    assert!(PolicySet::from_toml(FULL).is_ok(), "the policies pass the sections by");
    assert_eq!((settings.lease, settings.poll), (seconds(90), Duration::from_millis(250)));
    assert_eq!((settings.stale_after, settings.dedup_retention), (2 * DAY, DAY / 2));
    assert_eq!((settings.max_rescues, settings.max_steps, settings.max_depth), (3, 500, 20_000_000_000));
    assert_eq!((settings.max_payload, settings.max_output), (512 * KIB, KIB));
    let requeue = RequeueSettings { shutdown: seconds(1), rescue: seconds(2), busy: seconds(3) };
    assert_eq!(settings.requeue, requeue);
    assert_eq!(settings.history, HistorySettings { keep: DAY, keep_failed: 30 * DAY, max_rows: 5000 });
    let [card, all] = settings.notify.as_slice() else { panic!("expected two notification targets") };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!((&card.operation, &card.queue), (&some("card.*"), &some("default")));
    assert_eq!((&card.namespace, &card.credential), (&some("eu"), &some("pager")));
    assert_eq!((all.url.as_str(), &all.operation), ("http://localhost:8080/all", &None));
    let signals = SignalSettings { suppress_failed: HOUR / 2, wait: seconds(2), max_waiters: 50 };
    assert_eq!(settings.signals, signals);
    let http = &settings.http;
    assert_eq!((http.deny_private, http.timeout, http.max_redirects), (Some(true), seconds(5), 0));
    assert_eq!(
        (http.max_timeout, http.allow.as_slice()),
        (seconds(600), &["10.0.0.0/8".into(), "*.internal".into()][..])
    );
    assert_eq!(http.max_response, 2048 * KIB);
}

#[test]
fn a_destination_inherits_absent_keys() {
    let http = Settings::from_toml(FULL).unwrap().http;
    let (api, local) = (&http.destinations["api.example.com"], &http.destinations["localhost:8080"]);
    assert_eq!((api.concurrency, api.rate, local.concurrency, local.rate), (8, Some(10.0), 32, Some(1.0)));
    assert_eq!((api.budget.ratio, api.budget.burst), (0.3, 7));
    assert_eq!((local.budget.ratio, local.budget.burst), (0.2, 7));
    let BreakerOptions { failure_ratio, min_calls, window, probes, .. } = api.breaker;
    assert_eq!((failure_ratio, min_calls, window, probes), (0.25, 5, Duration::from_secs(30), 2));
    assert_eq!(local.breaker, DestinationLimits::default().breaker);
    assert_eq!(http.destination.rate, None);
}

#[test]
fn credentials_contain_the_locations_of_their_secrets() {
    let credentials = Settings::from_toml(FULL).unwrap().http.credentials;
    let payments = Credential::ClientCredentials {
        token_url: "https://auth.example.com/token".to_owned(),
        client_id: "me".to_owned(),
        client_secret: Secret::Env("PAYMENTS_SECRET".to_owned()),
        scope: Some("charge".to_owned()),
    };
    assert_eq!(credentials["payments"], payments);
    let hosts = Settings::from_toml(FULL).unwrap().http.credential_hosts;
    assert_eq!(hosts.len(), 1, "a credential without `hosts` is permitted for no host");
    assert_eq!(hosts["payments"], ["api.example.com", "*.pay.example.com:8443"]);
    let file = Secret::File(PathBuf::from("/run/secrets/token"));
    assert_eq!(credentials["static"], Credential::Token { token: file, header: Some("x-api-key".into()) });
    assert!(
        matches!(&credentials["pager"], Credential::Refresh { secret: Secret::Env(name), .. } if name == "PAGER_SECRET")
    );
}

#[test]
fn ranges_are_checked() {
    for (line, message, expected) in [
        ("lease = \"100ms\"", "lease is 100ms", "from 1s to 1d"),
        ("poll = \"1ms\"", "poll is 1ms", "from 10ms to 1h"),
        ("max_payload = \"17MiB\"", "max_payload is 17MiB", "from 1B to 16MiB"),
        ("max_output = 0", "max_output is 0B", "from 1B to 16MiB"),
        ("max_inputs = \"2GiB\"", "max_inputs is 2GiB", "from 1B to 1GiB"),
        ("max_steps = 0", "max_steps is 0", "from 1 to 1000000"),
        ("max_rescues = -1", "max_rescues is -1", "a whole number from 0 to 1000"),
        ("max_depth = 1e3", "max_depth is a float", "a whole number from 1 to 1000000000000"),
        (
            "requeue.busy = \"2d\"",
            "requeue.busy is 2d, and a step counts as stale after 1d",
            "at most 1d, or",
        ),
        ("history.max_rows = \"many\"", "history.max_rows is a string", "a whole number from 0"),
        ("max_payload = \"1MB\"", "\"MB\" is not a unit; did you mean \"MiB\"?", "a number of bytes"),
    ] {
        let shown = problems(&format!("[work]\n{line}\n"));
        assert!(shown.contains(message) && shown.contains(expected), "{shown}");
    }
    for line in ["rate = nan", "rate = 0.0", "budget.ratio = inf", "breaker.probes = 0", "concurrency = 0"] {
        assert!(Settings::from_toml(&format!("[http.destination]\n{line}\n")).is_err(), "{line}");
    }
}

#[test]
fn an_unquoted_destination_is_reported() {
    let text = "[http.destinations.api.example.com]\nrate = 1\n";
    assert_eq!(messages(text), ["1:24 `api.example.com` needs quotes, because it has a dot"]);
    let text = "[http.destinations.\"https://api.example.com/\"]\n";
    assert!(problems(text).contains("did you mean `api.example.com`?"), "{}", problems(text));
    let text = "[http.destinations.localhost]\nrat = 1\n";
    assert!(problems(text).contains("did you mean `rate`?"), "{}", problems(text));
}

#[test]
fn an_allowed_address_is_a_network_or_a_host_without_a_port() {
    let of = |allow: &str| messages(&format!("[http]\nallow = [\"{allow}\"]\n"));
    for wrong in ["localhost:80", "[::1]", "10.0.0.1/8", "https://a"] {
        assert_eq!(of(wrong), [format!("2:10 `{wrong}` is neither a network nor a host without a port")]);
    }
    assert_eq!(of("a.*"), ["2:10 `a.*` has a star that is not a leading `*.`"]);
    assert!(Settings::from_toml("[http]\nallow = [\"::1\", \"127.0.0.1\", \"fd00::/8\", \"*.a\"]").is_ok());
    assert_eq!(messages("[http]\nmax_timeout = \"20s\"\ntimeout = \"30s\""), ["3:11 timeout is 30s"]);
}

#[test]
fn a_notify_rule_needs_a_url_and_a_known_credential() {
    let text = "[[work.notify]]\ncredential = \"pagr\"\n[credentials.pager]\nkind = 1\n";
    let found = messages(text);
    assert_eq!(
        found[..2],
        ["1:1 an entry of work.notify has no `url`", "2:14 credential `pagr` is not defined"]
    );
    assert!(problems(text).contains("did you mean `pager`?"));
    assert!(problems("[work.notify]\nurl = \"http://x\"\n").contains("[[work.notify]] in double brackets"));
    let url = |url: &str| problems(&format!("[[work.notify]]\nurl = \"{url}\"\n"));
    assert!(url("ftp://x/y").contains("url is a URL of the scheme `ftp`"));
    assert!(url("example.com").contains("url has no scheme"));
    assert!(url("https://[::1").contains("url is not a URL: invalid IPv6 address"));
    assert!(url("https://example.com/a b").contains("url contains a space"));
    let shown = url("https://me:hunter2@example.com");
    assert!(shown.contains("contains a user name or a password") && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn keys_of_another_kind_are_refused() {
    let text = "[credentials.a]\nkind = \"token\"\ntoken = { env = \"A\" }\nscope = \"x\"\ntokn = 1\n";
    let found = messages(text);
    assert_eq!(
        found,
        ["4:1 `scope` has no meaning with kind = \"token\"", "5:1 unknown key `tokn` in [credentials.a]"]
    );
    let found = messages("[credentials.a]\nkind = \"client_credentials\"\nclient_id = \"\"\n");
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(messages("[credentials.a]\n"), ["1:1 credential `a` has no `kind`"]);
    let of = |hosts: &str| {
        messages(&format!("[credentials.a]\nkind = \"token\"\ntoken = {{ env = \"A\" }}\nhosts = {hosts}\n"))
    };
    assert_eq!(of("[\"https://a.example/x\"]"), ["4:10 `https://a.example/x` is a URL and not a host"]);
    assert_eq!(of("[\"*\"]"), ["4:10 `*` has a star that is not a leading `*.`"]);
    assert_eq!(of("\"a.example\""), ["4:9 hosts is a string"]);
}

#[test]
fn a_secret_in_the_file_is_refused_and_never_shown() {
    for (text, at) in [
        ("[credentials.a]\nkind = \"token\"\ntoken = \"hunter2\"\n", "3:9: token is in the file itself"),
        ("[credentials.a]\nkind = \"tokn\"\ntoken = \"hunter2\"\n", "3:9: token is in the file itself"),
        ("[credentials.a]\nkind = \"token\"\ntokn = \"hunter2\"\n", "3:1: unknown key `tokn`"),
        ("[credentials.a]\nkind = \"refresh\"\ntoken = \"hunter2\"\n", "`token` has no meaning with"),
        ("[credentials]\na = { token = \"hunter2\", kind = \"tokn\" }\n", "2:33: kind cannot be \"tokn\""),
        ("[credentials]\ntoken = \"hunter2\"\n", "2:9: credential `token` is a string"),
        ("credentials = \"hunter2\"\n", "1:15: [credentials] is a string"),
        (
            "[credentials.a]\nkind = \"token\"\ntoken = { value = \"hunter2\" }\n",
            "unknown key `value` in token",
        ),
        ("[credentials.a]\nkind = \"token\"\ntoken = { env = \"hunter2!\" }\n", "not the name of an env"),
        ("[credentials.a]\nkind = \"token\"\ntoken = { env = \"A\", file = \"hunter2\" }\n", "has both"),
        (
            "[credentials.a]\nkind = \"token\"\n[credentials.a.token]\nvalue = \"hunter2\"\n",
            "unknown key `value`",
        ),
        ("[credentials.a]\nkind = \"token\"\ntoken = \"\"\"\nhunter2\"\"\"\n", "token is in the file itself"),
        ("[credentials.a]\nkind = \"token\"\ntoken = [\n\"hunter2\"]\n", "token is in the file itself"),
    ] {
        let shown = problems(text);
        assert!(shown.contains(at), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(!format!("{:?}", Settings::from_toml(text)).contains("hunter2"));
    }
    let shown = problems("[credentials.a]\nkind = \"token\"\ntoken = \"hunter2\"\n");
    assert!(
        shown.contains("\n3 | token = …\n  |         ^ expected"),
        "the problem does not show the length of the secret: {shown}"
    );
    assert!(shown.contains("{ env = \"NAME\" }") && shown.contains("{ file = "), "{shown}");
}

fn keys(table: &serde_json::Value) -> Vec<&str> {
    table["properties"].as_object().unwrap().keys().map(String::as_str).collect()
}

fn sorted<'k>(keys: impl IntoIterator<Item = &'k &'k str>) -> Vec<&'k str> {
    let mut keys: Vec<_> = keys.into_iter().copied().collect();
    keys.sort_unstable();
    keys
}

#[test]
fn the_schema_has_exactly_the_readers_keys() {
    for (definition, known) in [
        ("WorkTable", sections::WORK_KEYS),
        ("RequeueTable", sections::REQUEUE_KEYS),
        ("HistoryTable", sections::HISTORY_KEYS),
        ("NotifyTable", sections::NOTIFY_KEYS),
        ("HttpTable", sections::HTTP_KEYS),
        ("DestinationTable", sections::DESTINATION_KEYS),
        ("BudgetTable", sections::BUDGET_KEYS),
        ("BreakerTable", sections::BREAKER_KEYS),
        ("SignalsTable", sections::SIGNAL_KEYS),
    ] {
        assert_eq!(schema_keys(definition), known.iter().copied().collect(), "{definition}");
    }
}

#[test]
fn the_schema_has_exactly_the_keys_of_each_credential_kind() {
    let schema = schema();
    let kinds = schema["$defs"]["CredentialTable"]["oneOf"].as_array().unwrap();
    assert_eq!(kinds.len(), credentials::KINDS.len());
    for (kind, known) in credentials::KINDS {
        let is_kind = |table: &&serde_json::Value| table["properties"]["kind"]["const"] == kind;
        let table = kinds.iter().find(is_kind).unwrap_or_else(|| panic!("no {kind}"));
        assert_eq!(keys(table), sorted(known.iter().chain(&["kind"])), "{kind}");
    }
    let secrets = schema["$defs"]["SecretTable"]["oneOf"].as_array().unwrap();
    let found: Vec<_> = secrets.iter().flat_map(keys).collect();
    assert_eq!(sorted(&found), sorted(credentials::SECRET_KEYS));
}

/// The readers find their sections by name; the reader of the policies checks the top level of the file.
#[test]
fn the_schema_has_every_section() {
    let schema = schema();
    let top = keys(&schema);
    for section in ["work", "http", "credentials", "signals"] {
        assert!(top.contains(&section), "{section}");
    }
}
