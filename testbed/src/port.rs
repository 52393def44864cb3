//! A port that is free.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below what systems lend to outgoing connections, so that nobody takes the port while its server restarts.
const FIRST: u32 = 20_000;
const COUNT: u32 = 12_000;

/// The next free port of loopback. Somebody may be faster; then ask for another.
pub fn free() -> u16 {
    // Processes start at different places, to meet less often.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(97);
    let ports = (0..COUNT).map(|_| FIRST + start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT);
    let mut ports = ports.filter_map(|port| u16::try_from(port).ok());
    ports
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("a free port on loopback")
}
