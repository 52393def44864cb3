//! A simulated Kubernetes API server for Leases.
//!
//! ```text
//! cluster.rs   stored Leases and their rules          http.rs      requests and responses
//! request.rs   parsing of requests                    watch.rs     watches
//! faults.rs    fault injection                        status.rs    error statuses
//! rules.rs     the rules, checked on any API server
//! ```
//!
//! It responds over HTTP as a real API server 1.36 was measured to respond. [`check_api_rules`] checks this, and
//! also runs against a real cluster. Unlike a real API server, it authorises every request, and every
//! namespace exists.

mod cluster;
mod faults;
mod http;
mod request;
mod rules;
mod status;
mod watch;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

pub use faults::{Fault, Verb};
use http::Server;
pub use rules::check_api_rules;

use crate::KUBECONFIG_VARIABLE;

/// An API server for Leases on loopback; it stops when the value is dropped.
#[derive(Debug)]
pub struct Kubernetes {
    address: SocketAddr,
    server: Arc<Server>,
    // Accepts connections and owns them.
    _accepting: AbortOnDropHandle<()>,
}

impl Kubernetes {
    /// Starts an empty cluster, served by tasks of this runtime.
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port on loopback");
        let address = listener.local_addr().expect("an address");
        let server = Arc::new(Server::default());
        let accepting = AbortOnDropHandle::new(tokio::spawn(accept(listener, Arc::clone(&server))));
        Self { address, server, _accepting: accepting }
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns a client that does not retry.
    pub fn client(&self) -> kube::Client {
        let mut config = kube::Config::new(self.url().parse().expect("a URL"));
        config.default_retry = false;
        kube::Client::try_from(config).expect("a client")
    }

    /// Injects this fault into the next request with this verb that has no other fault; each fault applies
    /// once.
    pub fn inject_fault(&self, verb: Verb, fault: Fault) {
        self.server.faults.add(verb, fault);
    }

    /// Returns the number of pending faults.
    pub fn pending_faults(&self) -> usize {
        self.server.faults.left()
    }

    /// Executes the requests that [`Fault::Stall`] has held back, whether or not a client still waits for the
    /// response.
    pub async fn release_stalled(&self) {
        self.server.release_stalled().await;
    }

    /// Returns the number of requests with this verb.
    pub fn requests(&self, verb: Verb) -> usize {
        self.server.faults.arrived(verb)
    }

    /// Cuts the connections of all watches.
    pub fn cut_watches(&self) {
        self.server.signals.send_modify(|signals| signals.cuts += 1);
    }

    /// Ends all watches as if their timeout had expired.
    pub fn end_watches(&self) {
        self.server.signals.send_modify(|signals| signals.ends += 1);
    }

    /// Sends a bookmark to all watches that requested them.
    pub fn bookmark(&self) {
        self.server.signals.send_modify(|signals| signals.bookmarks += 1);
    }

    /// Discards the history: watches and pages from before get `410 Gone`.
    pub fn forget_history(&self) {
        self.server.cluster().forget_history();
    }

    /// Waits until exactly this many watches are open.
    pub async fn wait_for_watches(&self, watches: usize) {
        let mut open = self.server.watches.subscribe();
        open.wait_for(|open| *open == watches).await.expect("the server lives as long as its handle");
    }
}

/// Returns a client of the real cluster that [`KUBECONFIG_VARIABLE`] names, and the namespace to use there.
pub async fn real_cluster() -> Option<(kube::Client, String)> {
    let file = Kubeconfig::read_from(std::env::var_os(KUBECONFIG_VARIABLE)?).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
    let mut config = config.expect("a configuration");
    config.default_retry = false;
    let namespace = config.default_namespace.clone();
    Some((kube::Client::try_from(config).expect("a client"), namespace))
}

async fn accept(listener: TcpListener, server: Arc<Server>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let server = Arc::clone(&server);
        connections.spawn(async move {
            let answer = service_fn(|request| Arc::clone(&server).answer(request));
            // An error means that the client disconnected or that a fault was injected.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}
