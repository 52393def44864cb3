//! What goes into a step, and what comes out of it.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Fault;

/// What goes into a step, and what comes out of it: JSON, or bytes.
///
/// It is never logged, and its `Debug` shows its size only.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Payload {
    pub(crate) format: Format,
    pub(crate) bytes: Bytes,
}

/// How a payload is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Format {
    /// Nothing at all.
    #[default]
    Empty,
    /// JSON.
    Json,
    /// Anything.
    Bytes,
}

impl Format {
    /// The number the stores keep. A number is never given to another format.
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
    /// Anything that serialises, as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        Ok(Self { format: Format::Json, bytes: serde_json::to_vec(value)?.into() })
    }

    /// Bytes, as they are.
    pub fn bytes(bytes: impl Into<Bytes>) -> Self {
        Self { format: Format::Bytes, bytes: bytes.into() }
    }

    /// Nothing.
    pub const fn empty() -> Self {
        Self { format: Format::Empty, bytes: Bytes::new() }
    }

    /// How it is written.
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The bytes themselves.
    pub const fn as_bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Reads it as JSON; nothing reads as `null`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match self.format {
            Format::Empty => serde_json::from_slice(b"null"),
            Format::Json | Format::Bytes => serde_json::from_slice(&self.bytes),
        }
    }

    /// Reads it as JSON, for a handler: what cannot be read will not be readable next time either.
    pub(crate) fn read_or_fail<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        self.read()
            .map_err(|error| Fault::permanent(format!("the payload does not fit the handler: {error}")))
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({:?}, {} bytes)", self.format, self.bytes.len())
    }
}
