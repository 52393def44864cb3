//! Signals: deduplicated alerts. Many equal signals create one task.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Client, Error, NewTask};

/// An event, and the task that it creates unless an equal signal has created it.
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

/// The result of a signal.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct AcceptedSignal {
    /// The id of the task for this signal.
    pub task: String,
    /// Whether this signal created the task.
    pub created: bool,
    /// The number of signals that the task represents.
    pub occurrences: u64,
    /// The key of the node that has the task, if that is another node than the one that received the request.
    #[serde(default)]
    pub daemon: Option<String>,
}

impl Signal {
    /// Creates a signal. Signals with the same fingerprint are equal.
    pub fn of(fingerprint: impl Into<String>, task: NewTask) -> Self {
        let fingerprint = Some(fingerprint.into());
        Self { namespace: None, fingerprint, fields: None, data: Map::new(), task }
    }

    /// Creates a signal. Signals with the same values of these fields are equal.
    pub fn of_fields<T: Into<String>>(
        fields: impl IntoIterator<Item = T>,
        data: Map<String, Value>,
        task: NewTask,
    ) -> Self {
        let fields = Some(fields.into_iter().map(Into::into).collect());
        Self { namespace: None, fingerprint: None, fields, data, task }
    }

    /// Sets the namespace; the default is `default`.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }
}

impl Client {
    /// Sends a signal. A call that was repeated after a lost response may count twice, but it creates one
    /// task.
    pub async fn signal(&self, signal: &Signal) -> Result<AcceptedSignal, Error> {
        self.post("/v1/signals", signal).await
    }
}
