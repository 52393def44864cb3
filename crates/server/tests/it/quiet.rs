//! Messages that the daemon does not log.

use std::io;
use std::sync::{Arc, Mutex};

use holdoff_server::{Place, Server};
use tracing_subscriber::util::SubscriberInitExt;

use crate::bed::{options, show_logs};

/// Everything that was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Postgres sends a notice for each table that already exists. The daemon does not log these notices.
#[tokio::test]
async fn a_start_on_a_store_that_is_there_says_nothing_of_its_tables() {
    // Without a second subscriber, a call site that another thread reaches first would stay disabled here.
    show_logs();
    let log = Log::default();
    let writer = log.clone();
    let logging = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO);
    let _guard = logging.with_writer(move || writer.clone()).set_default();
    let url = holdoff_testbed::Postgres::shared().create_database("server");
    for _ in 0..2 {
        Server::start(options(Place::store(url.clone()))).await.unwrap().shutdown().await;
    }
    tracing::info!("what is logged is seen");
    let said = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(said.contains("what is logged is seen"), "{said}");
    assert!(!said.contains("already exists"), "{said}");
}
