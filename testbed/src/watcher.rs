//! The process that cleans up after the tests, even if they are killed.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::account::Account;

/// Waits until the pipe is closed, then stops the server and removes its directory. Each command is repeated
/// once, for a server or an `initdb` that was still starting. A server without its directory would end by
/// itself, but late.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
cat >/dev/null
cd /
stop() { "$1" stop -D "$2/data" -m immediate -w; }
stop "$@" || { sleep 1; stop "$@"; }
rm -rf "$2" || { sleep 1; rm -rf "$2"; }
"#;

/// A process that holds the other end of a pipe: it stops the cluster when this process ends, even by
/// SIGKILL.
#[derive(Debug)]
pub(crate) struct Watcher(Child);

impl Watcher {
    pub(crate) fn over(directory: &Path, pg_ctl: &Path, account: Account) -> Self {
        let mut shell = account.command(Path::new("/bin/sh"), directory);
        shell.args(["-c", SCRIPT, "watcher"]).args([pg_ctl, directory]);
        // The watcher has its own process group, so that a signal to this process group does not end it.
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Self(shell.spawn().expect("a shell to watch over the cluster"))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // When the watcher has ended, the cluster has ended too.
        let _ = self.0.wait();
    }
}
