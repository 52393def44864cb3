//! The problems of a policy file and their positions.

use std::fmt;
use std::ops::Range;

/// The longest excerpt of a line, in characters.
const LONGEST_EXCERPT: usize = 200;

/// One problem of a policy file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The line number, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The description of the problem.
    pub message: String,
    /// The expected value.
    pub expected: Option<String>,
    /// The nearest valid word.
    pub suggestion: Option<String>,
    /// The text of the line.
    pub excerpt: String,
    /// The number of characters to underline.
    pub length: usize,
}

impl Problem {
    /// Creates a problem at this span of a text.
    pub fn at(text: &str, span: &Range<usize>, message: String) -> Self {
        let start = floor_char_boundary(text, span.start);
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = text.get(line_start..).unwrap_or_default().lines().next().unwrap_or_default();
        let excerpt: String = line.chars().take(LONGEST_EXCERPT).collect();
        let column = text.get(line_start..start).unwrap_or_default().chars().count();
        let meant = text.get(start..floor_char_boundary(text, span.end).max(start)).unwrap_or_default();
        let length = meant.lines().next().unwrap_or_default().chars().count().clamp(1, LONGEST_EXCERPT);
        Self {
            line: before.matches('\n').count() + 1,
            column: column + 1,
            message,
            expected: None,
            suggestion: None,
            excerpt,
            length,
        }
    }

    /// Adds the expected value: it completes "expected …".
    pub fn expected(&mut self, what: impl Into<String>) -> &mut Self {
        self.expected = Some(what.into());
        self
    }

    /// Suggests the known word that is nearest to the written word, if there is a near word.
    pub fn nearest<'w>(&mut self, written: &str, known: impl IntoIterator<Item = &'w str>) -> &mut Self {
        self.suggestion = nearest(written, known).map(str::to_owned);
        self
    }

    /// Cuts the excerpt at the start of the first hidden span, and masks the text of the span in the message.
    pub(super) fn conceal(&mut self, text: &str, concealed: &[Range<usize>]) {
        let start = match self.line {
            1 => 0,
            line => text.match_indices('\n').nth(line - 2).map_or(text.len(), |(at, _)| at + 1),
        };
        let end = start + self.excerpt.len();
        let shown: Vec<_> = concealed.iter().filter(|span| span.start < end && start < span.end).collect();
        for hidden in shown.iter().filter_map(|span| text.get(span.start..span.end)) {
            // The value in quotes, without a comment behind it.
            for part in hidden.split(['"', '\'']).map(str::trim).filter(|part| part.contains([':', '='])) {
                self.message = self.message.replace(part, "…");
            }
        }
        let Some(cut) = shown.iter().map(|span| span.start.saturating_sub(start)).min() else { return };
        self.excerpt.truncate(floor_char_boundary(&self.excerpt, cut));
        self.excerpt.push('…');
        // The underline must not reveal the length of the secret.
        let left = self.excerpt.chars().count().saturating_sub(self.column - 1);
        self.length = self.length.min(left).max(1);
    }

    /// Returns the text beside the underline and the text below it.
    fn help(&self) -> (Option<String>, Option<String>) {
        let expected = self.expected.as_ref().map(|expected| format!("expected {expected}"));
        match &self.suggestion {
            Some(word) => (Some(format!("did you mean `{word}`?")), expected),
            None => (expected, None),
        }
    }
}

/// Returns the known word that is most similar to the written word, if any is similar enough.
pub fn nearest<'w>(written: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // Only the first 64 characters are compared: a longer text resembles no known word, and comparing it
    // would be slow.
    let start = written.chars().take(64).collect::<String>().to_lowercase();
    let rated = known.into_iter().map(|word| (strsim::jaro_winkler(&start, &word.to_lowercase()), word));
    let alike = rated.filter(|(likeness, _)| *likeness > 0.75);
    alike.max_by(|left, right| left.0.total_cmp(&right.0)).map(|(_, word)| word)
}

/// Returns the largest character boundary at or below this byte.
fn floor_char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// All problems of a policy file. If there are any, nothing of the file becomes active.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problems {
    problems: Vec<Problem>,
    file: String,
}

impl Problems {
    /// The largest number of problems in one report.
    pub const MOST: usize = 50;

    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| (problem.line, problem.column));
        problems.truncate(Self::MOST);
        Self { problems, file: "holdoff.toml".to_owned() }
    }

    /// Sets the name of the file for the report.
    #[must_use]
    pub fn in_file(mut self, file: impl Into<String>) -> Self {
        self.file = file.into();
        self
    }

    /// Merges the problems that another reader found in the same text and removes duplicates.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        let mut problems = self.problems;
        for problem in others.problems {
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        }
        Self { file: self.file, ..Self::new(problems) }
    }

    /// Returns the problems in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.problems.iter()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self::new(vec![problem])
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl std::error::Error for Problems {}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("\n\n")?;
            }
            write_problem(f, &self.file, problem)?;
        }
        Ok(())
    }
}

/// ```text
/// holdoff.toml:2:1: unknown key `atempts` in [policies.x]
///   |
/// 2 | atempts = 3
///   | ^^^^^^^ did you mean `attempts`?
///   = expected one of extends, growth, …
/// ```
fn write_problem(f: &mut fmt::Formatter<'_>, file: &str, problem: &Problem) -> fmt::Result {
    let Problem { line, column, message, excerpt, length, .. } = problem;
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    let indent: String =
        excerpt.chars().take(column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    writeln!(f, "{file}:{line}:{column}: {message}")?;
    writeln!(f, "{margin} |")?;
    writeln!(f, "{number} | {excerpt}")?;
    write!(f, "{margin} | {indent}{}", "^".repeat(*length))?;
    let (beside, below) = problem.help();
    beside.map_or(Ok(()), |help| write!(f, " {help}"))?;
    below.map_or(Ok(()), |help| write!(f, "\n{margin} = {help}"))
}

/// Returns the spans of likely secrets: everything under `[credentials]` and the values of keys that sound like a
/// secret.
///
/// The file must not contain secrets, and the reader of a valid document refuses a secret without showing it. A text
/// with a missing quote has no keys and values yet, and the line that an error message shows may contain the secret.
pub(super) fn likely_secrets(text: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    let (mut start, mut is_under_credentials) = (0, false);
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        let trimmed = line.trim();
        if trimmed.starts_with('[') {
            is_under_credentials = is_credentials(trimmed.trim_start_matches('['));
        } else if let Some((key, value)) = line.split_once('=') {
            if is_under_credentials || is_credentials(key) || sounds_secret(key) || is_connection(key, value)
            {
                spans.push(start + key.len() + 1..end);
            }
        } else if is_under_credentials {
            spans.push(start..end);
        }
        start = end;
    }
    spans
}

/// Returns the spans of likely connection strings, which may contain a password. A mistake beside one, such as a
/// misspelt key, must not show it.
pub(super) fn likely_connections(text: &str) -> Vec<Range<usize>> {
    let mut start = 0;
    let spans = text.split_inclusive('\n').filter_map(|line| {
        let from = start;
        start += line.len();
        let (key, value) = line.split_once('=').unwrap_or(("", line));
        let at = if line.contains('=') { from + key.len() + 1 } else { from };
        is_connection(key, value).then_some(at..from + line.len())
    });
    spans.collect()
}

/// Returns whether a value may be a connection string with a password.
fn is_connection(key: &str, value: &str) -> bool {
    let has_user = value.split_once(':').is_some_and(|(_, rest)| rest.contains('@'));
    let is_store = key.trim_end_matches(['"', '\'', ' ', '\t']).ends_with("store") && value.contains(':');
    has_user || value.to_ascii_lowercase().contains("password=") || is_store
}

fn is_credentials(name: &str) -> bool {
    name.trim_start_matches(['"', '\'', ' ', '\t']).starts_with("credentials")
}

fn sounds_secret(key: &str) -> bool {
    let key = key.trim_end_matches(['"', '\'', ' ', '\t']);
    ["token", "secret", "password"].iter().any(|word| key.ends_with(word))
}

#[cfg(test)]
mod tests {
    use crate::PolicySet;

    #[test]
    fn an_invalid_line_does_not_show_its_secret() {
        for text in [
            "[credentials.a]\nkind = \"token\"\ntoken = \"hunter2\n",
            "[credentials.a]\ntoken = hunter2\n",
            "[credentials.a]\ntokn = hunter2\n",
            "[credentials]\na = { kind = \"token\", token = 'hunter2 }\n",
            "credentials.a.x = hunter2\n",
            "[credentials.a]\ntoken = \"x\"\ntoken = \"hunter2\"\n",
            "[credentials.a]\ntoken = \"\"\"\nhunter2\n\\x\"\"\"\n",
            "[oops\nclient_secret = hunter2\n",
        ] {
            let problems = PolicySet::from_toml(text).unwrap_err().to_string();
            assert!(!problems.contains("hunter2"), "{problems}");
        }
    }

    #[test]
    fn a_mistake_beside_a_connection_string_does_not_show_it() {
        for text in [
            "[server]\nstore = \"postgres://me:hunter2@db/x\n",
            "stor = \"postgres://me:hunter2@db/x\"\n",
            "url = 'host=db user=me password=hunter2'\n",
            "default = \"postgres://me:hunter2@db/x\"\n",
            "oops = [\"a\",\n\"postgres://me:hunter2@db/x\"]\n[policies.x]\nextends = \"postgres://me:hunter2@db/x\"\n",
            "policies = { x = { atempts = \"postgres://me:hunter2@db/x\" } }\n",
            "[server]\n\"store\" = postgres:hunter2\n",
        ] {
            let problems = PolicySet::from_toml(text).unwrap_err().to_string();
            assert!(!problems.contains("hunter2"), "{problems}");
        }
    }

    #[test]
    fn a_line_without_a_secret_is_shown() {
        let problems = PolicySet::from_toml("[credentials]\n[policies.x]\nbase = 1s\n").unwrap_err();
        assert!(problems.to_string().contains("base = 1s"), "{problems}");
    }
}
