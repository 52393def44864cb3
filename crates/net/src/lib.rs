//! Links between nodes: TLS 1.3, and a peer is its key.
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
//! [`Server::start`] and [`Link::call`] are the whole lesson:
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
//! - Nobody is heard who has not proved a key that the server allows, then and at every frame since; nothing is sent to
//!   a server that has not proved the expected one.
//! - Every queue, frame, wait and number of connections has a limit. What comes too fast waits, or is dropped and counted.
//! - A call ends: with its reply, or by its deadline, or when its connection is lost. It gets one answer at most.
//! - What a peer does wrong ends that peer's connection, and nothing else.
//! - When to connect again is decided by the policy.
//! - Secret keys, payloads and faults' words are never logged; a peer is by its first eight digits.
//!
//! # Deliberately absent
//!
//! Certificates, names and authorities; calls from a server to a link; retrying a call, which only its caller knows
//! to be safe.

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

/// The page for people, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/net.md")]
struct DocsNet;
