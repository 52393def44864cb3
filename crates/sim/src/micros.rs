//! Virtual time in parameters.

use std::fmt;

use holdoff_policy::{as_micros_u64, format_duration, parse_duration};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::time::Duration;

/// A span of virtual time in microseconds; in files and tables a text such as `"10ms"`.
///
/// ```
/// use holdoff_sim::Micros;
///
/// assert_eq!(Micros::from_millis(10).to_string(), "10ms");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// Creates a span from milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1000))
    }

    /// Creates a span from seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Returns the span as a [`Duration`].
    pub const fn duration(self) -> Duration {
        Duration::from_micros(self.0)
    }

    /// Returns the span in microseconds as a float.
    #[expect(clippy::cast_precision_loss, reason = "what is lost beyond 285 years does not matter")]
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }
}

impl From<Duration> for Micros {
    fn from(duration: Duration) -> Self {
        Self(as_micros_u64(duration))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_duration(self.duration()))
    }
}

impl Serialize for Micros {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Micros {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Written)
    }
}

/// Parses the text form of a span; its error message shows the expected format.
struct Written;

impl de::Visitor<'_> for Written {
    type Value = Micros;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time with its unit, such as 10ms")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Micros, E> {
        parse_duration(text).map(Micros::from).map_err(|why| E::custom(format!("duration {text:?}: {why}")))
    }
}
