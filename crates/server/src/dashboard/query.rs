//! The query of a page: its filters, so that every view has a URL.

use holdoff_work::{StepFilter, StepId, StepState, TaskId};

use crate::access::Caller;
use crate::api::{FilterForm, HumanDuration, States};
use crate::problem::{Kind, Problem};

/// The maximum number of pairs read from a query.
const MAX_PAIRS: usize = 64;
/// The names of the filters of steps. Other parameters of a page are not part of a filter.
pub(super) const FILTERS: [&str; 12] = [
    "state",
    "operation",
    "queue",
    "namespace",
    "class",
    "destination",
    "min_failures",
    "older_than",
    "newer_than",
    "stale_after",
    "text",
    "task",
];

/// The pairs of a query as they were written, without empty values.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PageQuery {
    pairs: Vec<(String, String)>,
}

impl PageQuery {
    pub(super) fn read(text: &str) -> Self {
        let pairs = form_urlencoded::parse(text.as_bytes()).take(MAX_PAIRS);
        let filter_form = pairs.filter(|(_, value)| !value.trim().is_empty());
        Self { pairs: filter_form.map(|(key, value)| (key.into_owned(), value.trim().to_owned())).collect() }
    }

    /// Reads a form. Unlike in a query, spaces at the ends of values are kept, because they may be part of the input.
    pub(super) fn form(text: &str) -> Self {
        let pairs = form_urlencoded::parse(text.as_bytes()).take(MAX_PAIRS);
        let filter_form = pairs.filter(|(_, value)| !value.is_empty());
        Self { pairs: filter_form.map(|(key, value)| (key.into_owned(), value.into_owned())).collect() }
    }

    /// Returns the first value of this name, or an empty text.
    pub(super) fn get(&self, key: &str) -> &str {
        self.all(key).next().unwrap_or_default()
    }

    /// Returns the first value of this name, or `None` if it is empty.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        Some(self.get(key)).filter(|text| !text.is_empty()).map(str::to_owned)
    }

    pub(super) fn all<'a>(&'a self, key: &str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    pub(super) fn has(&self, key: &str, value: &str) -> bool {
        self.all(key).any(|known| known == value)
    }

    pub(super) fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// Returns the query without this name.
    pub(super) fn without(&self, key: &str) -> Self {
        Self { pairs: self.pairs.iter().filter(|(known, _)| known != key).cloned().collect() }
    }

    /// Returns the query with this value as the only one of its name.
    pub(super) fn with(&self, key: &str, value: &str) -> Self {
        let mut query = self.without(key);
        query.pairs.push((key.to_owned(), value.to_owned()));
        query
    }

    /// Returns only the filters of steps.
    pub(super) fn filters(&self) -> Self {
        let is_filter = |(key, _): &&(String, String)| FILTERS.contains(&key.as_str());
        Self { pairs: self.pairs.iter().filter(is_filter).cloned().collect() }
    }

    /// Returns the query as part of a URL, with its question mark; empty if there are no pairs.
    pub(super) fn link(&self) -> String {
        if self.pairs.is_empty() {
            return String::new();
        }
        let mut text = form_urlencoded::Serializer::for_suffix("?".to_owned(), 1);
        for (key, value) in &self.pairs {
            text.append_pair(key, value);
        }
        text.finish()
    }

    /// Returns the filter of steps, confined to the namespaces that the caller may see.
    pub(super) fn filter(&self, caller: &Caller) -> Result<StepFilter, Problem> {
        self.filter_form(caller)
            .map_err(|why| Problem::new(Kind::InvalidQuery, why))?
            .filter()
            .map_err(|why| Problem::new(Kind::InvalidQuery, why))
    }

    fn filter_form(&self, caller: &Caller) -> Result<FilterForm, String> {
        let text = |key: &str| self.text(key);
        let time = |key: &str| {
            let parsed = text(key).map(|text| holdoff_policy::parse_duration(&text));
            let invalid = |why| format!("{key}: expected a duration such as \"5m\" or \"2h\": {why}");
            parsed.transpose().map(|time| time.map(HumanDuration)).map_err(invalid)
        };
        let mut states = Vec::new();
        for word in self.all("state").flat_map(|list| list.split(',')) {
            states.push(word.trim().parse::<StepState>().map_err(|why| format!("state: {why}"))?);
        }
        let failures = text("min_failures").map(|text| text.parse());
        Ok(FilterForm {
            state: Some(States(states)).filter(|States(states)| !states.is_empty()),
            task: text("task"),
            step: None,
            namespace: caller
                .namespace_filter(text("namespace"))
                .map_err(|problem| problem.detail().to_owned())?,
            queue: text("queue"),
            operation: text("operation"),
            destination: text("destination"),
            class: text("class"),
            min_failures: failures.transpose().map_err(|_| "min_failures: expected a number".to_owned())?,
            older_than: time("older_than")?,
            newer_than: time("newer_than")?,
            stale_after: time("stale_after")?,
            text: text("text"),
        })
    }

    /// Returns the cursor of a page of steps: the last step of the previous page.
    pub(super) fn after(&self) -> Result<Option<StepId>, Problem> {
        let invalid = |_| {
            Problem::new(Kind::InvalidQuery, "after: expected a step, as in the link of the previous page")
        };
        Some(self.get("after")).filter(|text| !text.is_empty()).map(str::parse).transpose().map_err(invalid)
    }

    /// Returns the cursor of a page of tasks: the last task of the previous page.
    pub(super) fn before(&self) -> Result<Option<TaskId>, Problem> {
        let invalid = |_| {
            Problem::new(Kind::InvalidQuery, "before: expected a task, as in the link of the previous page")
        };
        Some(self.get("before")).filter(|text| !text.is_empty()).map(str::parse).transpose().map_err(invalid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_survives_a_round_trip() {
        let query = PageQuery::read("state=failed&text=a%26b+c&queue=&state=ready");
        assert_eq!(query.link(), "?state=failed&text=a%26b+c&state=ready");
        assert_eq!(PageQuery::read(&query.link()[1..]), query);
        assert_eq!(query.without("state").link(), "?text=a%26b+c");
        assert_eq!(query.with("text", "\"<x>").link(), "?state=failed&state=ready&text=%22%3Cx%3E");
        assert_eq!(PageQuery::default().link(), "");
    }

    #[test]
    fn a_form_keeps_trailing_spaces() {
        assert_eq!(PageQuery::form("key=deploy+").get("key"), "deploy ");
        assert_eq!(PageQuery::read("text=deploy+").get("text"), "deploy");
    }

    #[test]
    fn an_invalid_filter_names_the_field() {
        let filter = |text: &str| PageQuery::read(text).filter(&Caller::Loopback);
        let good = filter("state=failed,conflicted&min_failures=3&older_than=2h").unwrap();
        assert_eq!((good.states.len(), good.min_failures), (2, Some(3)));
        for (bad, filter_form) in [
            ("state=broken", "state:"),
            ("min_failures=many", "min_failures: expected a number"),
            ("older_than=long", "older_than: expected a duration"),
            ("task=7", "task: expected a UUID"),
        ] {
            assert!(filter(bad).unwrap_err().detail().contains(filter_form), "{bad}");
        }
    }
}
