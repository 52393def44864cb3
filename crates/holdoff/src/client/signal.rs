//! Signals: many of the same make one task.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Client, Error, NewTask};

/// Something that happened, and what is to be done about it once.
#[derive(Clone, Debug, Serialize)]
pub struct Signal {
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    data: Map<String, Value>,
    task: NewTask,
}

/// What became of a signal.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct TakenSignal {
    /// The task that stands for it.
    pub task: String,
    /// Whether this signal made it.
    pub created: bool,
    /// How many signals it stands for.
    pub occurrences: u64,
    /// By which key the node of the daemon goes that has the task, if that is another than the one that was asked.
    #[serde(default)]
    pub elsewhere: Option<String>,
}

impl Signal {
    /// Signals with the same text are the same.
    pub fn of(fingerprint: impl Into<String>, task: NewTask) -> Self {
        let fingerprint = Some(fingerprint.into());
        Self { namespace: None, fingerprint, fields: None, data: Map::new(), task }
    }

    /// Signals with the same values of these fields are the same.
    pub fn of_fields<T: Into<String>>(
        fields: impl IntoIterator<Item = T>,
        data: Map<String, Value>,
        task: NewTask,
    ) -> Self {
        let fields = Some(fields.into_iter().map(Into::into).collect());
        Self { namespace: None, fingerprint: None, fields, data, task }
    }

    /// Its namespace; `default` unless it is said.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }
}

impl Client {
    /// Sends a signal. A call that was repeated because its answer was lost may count twice; it makes one task.
    pub async fn signal(&self, signal: &Signal) -> Result<TakenSignal, Error> {
        self.post("/v1/signals", signal).await
    }
}
