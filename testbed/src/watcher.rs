//! Whoever cleans up after us, however we end.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::account::Account;

/// Waits until the pipe is closed, then stops the server and removes its directory. A server or `initdb` that
/// we left half-way gets a second visit; a server without its directory would end by itself, but late.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
cat >/dev/null
cd /
stop() { "$1" stop -D "$2/data" -m immediate -w; }
stop "$@" || { sleep 1; stop "$@"; }
rm -rf "$2" || { sleep 1; rm -rf "$2"; }
"#;

/// A process that holds the other end of a pipe: it ends the cluster when we are gone, be it by SIGKILL.
#[derive(Debug)]
pub(crate) struct Watcher(Child);

impl Watcher {
    pub(crate) fn over(directory: &Path, pg_ctl: &Path, account: Account) -> Self {
        let mut shell = account.command(Path::new("/bin/sh"), directory);
        shell.args(["-c", SCRIPT, "watcher"]).args([pg_ctl, directory]);
        // A group of its own, so that what ends our group spares the watcher.
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Self(shell.spawn().expect("a shell to watch over the cluster"))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Once it is gone, so is the cluster.
        let _ = self.0.wait();
    }
}
