//! Kinds of I/O errors.

use std::io::ErrorKind;

use crate::Class;

/// A kind of I/O error and its class.
pub(super) struct Row {
    kind: Option<ErrorKind>,
    pub(super) name: &'static str,
    pub(super) class: Class,
}

const fn row(kind: ErrorKind, name: &'static str, class: Class) -> Row {
    Row { kind: Some(kind), name, class }
}

/// The row of every kind without its own row.
const OTHER: Row = Row { kind: None, name: "other", class: Class::Permanent };

pub(super) static ROWS: &[Row] = &[
    row(ErrorKind::AddrInUse, "addr_in_use", Class::Contended),
    row(ErrorKind::AddrNotAvailable, "addr_not_available", Class::Permanent),
    row(ErrorKind::AlreadyExists, "already_exists", Class::Conflict),
    row(ErrorKind::ArgumentListTooLong, "argument_list_too_long", Class::Permanent),
    row(ErrorKind::BrokenPipe, "broken_pipe", Class::Transient),
    row(ErrorKind::ConnectionAborted, "connection_aborted", Class::Transient),
    row(ErrorKind::ConnectionRefused, "connection_refused", Class::Transient),
    row(ErrorKind::ConnectionReset, "connection_reset", Class::Transient),
    row(ErrorKind::CrossesDevices, "crosses_devices", Class::Permanent),
    row(ErrorKind::Deadlock, "deadlock", Class::Contended),
    row(ErrorKind::DirectoryNotEmpty, "directory_not_empty", Class::Permanent),
    row(ErrorKind::ExecutableFileBusy, "executable_file_busy", Class::Contended),
    row(ErrorKind::FileTooLarge, "file_too_large", Class::Permanent),
    row(ErrorKind::HostUnreachable, "host_unreachable", Class::Transient),
    row(ErrorKind::Interrupted, "interrupted", Class::Transient),
    row(ErrorKind::InvalidData, "invalid_data", Class::Permanent),
    row(ErrorKind::InvalidFilename, "invalid_filename", Class::Permanent),
    row(ErrorKind::InvalidInput, "invalid_input", Class::Permanent),
    row(ErrorKind::IsADirectory, "is_a_directory", Class::Permanent),
    row(ErrorKind::NetworkDown, "network_down", Class::Transient),
    row(ErrorKind::NetworkUnreachable, "network_unreachable", Class::Transient),
    row(ErrorKind::NotADirectory, "not_a_directory", Class::Permanent),
    row(ErrorKind::NotConnected, "not_connected", Class::Transient),
    row(ErrorKind::NotFound, "not_found", Class::Permanent),
    row(ErrorKind::NotSeekable, "not_seekable", Class::Permanent),
    row(ErrorKind::OutOfMemory, "out_of_memory", Class::Permanent),
    row(ErrorKind::PermissionDenied, "permission_denied", Class::Permanent),
    row(ErrorKind::QuotaExceeded, "quota_exceeded", Class::Permanent),
    row(ErrorKind::ReadOnlyFilesystem, "read_only_filesystem", Class::Permanent),
    row(ErrorKind::ResourceBusy, "resource_busy", Class::Contended),
    row(ErrorKind::StaleNetworkFileHandle, "stale_network_file_handle", Class::Transient),
    row(ErrorKind::StorageFull, "storage_full", Class::Permanent),
    row(ErrorKind::TimedOut, "timed_out", Class::Timeout),
    row(ErrorKind::TooManyLinks, "too_many_links", Class::Permanent),
    row(ErrorKind::UnexpectedEof, "unexpected_eof", Class::Transient),
    row(ErrorKind::Unsupported, "unsupported", Class::Permanent),
    row(ErrorKind::WouldBlock, "would_block", Class::Contended),
    row(ErrorKind::WriteZero, "write_zero", Class::Permanent),
    OTHER,
];

/// Returns the row of this kind of error.
pub(super) fn row_of(kind: ErrorKind) -> &'static Row {
    ROWS.iter().find(|row| row.kind == Some(kind)).unwrap_or(const { &OTHER })
}
