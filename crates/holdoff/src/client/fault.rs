//! Why a step that was pulled did not succeed.

use std::time::Duration;

use holdoff_policy::{Class, format_duration};
use serde_json::{Value, json};

/// Why a step that was pulled did not succeed.
#[derive(Clone, Debug)]
pub struct StepFault {
    kind: Kind,
    message: String,
}

#[derive(Clone, Debug)]
enum Kind {
    Failed { class: Class, retry_after: Option<Duration> },
    Snoozed { wait: Duration },
}

impl StepFault {
    /// It failed like this; the step's policy decides what becomes of it.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { kind: Kind::Failed { class, retry_after: None }, message: message.into() }
    }

    /// It may work next time.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(Class::Transient, message)
    }

    /// It will never work.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(Class::Permanent, message)
    }

    /// It does not want to run yet, and has not failed.
    pub fn snooze(wait: Duration, reason: impl Into<String>) -> Self {
        Self { kind: Kind::Snoozed { wait }, message: reason.into() }
    }

    /// The other side asked to be left alone for so long.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        if let Kind::Failed { retry_after, .. } = &mut self.kind {
            *retry_after = Some(wait);
        }
        self
    }

    /// Where it is reported, and as what.
    pub(super) fn report(self) -> (&'static str, Value) {
        match self.kind {
            Kind::Snoozed { wait } => {
                ("snooze", json!({ "wait": format_duration(wait), "reason": self.message }))
            }
            Kind::Failed { class, retry_after } => {
                let mut said = json!({ "class": class.name(), "message": self.message });
                if let (Some(wait), Some(said)) = (retry_after, said.as_object_mut()) {
                    said.insert("retry_after".to_owned(), format_duration(wait).into());
                }
                ("fail", said)
            }
        }
    }
}
