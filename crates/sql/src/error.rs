//! What can go wrong, and what passes by itself.

use holdoff_policy::{Class, ClassMap};

/// What went wrong with a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database could not be reached, or refused.
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    /// The address cannot be used. Nothing was opened.
    #[error("`{url}` cannot be used as a store: {why}")]
    Address {
        /// The address, without its password.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A newer version has written the store, and this one cannot work beside it. Nothing was changed.
    #[error(
        "the store has schema {found}, which this version (schema {known}) cannot work beside: upgrade this program"
    )]
    NewerSchema {
        /// The schema that was found.
        found: i32,
        /// The newest schema this version knows.
        known: i32,
    },
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl Error {
    /// The address cannot be used.
    pub(crate) fn address(url: &str, why: &sqlx::Error) -> Self {
        Self::Address { url: without_password(url), why: why.to_string() }
    }
}

/// Whether it may work next time.
pub fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error.code().is_some_and(|code| is_transient_code(&code)),
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::WorkerCrashed => true,
        _ => false,
    }
}

/// A SQLSTATE has five characters; SQLite's codes are numbers, of which the low byte is the kind.
fn is_transient_code(code: &str) -> bool {
    const BUSY: u32 = 5;
    const LOCKED: u32 = 6;
    if code.len() == 5 && !code.starts_with("00") {
        // What cannot be told from the table alone: a statement that was cut off may work next time.
        let class = ClassMap::default().sqlstate(code);
        let passes = [Class::Transient, Class::RateLimited, Class::Contended, Class::Timeout];
        return code == "57014" || passes.contains(&class);
    }
    code.parse::<u32>().is_ok_and(|code| [BUSY, LOCKED].contains(&(code & 0xff)))
}

/// The address as it may be shown: between the user's name and the host stands nothing, and no options follow, among
/// which a password may be.
pub fn without_password(url: &str) -> String {
    let url = url.split('?').next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // An at sign in the password itself comes before the one that ends it.
    let Some((user, host)) = rest.rsplit_once('@') else { return url.to_owned() };
    let name = user.split(':').next().unwrap_or_default();
    format!("{scheme}://{name}@{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_deadlocks_and_restarts_pass_by_themselves() {
        for code in ["40001", "40P01", "55P03", "57P01", "57P03", "08006", "5", "517", "6", "261"] {
            assert!(is_transient_code(code), "{code}");
        }
        for code in ["42P01", "23505", "22003", "1", "19", "2067"] {
            assert!(!is_transient_code(code), "{code}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(without_password("postgres://me:secret@db/x"), "postgres://me@db/x");
        assert_eq!(without_password("postgres://me:p@ss@db/x?password=again"), "postgres://me@db/x");
        assert_eq!(without_password("postgres://db/x?password=secret"), "postgres://db/x");
        assert_eq!(without_password("postgres://db/x"), "postgres://db/x");
        assert_eq!(without_password("sqlite:file.db"), "sqlite:file.db");
    }
}
