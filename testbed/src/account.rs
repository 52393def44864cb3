//! The account of the server: Postgres refuses to run as root.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The accounts that replace root, in order of preference.
const STAND_INS: [&str; 2] = ["postgres", "nobody"];

/// The account of the server's programs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Account {
    /// The account that runs the tests.
    Own,
    /// Another account, because root runs the tests.
    StandIn { user: u32, group: u32 },
}

impl Account {
    /// Creates a directory, and returns it with the account that owns it and can reach it.
    pub(crate) fn with_directory() -> (Self, PathBuf) {
        let places = [std::env::temp_dir(), PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
        for directory in places.iter().filter_map(|place| new_directory(place)) {
            let owner = std::fs::metadata(&directory).map(|found| found.uid());
            let account = if owner.is_ok_and(|owner| owner == 0) { Self::stand_in() } else { Self::Own };
            if account.takes(&directory) {
                return (account, directory);
            }
            // If the removal fails, an empty directory remains, which is harmless.
            let _ = std::fs::remove_dir(&directory);
        }
        panic!("found no place for a cluster's directory among {places:?}");
    }

    /// Returns a command that runs under this account, in this directory, with an empty input.
    pub(crate) fn command(self, program: &Path, directory: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(directory).stdin(Stdio::null()).env("LC_ALL", "C");
        if let Self::StandIn { user, group } = self {
            command.uid(user).gid(group);
        }
        command
    }

    fn stand_in() -> Self {
        let accounts = std::fs::read_to_string("/etc/passwd").expect("/etc/passwd");
        let found = STAND_INS.iter().find_map(|name| find(&accounts, name));
        let (user, group) = found.unwrap_or_else(|| {
            panic!(
                "Postgres refuses to run as root, and there is no account called {}",
                STAND_INS.join(" or ")
            )
        });
        Self::StandIn { user, group }
    }

    /// Gives a directory to the account; returns `false` if the account still cannot use it.
    fn takes(self, directory: &Path) -> bool {
        let Self::StandIn { user, group } = self else { return true };
        let probe =
            || self.command(Path::new("/bin/sh"), directory).args(["-c", ": > probe && rm probe"]).status();
        chown(directory, Some(user), Some(group)).is_ok() && probe().is_ok_and(|status| status.success())
    }
}

/// Returns the user and group of an account in the lines of `/etc/passwd`.
fn find(accounts: &str, name: &str) -> Option<(u32, u32)> {
    let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut fields = line.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

fn new_directory(place: &Path) -> Option<PathBuf> {
    let names = (0..1000).map(|n| place.join(format!("holdoff-postgres-{}-{n}", std::process::id())));
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(0o700);
    names.into_iter().find(|directory| builder.create(directory).is_ok())
}
