//! The names that are counted separately.
//!
//! A caller that may submit steps can invent any number of names. The number of names of each kind that are counted
//! separately is limited, with a limit of its own for failing names. The others are counted together.

use std::collections::HashSet;
use std::time::Duration;

use super::{PulseRow, What};

/// How long a name is counted separately: as long as the widest bucket.
const LASTS: Duration = Duration::from_secs(900);
/// The largest numbers of failing and of other names of one kind.
const MOST_FAILING: usize = 200;
const MOST_WELL: usize = 100;

/// The names that are currently counted separately.
#[derive(Debug, Default)]
pub(crate) struct Known {
    failing: HashSet<(What, String, String)>,
    well: HashSet<(What, String, String)>,
    since: Option<Duration>,
}

impl Known {
    /// Replaces names beyond the limits by `other`. Failing names are admitted first.
    pub(crate) fn fold(&mut self, mut rows: Vec<PulseRow>, now: Duration) -> Vec<PulseRow> {
        if self.since.is_none_or(|since| now.saturating_sub(since) >= LASTS) {
            *self = Self { since: Some(now), ..Self::default() };
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.outcome));
        for row in &mut rows {
            if matches!(row.what, What::Operation | What::Destination) && !self.admits(row) {
                super::tally::OTHER.clone_into(&mut row.name);
            }
        }
        rows
    }

    fn admits(&mut self, row: &PulseRow) -> bool {
        let key = (row.what, row.namespace.clone(), row.name.clone());
        if self.failing.contains(&key) || self.well.contains(&key) {
            return true;
        }
        let is_failure = row.outcome == PulseRow::FAILURE;
        let (names, most) =
            if is_failure { (&mut self.failing, MOST_FAILING) } else { (&mut self.well, MOST_WELL) };
        let of_its_kind = names.iter().filter(|(what, ..)| *what == row.what).count();
        of_its_kind < most && names.insert(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, outcome: i16) -> PulseRow {
        let (what, namespace) = (What::Destination, "eu".to_owned());
        PulseRow { what, namespace, name: name.to_owned(), outcome, count: 1, class: None }
    }

    #[test]
    fn names_that_are_made_up_one_after_the_other_become_one() {
        let mut known = Known::default();
        let mut names = HashSet::new();
        for number in 0..5000 {
            let rows = known.fold(vec![row(&format!("h{number}"), PulseRow::SUCCESS)], Duration::ZERO);
            names.extend(rows.into_iter().map(|row| row.name));
        }
        assert_eq!(names.len(), MOST_WELL + 1);
        let failing = known.fold(vec![row("bad", PulseRow::FAILURE)], Duration::ZERO);
        assert_eq!(failing[0].name, "bad", "there is room for those that fail");
        let later = known.fold(vec![row("h4999", PulseRow::SUCCESS)], LASTS);
        assert_eq!(later[0].name, "h4999", "places are given anew");
    }
}
