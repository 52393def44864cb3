//! A stand-in for Kubernetes' API server, as far as Leases go.
//!
//! ```text
//! cluster.rs   what is stored, and every rule of it     http.rs      requests and answers
//! validate.rs  what a Lease may be                      asked.rs     what is asked
//! faults.rs    what goes wrong on demand                watching.rs  everything that happens, line by line
//! facts.rs     the rules, checked on any API server     status.rs    how a refusal looks
//! ```
//!
//! It answers over HTTP as a real API server 1.36 was measured to. [`check_facts`] says so, and runs against a real
//! cluster too. Unlike a real one it lets everybody do everything, and every namespace exists.

mod asked;
mod cluster;
mod facts;
mod faults;
mod http;
mod status;
mod validate;
mod watching;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

pub use facts::check_facts;
pub use faults::{Fault, Verb};
use http::Server;

use crate::KUBECONFIG_VARIABLE;

/// An API server on loopback that knows Leases; gone when the value is dropped.
#[derive(Debug)]
pub struct Kubernetes {
    address: SocketAddr,
    server: Arc<Server>,
    // Who takes connections, and has them.
    _accepting: AbortOnDropHandle<()>,
}

impl Kubernetes {
    /// An empty cluster, served by tasks of this runtime.
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port on loopback");
        let address = listener.local_addr().expect("an address");
        let server = Arc::new(Server::default());
        let accepting = AbortOnDropHandle::new(tokio::spawn(accept(listener, Arc::clone(&server))));
        Self { address, server, _accepting: accepting }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client of it that repeats nothing by itself.
    pub fn client(&self) -> kube::Client {
        let mut config = kube::Config::new(self.url().parse().expect("a URL"));
        config.default_retry = false;
        kube::Client::try_from(config).expect("a client")
    }

    /// Lets this happen to the next request of this kind that nothing else is meant for; each strikes once.
    pub fn strike(&self, verb: Verb, fault: Fault) {
        self.server.faults.add(verb, fault);
    }

    /// How many faults have not struck yet.
    pub fn faults_left(&self) -> usize {
        self.server.faults.left()
    }

    /// Carries out the requests that [`Fault::Stall`] has kept, whether or not anybody still waits for the answer.
    pub async fn let_through(&self) {
        self.server.let_through().await;
    }

    /// How many requests of a kind have arrived.
    pub fn requests(&self, verb: Verb) -> usize {
        self.server.faults.arrived(verb)
    }

    /// Cuts the connections of all watches.
    pub fn cut_watches(&self) {
        self.server.pulse.send_modify(|pulse| pulse.cuts += 1);
    }

    /// Ends all watches as if their time were up.
    pub fn end_watches(&self) {
        self.server.pulse.send_modify(|pulse| pulse.ends += 1);
    }

    /// Sends a bookmark to all watches that want them.
    pub fn bookmark(&self) {
        self.server.pulse.send_modify(|pulse| pulse.bookmarks += 1);
    }

    /// Forgets what happened so far: watches and pages from before get `410 Gone`.
    pub fn forget_history(&self) {
        self.server.cluster().forget_history();
    }

    /// Waits until exactly so many watches are open.
    pub async fn watched_by(&self, watches: usize) {
        let mut open = self.server.watches.subscribe();
        open.wait_for(|open| *open == watches).await.expect("the server lives as long as this");
    }
}

/// A client of the real cluster that [`KUBECONFIG_VARIABLE`] names, and the namespace to use there.
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
            // An error is a client that has gone, or a fault that was asked for.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}
