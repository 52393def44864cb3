//! Over real sockets on loopback.
