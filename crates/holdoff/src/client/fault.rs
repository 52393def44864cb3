//! The failures of pulled steps.

use std::time::Duration;

use holdoff_policy::{Class, format_duration};
use serde_json::{Value, json};

/// The reason why a pulled step did not succeed.
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
    /// Creates a failure of this class; the step's policy decides about a retry.
    pub fn new(class: Class, message: impl Into<String>) -> Self {
        Self { kind: Kind::Failed { class, retry_after: None }, message: message.into() }
    }

    /// Creates a failure that may pass by itself.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::new(Class::Transient, message)
    }

    /// Creates a failure that will not pass by itself.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(Class::Permanent, message)
    }

    /// Postpones the step without counting a failure.
    pub fn snooze(wait: Duration, reason: impl Into<String>) -> Self {
        Self { kind: Kind::Snoozed { wait }, message: reason.into() }
    }

    /// Sets the wait that the called server asked for.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        if let Kind::Failed { retry_after, .. } = &mut self.kind {
            *retry_after = Some(wait);
        }
        self
    }

    /// Returns the path and the body of the report.
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
