//! Finding and reading the policy file.

use std::path::{Path, PathBuf};

use holdoff_policy::{Policy, PolicySet};

use crate::failure::Failure;

/// The file that is read when none is named.
const DEFAULT_FILE: &str = "holdoff.toml";

/// The policy file to use: the one that was named, or the one in this folder.
pub(crate) fn file(named: Option<&Path>) -> Option<PathBuf> {
    let here = || Path::new(DEFAULT_FILE).exists().then(|| DEFAULT_FILE.into());
    named.map(Path::to_owned).or_else(here)
}

/// The policies of the file to use; the presets alone if there is none.
pub(crate) fn load(named: Option<&Path>) -> Result<PolicySet, Failure> {
    file(named).map_or_else(|| Ok(PolicySet::default()), |path| read(&path))
}

fn read(path: &Path) -> Result<PolicySet, Failure> {
    let shown = path.display().to_string();
    let text = text(path)?;
    PolicySet::from_toml(&text).map_err(|problems| {
        Failure::Failed(format!("the policy file cannot be used\n\n{}", problems.in_file(shown)))
    })
}

/// The file as text; nothing larger than a policy file may be is read.
pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    let cannot =
        |why: &dyn std::fmt::Display| Failure::Failed(format!("cannot read {}: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| cannot(&error))?.len();
    if size > PolicySet::MAX_FILE as u64 {
        return Err(cannot(&format!(
            "it has {size} bytes; a policy file has at most {}",
            PolicySet::MAX_FILE
        )));
    }
    std::fs::read_to_string(path).map_err(|error| cannot(&error))
}

/// The policy of this name, or what to say if there is none.
pub(crate) fn policy<'s>(set: &'s PolicySet, name: &str) -> Result<&'s Policy, Failure> {
    set.policy(name).map(AsRef::as_ref).ok_or_else(|| {
        let known: Vec<_> = set.policies().keys().map(String::as_str).collect();
        let nearest = holdoff_policy::nearest(name, known.iter().copied());
        let hint = nearest.map_or_else(
            || format!("there are {}", known.join(", ")),
            |near| format!("did you mean {near}?"),
        );
        Failure::Usage(format!("there is no policy {name}; {hint}"))
    })
}
