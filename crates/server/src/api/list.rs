//! List queries: pagination, and the filter of steps as it is written in queries and in JSON.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdoff_work::{StepFilter, StepState};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::input::{HumanDuration, check_text};
use crate::problem::{Kind, Problem};
use crate::schema::{ClassWord, DurationText, StepIdText, StepStateWord, TaskIdText};

/// The default number of items on a page.
const DEFAULT_LIMIT: u32 = 100;
/// The maximum number of items on the page.
pub(super) const MAX_LIMIT: u32 = 1000;

/// One page of a list.
#[derive(Serialize, ToSchema)]
pub(super) struct ListPage<T: ToSchema> {
    items: Vec<T>,
    /// The start of the next page, to be sent back as `cursor`; absent on the last page. Before the end, a page may have
    /// fewer items than `limit`.
    #[schema(nullable = false)]
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl<T: ToSchema> ListPage<T> {
    /// Creates a page. `end` identifies its last item if there may be more.
    pub(super) fn new(items: Vec<T>, end: Option<String>) -> Self {
        Self { items, next: end.map(|end| URL_SAFE_NO_PAD.encode(end)) }
    }
}

/// Returns the requested number of items, or the default.
pub(super) fn limit(requested: Option<u32>) -> Result<u32, Problem> {
    match requested.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => Ok(limit),
        _ => Err(Problem::new(Kind::InvalidQuery, format!("limit: expected 1 to {MAX_LIMIT}"))),
    }
}

/// Returns the cursor at which the previous page ended, parsed by `read`.
pub(super) fn parse_cursor<T>(
    cursor: Option<&str>,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Problem> {
    let Some(cursor) = cursor else { return Ok(None) };
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok();
    let end = bytes.and_then(|bytes| read(std::str::from_utf8(&bytes).ok()?));
    let invalid =
        || Problem::new(Kind::InvalidQuery, "cursor: expected the unchanged `next` of a previous page");
    end.map(Some).ok_or_else(invalid)
}

/// The maximum of `older_than` and `newer_than`.
const MAX_AGE: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// The maximum length of a search text.
const MAX_TEXT_CHARS: usize = 500;

/// A filter of steps. A step matches if all given conditions hold.
#[derive(Default, Deserialize, IntoParams, ToSchema)]
#[into_params(parameter_in = Query)]
#[schema(as = StepFilter)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilterForm {
    /// Only steps in one of these states.
    #[schema(value_type = Option<Vec<StepStateWord>>)]
    #[param(value_type = Option<Vec<StepStateWord>>, style = Form, explode = false)]
    pub(crate) state: Option<States>,
    /// Only steps of this task.
    #[schema(value_type = Option<TaskIdText>)]
    #[param(value_type = Option<TaskIdText>)]
    pub(crate) task: Option<String>,
    /// Only this step.
    #[schema(value_type = Option<StepIdText>)]
    #[param(value_type = Option<StepIdText>)]
    pub(crate) step: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) queue: Option<String>,
    /// Only steps of this operation; `*` matches any characters.
    pub(crate) operation: Option<String>,
    /// Only steps that call this host.
    pub(crate) destination: Option<String>,
    /// Only steps whose last failure had this class.
    #[schema(value_type = Option<ClassWord>)]
    #[param(value_type = Option<ClassWord>)]
    pub(crate) class: Option<String>,
    /// Only steps with at least this many failures.
    pub(crate) min_failures: Option<u32>,
    /// Only those submitted at least this long ago.
    #[schema(value_type = Option<DurationText>)]
    #[param(value_type = Option<DurationText>)]
    pub(crate) older_than: Option<HumanDuration>,
    /// Only those submitted at most this long ago.
    #[schema(value_type = Option<DurationText>)]
    #[param(value_type = Option<DurationText>)]
    pub(crate) newer_than: Option<HumanDuration>,
    /// Only steps that have been ready or running for longer than this.
    #[schema(value_type = Option<DurationText>)]
    #[param(value_type = Option<DurationText>)]
    pub(crate) stale_after: Option<HumanDuration>,
    /// Only steps with this text in the name or the last message.
    pub(crate) text: Option<String>,
}

impl FilterForm {
    /// Returns the filter. The error names the invalid field.
    pub(crate) fn filter(self) -> Result<StepFilter, String> {
        let age = |what: &str, wait: Option<HumanDuration>| match wait {
            Some(HumanDuration(wait)) if wait > MAX_AGE => Err(format!("{what}: expected at most 3650d")),
            wait => Ok(wait.map(|HumanDuration(wait)| wait)),
        };
        let mut filter = StepFilter::default();
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
            text.as_deref().map_or(Ok(()), |text| check_text(what, text, MAX_TEXT_CHARS))?;
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
        deserializer.deserialize_any(StatesVisitor)
    }
}

struct StatesVisitor;

impl<'de> Visitor<'de> for StatesVisitor {
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
