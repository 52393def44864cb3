//! The canonical text of a compiled policy, and the id derived from it.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use sha2::{Digest, Sha256};

use super::{Compiled, DelayShape};

/// The version in the canonical text.
pub(super) const VERSION: u32 = 1;

/// The content id of a policy: the SHA-256 of its canonical text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId([u8; 32]);

impl PolicyId {
    /// Returns the id of these bytes: their hash.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the 32 bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Wraps the 32 bytes of a hash.
impl From<[u8; 32]> for PolicyId {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicyId({self})")
    }
}

impl FromStr for PolicyId {
    type Err = InvalidPolicyId;

    fn from_str(hex: &str) -> Result<Self, Self::Err> {
        if hex.len() != 64 || !hex.is_ascii() {
            return Err(InvalidPolicyId);
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let digits = hex.get(index * 2..index * 2 + 2).ok_or(InvalidPolicyId)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| InvalidPolicyId)?;
        }
        Ok(Self(bytes))
    }
}

/// The error for a text that is not a policy id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a policy id: expected 64 hexadecimal digits")]
pub struct InvalidPolicyId;

impl Compiled {
    /// Returns the content id: equal policies have equal ids, whatever their names.
    pub fn id(&self) -> PolicyId {
        PolicyId::of(self.canonical().as_bytes())
    }

    /// Returns the canonical text: one line of JSON, keys in a fixed order, integers only, no white space.
    pub fn canonical(&self) -> String {
        let Self { attempts, retry_after, cap_us, low_ppm, high_ppm, .. } = self;
        let deadline = self.deadline_us.map_or_else(null, |us| us.to_string());
        let contention = self.contention.map_or_else(null, |contention| {
            format!("{{\"slot_us\":{},\"limit_us\":{}}}", contention.slot_us, contention.limit_us)
        });
        let retry_after = format!(
            "{{\"spread_us\":{},\"limit_us\":{},\"beyond\":\"{}\"}}",
            retry_after.spread_us,
            retry_after.limit_us,
            retry_after.beyond.name()
        );
        format!(
            "{{\"version\":{VERSION},\"attempts\":{attempts},\"deadline_us\":{deadline},\"cap_us\":{cap_us},\
             \"low_ppm\":{low_ppm},\"high_ppm\":{high_ppm},\"shape\":{},\"retry_after\":{retry_after},\"contention\":{contention}}}",
            self.shape
        )
    }
}

fn null() -> String {
    "null".to_string()
}

/// Writes the shape in the form of the canonical text.
impl fmt::Display for DelayShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(ceilings) => {
                f.write_str("{\"table\":[")?;
                for (index, ceiling) in ceilings.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma}{ceiling}")?;
                }
                f.write_str("]}")
            }
            Self::Line { first_us, step_us, top_us } => {
                write!(
                    f,
                    "{{\"line\":{{\"first_us\":{first_us},\"step_us\":{step_us},\"top_us\":{top_us}}}}}"
                )
            }
            Self::Decorrelated { base_us } => write!(f, "{{\"decorrelated\":{{\"base_us\":{base_us}}}}}"),
        }
    }
}
