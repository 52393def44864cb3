//! Handlers: functions of a context and a payload. The API is generic; internally all handlers have one type.

use std::fmt;
use std::pin::Pin;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::StepOutput;
use crate::{Context, Fault, Payload};

type Run =
    dyn Fn(Context, Payload) -> Pin<Box<dyn Future<Output = Result<Completion, Fault>> + Send>> + Send + Sync;

/// A type-erased handler.
pub(super) struct Handler(Box<Run>);

/// The result of a successful run: the output that the worker must report, or `None` if the handler has reported the
/// result itself, in a transaction of its own.
#[derive(Debug)]
pub struct Completion(pub(crate) Option<StepOutput>);

impl Completion {
    const fn output(payload: Payload) -> Self {
        Self(Some(StepOutput::whole(payload)))
    }
}

impl Handler {
    pub(super) fn new<P, O, F, Fut>(handler: F) -> Self
    where
        P: FromPayload,
        O: IntoOutput,
        F: Fn(Context, P) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Fault>> + Send + 'static,
    {
        Self(Box::new(move |context, payload| match P::from_payload(payload) {
            Ok(payload) => {
                let run = handler(context, payload);
                Box::pin(async move { run.await?.into_output() })
            }
            Err(fault) => Box::pin(std::future::ready(Err(fault))),
        }))
    }

    pub(super) fn run(
        &self,
        context: Context,
        payload: Payload,
    ) -> Pin<Box<dyn Future<Output = Result<Completion, Fault>> + Send>> {
        (self.0)(context, payload)
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

/// An argument of a handler: the payload itself, or any type that can be read from JSON.
pub trait FromPayload: Sized + Send + 'static {
    /// Reads the payload. A payload that cannot be read is a permanent failure.
    fn from_payload(payload: Payload) -> Result<Self, Fault>;
}

impl FromPayload for Payload {
    fn from_payload(payload: Payload) -> Result<Self, Fault> {
        Ok(payload)
    }
}

impl<T: DeserializeOwned + Send + 'static> FromPayload for T {
    fn from_payload(payload: Payload) -> Result<Self, Fault> {
        payload.read_or_fail()
    }
}

/// A result of a handler: a payload, or any type that can be written as JSON.
pub trait IntoOutput: Send {
    /// Writes the output.
    fn into_output(self) -> Result<Completion, Fault>;
}

impl IntoOutput for Payload {
    fn into_output(self) -> Result<Completion, Fault> {
        Ok(Completion::output(self))
    }
}

impl IntoOutput for Completion {
    fn into_output(self) -> Result<Completion, Fault> {
        Ok(self)
    }
}

impl<T: Serialize + Send> IntoOutput for T {
    fn into_output(self) -> Result<Completion, Fault> {
        // Most handlers return `()`, which needs no serialisation.
        if std::mem::size_of::<T>() == 0 && std::any::type_name::<T>() == "()" {
            return Ok(Completion::output(Payload::empty()));
        }
        let output = Payload::json(&self);
        output
            .map(Completion::output)
            .map_err(|error| Fault::permanent(format!("the output cannot be serialized as JSON: {error}")))
    }
}
