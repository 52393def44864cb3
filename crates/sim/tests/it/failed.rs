//! Every scenario reports the number of unserved clients.

use holdoff_sim::scenario::Scenario;

/// Returns the failures of one run of this scenario, written as in a file.
fn failed(text: &str, strategy: &str) -> u64 {
    let scenario: Scenario = toml::from_str(text).unwrap();
    assert_eq!(scenario.check(), Ok(()), "{text}");
    scenario.run(&scenario.strategy(strategy).unwrap(), 1).failed
}

#[test]
fn who_gets_something_is_not_counted() {
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
fn who_gets_nothing_is_counted() {
    let late = "[storm]\nclients = 20\nrequest_cost = \"500ms\"\nstore_workers = 1\npatience = \"5s\"";
    assert_eq!(failed(late, "full"), 19, "timed out");
    let exhausted = failed("[storm]\nclients = 20\nprobe = false\nhold = \"20s\"", "lock");
    assert!((1..20).contains(&exhausted), "tries or patience used up: {exhausted}");
    let unserved = "[limit]\nclients = 50\nrate_per_sec = 1\nburst = 1\nhorizon = \"9500ms\"";
    assert!((40..50).contains(&failed(unserved, "full")), "still trying");
    assert!((40..50).contains(&failed(unserved, "standard")), "gave up");
    let gave_up = failed("[row]\nclients = 200", "lock");
    assert!((1..200).contains(&gave_up), "gave up: {gave_up}");
    assert_eq!(failed("[outage]", "standard"), 1, "it did not end");
    assert_eq!(failed("[duel]", "linear-stale"), 19, "gave up");
    assert_eq!(failed("[duel]\nattempts = 100000\ndeadline = \"5s\"", "linear-stale"), 19, "timed out");
}
