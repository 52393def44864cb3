//! Invalid parameters are rejected.

use holdoff_sim::scenario::Scenario;

/// Returns the parameter that is rejected in this scenario, written as in a file.
fn refused(text: &str) -> Option<&'static str> {
    let scenario: Scenario = toml::from_str(text).unwrap();
    scenario.check().err().map(|why| why.parameter())
}

#[test]
fn the_defaults_are_valid() {
    for (name, _) in Scenario::ALL {
        let scenario = Scenario::named(name).unwrap();
        assert_eq!(scenario.check(), Ok(()), "{name}");
        assert!(scenario.with_clients(0).check().is_err(), "{name} without clients");
    }
}

#[test]
fn an_invalid_parameter_is_named() {
    for (text, parameter) in [
        ("[row]\ncontenders_error = 0.0", "contenders_error"),
        ("[row]\ncontenders_error = inf", "contenders_error"),
        ("[row]\nhop = { uniform = { low = \"2ms\", high = \"1ms\" } }", "hop"),
        ("[storm]\nprocesses = 0", "processes"),
        ("[storm]\nstore_workers = 4000000000", "store_workers"),
        ("[storm]\nhop = { exponential = { mean = \"0s\" } }", "hop"),
        ("[storm]\nacquire_timeout = \"0s\"", "acquire_timeout"),
        ("[limit]\nrate_per_sec = 0", "rate_per_sec"),
        ("[limit]\nburst = 0", "burst"),
        ("[limit]\nhop = { normal = { mean = \"0s\", sd = \"0s\" } }", "hop"),
        ("[limit]\nhorizon = \"0s\"", "horizon"),
        ("[outage]\nrate_per_client = nan", "rate_per_client"),
        ("[outage]\nrate_per_client = 1e9", "clients × rate_per_client × horizon"),
        ("[outage]\nworkers = 0", "workers"),
        ("[outage]\ntimeout = \"0s\"", "timeout"),
        ("[outage]\noutage_start = \"115s\"", "outage_start + outage_length"),
        ("[outage]\nhorizon = \"30999ms\"", "horizon"),
        ("[outage]\noutage_length = \"9500ms\"\nhorizon = \"30999ms\"", "horizon"),
        ("[outage]\nrate_per_client = 0.001\nhorizon = \"86401s\"", "horizon"),
        ("[outage]\nlayers = 0", "layers"),
        ("[outage]\nattempts = 101", "attempts"),
        ("[outage.budget]\nratio = -0.1", "budget.ratio"),
        ("[outage.budget]\nburst = 2000000", "budget.burst"),
        ("[outage.breaker]\nfailure_ratio = 0.0", "breaker.failure_ratio"),
        ("[outage.breaker]\nmin_calls = 0", "breaker.min_calls"),
        ("[outage.breaker]\nwindow = \"0s\"", "breaker.window"),
        ("[outage.breaker]\nprobes = 0", "breaker.probes"),
        ("[duel]\nclients = 1001", "clients"),
        ("[duel]\nacceptors = 0", "acceptors"),
        ("[duel]\nacceptors = 16", "acceptors"),
        ("[duel]\nhop = { constant = \"0s\" }", "hop"),
        ("[duel]\nloss = 0.6", "loss"),
        ("[duel]\nloss = nan", "loss"),
        ("[duel]\nkill = 1.1", "kill"),
        ("[duel]\nanswer_timeout = \"0s\"", "answer_timeout"),
        ("[duel]\ndeadline = \"0s\"", "deadline"),
        ("[duel]\ndeadline = \"2h\"", "deadline"),
        ("[election]\nnodes = 129", "nodes"),
        ("[election]\nhop = { constant = \"0s\" }", "hop"),
        ("[election]\nloss = -0.1", "loss"),
        ("[election]\nfault_every = \"0s\"", "fault_every"),
        ("[election]\ndown_for = \"0s\"", "down_for"),
        ("[election]\ndown_for = \"20s\"", "down_for"),
        ("[election]\ncut_for = \"0s\"", "cut_for"),
        ("[election]\nduration = \"0s\"", "duration"),
        ("[election]\nduration = \"25h\"", "duration"),
    ] {
        assert_eq!(refused(text), Some(parameter), "{text}");
    }
}

/// Unusual parameters are valid: a queue of length zero, an outage without end, a row without hops.
#[test]
fn unusual_parameters_are_valid() {
    for text in [
        "[row]\nclients = 1\nhop = { constant = \"0s\" }",
        "[storm]\nhold = \"0s\"\nrequest_cost = \"0s\"",
        "[outage]\nqueue_limit = 0\nservice = { constant = \"0s\" }",
        "[outage]\noutage_start = \"0s\"\noutage_length = \"2m\"",
        "[outage]\nhorizon = \"31s\"",
        "[outage]\nrate_per_client = 0.001\nhorizon = \"24h\"",
        "[outage]\nbudget = { ratio = 0.0, burst = 0 }",
        "[duel]\nclients = 1\nacceptors = 1\nkill = 1.0",
        "[duel]\nanswer_timeout = \"1ms\"\ndeadline = \"1s\"",
    ] {
        assert_eq!(refused(text), None, "{text}");
        let scenario: Scenario = toml::from_str(text).unwrap();
        let strategy = holdoff_sim::Strategy::named("none").unwrap();
        assert!(scenario.run(&strategy, 1).calls > 0, "{text}");
    }
}
