//! Members that come, learn, vote and go.

use crate::cluster::Cluster;
use crate::deeds::Deeds;
use crate::place::{Loopback, Way, until};

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

fn until_votes(way: &Way, count: usize) {
    until("so many vote", || {
        let status = way.status();
        let votes = status["members"].as_array().map(Vec::as_slice).unwrap_or_default();
        let votes = votes.iter().filter(|member| member["votes"] == true).count();
        if votes == count { Ok(()) } else { Err(status.to_string()) }
    });
}
