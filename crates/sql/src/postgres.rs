//! Stores in Postgres.

pub mod backup;
mod listen;
mod migrate;

pub use listen::listen;
pub use migrate::migrate;

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Executor, PgPool};

use crate::Error;

/// How long a call waits for a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// What a component's connections are like.
#[derive(Clone, Copy, Debug)]
pub struct Connections {
    /// What every connection is told first.
    pub session: &'static str,
    /// How many are kept ready.
    pub min: u32,
    /// How many there may be.
    pub max: u32,
}

impl Connections {
    /// Opens the database at this address.
    pub async fn open(self, url: &str) -> Result<PgPool, Error> {
        let options: PgConnectOptions = url.parse().map_err(|why| Error::address(url, &why))?;
        let pool = PgPoolOptions::new()
            .max_connections(self.max)
            .min_connections(self.min)
            .acquire_timeout(CONNECT_PATIENCE)
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    connection.execute(self.session).await?;
                    Ok(())
                })
            })
            .connect_with(options.application_name("holdoff"))
            .await?;
        Ok(pool)
    }
}
