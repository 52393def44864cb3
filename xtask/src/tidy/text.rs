//! Checks of single files: their length, the paths that documents name, and the banned pronouns.

use std::collections::BTreeSet;
use std::path::Path;

use super::File;
use crate::run::root;

const MAX_LINES: usize = 800;
const MAX_README_LINES: usize = 150;

/// Pronouns that hide the actor of a sentence: name the component instead. They are assembled, so that this file does not
/// contain them.
const BANNED: [&str; 5] = [
    concat!("who", "ever"),
    concat!("some", "body"),
    concat!("no", "body"),
    concat!("every", "body"),
    concat!("any", "body"),
];

/// The extensions of the files that must not contain a banned pronoun.
const PROSE: [&str; 3] = ["rs", "md", "html"];

/// Lines that may contain a banned pronoun: the file, a part of the line, and the reason. At most [`MAX_ALLOWED`].
const ALLOWED: &[(&str, &str, &str)] =
    &[("testbed/src/account.rs", "const STAND_INS", "the name of a Unix account")];

const MAX_ALLOWED: usize = 20;

pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut findings = lengths(files);
    findings.extend(missing_paths(files));
    findings.extend(pronouns(files, ALLOWED));
    findings
}

/// Checks the length of files.
fn lengths(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files {
        let lines = file.text.lines().count();
        let limit = match file.path.to_str() {
            Some("README.md" | "ARCHITECTURE.md") => MAX_README_LINES,
            _ if file.has_extension("rs") => MAX_LINES,
            _ => continue,
        };
        if lines > limit {
            findings.push(format!("{} has {lines} lines: at most {limit} are allowed", file.path.display()));
        }
    }
    findings
}

/// Checks that no line contains a banned pronoun, except for the allowed lines, and that every exception is needed.
fn pronouns(files: &[File], allowed: &[(&str, &str, &str)]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut used = BTreeSet::new();
    for file in files.iter().filter(|file| PROSE.iter().any(|extension| file.has_extension(extension))) {
        for (number, line) in (1..).zip(file.text.lines()) {
            let Some(word) = banned_word(line) else { continue };
            let matches =
                |(path, part, _): &(&str, &str, &str)| file.path == Path::new(path) && line.contains(part);
            if let Some(entry) = allowed.iter().position(matches) {
                used.insert(entry);
                continue;
            }
            let path = file.path.display();
            findings.push(format!("{path}:{number} contains \"{word}\": name the component instead"));
        }
    }
    for (_, (path, part, _)) in allowed.iter().enumerate().filter(|(entry, _)| !used.contains(entry)) {
        findings
            .push(format!("xtask/src/tidy/text.rs allows a pronoun in {path} ({part}) that is not there"));
    }
    if allowed.len() > MAX_ALLOWED {
        let count = allowed.len();
        findings.push(format!(
            "xtask/src/tidy/text.rs has {count} exceptions: at most {MAX_ALLOWED} are allowed"
        ));
    }
    findings
}

/// Returns the first banned pronoun that is a whole word of the line, in any case. An underscore separates words, so that
/// the names of tests are checked too.
fn banned_word(line: &str) -> Option<&str> {
    let words = line.split(|character: char| !character.is_alphanumeric());
    let mut words = words.filter(|word| BANNED.iter().any(|banned| word.eq_ignore_ascii_case(banned)));
    words.next()
}

/// Checks that documents name only existing files.
fn missing_paths(files: &[File]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.has_extension("md")) {
        let folder = file.path.parent().map(|folder| root().join(folder)).unwrap_or_default();
        for target in links(&file.text).filter(|target| !is_external(target)) {
            let path = target.split('#').next().unwrap_or(target);
            if !path.is_empty() && !folder.join(path).exists() {
                findings.push(format!("{} links to {target}, which does not exist", file.path.display()));
            }
        }
        for path in quoted_paths(&file.text).filter(|path| !root().join(path).exists()) {
            findings.push(format!("{} names `{path}`, which does not exist", file.path.display()));
        }
    }
    findings
}

/// Returns whether the target is no file: an address, or an item of the code, which rustdoc checks.
fn is_external(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:") || target.contains("::")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.to_owned() }
    }

    #[test]
    fn a_planted_pronoun_fails_in_code_documents_and_templates() {
        for word in BANNED {
            let capital = format!("{}{}", word[..1].to_uppercase(), &word[1..]);
            for text in
                [format!("/// {word} waits."), format!("{capital}'s turn"), format!("fn {word}_waits()")]
            {
                for path in ["crates/a/src/lib.rs", "docs/a.md", "crates/a/templates/a.html"] {
                    let findings = pronouns(&[file(path, &format!("first line\n{text}\n"))], &[]);
                    let [finding] = &findings[..] else { panic!("{text}: {findings:?}") };
                    assert!(finding.starts_with(&format!("{path}:2 contains")), "{finding}");
                }
            }
            let elsewhere = [file("a.txt", word), file("a.rs", &format!("{word}s, un{word}"))];
            assert_eq!(pronouns(&elsewhere, &[]), Vec::<String>::new());
        }
    }

    #[test]
    fn an_allowed_line_passes_and_an_unused_exception_fails() {
        let files = [file("a.md", &format!("the account {}", BANNED[2]))];
        assert_eq!(pronouns(&files, &[("a.md", "the account", "a name")]), Vec::<String>::new());
        for unused in [("a.md", "another line", ""), ("b.md", "the account", "")] {
            let findings = pronouns(&files, &[("a.md", "the account", ""), unused]);
            assert_eq!(findings.len(), 1, "{findings:?}");
        }
        let many = vec![("a.md", "the account", ""); MAX_ALLOWED + 1];
        assert!(pronouns(&files, &many).iter().any(|finding| finding.contains("at most 20")));
    }

    #[test]
    fn a_file_above_its_limit_fails() {
        let lines = |count| "line\n".repeat(count);
        let files = [
            file("a.rs", &lines(MAX_LINES)),
            file("b.rs", &lines(MAX_LINES + 1)),
            file("README.md", &lines(MAX_README_LINES + 1)),
            file("other.md", &lines(MAX_LINES + 1)),
        ];
        let findings = lengths(&files);
        assert!(
            findings.len() == 2 && findings[0].starts_with("b.rs") && findings[1].starts_with("README.md")
        );
    }
}
