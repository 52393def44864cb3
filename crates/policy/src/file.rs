//! The policy file, `holdoff.toml`.
//!
//! The reader walks the document by hand rather than through serde: one pass finds every problem, each with
//! its line and column, the expected value, and the nearest valid word.
//!
//! There is one file, but its sections belong to several crates. Each crate reads its own sections with a
//! [`Reader`] and ignores the others; [`Problems::and`] merges their problems.
//!
//! ```
//! use holdoff_policy::file;
//!
//! let text = "[work]\npoll = 5";
//! let problems = file::read(text, |reader, document| {
//!     let poll = reader.table_in(document, "work")?.get("poll")?;
//!     reader.duration(poll, "poll")
//! });
//! assert!(problems.unwrap_err().to_string().contains("2:8: poll is a bare number"));
//! ```

mod operations;
mod policies;
mod problem;
mod reader;
#[cfg(feature = "schema")]
mod schema;
mod units;
mod values;
mod write;

pub use problem::{Problem, Problems, nearest};
pub use reader::{Reader, Section, SpannedValue};
#[cfg(feature = "schema")]
pub use schema::{schema, schema_keys};
pub use toml::de::DeTable;

pub use units::{format_duration, parse_duration};
pub use write::{PolicyChange, changes};

use crate::PolicySet;

/// The keys at the top of the file.
///
/// The last eight do not concern policies: `holdoff-work`, `holdoff-lock`, `holdoff-server`,
/// `holdoff-council` and `holdoff-ledger` read and check them, and this reader ignores them.
const TOP: &[&str] = &[
    "default",
    "policies",
    "operations",
    "namespaces",
    "classes",
    "work",
    "http",
    "credentials",
    "signals",
    "lock",
    "server",
    "acceptor",
    "ledger",
];

/// Parses a text and passes the document to `read`, which reports problems to the reader.
///
/// If there is any problem, it returns all problems and no value. A text that is not TOML, or is longer than
/// [`PolicySet::MAX_FILE`], is not passed to `read`.
pub fn read<'t, T>(
    text: &'t str,
    read: impl FnOnce(&mut Reader<'t>, &DeTable<'t>) -> T,
) -> Result<T, Problems> {
    let mut reader = Reader::new(text);
    if text.len() > PolicySet::MAX_FILE {
        reader.problem(0..0, format!("the file has {} bytes", text.len())).expected("at most 1 MiB");
        reader.conceal_likely_secrets();
        return Err(reader.into_problems());
    }
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        reader.problem(error.span().unwrap_or(0..0), error.message());
    }
    if !reader.is_clean() {
        reader.conceal_likely_secrets();
        return Err(reader.into_problems());
    }
    let found = read(&mut reader, document.get_ref());
    if reader.is_clean() { Ok(found) } else { Err(reader.into_problems()) }
}

impl PolicySet {
    /// The size limit of a policy file, in bytes.
    pub const MAX_FILE: usize = 1 << 20;

    /// Reads a policy file. If there is any problem, it returns all problems and no set.
    ///
    /// It ignores the sections of durable work and locks; `holdoff_work::Settings` and
    /// `holdoff_lock::Settings` check them.
    ///
    /// ```
    /// use holdoff_policy::PolicySet;
    ///
    /// let set = PolicySet::from_toml(r#"
    ///     [policies.payments]
    ///     extends = "standard"
    ///     cap = "10s"
    ///     deadline = "45s"
    ///
    ///     [operations]
    ///     "card.*" = "payments"
    /// "#)?;
    /// assert_eq!(set.policy_for("default", "card.charge").0, "payments");
    ///
    /// let problems = PolicySet::from_toml("[policies.x]\natempts = 3").unwrap_err();
    /// assert!(problems.to_string().contains("did you mean `attempts`?"));
    /// # Ok::<(), holdoff_policy::Problems>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Self, Problems> {
        read(text, read_policies)
    }
}

fn read_policies(reader: &mut Reader<'_>, document: &DeTable<'_>) -> PolicySet {
    let mut set = PolicySet::default();
    reader.refuse_unknown_keys("at the top of the file", document, TOP);
    if let Some(policies) = reader.table_in(document, "policies") {
        policies::read(reader, policies, &mut set);
    }
    let root = operations::read_scope(reader, document, &set);
    *set.root_mut() = root;
    if let Some(namespaces) = reader.table_in(document, "namespaces") {
        operations::read_namespaces(reader, namespaces, &mut set);
    }
    if let Some(tables) = reader.table_in(document, "classes") {
        operations::read_classes(reader, tables, set.classes_mut());
    }
    set
}
