//! The filter of steps, as it is written in queries and in JSON.

use std::time::Duration;

use holdoff_work::{Filter, StepState};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use utoipa::{IntoParams, ToSchema};

use super::forms::Wait;
use super::input::check_text;
use crate::schema::{ClassWord, StepIdText, StepStateWord, TaskIdText, WaitText};

/// The maximum of `older_than` and `newer_than`.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// The maximum length of a search text.
const LONGEST_TEXT: usize = 500;

/// Which steps are meant: those to which everything said here applies.
#[derive(Default, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[schema(as = StepFilter)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterForm {
    /// In one of these states.
    #[schema(value_type = Option<Vec<StepStateWord>>)]
    #[param(value_type = Option<Vec<StepStateWord>>, style = Form, explode = false)]
    pub(crate) state: Option<States>,
    /// Of this task.
    #[schema(value_type = Option<TaskIdText>)]
    #[param(value_type = Option<TaskIdText>)]
    pub(crate) task: Option<String>,
    /// This one.
    #[schema(value_type = Option<StepIdText>)]
    #[param(value_type = Option<StepIdText>)]
    pub(crate) step: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) queue: Option<String>,
    /// Of this operation; `*` stands for any run of characters.
    pub(crate) operation: Option<String>,
    /// Calling this host.
    pub(crate) destination: Option<String>,
    /// Whose last failure was of this class.
    #[schema(value_type = Option<ClassWord>)]
    #[param(value_type = Option<ClassWord>)]
    pub(crate) class: Option<String>,
    /// That have failed at least so often.
    pub(crate) min_failures: Option<u32>,
    /// Submitted at least so long ago.
    #[schema(value_type = Option<WaitText>)]
    #[param(value_type = Option<WaitText>)]
    pub(crate) older_than: Option<Wait>,
    /// Submitted at most so long ago.
    #[schema(value_type = Option<WaitText>)]
    #[param(value_type = Option<WaitText>)]
    pub(crate) newer_than: Option<Wait>,
    /// Ready or running for longer than this.
    #[schema(value_type = Option<WaitText>)]
    #[param(value_type = Option<WaitText>)]
    pub(crate) stale_after: Option<Wait>,
    /// With this text in the step's name or its last message.
    pub(crate) text: Option<String>,
}

impl FilterForm {
    /// Returns the filter. The error names the invalid field.
    pub(crate) fn filter(self) -> Result<Filter, String> {
        let age = |what: &str, wait: Option<Wait>| match wait {
            Some(Wait(wait)) if wait > LONGEST => Err(format!("{what}: expected at most 3650d")),
            wait => Ok(wait.map(|Wait(wait)| wait)),
        };
        let mut filter = Filter::default();
        filter.states = self.state.map(|States(states)| states).unwrap_or_default();
        filter.task = self.task.map(|task| task.parse()).transpose().map_err(|_| "task: expected a UUID")?;
        filter.step =
            self.step.map(|step| step.parse()).transpose().map_err(|_| "step: expected `TASK/NUMBER`")?;
        let texts = [
            ("namespace", &self.namespace),
            ("queue", &self.queue),
            ("operation", &self.operation),
            ("destination", &self.destination),
            ("class", &self.class),
            ("text", &self.text),
        ];
        for (what, text) in texts {
            text.as_deref().map_or(Ok(()), |text| check_text(what, text, LONGEST_TEXT))?;
        }
        filter.older_than = age("older_than", self.older_than)?;
        filter.newer_than = age("newer_than", self.newer_than)?;
        filter.stale_after = age("stale_after", self.stale_after)?;
        filter.min_failures = self.min_failures;
        (filter.namespace, filter.queue) = (self.namespace, self.queue);
        (filter.operation, filter.destination) = (self.operation, self.destination);
        (filter.class, filter.text) = (self.class, self.text);
        Ok(filter)
    }
}

/// States of steps: a list in JSON, words separated by commas in a query.
pub(crate) struct States(pub(crate) Vec<StepState>);

impl<'de> Deserialize<'de> for States {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReadStates)
    }
}

struct ReadStates;

impl<'de> Visitor<'de> for ReadStates {
    type Value = States;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("states")
    }

    fn visit_str<E: serde::de::Error>(self, words: &str) -> Result<States, E> {
        let states = words.split(',').filter(|word| !word.is_empty()).map(|word| word.trim().parse());
        states.collect::<Result<_, _>>().map(States).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<States, A::Error> {
        let mut states = Vec::new();
        while let Some(word) = words.next_element::<String>()? {
            states.push(word.parse().map_err(A::Error::custom)?);
        }
        Ok(States(states))
    }
}
