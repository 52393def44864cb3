//! What a component brings along.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::Error;

/// A part of the product that has tables of its own.
#[derive(Clone, Copy, Debug)]
pub struct Component {
    /// The table its versions are counted in, for each component another: a version that knows nothing of the others
    /// must not take their numbers for its own.
    pub table: &'static str,
    /// Its migrations, in order.
    pub migrations: &'static [Migration],
}

/// One change of the schema.
///
/// Migrations only add (expand) as long as the version before may still run; what it no longer needs is taken away one
/// version later (contract).
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Its number.
    pub version: i32,
    /// The oldest version that can work beside this one.
    pub breaks_before: i32,
    /// What it does.
    pub sql: &'static str,
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl Component {
    /// What is still to do, where `found` was done already and nobody below `needs` may work.
    pub(crate) fn missing(
        &self,
        found: i32,
        needs: i32,
    ) -> Result<impl Iterator<Item = &'static Migration> + use<>, Error> {
        let known = self.migrations.last().map_or(0, |last| last.version);
        if needs > known {
            return Err(Error::NewerSchema { found, known });
        }
        Ok(self.migrations.iter().filter(move |migration| migration.version > found))
    }
}
