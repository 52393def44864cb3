//! Finds or installs the programs that the tests need besides the Rust toolchain.

use std::path::Path;
use std::process::{Command, Stdio};

use holdoff_testbed::{libfaketime, postgres_binaries};

use crate::run::Done;

/// A program that the tests need.
struct Need {
    what: &'static str,
    /// The Debian package that contains it.
    package: &'static str,
    /// The tests that need it.
    why: &'static str,
    is_there: fn() -> bool,
}

const NEEDS: [Need; 9] = [
    Need { what: "chromium", package: "chromium", why: IN_A_BROWSER, is_there: || answers("chromium") },
    Need {
        what: "chromedriver",
        package: "chromium-driver",
        why: IN_A_BROWSER,
        is_there: || answers("chromedriver"),
    },
    Need { what: "npm", package: "npm", why: IN_A_BROWSER, is_there: || answers("npm") },
    Need {
        what: "Postgres' server binaries",
        package: "postgresql",
        why: "for the tests on a real Postgres",
        is_there: || postgres_binaries().is_some(),
    },
    Need {
        what: "libfaketime",
        package: "faketime",
        why: "for the tests with workers whose clocks are wrong",
        is_there: || libfaketime().is_some(),
    },
    Need {
        what: "promtool",
        package: "prometheus",
        why: "for the tests of the alert rules",
        is_there: || answers("promtool"),
    },
    Need { what: "node", package: "nodejs", why: FOR_EXAMPLES, is_there: || answers("node") },
    Need { what: "python3", package: "python3", why: FOR_EXAMPLES, is_there: || answers("python3") },
    Need { what: "curl", package: "curl", why: FOR_EXAMPLES, is_there: || answers("curl") },
];

const FOR_EXAMPLES: &str = "for the examples in other languages";
const IN_A_BROWSER: &str = "for the tests in a browser";

/// The file in which Debian reads whether an installation of Postgres creates a cluster.
const CLUSTER_SETTINGS: &str = "/etc/postgresql-common/createcluster.conf";

/// Checks for all programs, and installs the missing ones.
pub(crate) fn meet() -> Done {
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !(need.is_there)()).collect();
    if missing.is_empty() {
        eprintln!("▶ needs: {} are there", NEEDS.map(|need| need.what).join(", "));
        return Ok(());
    }
    for need in &missing {
        eprintln!("▶ needs: installing {} by apt-get, {}", need.package, need.why);
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    apt(&["update", "-qq"], &packages)?;
    if packages.contains(&"postgresql") {
        keep_debian_from_making_a_cluster();
    }
    apt(&[&["install", "-y", "-qq", "--no-install-recommends"], packages.as_slice()].concat(), &packages)?;
    match missing.iter().find(|need| !(need.is_there)()) {
        Some(need) => {
            Err(format!("{} still missing: install the package {} by hand", need.what, need.package))
        }
        None => Ok(()),
    }
}

/// Prevents Debian from creating an unused cluster, which would take memory and a port. Such a cluster is
/// harmless otherwise, so a failure is ignored, and existing settings are kept.
fn keep_debian_from_making_a_cluster() {
    let path = Path::new(CLUSTER_SETTINGS);
    if let (false, Some(folder)) = (path.exists(), path.parent()) {
        let _ = std::fs::create_dir_all(folder);
        let _ = std::fs::write(path, "create_main_cluster = false\n");
    }
}

fn answers(program: &str) -> bool {
    let quiet = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

fn apt(arguments: &[&str], packages: &[&str]) -> Done {
    let shown = format!("apt-get {}", arguments.join(" "));
    // Without this option dpkg would ask about a configuration file that exists before the installation.
    let keep = ["-o", "Dpkg::Options::=--force-confold"];
    let status =
        Command::new("apt-get").args(keep).args(arguments).env("DEBIAN_FRONTEND", "noninteractive").status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("`{shown}` failed; it needs root")),
        Err(error) => Err(format!(
            "cannot run `{shown}`: {error}; install by hand what these have: {}",
            packages.join(", ")
        )),
    }
}
