//! Payloads: the input and the output of a step.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Fault;

/// The input or the output of a step: JSON, or bytes.
///
/// A payload is never logged, and its `Debug` form shows only its size.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Payload {
    pub(crate) format: Format,
    pub(crate) bytes: Bytes,
}

/// The format of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Format {
    /// No content.
    #[default]
    Empty,
    /// JSON.
    Json,
    /// Arbitrary bytes.
    Bytes,
}

impl Format {
    /// Returns the number that the stores keep. A number is never reused for another format.
    pub(crate) const fn code(self) -> i16 {
        match self {
            Self::Empty => 0,
            Self::Json => 1,
            Self::Bytes => 2,
        }
    }

    pub(crate) const fn of_code(code: i16) -> Self {
        match code {
            0 => Self::Empty,
            1 => Self::Json,
            _ => Self::Bytes,
        }
    }
}

impl Payload {
    /// Serialises a value as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        Ok(Self { format: Format::Json, bytes: serde_json::to_vec(value)?.into() })
    }

    /// Wraps bytes without changing them.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self { format: Format::Bytes, bytes: bytes.into() }
    }

    /// Returns a payload without content.
    pub const fn empty() -> Self {
        Self { format: Format::Empty, bytes: Bytes::new() }
    }

    /// Returns the format.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Returns the bytes.
    pub const fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Reads the payload as JSON; an empty payload reads as `null`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match self.format {
            Format::Empty => serde_json::from_slice(b"null"),
            Format::Json | Format::Bytes => serde_json::from_slice(&self.bytes),
        }
    }

    /// Reads the payload as JSON for a handler. A payload that cannot be read is a permanent failure, because the
    /// next attempt cannot read it either.
    pub(crate) fn read_or_fail<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        self.read().map_err(|error| Fault::permanent(format!("the handler cannot read the payload: {error}")))
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({:?}, {} bytes)", self.format, self.bytes.len())
    }
}
