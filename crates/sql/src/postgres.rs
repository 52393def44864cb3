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

/// The longest time that a call waits for a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// The options of a component's connections.
#[derive(Clone, Copy, Debug)]
pub struct Connections {
    /// The statements that every new connection runs first.
    pub session: &'static str,
    /// The smallest number of open connections.
    pub min: u32,
    /// The largest number of open connections.
    pub max: u32,
}

impl Connections {
    /// Opens the database at this URL.
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
