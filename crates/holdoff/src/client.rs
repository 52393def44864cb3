//! The client of the daemon: durable work, signals and locks over HTTP, for programs without a store of their
//! own.
//!
//! ```no_run
//! use holdoff::client::{Client, NewTask};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), holdoff::client::Error> {
//! let client = Client::new("http://127.0.0.1:7070")?;
//! let call = NewTask::call("order.confirm", "https://shop.example/orders/17").dedup("order 17");
//! let taken = client.submit(&call).await?;
//! println!("{:?}", client.wait(&taken.id).await?.state);
//!
//! let deploy = client.lock("deploy").acquire().await?;
//! println!("mine, with token {}", deploy.token());
//! deploy.release().await?;
//! # Ok(()) }
//! ```
//!
//! # Invariants
//!
//! - One policy retries every call, and the client obeys `Retry-After`.
//! - Every call may be repeated: each task has a key, from the caller or drawn by the client, and the daemon
//!   accepts a key once.
//! - The API token appears in no error and no debug output.

mod builder;
mod call;
mod clock;
mod error;
mod fault;
mod guard;
mod lock;
mod new;
mod seen;
mod signal;
mod task;
mod worker;

use std::sync::Arc;

use holdoff_policy::Policy;

pub use builder::ClientBuilder;
pub use error::{Error, Problem};
pub use fault::StepFault;
pub use guard::LockGuard;
pub use lock::Lock;
pub use new::{NewStep, NewTask, Request};
pub use seen::{Step, StepState, Task, TaskState};
pub use signal::{Signal, TakenSignal};
pub use task::TakenTask;
pub use worker::{PullWorker, PulledStep, StepInput};

/// A client of one daemon. It is cheap to clone; all clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    http: reqwest::Client,
    /// The URL of the daemon, without a trailing slash.
    address: String,
    policy: Policy,
}

impl Client {
    /// Creates a client of the daemon at this address, such as `http://127.0.0.1:7070`.
    pub fn new(address: &str) -> Result<Self, Error> {
        ClientBuilder::new(address).build()
    }

    /// Returns a builder for a client with further options.
    pub fn builder(address: &str) -> ClientBuilder {
        ClientBuilder::new(address)
    }
}
