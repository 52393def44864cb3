//! Finds or installs the programs that the tests need besides the Rust toolchain, and axe-core, which checks the
//! accessibility of the pages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use holdoff_testbed::{PgBouncer, libfaketime, postgres_binaries};

use crate::run::{TaskResult, root};

/// A program that the tests need.
struct Requirement {
    what: &'static str,
    /// The Debian package that contains it.
    package: &'static str,
    /// The tests that need it.
    why: &'static str,
    is_installed: fn() -> bool,
}

const REQUIREMENTS: [Requirement; 10] = [
    Requirement {
        what: "chromium",
        package: "chromium",
        why: IN_A_BROWSER,
        is_installed: || runs("chromium"),
    },
    Requirement {
        what: "chromedriver",
        package: "chromium-driver",
        why: IN_A_BROWSER,
        is_installed: || runs("chromedriver"),
    },
    Requirement { what: "npm", package: "npm", why: IN_A_BROWSER, is_installed: || runs("npm") },
    Requirement {
        what: "Postgres' server binaries",
        package: "postgresql",
        why: "for the tests on a real Postgres",
        is_installed: || postgres_binaries().is_some(),
    },
    Requirement {
        what: "pgbouncer",
        package: "pgbouncer",
        why: "for the tests through a pooler",
        is_installed: PgBouncer::is_installed,
    },
    Requirement {
        what: "libfaketime",
        package: "faketime",
        why: "for the tests with workers whose clocks are wrong",
        is_installed: || libfaketime().is_some(),
    },
    Requirement {
        what: "promtool",
        package: "prometheus",
        why: "for the tests of the alert rules",
        is_installed: || runs("promtool"),
    },
    Requirement { what: "node", package: "nodejs", why: FOR_EXAMPLES, is_installed: || runs("node") },
    Requirement { what: "python3", package: "python3", why: FOR_EXAMPLES, is_installed: || runs("python3") },
    Requirement { what: "curl", package: "curl", why: FOR_EXAMPLES, is_installed: || runs("curl") },
];

const FOR_EXAMPLES: &str = "for the examples in other languages";
const IN_A_BROWSER: &str = "for the tests in a browser";

/// The file in which Debian reads whether an installation of Postgres creates a cluster.
const CLUSTER_SETTINGS: &str = "/etc/postgresql-common/createcluster.conf";

/// Checks for all programs, and installs the missing ones.
pub(crate) fn install() -> TaskResult {
    let missing: Vec<&Requirement> = REQUIREMENTS.iter().filter(|need| !(need.is_installed)()).collect();
    if missing.is_empty() {
        eprintln!("▶ requirements: found {}", REQUIREMENTS.map(|need| need.what).join(", "));
        return Ok(());
    }
    for need in &missing {
        eprintln!("▶ requirements: installing {} with apt-get, {}", need.package, need.why);
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    apt(&["update", "-qq"], &packages)?;
    if packages.contains(&"postgresql") {
        disable_default_cluster();
    }
    apt(&[&["install", "-y", "-qq", "--no-install-recommends"], packages.as_slice()].concat(), &packages)?;
    match missing.iter().find(|need| !(need.is_installed)()) {
        Some(need) => {
            Err(format!("{} is still missing: install the package {} manually", need.what, need.package))
        }
        None => Ok(()),
    }
}

/// Prevents Debian from creating an unused cluster, which would take memory and a port. Such a cluster is
/// harmless otherwise, so a failure is ignored, and existing settings are kept.
fn disable_default_cluster() {
    let path = Path::new(CLUSTER_SETTINGS);
    if let (false, Some(folder)) = (path.exists(), path.parent()) {
        let _ = std::fs::create_dir_all(folder);
        let _ = std::fs::write(path, "create_main_cluster = false\n");
    }
}

fn runs(program: &str) -> bool {
    let quiet = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

fn apt(arguments: &[&str], packages: &[&str]) -> TaskResult {
    let shown = format!("apt-get {}", arguments.join(" "));
    // Without this option dpkg would ask about a configuration file that exists before the installation.
    let keep = ["-o", "Dpkg::Options::=--force-confold"];
    let status =
        Command::new("apt-get").args(keep).args(arguments).env("DEBIAN_FRONTEND", "noninteractive").status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("`{shown}` failed; it needs root")),
        Err(error) => Err(format!(
            "cannot run `{shown}`: {error}; install these packages manually: {}",
            packages.join(", ")
        )),
    }
}

/// The version of axe-core. It is installed once from npm into its own directory under `target/`, and is not part of the
/// product.
const AXE_VERSION: &str = "4.14.0";

/// The environment variable with the path of the script, for the tests.
pub(crate) const AXE_VARIABLE: &str = "AXE_CORE";

/// Runs `cargo xtask axe`.
pub(crate) fn axe() -> TaskResult {
    let path = install_axe()?;
    eprintln!("▶ axe-core {AXE_VERSION} is in {}", path.display());
    Ok(())
}

/// Returns the script of axe-core, and installs it if necessary.
pub(crate) fn install_axe() -> Result<PathBuf, String> {
    let folder = root().join("target/axe");
    let package = folder.join("node_modules/axe-core");
    let script = package.join("axe.min.js");
    let about = std::fs::read_to_string(package.join("package.json")).unwrap_or_default();
    if script.exists() && about.contains(&format!("\"version\": \"{AXE_VERSION}\"")) {
        return Ok(script);
    }
    eprintln!("▶ installing axe-core {AXE_VERSION} from npm into target/axe");
    let status = Command::new("npm")
        .args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
        .arg(&folder)
        .arg(format!("axe-core@{AXE_VERSION}"))
        .current_dir(root())
        .status();
    match status {
        Ok(status) if status.success() && script.exists() => Ok(script),
        Ok(_) => Err(format!(
            "npm failed to install axe-core@{AXE_VERSION} into target/axe; its messages are above"
        )),
        Err(error) => Err(format!("cannot run npm: {error}; install it")),
    }
}
