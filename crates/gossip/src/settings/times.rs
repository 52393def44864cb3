//! Settings in microseconds for the state machines, and as text for configuration files.

use std::time::Duration;

use super::Settings;

/// The settings in microseconds, with all defaults filled in.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "the unit stands last in each")]
pub(crate) struct Times {
    pub(crate) round_us: u64,
    pub(crate) election_us: u64,
    pub(crate) listening_us: u64,
    pub(crate) suspicion_us: u64,
    pub(crate) tenure_us: u64,
}

impl From<&Settings> for Times {
    fn from(settings: &Settings) -> Self {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            round_us: us(settings.round),
            election_us: us(settings.election()),
            listening_us: us(settings.listening()),
            suspicion_us: us(settings.suspicion()),
            tenure_us: us(settings.minimum_tenure()),
        }
    }
}

pub(super) mod text {
    use std::time::Duration;

    use holdoff_policy::{format_duration, parse_duration};
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format_duration(*time))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        parse_duration(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

pub(super) mod optional_text {
    use std::time::Duration;

    use serde::{Deserializer, Serializer};

    use super::text;

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(in super::super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => text::serialize(time, to),
            None => to.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        text::deserialize(from).map(Some)
    }
}
