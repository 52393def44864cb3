//! Members that join, learn, vote and leave.

use crate::ledger::cluster::{Cluster, role};
use crate::ledger::deeds::Deeds;
use crate::ledger::place::{Loopback, Way, until};

#[test]
fn a_member_learns_votes_and_goes_as_it_is_told() {
    let cluster = Cluster::start(&Loopback::new(3), 3);
    let deeds = Deeds::default();
    let (way, ways) = (cluster.daemons[0].way.clone(), cluster.ways());
    let last = &cluster.daemons[2];
    way.must(&["members", "add", &last.contact(), "--name", "reader", "--learns"]);
    until_votes(&way, 2);
    deeds.submit(&ways[2..]);
    let told = way.must(&["members"]);
    let reader = told.as_array().unwrap().iter().find(|it| it["key"] == *last.key).unwrap().clone();
    assert_eq!((&reader["name"], &reader["shall_vote"]), (&"reader".into(), &false.into()));
    cluster.until_equal();
    assert_eq!(last.way.status()["role"], "learns");
    for how in ["quorum", "lease"] {
        last.way.must(&["get", "--goal", "done(?n)", "--how", how]);
    }

    way.must(&["members", "add", &last.contact(), "--name", "reader"]);
    until_votes(&way, 3);
    deeds.submit(&ways);
    cluster.until_equal();
    deeds.check(&ways);

    assert_eq!(way.ask(&["members", "remove", "nobody"]).code, 1);
    way.must(&["members", "remove", "reader"]);
    until_votes(&way, 2);
    deeds.submit(&ways[..2]);
    assert_eq!(way.must(&["members"]).as_array().unwrap().len(), 2);
}

#[test]
fn another_leads_when_it_is_told_to() {
    let cluster = Cluster::start(&Loopback::new(3), 3);
    let (deeds, ways) = (Deeds::default(), cluster.ways());
    deeds.submit(&ways);
    for asked in 0..3 {
        let to = &cluster.daemons[(cluster.leader() + 1) % 3];
        let told = ways[asked].must(&["step-down", "--to", &to.name]);
        assert_eq!(told["leader"], *to.key);
        until("it leads", || role(&to.way, "leads"));
        deeds.submit(&ways);
    }
    let leader = cluster.leader();
    let told = ways[0].must(&["step-down"]);
    assert_ne!(told["leader"], *cluster.daemons[leader].key);
    deeds.submit(&ways);
    assert_eq!(ways[0].ask(&["step-down", "--to", "nobody"]).code, 1);
    cluster.until_equal();
    deeds.check(&ways);
}

fn until_votes(way: &Way, count: usize) {
    until("so many vote", || {
        let status = way.status();
        let votes = status["members"].as_array().map(Vec::as_slice).unwrap_or_default();
        let votes = votes.iter().filter(|member| member["votes"] == true).count();
        if votes == count { Ok(()) } else { Err(status.to_string()) }
    });
}
