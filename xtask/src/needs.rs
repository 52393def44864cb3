//! What the tests need beside the Rust toolchain: found, or installed.

use std::process::{Command, Stdio};

use crate::run::Done;

/// A program and the Debian package that has it.
const PROGRAMS: [(&str, &str); 2] = [("chromium", "chromium"), ("chromedriver", "chromium-driver")];

/// Makes sure that every program is there; says what it installs.
pub(crate) fn meet() -> Done {
    let missing: Vec<&str> =
        PROGRAMS.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        eprintln!("▶ needs: {} are there", PROGRAMS.map(|(program, _)| program).join(", "));
        return Ok(());
    }
    eprintln!("▶ needs: installing {} by apt-get, for the tests in a browser", missing.join(", "));
    apt(&["update", "-qq"])?;
    apt(&[&["install", "-y", "-qq", "--no-install-recommends"], missing.as_slice()].concat())?;
    match PROGRAMS.iter().find(|(program, _)| !is_there(program)) {
        Some((program, package)) => {
            Err(format!("{program} is still missing: install the package {package} by hand"))
        }
        None => Ok(()),
    }
}

fn is_there(program: &str) -> bool {
    let quiet = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

fn apt(arguments: &[&str]) -> Done {
    let shown = format!("apt-get {}", arguments.join(" "));
    let status = Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive").status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("`{shown}` failed; it needs root")),
        Err(error) => {
            Err(format!("cannot run `{shown}`: {error}; install chromium and chromedriver by hand"))
        }
    }
}
