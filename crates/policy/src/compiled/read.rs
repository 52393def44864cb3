//! Reads a compiled policy that was stored or sent.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::canonical::VERSION;
use super::{Compiled, ContentionUs, DelayShape, MAX_TABLE, RetryAfterUs};
use crate::micros::MAX_DELAY_US;
use crate::{Beyond, InvalidPolicy};

/// The fields of the canonical text, in its order.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Form {
    version: u32,
    attempts: u32,
    deadline_us: Option<u64>,
    cap_us: u64,
    low_ppm: u32,
    high_ppm: u32,
    shape: ShapeForm,
    retry_after: RetryAfterForm,
    contention: Option<ContentionForm>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum ShapeForm {
    Table(Vec<u64>),
    Line { first_us: u64, step_us: u64, top_us: u64 },
    Decorrelated { base_us: u64 },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryAfterForm {
    spread_us: u64,
    limit_us: u64,
    beyond: BeyondForm,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BeyondForm {
    Wait,
    GiveUp,
    Clip,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContentionForm {
    slot_us: u64,
    limit_us: u64,
}

impl Serialize for Compiled {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Form::from(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Compiled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Form::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
    }
}

impl From<&Compiled> for Form {
    fn from(compiled: &Compiled) -> Self {
        Self {
            version: VERSION,
            attempts: compiled.attempts,
            deadline_us: compiled.deadline_us,
            cap_us: compiled.cap_us,
            low_ppm: compiled.low_ppm,
            high_ppm: compiled.high_ppm,
            shape: match compiled.shape.clone() {
                DelayShape::Table(ceilings) => ShapeForm::Table(ceilings),
                DelayShape::Line { first_us, step_us, top_us } => {
                    ShapeForm::Line { first_us, step_us, top_us }
                }
                DelayShape::Decorrelated { base_us } => ShapeForm::Decorrelated { base_us },
            },
            retry_after: RetryAfterForm {
                spread_us: compiled.retry_after.spread_us,
                limit_us: compiled.retry_after.limit_us,
                beyond: match compiled.retry_after.beyond {
                    Beyond::Wait => BeyondForm::Wait,
                    Beyond::GiveUp => BeyondForm::GiveUp,
                    Beyond::Clip => BeyondForm::Clip,
                },
            },
            contention: compiled.contention.map(|contention| ContentionForm {
                slot_us: contention.slot_us,
                limit_us: contention.limit_us,
            }),
        }
    }
}

impl TryFrom<Form> for Compiled {
    type Error = InvalidPolicy;

    fn try_from(form: Form) -> Result<Self, InvalidPolicy> {
        form.check()?;
        let shape = match form.shape {
            ShapeForm::Table(ceilings) => DelayShape::Table(ceilings),
            ShapeForm::Line { first_us, step_us, top_us } => DelayShape::Line { first_us, step_us, top_us },
            ShapeForm::Decorrelated { base_us } => DelayShape::Decorrelated { base_us },
        };
        let retry_after = RetryAfterUs {
            spread_us: form.retry_after.spread_us,
            limit_us: form.retry_after.limit_us,
            beyond: match form.retry_after.beyond {
                BeyondForm::Wait => Beyond::Wait,
                BeyondForm::GiveUp => Beyond::GiveUp,
                BeyondForm::Clip => Beyond::Clip,
            },
        };
        let contention = form
            .contention
            .map(|contention| ContentionUs { slot_us: contention.slot_us, limit_us: contention.limit_us });
        let scale = (form.cap_us, form.low_ppm, form.high_ppm);
        Ok(Self::assemble(form.attempts, form.deadline_us, retry_after, contention, scale, shape))
    }
}

impl Form {
    /// Checks the form. A form that passes decides without overflow and never above its cap.
    fn check(&self) -> Result<(), InvalidPolicy> {
        if self.version != VERSION {
            return not_compiled(format!(
                "version {} is not known here; this release reads {VERSION}",
                self.version
            ));
        }
        if self.attempts == 0 {
            return Err(InvalidPolicy::NoAttempts);
        }
        if self.low_ppm > self.high_ppm {
            return not_compiled("low_ppm is above high_ppm".to_string());
        }
        let mut times = Vec::from([self.cap_us, self.retry_after.spread_us, self.retry_after.limit_us]);
        times.extend(self.deadline_us);
        times.extend(self.contention.iter().flat_map(|contention| [contention.slot_us, contention.limit_us]));
        if times.iter().any(|&us| us > MAX_DELAY_US) {
            return not_compiled(format!("a time is above {MAX_DELAY_US} us (365 days)"));
        }
        let ceilings_fit = match &self.shape {
            ShapeForm::Table(ceilings) if ceilings.is_empty() || ceilings.len() > MAX_TABLE => {
                return Err(InvalidPolicy::ListLength(ceilings.len()));
            }
            ShapeForm::Table(ceilings) => ceilings.iter().all(|&us| us <= self.cap_us),
            ShapeForm::Line { first_us, step_us, top_us } => {
                first_us <= top_us && *top_us <= self.cap_us && *step_us <= MAX_DELAY_US
            }
            ShapeForm::Decorrelated { base_us } => *base_us <= self.cap_us,
        };
        if !ceilings_fit {
            return not_compiled("a ceiling is above the cap".to_string());
        }
        Ok(())
    }
}

fn not_compiled(why: alloc::string::String) -> Result<(), InvalidPolicy> {
    Err(InvalidPolicy::Compiled(why))
}
