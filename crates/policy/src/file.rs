//! The policy file, `holdoff.toml`.
//!
//! Reading walks the document by hand rather than through serde: every problem is found in one go, each
//! with its line and column, what was expected, and the nearest word that would have been right.

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
mod values;
mod write;

pub use problem::{Problem, Problems, nearest};
#[cfg(feature = "schema")]
pub use schema::schema;

pub use duration::{format_duration, parse_duration};

use reader::Reader;
use toml::de::DeTable;

use crate::PolicySet;

/// The keys at the top of the file.
const TOP: &[&str] = &["default", "policies", "operations", "namespaces", "classes"];

impl PolicySet {
    /// The largest policy file that is read, in bytes.
    pub const MAX_FILE: usize = 1 << 20;

    /// Reads a policy file. On any problem nothing is read, and all problems are reported.
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
        let mut reader = Reader::new(text);
        if text.len() > Self::MAX_FILE {
            reader.problem(0..0, format!("the file has {} bytes", text.len())).expected("at most 1 MiB");
            return Err(reader.into_problems());
        }
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in errors {
            reader.problem(error.span().unwrap_or(0..0), error.message());
        }
        if reader.is_clean() {
            let set = read(&mut reader, document.get_ref());
            if reader.is_clean() {
                return Ok(set);
            }
        }
        Err(reader.into_problems())
    }
}

fn read(reader: &mut Reader<'_>, document: &DeTable<'_>) -> PolicySet {
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
