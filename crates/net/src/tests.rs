//! Tests over real sockets on loopback.

mod door;
mod hostile;
mod pressure;
mod reconnecting;
mod support;
mod talking;
