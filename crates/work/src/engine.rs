//! The engines of the store: one module each, behind the same traits and under one conformance suite.

pub(crate) mod columns;
mod exits;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(test)]
#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod pruning;
pub(crate) mod sql;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;

use std::sync::Arc;

use holdoff_sql::without_password;

use crate::engine::sql::sql;
use crate::query::Action;
use crate::store::{Result, Store};
use crate::{Error, StepFilter, StepState};

/// Opens the store at this URL.
pub(crate) async fn open(url: &str) -> Result<Arc<dyn Store>> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        #[cfg(feature = "sqlite")]
        Some("sqlite") => Ok(Arc::new(sqlite::Sqlite::open(url).await?)),
        #[cfg(feature = "postgres")]
        Some("postgres" | "postgresql") => Ok(Arc::new(postgres::Postgres::open(url).await?)),
        _ => Err(Error::Address { url: without_password(url), source: "the scheme is unknown".into() }),
    }
}

/// Returns the condition under which an action changes a step.
pub(crate) const fn permits(action: &Action) -> &'static str {
    match action {
        Action::Retry | Action::Discard => sql!("s.state in ({failed}, {conflicted})"),
        Action::Resolve(_) => sql!("s.state = {conflicted}"),
        Action::Cancel => "true",
    }
}

/// A set of steps that a query scans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StepTable {
    /// Unfinished steps.
    Steps,
    /// Failed and conflicted steps, through an index of their own.
    Halted,
    /// Finished steps.
    Done,
}

impl StepTable {
    /// Returns the tables that can contain matching steps.
    pub(crate) fn of(filter: &StepFilter) -> Vec<Self> {
        let is_halted = |state: &StepState| matches!(state, StepState::Failed | StepState::Conflicted);
        let is_over = |state: &StepState| StepState::OVER.contains(state);
        let states = if filter.states.is_empty() { &StepState::ALL[..] } else { &filter.states };
        let live = if states.iter().all(|state| is_halted(state) || is_over(state)) {
            states.iter().any(is_halted).then_some(Self::Halted)
        } else {
            Some(Self::Steps)
        };
        let over = states.iter().any(is_over) && filter.stale_after.is_none();
        live.into_iter().chain(over.then_some(Self::Done)).collect()
    }
}

/// Returns a pattern for SQL's LIKE, with `\` as the escape, in which `*` matches any sequence of characters.
fn like_glob(pattern: &str) -> String {
    like_escaped(pattern).replace('*', "%")
}

/// Returns a pattern for SQL's LIKE that matches every string containing this text.
fn like_containing(text: &str) -> String {
    format!("%{}%", like_escaped(text))
}

fn like_escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '%' | '_' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_scheme_is_rejected_with_the_known_ones() {
        let error = open("mysql://x").await.unwrap_err().to_string();
        assert!(error.contains("expected sqlite:FILE"), "{error}");
    }

    #[test]
    fn only_tables_that_can_match_are_read() {
        use StepState::{Cancelled, Conflicted, Failed, Ready, Succeeded};
        let of = |states: &[StepState]| StepTable::of(&StepFilter::states(states.iter().copied()));
        assert_eq!(of(&[]), [StepTable::Steps, StepTable::Done]);
        assert_eq!(of(&[Ready, Failed]), [StepTable::Steps]);
        assert_eq!(of(&[Failed, Conflicted]), [StepTable::Halted]);
        assert_eq!(of(&[Failed, Cancelled]), [StepTable::Halted, StepTable::Done]);
        assert_eq!(of(&[Succeeded]), [StepTable::Done]);
        assert_eq!(of(&StepState::ALL), [StepTable::Steps, StepTable::Done]);
    }

    #[test]
    fn only_the_star_is_a_wildcard() {
        assert_eq!(like_glob("card.*"), "card.%");
        assert_eq!(like_glob("100%_a\\b"), "100\\%\\_a\\\\b");
        assert_eq!(like_containing("50%"), "%50\\%%");
    }
}
