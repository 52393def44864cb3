//! A leader that is partitioned with a minority.

use serde_json::Value;

use crate::ledger::cluster::Cluster;
use crate::ledger::deeds::{Deeds, history};
use crate::ledger::namespaces::Namespaces;
use crate::ledger::place::{Told, until};

#[test]
fn a_leader_with_too_few_commits_nothing_and_after_healing_there_is_one_history() {
    let place = match Namespaces::make(5) {
        Ok(place) => place,
        Err(why) => {
            holdoff_testbed::skip(&format!("network namespaces cannot be made here ({why})"));
            return;
        }
    };
    let cluster = Cluster::start(&place, 5);
    let deeds = Deeds::default();
    for _ in 0..3 {
        deeds.submit(&cluster.ways());
    }
    let first = cluster.leader();
    let few = [first, cluster.others(first)[0]];
    let many: Vec<_> = (0..5).filter(|number| !few.contains(number)).collect();
    let ways =
        |numbers: &[usize]| numbers.iter().map(|it| cluster.daemons[*it].way.clone()).collect::<Vec<_>>();
    place.part(&few);

    // Submits at once, while the partitioned node still considers itself the leader.
    let early: Vec<_> = (0..4).map(|_| deeds.wish()).collect();
    let asking: Vec<_> = (0..)
        .zip(&early)
        .map(|(at, wish)| cluster.daemons[few[at % 2]].way.asking(&wish.words()).spawn().unwrap())
        .collect();
    let second = cluster.leader_among(&many);
    for _ in 0..5 {
        deeds.submit(&ways(&many));
    }
    for (wish, asking) in early.iter().zip(asking) {
        let told = Told::of(&asking.wait_with_output().unwrap());
        assert!(matches!(told.code, 75 | 124), "two of five have committed something: {told:?}");
        deeds.note(wish, &told);
    }
    until("it has noticed that it does not lead any more", || {
        let status = cluster.daemons[first].way.status();
        if status["role"] == "leads" { Err(status.to_string()) } else { Ok(()) }
    });
    for number in few {
        let told = cluster.daemons[number].way.ask(&[
            "get",
            "--goal",
            "done(?n)",
            "--how",
            "lease",
            "--timeout",
            "1s",
        ]);
        assert_eq!(told.code, 75, "{told:?}");
    }
    let committed: Vec<Value> = history(&cluster.daemons[few[0]].way);
    for wish in &early {
        assert!(!committed.iter().any(|entry| entry["tx_id"] == *wish.tx_id), "{committed:#?}");
    }

    place.heal();
    assert_ne!(first, second);
    for wish in &early {
        deeds.insist(wish, &ways(&few));
    }
    cluster.until_equal();
    deeds.check(&cluster.ways());
}
