//! Authenticated links between nodes: TLS 1.3 in which a peer's identity is its public key.
//!
//! ```text
//! secret_key.rs, public_key.rs, signature.rs   identity: Ed25519 keys and signatures; signature_cache.rs remembers results
//! link.rs        the client's end              link/    driver.rs connects and reconnects, calls.rs matches replies
//!                                                       to calls, message_sender.rs queues and merges messages,
//!                                                       pushes.rs receives the peer's pushes
//! server.rs      the server's end              server/  admission.rs accepts peers, session.rs serves one connection,
//!                                                       peer.rs is the handler's view of it
//! connection.rs  reading and writing frames, for both ends
//! wire.rs        frames and their encoding
//! tls.rs         TLS with raw public keys      transport.rs  TCP, or turmoil's simulation of it
//! ```
//!
//! [`Server::start`] and [`Link::call`] are the two entry points:
//!
//! ```
//! use bytes::Bytes;
//! use holdoff_net::{AllowList, HandlerError, Handler, SecretKey, Link, LinkOptions, Peer, PeerAddress, Server, ServerOptions};
//!
//! struct Echo;
//!
//! #[async_trait::async_trait]
//! impl Handler for Echo {
//!     async fn call(&self, _peer: &Peer, request: Bytes) -> Result<Bytes, HandlerError> {
//!         Ok(request)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (mine, theirs) = (SecretKey::generate()?, SecretKey::generate()?);
//! let options = ServerOptions { allow: AllowList::only([mine.public()]), ..ServerOptions::default() };
//! let server = Server::start(&theirs, "127.0.0.1:0", Echo, options).await?;
//!
//! let remote = PeerAddress { key: theirs.public(), address: server.address().to_string() };
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
//! - Logs never contain secret keys, payloads or error messages. A peer is logged by the first eight digits of its key.
//!
//! # Deliberately absent
//!
//! Certificates, names and authorities; calls from a server to a link; retries of a call, because only its caller knows
//! whether a retry is safe.

mod clock;
mod connection;
mod error;
mod hex;
mod link;
pub mod metrics;
mod options;
mod public_key;
mod queue;
mod role;
mod secret_key;
mod server;
mod signature;
mod signature_cache;
mod tls;
mod transport;
mod wire;

pub use error::{CloseReason, Error, HandlerError};
pub use link::{
    EncodedSize, InvalidPeerAddress, Link, LinkStatus, MessageSender, PeerAddress, PushEvent, PushReceiver,
    SenderLimits,
};
pub use options::{AllowList, ConnectionLimits, LinkOptions, ServerOptions};
pub use public_key::{InvalidPublicKey, PublicKey};
pub use queue::{QueueError, Receiver as QueueReceiver, Sender as QueueSender, queue as bounded_queue};
pub use role::LinkRole;
pub use secret_key::{KeyFileError, NoRandomness, SecretKey};
pub use server::{ConnectionId, Handler, Peer, PushError, Server};
pub use signature::{Ed25519, Signature, Signer, Verifier};
pub use signature_cache::{CachingSigner, SignatureCache};
#[cfg(feature = "turmoil")]
pub use transport::Turmoil;
pub use transport::{Listener, Stream, Tcp, Transport};
pub use wire::{decode, encode};

#[cfg(test)]
mod tests;

/// Compiles and runs the code blocks of the documentation page.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/net.md")]
struct DocsNet;
