//! The migrations of a component.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::Error;

/// A part of the product that has its own tables.
#[derive(Clone, Copy, Debug)]
pub struct Component {
    /// The table that records the component's versions. Each component has its own table: a version that does
    /// not know the other components must not take their numbers for its own.
    pub table: &'static str,
    /// The migrations, in order.
    pub migrations: &'static [Migration],
}

/// One change of the schema.
///
/// Migrations only add (expand) as long as the previous version may still run. Parts that it no longer needs
/// are removed one version later (contract).
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// The number.
    pub version: i32,
    /// The oldest version that can work beside this one.
    pub breaks_before: i32,
    /// The change.
    pub change: SchemaChange,
}

/// The change that a migration makes. Other processes use the store meanwhile.
#[derive(Clone, Copy, Debug)]
pub enum SchemaChange {
    /// Statements of one transaction, for changes of the catalogue and for tables that are new or small. In Postgres a
    /// statement waits for the lock of a table for a quarter of a second only, because every later statement waits behind
    /// it; then the whole change is undone and tried again. A change that locks a table in use locks no second one.
    Statements(&'static str),
    /// An index, which Postgres builds while other transactions write, however large the table is. SQLite has one writer at
    /// a time: the others wait.
    Index {
        /// The name, without the schema.
        name: &'static str,
        /// The table with its schema, and the definition: `holdoff.steps (worker)`.
        on: &'static str,
    },
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl Component {
    /// Returns the outstanding migrations if `found` is the newest applied one. Returns an error if this
    /// program is older than `needs`, or if `found` precedes the first migration.
    pub(crate) fn missing(
        &self,
        found: i32,
        needs: i32,
    ) -> Result<impl Iterator<Item = &'static Migration> + use<>, Error> {
        let known = self.migrations.last().map_or(0, |last| last.version);
        if needs > known {
            return Err(Error::NewerSchema { found, known });
        }
        let oldest = self.migrations.first().map_or(0, |first| first.version);
        if (1..oldest).contains(&found) {
            return Err(Error::OlderSchema { found, oldest });
        }
        Ok(self.migrations.iter().filter(move |migration| migration.version > found))
    }
}
