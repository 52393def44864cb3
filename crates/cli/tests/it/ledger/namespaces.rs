//! Each daemon in its own network namespace behind one of two bridges. A daemon behind the other bridge keeps running
//! and reaches no daemon on this side.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::ledger::place::{Place, Way};

/// Network namespaces and the bridges between them. Dropping the value removes them.
pub(crate) struct Namespaces {
    name: String,
    net: u32,
    count: usize,
}

impl Namespaces {
    /// Creates this number of namespaces, if the user has the permission.
    pub(crate) fn make(count: usize) -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (id, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // From here on, dropping `made` removes everything created so far.
        let made = Self { name: format!("hl{}{number}", id % 100_000), net: (id * 8 + number) % 250, count };
        let Self { name, net, .. } = &made;
        for side in ["", "x"] {
            ip(&format!("link add {name}{side} type bridge"))?;
            ip(&format!("link set {name}{side} up"))?;
        }
        for number in 0..count {
            let (space, host) = (made.space(number), number + 1);
            ip(&format!("netns add {space}"))?;
            ip(&format!("link add {space} type veth peer name eth0 netns {space}"))?;
            ip(&format!("link set {space} master {name} up"))?;
            ip(&format!("-n {space} link set lo up"))?;
            ip(&format!("-n {space} addr add 10.214.{net}.{host}/24 dev eth0"))?;
            ip(&format!("-n {space} link set eth0 up"))?;
        }
        Ok(made)
    }

    /// Partitions the network: these daemons on one side, all others on the other side.
    pub(crate) fn part(&self, numbers: &[usize]) {
        self.plug(numbers, "x");
    }

    /// Heals the partition.
    pub(crate) fn heal(&self) {
        self.plug(&(0..self.count).collect::<Vec<_>>(), "");
    }

    fn plug(&self, numbers: &[usize], side: &str) {
        for number in numbers {
            ip(&format!("link set {} master {}{side}", self.space(*number), self.name)).unwrap();
        }
    }

    fn space(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }
}

impl Place for Namespaces {
    fn way(&self, number: usize) -> Way {
        let before = ["ip", "netns", "exec", &self.space(number)].map(str::to_owned);
        Way { before: before.to_vec(), listen: "127.0.0.1:7070".to_owned() }
    }

    fn node(&self, number: usize) -> String {
        format!("10.214.{}.{}:4848", self.net, number + 1)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for number in 0..self.count {
            let _ = ip(&format!("link del {}", self.space(number)));
            let _ = ip(&format!("netns del {}", self.space(number)));
        }
        for side in ["", "x"] {
            let _ = ip(&format!("link del {}{side}", self.name));
        }
    }
}

fn ip(words: &str) -> Result<(), String> {
    let said = Command::new("ip").args(words.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    if said.status.success() {
        return Ok(());
    }
    Err(format!("ip {words}: {}", String::from_utf8_lossy(&said.stderr).trim()))
}
