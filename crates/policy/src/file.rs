//! The policy file, `holdoff.toml`.
//!
//! Reading walks the document by hand rather than through serde: every problem is found in one go, each
//! with its line and column, what was expected, and the nearest word that would have been right.

//!
//! The file is one, but its sections belong to several crates. Each reads its own with a [`Reader`] and passes
//! the others by; [`Problems::and`] puts together what they find.
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

mod classes;
mod duration;
mod growth;
mod jitter;
mod operations;
mod policies;
mod problem;
mod reader;
#[cfg(feature = "schema")]
mod schema;
mod secrets;
mod section;
mod size;
mod values;
mod write;

pub use problem::{Problem, Problems, nearest};
pub use reader::{Reader, Value};
#[cfg(feature = "schema")]
pub use schema::{schema, schema_keys};
pub use section::Section;
pub use toml::de::DeTable;

pub use duration::{format_duration, parse_duration};

use crate::PolicySet;

/// The keys at the top of the file.
///
/// The last eight are not about policies: `holdoff-work`, `holdoff-lock`, `holdoff-server`, `holdoff-council` and
/// `holdoff-ledger` read and check them, and they are passed by here.
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

/// Reads a text with `read`, which is given the parsed document and notes problems as it goes.
///
/// On any problem nothing is read, and all problems are reported; a text that is not TOML, or longer than
/// [`PolicySet::MAX_FILE`], is not given to `read` at all.
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
    /// The largest policy file that is read, in bytes.
    pub const MAX_FILE: usize = 1 << 20;

    /// Reads a policy file. On any problem nothing is read, and all problems are reported.
    ///
    /// The sections about durable work and locks are passed by; `holdoff_work::Settings` and
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
        classes::read(reader, tables, set.classes_mut());
    }
    set
}
