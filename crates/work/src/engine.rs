//! The stores that keep steps: one module each, behind one trait, under one conformance suite.

pub(crate) mod exits;
#[cfg(test)]
#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod forgetting;
pub(crate) mod like;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
mod reading;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
mod table;

use std::sync::Arc;

use holdoff_sql::without_password;
use table::Table;

use crate::store::Store;
use crate::{Error, store};

/// The message of a step that failed because it lost its worker too often.
pub(crate) const POISON: &str = "its worker vanished, too often in a row: it may be what kills them";

/// Opens the store at this URL.
pub(crate) async fn open(url: &str) -> store::Result<Arc<dyn Store>> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        #[cfg(feature = "sqlite")]
        Some("sqlite") => Ok(Arc::new(sqlite::Sqlite::open(url).await?)),
        #[cfg(feature = "postgres")]
        Some("postgres" | "postgresql") => Ok(Arc::new(postgres::Postgres::open(url).await?)),
        _ => Err(Error::Address { url: without_password(url), why: "its scheme is not known".to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_scheme_says_what_is_known() {
        let error = open("mysql://x").await.unwrap_err().to_string();
        assert!(error.contains("expected sqlite:FILE"), "{error}");
    }
}
