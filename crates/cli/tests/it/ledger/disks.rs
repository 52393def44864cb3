//! Lost disks and full disks.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ledger::cluster::Cluster;
use crate::ledger::environment::{Loopback, until};
use crate::ledger::transactions::Transactions;

#[test]
fn a_node_with_a_lost_disk_rejoins_with_a_new_id() {
    let mut cluster = Cluster::start(&Loopback::new(3), 3);
    let transactions = Transactions::default();
    for _ in 0..5 {
        transactions.submit(&cluster.accesses());
    }
    let lost = cluster.leader();
    let member = cluster.daemons[cluster.others(lost)[0]].contact();
    let node = cluster.daemons[lost].access.status()["node"].clone();
    cluster.daemons[lost].kill();
    cluster.daemons[lost].join_again(&member);
    cluster.until_all_vote();
    assert_ne!(
        cluster.daemons[lost].access.status()["node"],
        node,
        "a daemon whose disk was lost joins as a new node"
    );
    transactions.submit(&[cluster.daemons[lost].access.clone()]);
    cluster.until_equal();
    transactions.check(&cluster.accesses());
}

#[test]
fn a_follower_with_a_full_disk_stops() {
    leave_without_room(2);
}

/// The founder of a ledger is its first leader.
#[test]
fn a_leader_with_a_full_disk_is_replaced() {
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
    let (transactions, accesses) = (Transactions::default(), cluster.accesses());
    let others: Vec<_> = cluster.others(full).into_iter().map(|it| accesses[it].clone()).collect();
    transactions.submit(&accesses);
    let filler = cluster.daemons[full].fill_disk();
    let large = tempfile::NamedTempFile::new().unwrap();
    until("the daemon with the full disk has stopped", || {
        let text = "x".repeat(15_000);
        fs::write(&large, format!("=> +text(\"{text}{}\")", fastrand::u64(..))).unwrap();
        let output = others[0].try_run(&["submit", &format!("@{}", large.path().display())]);
        assert_eq!(output.code, 0, "the other daemons commit transactions: {output:?}");
        let output = accesses[full].try_run(&["status"]);
        if output.code == 0 { Err(output.out) } else { Ok(()) }
    });
    let transaction = transactions.new_transaction();
    let output = accesses[full].try_run(&transaction.words());
    assert_eq!((output.code, &output.json["tx_id"]), (124, &(*transaction.tx_id).into()), "{output:?}");
    let log = cluster.daemons[full].log();
    assert!(log.contains("the ledger's disk has failed"), "{log}");
    for _ in 0..3 {
        transactions.submit(&others);
    }
    transactions.submit_until_known(&transaction, &others);

    fs::remove_file(filler).unwrap();
    cluster.daemons[full].kill();
    cluster.daemons[full].start();
    transactions.submit(&accesses[full..=full]);
    cluster.until_equal();
    transactions.check(&accesses);
}

/// A disk of a few mebibytes. Dropping the value unmounts it.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(path: &Path) -> Result<Self, String> {
        let output = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(path).output();
        let output = output.map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(Self(path.to_owned()));
        }
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The hierarchies of control groups that limit writes, the file with the limit, and the text that sets and removes one.
/// Such a limit delays every `fsync` of a process by the writes that it waits for.
const HIERARCHIES: [(&str, &str, &str, &str); 2] = [
    ("/sys/fs/cgroup/blkio", "blkio.throttle.write_iops_device", "", "0"),
    ("/sys/fs/cgroup", "io.max", "wiops=", "max"),
];

/// A control group whose processes write slowly. Dropping the value removes it.
pub(crate) struct SlowDisk {
    group: PathBuf,
    /// The file with the limit, the device, and the texts of `HIERARCHIES`.
    limit: PathBuf,
    device: String,
    prefix: &'static str,
    none: &'static str,
}

impl SlowDisk {
    /// Creates a group for the device of a directory, if the system limits writes to it.
    pub(crate) fn create(directory: &Path) -> Result<Self, String> {
        let number = fs::metadata(directory).map_err(|error| error.to_string())?.dev();
        let [major, minor] = [(number >> 8) & 0xfff, (number & 0xff) | ((number >> 12) & 0xfff00)];
        let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))
            .map_err(|error| format!("{} is not on a device: {error}", directory.display()))?;
        // Limits apply to whole devices, not to partitions.
        let device =
            if device.join("partition").exists() { device.join("../dev") } else { device.join("dev") };
        let device = fs::read_to_string(device).map_err(|error| error.to_string())?.trim().to_owned();
        let mut problems = Vec::new();
        for (hierarchy, file, prefix, none) in HIERARCHIES {
            let group = Path::new(hierarchy).join(format!("holdoff-{}", std::process::id()));
            let _ = fs::create_dir(&group);
            let disk = Self { limit: group.join(file), group, device: device.clone(), prefix, none };
            match disk.set(none) {
                Ok(()) => return Ok(disk),
                Err(error) => problems.push(format!("{}: {error}", disk.limit.display())),
            }
        }
        Err(problems.join(", "))
    }

    /// Limits a process to this many writes a second.
    pub(crate) fn slow_down(&self, process: u32, writes_per_s: u32) {
        self.set(&writes_per_s.to_string()).unwrap();
        fs::write(self.group.join("cgroup.procs"), process.to_string()).unwrap();
    }

    /// Ends the limit, and moves the process back.
    pub(crate) fn end(&self, process: u32) {
        self.set(self.none).unwrap();
        fs::write(self.group.join("../cgroup.procs"), process.to_string()).unwrap();
    }

    fn set(&self, limit: &str) -> std::io::Result<()> {
        // The file exists if the hierarchy has the controller. The system reads each write as a whole limit.
        let mut file = fs::OpenOptions::new().write(true).open(&self.limit)?;
        file.write_all(format!("{} {}{limit}", self.device, self.prefix).as_bytes())
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
    }
}
