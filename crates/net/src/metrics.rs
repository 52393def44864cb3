//! Every metric of this crate: names, help texts and counting functions.
//!
//! Label values are fixed words of this crate, never a key, an address or a role.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use crate::Error;
use crate::wire::Malformed;

const CONNECTIONS: &str = "holdoff_net_connections";
const HANDSHAKES_REFUSED: &str = "holdoff_net_handshakes_refused_total";
const CONNECTS: &str = "holdoff_net_connects_total";
const RECONNECT_WAIT_SECONDS: &str = "holdoff_net_reconnect_wait_seconds";
const FRAMES: &str = "holdoff_net_frames_total";
const BYTES: &str = "holdoff_net_bytes_total";
const MALFORMED: &str = "holdoff_net_malformed_total";
const CALLS: &str = "holdoff_net_calls_total";
const CALL_SECONDS: &str = "holdoff_net_call_seconds";
const ANSWERED: &str = "holdoff_net_answered_total";
const REPLIES_IGNORED: &str = "holdoff_net_replies_ignored_total";
const PUSHES_DROPPED: &str = "holdoff_net_pushes_dropped_total";
const MESSAGES_DROPPED: &str = "holdoff_net_messages_dropped_total";

/// Registers the help text of every metric. Call it once, after the recorder is installed.
pub fn describe() {
    describe_gauge!(CONNECTIONS, "open connections, by side");
    describe_counter!(HANDSHAKES_REFUSED, "connections that a server refused, by reason");
    describe_counter!(CONNECTS, "connection attempts of links, by outcome");
    describe_histogram!(
        RECONNECT_WAIT_SECONDS,
        Unit::Seconds,
        "delay of links before the next connection attempt"
    );
    describe_counter!(FRAMES, "frames sent and received");
    describe_counter!(BYTES, Unit::Bytes, "bytes sent and received, before encryption");
    describe_counter!(MALFORMED, "connections closed because of a protocol violation, by reason");
    describe_counter!(CALLS, "calls that ended, by outcome");
    describe_histogram!(CALL_SECONDS, Unit::Seconds, "duration of answered calls");
    describe_counter!(ANSWERED, "calls that a server answered, by outcome");
    describe_counter!(REPLIES_IGNORED, "replies without a waiting call");
    describe_counter!(PUSHES_DROPPED, "pushes dropped because a queue was full, by side");
    describe_counter!(MESSAGES_DROPPED, "messages that a sender dropped, by reason");
}

/// The end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Link,
    Server,
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Server => "server",
        }
    }
}

/// Counts a connection as open until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionGauge(Side);

pub(crate) fn opened(side: Side) -> ConnectionGauge {
    gauge!(CONNECTIONS, "side" => side.name()).increment(1.0);
    ConnectionGauge(side)
}

impl Drop for ConnectionGauge {
    fn drop(&mut self) {
        gauge!(CONNECTIONS, "side" => self.0.name()).decrement(1.0);
    }
}

pub(crate) fn refused(reason: &'static str) {
    counter!(HANDSHAKES_REFUSED, "reason" => reason).increment(1);
}

pub(crate) fn connected(outcome: &'static str) {
    counter!(CONNECTS, "outcome" => outcome).increment(1);
}

pub(crate) fn waits(wait: Duration) {
    histogram!(RECONNECT_WAIT_SECONDS).record(wait.as_secs_f64());
}

pub(crate) fn sent(frames: u64, bytes: usize) {
    counter!(FRAMES, "direction" => "out").increment(frames);
    counter!(BYTES, "direction" => "out").increment(bytes.try_into().unwrap_or(u64::MAX));
}

pub(crate) fn received(bytes: usize) {
    counter!(FRAMES, "direction" => "in").increment(1);
    counter!(BYTES, "direction" => "in").increment(bytes.try_into().unwrap_or(u64::MAX));
}

pub(crate) fn malformed(malformed: Malformed) {
    counter!(MALFORMED, "reason" => malformed.name()).increment(1);
}

pub(crate) fn called<T>(outcome: &Result<T, Error>, took: Duration) {
    let name = outcome.as_ref().err().map_or("ok", Error::name);
    counter!(CALLS, "outcome" => name).increment(1);
    if matches!(outcome, Ok(_) | Err(Error::Handler(_))) {
        histogram!(CALL_SECONDS).record(took.as_secs_f64());
    }
}

pub(crate) fn answered(outcome: &'static str) {
    counter!(ANSWERED, "outcome" => outcome).increment(1);
}

pub(crate) fn reply_ignored() {
    counter!(REPLIES_IGNORED).increment(1);
}

pub(crate) fn pushes_dropped(side: Side, pushes: u64) {
    counter!(PUSHES_DROPPED, "side" => side.name()).increment(pushes);
}

pub(crate) fn messages_dropped(reason: &'static str, messages: usize) {
    counter!(MESSAGES_DROPPED, "reason" => reason).increment(messages.try_into().unwrap_or(u64::MAX));
}
