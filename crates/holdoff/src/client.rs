//! The client of the daemon: durable work, signals and locks over HTTP, for programs without a store of their
//! own.
//!
//! ```no_run
//! use holdoff::client::{Client, NewTask};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), holdoff::client::Error> {
//! let client = Client::new("http://127.0.0.1:7070")?;
//! let call = NewTask::call("order.confirm", "https://shop.example/orders/17").dedup("order 17");
//! let accepted = client.submit(&call).await?;
//! println!("{:?}", client.wait(&accepted.id).await?.state);
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

mod call;
mod error;
mod lock;
mod new;
mod signal;
mod task;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::Policy;
use holdoff_retry::Retry;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

pub use error::{Error, ProblemDetails};
pub use lock::{Lock, LockGuard};
pub use new::{HttpRequest, NewStep, NewTask};
pub use signal::{AcceptedSignal, Signal};
pub use task::{AcceptedTask, Step, StepState, Task, TaskState};
pub use worker::{PullWorker, PulledStep, StepFault, StepInput};

/// Exceeds the longest response time of the daemon.
const TIMEOUT: Duration = Duration::from_secs(40);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

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
    retry: Retry,
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

/// Builds a [`Client`].
#[derive(Clone)]
pub struct ClientBuilder {
    address: String,
    api_token: Option<String>,
    policy: Policy,
}

/// Omits the API token.
impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, api_token, policy } = self;
        let api_token = api_token.as_ref().map(|_| "…");
        f.debug_struct("ClientBuilder")
            .field("address", address)
            .field("api_token", &api_token)
            .field("policy", policy)
            .finish()
    }
}

impl ClientBuilder {
    fn new(address: &str) -> Self {
        Self { address: address.to_owned(), api_token: None, policy: Policy::standard() }
    }

    /// Sets the API token.
    #[must_use]
    pub fn api_token(mut self, api_token: impl Into<String>) -> Self {
        self.api_token = Some(api_token.into());
        self
    }

    /// Sets the retry policy; the default is `standard`.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Builds the client. It sends no request yet.
    pub fn build(self) -> Result<Client, Error> {
        let invalid = |source| Error::Address { address: self.address.clone(), source };
        let url = reqwest::Url::parse(&self.address).map_err(|why| invalid(why.into()))?;
        if !matches!(url.scheme(), "http" | "https") || url.cannot_be_a_base() {
            return Err(invalid("expected http:// or https://".into()));
        }
        let mut headers = HeaderMap::new();
        if let Some(api_token) = &self.api_token {
            let mut value =
                HeaderValue::try_from(format!("Bearer {api_token}")).map_err(|_| Error::ApiToken)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            // The daemon never redirects, and the API token must not reach another server.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|why| Error::HttpClient(why.into()))?;
        let address = self.address.trim_end_matches('/').to_owned();
        let retry = Retry::new(self.policy).operation("holdoff.client");
        Ok(Client { shared: Arc::new(Shared { http, address, retry }) })
    }
}
