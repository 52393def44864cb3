//! Finds a free port.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the range for outgoing connections, so that no other program takes the port while its server
/// restarts.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// Returns the next free port on loopback. Another process may take it first; then call again.
pub fn free() -> u16 {
    // Processes start at different ports, to collide less often.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(97);
    let ports = (0..COUNT).map(|_| FIRST + start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT);
    let mut ports = ports.filter_map(|port| u16::try_from(port).ok());
    ports
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("a free port on loopback")
}
