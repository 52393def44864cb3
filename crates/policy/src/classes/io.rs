//! io errors.

use std::io::ErrorKind;

use crate::Class;

/// A kind of io error and what it means.
pub(super) struct Row {
    kind: Option<ErrorKind>,
    pub(super) name: &'static str,
    pub(super) class: Class,
}

const fn row(kind: ErrorKind, name: &'static str, class: Class) -> Row {
    Row { kind: Some(kind), name, class }
}

/// What every kind without a row of its own is.
const OTHER: Row = Row { kind: None, name: "other", class: Class::Permanent };

pub(super) static ROWS: &[Row] = &[
    row(ErrorKind::AddrInUse, "addr_in_use", Class::Contended),
    row(ErrorKind::AlreadyExists, "already_exists", Class::Conflict),
    row(ErrorKind::BrokenPipe, "broken_pipe", Class::Transient),
    row(ErrorKind::ConnectionAborted, "connection_aborted", Class::Transient),
    row(ErrorKind::ConnectionRefused, "connection_refused", Class::Transient),
    row(ErrorKind::ConnectionReset, "connection_reset", Class::Transient),
    row(ErrorKind::Deadlock, "deadlock", Class::Contended),
    row(ErrorKind::ExecutableFileBusy, "executable_file_busy", Class::Contended),
    row(ErrorKind::HostUnreachable, "host_unreachable", Class::Transient),
    row(ErrorKind::Interrupted, "interrupted", Class::Transient),
    row(ErrorKind::NetworkDown, "network_down", Class::Transient),
    row(ErrorKind::NetworkUnreachable, "network_unreachable", Class::Transient),
    row(ErrorKind::NotConnected, "not_connected", Class::Transient),
    row(ErrorKind::ResourceBusy, "resource_busy", Class::Contended),
    row(ErrorKind::StaleNetworkFileHandle, "stale_network_file_handle", Class::Transient),
    row(ErrorKind::TimedOut, "timed_out", Class::Timeout),
    row(ErrorKind::UnexpectedEof, "unexpected_eof", Class::Transient),
    row(ErrorKind::WouldBlock, "would_block", Class::Contended),
    OTHER,
];

/// The row of this kind of error.
pub(super) fn row_of(kind: ErrorKind) -> &'static Row {
    ROWS.iter().find(|row| row.kind == Some(kind)).unwrap_or(const { &OTHER })
}
