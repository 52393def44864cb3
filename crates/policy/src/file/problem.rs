//! What is wrong with a policy file, and where.

use std::fmt;
use std::ops::Range;

/// A longer line is not shown in full.
const LONGEST_EXCERPT: usize = 200;

/// One thing that is wrong with a policy file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub expected: Option<String>,
    /// The nearest word that would be right.
    pub suggestion: Option<String>,
    /// The line itself.
    pub excerpt: String,
    /// How many characters of it are meant.
    pub length: usize,
}

impl Problem {
    /// Something is wrong at this place of a text.
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

    /// Adds what would be right: it completes "expected …".
    pub fn expected(&mut self, what: impl Into<String>) -> &mut Self {
        self.expected = Some(what.into());
        self
    }

    /// Suggests the known word that is nearest to what was written, if one is near.
    pub fn nearest<'w>(&mut self, written: &str, known: impl IntoIterator<Item = &'w str>) -> &mut Self {
        self.suggestion = nearest(written, known).map(str::to_owned);
        self
    }

    /// Cuts the shown line short where something begins that must not be shown.
    pub(super) fn conceal(&mut self, text: &str, concealed: &[Range<usize>]) {
        let start = match self.line {
            1 => 0,
            line => text.match_indices('\n').nth(line - 2).map_or(text.len(), |(at, _)| at + 1),
        };
        let end = start + self.excerpt.len();
        let shown = concealed.iter().filter(|span| span.start < end && start < span.end);
        let Some(cut) = shown.map(|span| span.start.saturating_sub(start)).min() else { return };
        self.excerpt.truncate(floor_char_boundary(&self.excerpt, cut));
        self.excerpt.push('…');
        // The marks must not tell how long it is.
        let left = self.excerpt.chars().count().saturating_sub(self.column - 1);
        self.length = self.length.min(left).max(1);
    }

    /// What to say beside the marked place, and below it.
    fn help(&self) -> (Option<String>, Option<String>) {
        let expected = self.expected.as_ref().map(|expected| format!("expected {expected}"));
        match &self.suggestion {
            Some(word) => (Some(format!("did you mean `{word}`?")), expected),
            None => (expected, None),
        }
    }
}

/// The known word that is most like what was written, if one is like it at all.
pub fn nearest<'w>(written: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // A long scribble is like nothing, and comparing it would take long too.
    let start = written.chars().take(64).collect::<String>().to_lowercase();
    let rated = known.into_iter().map(|word| (strsim::jaro_winkler(&start, &word.to_lowercase()), word));
    let alike = rated.filter(|(likeness, _)| *likeness > 0.75);
    alike.max_by(|left, right| left.0.total_cmp(&right.0)).map(|(_, word)| word)
}

/// The largest boundary of a character at or below this byte.
fn floor_char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Everything that is wrong with a policy file. Nothing of the file is in force.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problems {
    problems: Vec<Problem>,
    file: String,
}

impl Problems {
    /// The most problems that are reported at once.
    pub const MOST: usize = 50;

    pub(super) fn new(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| (problem.line, problem.column));
        problems.truncate(Self::MOST);
        Self { problems, file: "holdoff.toml".to_owned() }
    }

    /// Names the file they are in.
    #[must_use]
    pub fn in_file(mut self, file: impl Into<String>) -> Self {
        self.file = file.into();
        self
    }

    /// These and those that another reader found in the same text, each once.
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

    /// The problems, in the order of the file.
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
