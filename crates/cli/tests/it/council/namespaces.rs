//! Each acceptor in its own network namespace behind a bridge. An isolated acceptor keeps running and reaches no
//! peer.

use std::process::Command;

use crate::council::acceptors::Place;
use crate::process::Process;

/// Three network namespaces and their bridge. Dropping the value removes them.
pub(crate) struct Namespaces {
    name: String,
    net: u32,
}

const ACCEPTORS: usize = 3;

impl Namespaces {
    /// Creates the namespaces, if the user has the permission.
    pub(crate) fn make() -> Result<Self, String> {
        let id = std::process::id();
        // From here on, dropping `made` removes everything created so far.
        let made = Self { name: format!("ho{}", id % 100_000), net: id % 250 };
        let Self { name, net } = &made;
        ip(&format!("link add {name} type bridge"))?;
        ip(&format!("addr add 10.213.{net}.254/24 dev {name}"))?;
        ip(&format!("link set {name} up"))?;
        for number in 0..ACCEPTORS {
            let (space, host) = (made.space(number), number + 1);
            ip(&format!("netns add {space}"))?;
            ip(&format!("link add {space} type veth peer name eth0 netns {space}"))?;
            ip(&format!("link set {space} master {name} up"))?;
            ip(&format!("-n {space} link set lo up"))?;
            ip(&format!("-n {space} addr add 10.213.{net}.{host}/24 dev eth0"))?;
            ip(&format!("-n {space} link set eth0 up"))?;
        }
        Ok(made)
    }

    fn space(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }
}

impl Place for Namespaces {
    fn command(&self, number: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.space(number), program]);
        command
    }

    fn listen(&self, number: usize) -> String {
        format!("10.213.{}.{}:4747", self.net, number + 1)
    }

    fn cut_off(&mut self, number: usize, _: &Process) {
        ip(&format!("link set {} down", self.space(number))).unwrap();
    }

    fn heal(&mut self, number: usize, _: &Process) {
        ip(&format!("link set {} up", self.space(number))).unwrap();
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for number in 0..ACCEPTORS {
            let _ = ip(&format!("link del {}", self.space(number)));
            let _ = ip(&format!("netns del {}", self.space(number)));
        }
        let _ = ip(&format!("link del {}", self.name));
    }
}

fn ip(words: &str) -> Result<(), String> {
    let said = Command::new("ip").args(words.split(' ')).output().map_err(|error| format!("ip: {error}"))?;
    if said.status.success() {
        return Ok(());
    }
    Err(format!("ip {words}: {}", String::from_utf8_lossy(&said.stderr).trim()))
}
