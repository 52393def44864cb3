//! Constructors, one for each store.

use std::sync::Arc;

use super::Locks;
use crate::Error;
use crate::engine;
use crate::store::{LeaseStore, Result};

impl Locks {
    /// Returns locks in this process's memory.
    pub fn memory() -> Self {
        Self::over(Arc::new(engine::memory::Memory::new()))
    }

    /// Returns locks in a SQLite file, for all processes of one machine.
    #[cfg(feature = "sqlite")]
    pub async fn sqlite(path: impl AsRef<std::path::Path>) -> Result<Self> {
        Self::open(&format!("sqlite:{}", path.as_ref().display())).await
    }

    /// Returns locks in Postgres, for all clients of the database.
    #[cfg(feature = "postgres")]
    pub async fn postgres(url: &str) -> Result<Self> {
        Ok(Self::over(Arc::new(engine::postgres::Postgres::open(url).await?)))
    }

    /// Returns locks kept as Leases in a namespace of a Kubernetes cluster.
    #[cfg(feature = "kubernetes")]
    pub fn kubernetes(client: kube::Client, namespace: &str) -> Self {
        Self::over(Arc::new(engine::kubernetes::Kubernetes::open(client, namespace)))
    }

    /// Returns locks in a ledger, for all its members. They need no store except their own disks.
    ///
    /// All clients that share these locks must use the same ledger. Locks that are held through a node are lost when
    /// the node stops.
    ///
    /// ```
    /// use holdoff_ledger::runtime::{Host, Settings};
    /// use holdoff_lock::Locks;
    ///
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let mut settings = Settings::new(folder.path());
    /// # settings.listen = "127.0.0.1:0".parse()?;
    /// settings.name = Some("first".to_owned());
    /// let host = Host::start(settings).await?;
    /// let node = host.found("default")?; // the others join it
    ///
    /// let locks = Locks::ledger(node);
    /// let guard = locks.acquire("invoice 7").await?;
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "ledger")]
    pub fn ledger(node: holdoff_ledger::runtime::Node<holdoff_ledger::runtime::Books>) -> Self {
        Self::over(Arc::new(engine::ledger::Ledger::over(Box::new(node))))
    }

    /// Returns locks in a ledger whose node may not have joined yet. Every call looks the node up. While there is none,
    /// the store of these locks cannot be reached.
    #[cfg(feature = "ledger")]
    pub fn ledger_found_by<F>(find: F) -> Self
    where
        F: Fn() -> Option<holdoff_ledger::runtime::Node<holdoff_ledger::runtime::Books>>
            + Send
            + Sync
            + 'static,
    {
        Self::over(Arc::new(engine::ledger::Ledger::over(Box::new(engine::ledger::Sought::by(find)))))
    }

    /// Opens locks at `memory:`, `sqlite:FILE`, `postgres://…`, or `kubernetes:NAMESPACE` in the cluster that this
    /// process runs in or that its kubeconfig names.
    pub async fn open(url: &str) -> Result<Self> {
        let store: Arc<dyn LeaseStore> = match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("memory") => Arc::new(engine::memory::Memory::new()),
            #[cfg(feature = "sqlite")]
            Some("sqlite") => Arc::new(engine::sqlite::Sqlite::open(url).await?),
            #[cfg(feature = "postgres")]
            Some("postgres" | "postgresql") => Arc::new(engine::postgres::Postgres::open(url).await?),
            #[cfg(feature = "kubernetes")]
            Some("kubernetes") => Arc::new(engine::kubernetes::Kubernetes::connect(url).await?),
            _ => return Err(unknown(url)),
        };
        Ok(Self::over(store))
    }
}

fn unknown(url: &str) -> Error {
    // The part before the host may contain a password.
    let shown = url.split_once("://").map_or(url, |(scheme, _)| scheme);
    Error::Settings(format!(
        "`{shown}` is no store for locks: expected sqlite:FILE, postgres://USER@HOST/DATABASE, kubernetes:NAMESPACE or memory:, \
         as far as this build has them"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_store_is_named_without_its_password() {
        let error = Locks::open("mysql://me:secret@db/x").await.unwrap_err().to_string();
        assert!(error.contains("`mysql` is no store") && !error.contains("secret"), "{error}");
    }
}
