//! The runner: the same seed gives the same bytes, and every unserved client is counted.

use std::sync::atomic::{AtomicUsize, Ordering};

use holdoff_sim::scenario::Scenario;
use holdoff_sim::{Plan, run};

fn plan(name: &str, threads: usize, seed: u64) -> Plan {
    let scenario = Scenario::named(name).unwrap();
    let strategies =
        scenario.usual_strategies().iter().map(|name| scenario.strategy(name).unwrap()).collect();
    let clients = vec![scenario.clients(), scenario.clients() / 2];
    Plan { scenario, strategies, clients, runs: 6, seed, threads }
}

fn bytes(plan: &Plan) -> String {
    serde_json::to_string(&run(plan, &|_, _| {})).unwrap()
}

#[test]
fn results_depend_on_the_seed_alone() {
    for (name, _) in Scenario::ALL {
        let once = bytes(&plan(name, 1, 42));
        for threads in [1, 2, 4] {
            assert_eq!(once, bytes(&plan(name, threads, 42)), "{name} on {threads} threads");
        }
        assert_ne!(once, bytes(&plan(name, 1, 43)), "{name} ignores its seed");
    }
}

#[test]
fn a_row_has_the_promised_shape() {
    let rows = run(&plan("row", 2, 1), &|_, _| {});
    let names: Vec<(u32, &str)> = rows.iter().map(|row| (row.clients, row.policy.as_str())).collect();
    assert_eq!(names[0], (100, "none"));
    assert_eq!(names[7], (50, "none"));
    let json: serde_json::Value = serde_json::to_value(&rows[0]).unwrap();
    for figure in ["time_ms", "calls", "reads", "gave_up"] {
        for part in ["mean", "se", "p50", "p99"] {
            assert!(json[figure][part].is_number(), "{figure}.{part}");
        }
    }
    assert_eq!((json["scenario"].as_str(), json["runs"].as_u64()), (Some("row"), Some(6)));
}

#[test]
fn progress_is_reported_for_every_run() {
    let plan = plan("storm", 3, 1);
    let (heard, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    run(&plan, &|done, total| {
        assert_eq!(total, 24);
        heard.fetch_add(1, Ordering::Relaxed);
        most.fetch_max(done, Ordering::Relaxed);
    });
    assert_eq!((heard.into_inner(), most.into_inner()), (24, 24));
}

#[test]
fn an_empty_plan_gives_empty_results() {
    let empty = Plan { clients: vec![0], ..plan("row", 2, 1) };
    assert!(run(&empty, &|_, _| {}).iter().all(|row| row.calls.mean == 0.0));
    let never = Plan { runs: 0, ..plan("storm", 2, 1) };
    assert_eq!(run(&never, &|_, _| {}).len(), 4);
    let nothing = Plan { strategies: Vec::new(), ..plan("storm", 2, 1) };
    assert!(run(&nothing, &|_, _| {}).is_empty());
}

#[test]
fn parameters_round_trip_and_unknown_ones_are_rejected() {
    for (name, _) in Scenario::ALL {
        let scenario = Scenario::named(name).unwrap();
        let json = serde_json::to_string(&scenario).unwrap();
        assert_eq!(serde_json::from_str::<Scenario>(&json).unwrap(), scenario);
        let misspelt = format!("[{name}]\nclinets = 5\n");
        let refused = toml::from_str::<Scenario>(&misspelt).unwrap_err();
        assert!(refused.to_string().contains("clinets"), "{refused}");
    }
    let read: Scenario = toml::from_str(
        "[outage]\nlayers = 3\ntimeout = \"250ms\"\nbudget = { ratio = 0.1 }\nservice = { constant = \"5ms\" }\n",
    )
    .unwrap();
    let Scenario::Outage(params) = read else { panic!("outage") };
    assert_eq!((params.layers, params.timeout.to_string()), (3, "250ms".to_owned()));
    assert_eq!(params.budget.map(|rule| rule.burst), Some(10));
    let unitless = toml::from_str::<Scenario>("[storm]\nhold = \"5\"").unwrap_err();
    assert!(unitless.to_string().contains("unit is missing"), "{unitless}");
}

/// Returns the failures of one run of this scenario, written as in a file.
fn failed(text: &str, strategy: &str) -> u64 {
    let scenario: Scenario = toml::from_str(text).unwrap();
    assert_eq!(scenario.check(), Ok(()), "{text}");
    scenario.run(&scenario.strategy(strategy).unwrap(), 1).failed
}

#[test]
fn served_clients_are_not_counted_as_failed() {
    for (text, strategy) in [
        ("[row]\nclients = 20", "full"),
        ("[storm]\nclients = 20", "lock"),
        ("[limit]\nclients = 50", "full"),
        ("[outage]\noutage_length = \"0s\"", "standard"),
        ("[duel]", "council"),
        ("[election]", "holdoff"),
    ] {
        assert_eq!(failed(text, strategy), 0, "{text}");
    }
}

#[test]
fn unserved_clients_are_counted_as_failed() {
    let late = "[storm]\nclients = 20\nrequest_cost = \"500ms\"\nstore_workers = 1\nacquire_timeout = \"5s\"";
    assert_eq!(failed(late, "full"), 19, "timed out");
    let exhausted = failed("[storm]\nclients = 20\nprobe = false\nhold = \"20s\"", "lock");
    assert!((1..20).contains(&exhausted), "attempts or acquire_timeout used up: {exhausted}");
    let unserved = "[limit]\nclients = 50\nrate_per_sec = 1\nburst = 1\nhorizon = \"9500ms\"";
    assert!((40..50).contains(&failed(unserved, "full")), "still trying");
    assert!((40..50).contains(&failed(unserved, "standard")), "gave up");
    let gave_up = failed("[row]\nclients = 200", "lock");
    assert!((1..200).contains(&gave_up), "gave up: {gave_up}");
    assert_eq!(failed("[outage]", "standard"), 1, "one failure: the run that did not end");
    assert_eq!(failed("[duel]", "linear-stale"), 19, "gave up");
    assert_eq!(failed("[duel]\nattempts = 100000\ndeadline = \"5s\"", "linear-stale"), 19, "timed out");
}
