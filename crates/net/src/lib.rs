//! Authenticated links between nodes: TLS 1.3 in which a peer's identity is its public key.
//!
//! ```text
//! key.rs, public_key.rs, signature.rs   who one is: Ed25519, and what one has signed; signer.rs the same for pure cores
//! link.rs      the client's end         link/    open.rs connects, driver.rs keeps it so, course.rs when to try again,
//!                                                live.rs calls and their replies, hearing.rs what the peer pushes
//! server.rs    the other end            server/  door.rs who comes in, answer.rs one peer's visit, peer.rs, guests.rs
//! wire.rs      the frames               wire/    decoder.rs takes them out of a stream
//! connection.rs  what both ends do alike
//! tls.rs       raw public keys          transport.rs  TCP, or turmoil's
//! ```
//!
//! [`Server::start`] and [`Link::call`] are the two entry points:
//!
//! ```
//! use bytes::Bytes;
//! use holdoff_net::{Allow, Fault, Handler, Key, Link, LinkOptions, Peer, Remote, Server, ServerOptions};
//!
//! struct Echo;
//!
//! #[async_trait::async_trait]
//! impl Handler for Echo {
//!     async fn call(&self, _peer: &Peer, request: Bytes) -> Result<Bytes, Fault> {
//!         Ok(request)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (mine, theirs) = (Key::generate()?, Key::generate()?);
//! let options = ServerOptions { allow: Allow::only([mine.public()]), ..ServerOptions::default() };
//! let server = Server::start(&theirs, "127.0.0.1:0", Echo, options).await?;
//!
//! let remote = Remote { key: theirs.public(), address: server.address().to_string() };
//! let (link, _) = Link::new(&mine, remote, LinkOptions::default())?;
//! assert_eq!(link.call(Bytes::from_static(b"hello")).await?, "hello");
//! # Ok(()) }
//! ```
//!
//! # Invariants
//!
//! - A server reads a frame only from a peer that has proved a key on the server's allow list. It checks the list at
//!   the handshake and again at every frame that it receives. A link sends nothing to a server that has not proved the
//!   expected key.
//! - Every queue, frame, wait and number of connections has a limit. Input above a limit waits, or is dropped and
//!   counted.
//! - Every call ends: with its reply, at its deadline, or when its connection is lost. A call gets at most one answer.
//! - A protocol violation by a peer ends that peer's connection and affects no other.
//! - The policy decides when a link connects again.
//! - Logs never contain secret keys, payloads or fault messages. A peer is logged by the first eight digits of its key.
//!
//! # Deliberately absent
//!
//! Certificates, names and authorities; calls from a server to a link; retries of a call, because only its caller knows
//! whether a retry is safe.

mod allow;
mod clock;
mod connection;
mod error;
mod hex;
mod key;
mod link;
pub mod metrics;
mod options;
mod public_key;
mod queue;
mod refusal;
mod server;
mod signature;
mod signer;
mod tls;
mod transport;
mod typed;
mod wire;

pub use allow::Allow;
pub use error::{Error, Fault};
pub use key::{Key, KeyFileError, NoRandomness};
pub use link::{Heard, Hearing, Link, Remote, Status};
pub use options::{Limits, LinkOptions, ServerOptions};
pub use public_key::{InvalidPublicKey, PublicKey};
pub use refusal::Refusal;
pub use server::{Handler, NotPushed, Peer, PeerId, Server};
pub use signature::Signature;
pub use signer::{Ed25519, Signer, Verifier};
#[cfg(feature = "turmoil")]
pub use transport::Turmoil;
pub use transport::{Listen, Stream, Tcp, Transport};
pub use typed::{decode, encode};

#[cfg(test)]
mod tests;

/// Compiles and runs the code blocks of the documentation page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/net.md")]
struct DocsNet;
