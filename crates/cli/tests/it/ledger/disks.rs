//! Lost disks and full disks.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ledger::cluster::Cluster;
use crate::ledger::deeds::Deeds;
use crate::ledger::place::{Loopback, until};

#[test]
fn a_node_whose_disk_is_lost_comes_back_as_somebody_else_and_votes_again() {
    let mut cluster = Cluster::start(&Loopback::new(3), 3);
    let deeds = Deeds::default();
    for _ in 0..5 {
        deeds.submit(&cluster.ways());
    }
    let lost = cluster.leader();
    let member = cluster.daemons[cluster.others(lost)[0]].contact();
    let node = cluster.daemons[lost].way.status()["node"].clone();
    cluster.daemons[lost].kill();
    std::fs::remove_file(cluster.daemons[lost].ledger().join("default.redb")).unwrap();
    let made = cluster.daemons[lost].make(Some(&member));
    assert_eq!((made.code, made.json["key"].as_str()), (0, Some(&*cluster.daemons[lost].key)), "{made:?}");
    cluster.daemons[lost].start();
    cluster.until_all_vote();
    assert_ne!(
        cluster.daemons[lost].way.status()["node"],
        node,
        "what it has promised is lost with its disk"
    );
    deeds.submit(&[cluster.daemons[lost].way.clone()]);
    cluster.until_equal();
    deeds.check(&cluster.ways());
}

#[test]
fn a_follower_without_room_on_its_disk_stops_and_the_others_go_on() {
    leave_without_room(2);
}

/// The founder of a ledger is its first leader.
#[test]
fn a_leader_without_room_on_its_disk_stops_and_another_leads() {
    leave_without_room(0);
}

fn leave_without_room(full: usize) {
    let mut disk = Err(String::new());
    let mut cluster = Cluster::start_with(&Loopback::new(3), 3, |number, daemon| {
        if number == full {
            disk = SmallDisk::mount(&daemon.ledger());
        }
    });
    let _disk = match disk {
        Ok(disk) => disk,
        Err(why) => {
            holdoff_testbed::skip(&format!("a small disk cannot be mounted here ({})", why.trim()));
            return;
        }
    };
    let (deeds, ways) = (Deeds::default(), cluster.ways());
    let others: Vec<_> = cluster.others(full).into_iter().map(|it| ways[it].clone()).collect();
    deeds.submit(&ways);
    let filler = cluster.daemons[full].fill_disk();
    let large = tempfile::NamedTempFile::new().unwrap();
    until("it has stopped", || {
        let text = "x".repeat(15_000);
        std::fs::write(&large, format!("=> +text(\"{text}{}\")", fastrand::u64(..))).unwrap();
        let told = others[0].ask(&["submit", &format!("@{}", large.path().display())]);
        assert_eq!(told.code, 0, "the others go on: {told:?}");
        let told = ways[full].ask(&["status"]);
        if told.code == 0 { Err(told.out) } else { Ok(()) }
    });
    let wish = deeds.wish();
    let told = ways[full].ask(&wish.words());
    assert_eq!((told.code, &told.json["tx_id"]), (124, &(*wish.tx_id).into()), "{told:?}");
    let log = cluster.daemons[full].log();
    assert!(log.contains("the ledger's disk has failed"), "{log}");
    for _ in 0..3 {
        deeds.submit(&others);
    }
    deeds.insist(&wish, &others);

    std::fs::remove_file(filler).unwrap();
    cluster.daemons[full].kill();
    cluster.daemons[full].start();
    deeds.submit(&ways[full..=full]);
    cluster.until_equal();
    deeds.check(&ways);
}

/// A disk of a few mebibytes. Dropping the value unmounts it.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: &Path) -> Result<Self, String> {
        let said = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(path).output();
        let said = said.map_err(|error| error.to_string())?;
        if said.status.success() {
            return Ok(Self(path.to_owned()));
        }
        Err(String::from_utf8_lossy(&said.stderr).into_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
