//! The acceptor service: stores the promises and votes of many councils on one disk.
//!
//! ```text
//! store.rs     what is on disk             seats.rs     the councils in use
//! writer.rs    one commit for many asks    limits.rs    how much of all that
//! watchers.rs  who is told
//! index.rs     how much of which council   figures.rs   what was counted
//! service.rs   the same over the network   protocol.rs  what is said there
//! lookout.rs   all that, for people
//! settings.rs  the file's `[acceptor]`     allowed.rs   who may ask
//! ```
//!
//! [`Seat`](crate::Seat) implements the part of one acceptor in one council. It is pure.

mod allowed;
mod figures;
mod index;
mod limits;
mod lookout;
mod protocol;
mod seats;
mod service;
mod settings;
mod store;
mod watchers;
mod writer;

pub use allowed::{Allowed, BadList};
pub use figures::{Figures, Lately};
pub use index::{BadPlace, Councils, Kept, Line, Place, Sort, Wish};
pub use limits::Limits;
pub use lookout::{Connected, Lookout};
pub use protocol::{Push, ROLE, Reply, Request};
pub use service::{AcceptorService, StartError};
pub use settings::Settings;
pub use store::{Store, StoreError};
pub use watchers::Watcher;
pub use writer::{Stopped, Writer};
