//! Checks that documents name only existing files.

use super::File;
use crate::run::root;

pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.has_extension("md")) {
        let folder = file.path.parent().map(|folder| root().join(folder)).unwrap_or_default();
        for target in links(&file.text).filter(|target| !is_outside(target)) {
            let path = target.split('#').next().unwrap_or(target);
            if !path.is_empty() && !folder.join(path).exists() {
                findings.push(format!("{} links to {target}, which is not there", file.path.display()));
            }
        }
        for path in quoted_paths(&file.text).filter(|path| !root().join(path).exists()) {
            findings.push(format!("{} names `{path}`, which is not there", file.path.display()));
        }
    }
    findings
}

fn is_outside(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// Returns the targets of `[…](target)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter(|target| !target.contains('\n'))
}

/// Returns the code spans that look like a path of this project.
fn quoted_paths(text: &str) -> impl Iterator<Item = &str> {
    const ROOTS: [&str; 5] = ["crates/", "docs/", "xtask/", "bench/", "testbed/"];
    let spans = text.split('`').skip(1).step_by(2);
    spans.filter(|span| {
        ROOTS.iter().any(|root| span.starts_with(root)) && !span.contains([' ', '*', '{', '\n'])
    })
}
