//! The index of the councils of an acceptor, with the size of each. The writer keeps it up to date in memory, so a
//! query reads nothing from the disk.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{CouncilId, Mark, Seat, Slot};

/// An entry of the index: one council of an acceptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Line {
    /// The short id of the council. The id itself is a secret among the council's participants.
    pub mark: Mark,
    /// The stored amount. It is unknown until the first request for the council since the start.
    pub kept: Option<Kept>,
    /// The time since the last request for the council.
    pub asked: Option<Duration>,
}

/// The amount that an acceptor stores for a council.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Kept {
    /// The highest slot in which the acceptor has accepted a value.
    pub latest: Slot,
    /// The last slot that the snapshot covers.
    pub floor: Slot,
    /// The number of slots after the snapshot.
    pub slots: u64,
    /// The bytes of values, mail and the snapshot.
    pub bytes: u64,
    /// The number of uncollected mail messages.
    pub letters: u64,
}

impl Kept {
    pub(super) fn of(seat: &Seat) -> Self {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let (slots, bytes, letters) = (count(seat.slots()), count(seat.bytes()), count(seat.letters()));
        Self { latest: seat.latest(), floor: seat.floor(), slots, bytes, letters }
    }
}

/// The sort order of councils: the largest value first, and councils with unknown values last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Sort {
    /// By the time of the last request.
    #[default]
    Asked,
    /// By the short id.
    Mark,
    /// By the latest slot.
    Latest,
    /// By the last slot of the snapshot.
    Floor,
    /// By the number of stored slots.
    Slots,
    /// By the stored bytes.
    Bytes,
    /// By the number of mail messages.
    Letters,
}

impl Sort {
    /// All sort orders.
    pub const ALL: [Self; 7] =
        [Self::Asked, Self::Mark, Self::Latest, Self::Floor, Self::Slots, Self::Bytes, Self::Letters];

    /// Returns the name of the sort order.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Mark => "mark",
            Self::Latest => "latest",
            Self::Floor => "compacted",
            Self::Slots => "slots",
            Self::Bytes => "bytes",
            Self::Letters => "letters",
        }
    }
}

/// A query for a page of councils.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// The sort order.
    pub sort: Sort,
    /// The cursor at which the previous page ended.
    pub after: Option<Place>,
    /// The maximum number of councils on the page.
    pub limit: usize,
}

/// A cursor in a list of councils. It stays valid while councils are added and change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place(Reverse<u64>, Mark);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Reverse(much), mark) = self;
        write!(f, "{much}-{mark}")
    }
}

impl FromStr for Place {
    type Err = BadPlace;

    fn from_str(text: &str) -> Result<Self, BadPlace> {
        let (much, mark) = text.split_once('-').ok_or(BadPlace)?;
        Ok(Self(Reverse(much.parse().map_err(|_| BadPlace)?), mark.parse().map_err(|_| BadPlace)?))
    }
}

/// The error for a text that is not a cursor in a list of councils.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this is no place in a list of councils: take one as a page before has told it")]
pub struct BadPlace;

/// A page of councils.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Councils {
    /// The number of all councils.
    pub count: usize,
    /// The approximate memory of the councils in use, in bytes.
    pub memory: usize,
    /// The councils of this page.
    pub lines: Vec<Line>,
    /// The cursor at which this page ends, if more councils follow.
    pub next: Option<Place>,
}

/// All councils that have data on the disk.
#[derive(Debug, Default)]
pub(super) struct Index {
    by_council: HashMap<CouncilId, Entry>,
}

#[derive(Debug)]
struct Entry {
    mark: Mark,
    /// The stored amount, and the time of the last request.
    known: Option<(Kept, Duration)>,
}

impl Index {
    pub(super) fn new(councils: impl Iterator<Item = CouncilId>) -> Self {
        let entry = |council: CouncilId| (council, Entry { mark: council.mark(), known: None });
        Self { by_council: councils.map(entry).collect() }
    }

    /// Records a request for a council, and the amount that is stored for it.
    pub(super) fn note(&mut self, council: CouncilId, kept: Kept, now: Duration) {
        let entry = || Entry { mark: council.mark(), known: None };
        self.by_council.entry(council).or_insert_with(entry).known = Some((kept, now));
    }

    /// Returns a page. The cost is one visit to every council, plus the sort of the page.
    pub(super) fn page(&self, wish: &Wish, now: Duration, memory: usize) -> Councils {
        let placed = self.by_council.values().map(|entry| (entry.place(wish.sort), entry));
        let mut found: Vec<_> =
            placed.filter(|(place, _)| wish.after.is_none_or(|after| *place > after)).collect();
        let has_more = found.len() > wish.limit;
        if has_more {
            found.select_nth_unstable_by_key(wish.limit, |(place, _)| *place);
            found.truncate(wish.limit);
        }
        found.sort_unstable_by_key(|(place, _)| *place);
        Councils {
            count: self.by_council.len(),
            memory,
            next: found.last().filter(|_| has_more).map(|(place, _)| *place),
            lines: found.into_iter().map(|(_, entry)| entry.line(now)).collect(),
        }
    }
}

impl Entry {
    fn place(&self, sort: Sort) -> Place {
        let much = self.known.map_or(0, |(kept, asked)| match sort {
            Sort::Asked => u64::try_from(asked.as_micros()).unwrap_or(u64::MAX).saturating_add(1),
            Sort::Mark => 0,
            Sort::Latest => kept.latest.0.saturating_add(1),
            Sort::Floor => kept.floor.0.saturating_add(1),
            Sort::Slots => kept.slots.saturating_add(1),
            Sort::Bytes => kept.bytes.saturating_add(1),
            Sort::Letters => kept.letters.saturating_add(1),
        });
        Place(Reverse(much), self.mark)
    }

    fn line(&self, now: Duration) -> Line {
        let asked = self.known.map(|(_, asked)| now.saturating_sub(asked));
        Line { mark: self.mark, kept: self.known.map(|(kept, _)| kept), asked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn council(number: u8) -> CouncilId {
        CouncilId([number; 16])
    }

    fn index() -> Index {
        let mut index = Index::new((0..10).map(council));
        for number in [3, 1, 7_u8, 12] {
            let much = u64::from(number);
            let kept =
                Kept { latest: Slot(much), floor: Slot(1), slots: much, bytes: 100 - much, letters: 2 };
            index.note(council(number), kept, Duration::from_secs(60 - much));
        }
        index
    }

    /// Reads all pages, with two councils on each page.
    fn pages(index: &Index, sort: Sort) -> Vec<Mark> {
        let (mut after, mut marks) = (None, Vec::new());
        loop {
            let page = index.page(&Wish { sort, after, limit: 2 }, Duration::from_secs(60), 0);
            assert_eq!(page.count, 11);
            marks.extend(page.lines.iter().map(|line| line.mark));
            let Some(next) = page.next else { return marks };
            assert_eq!(next.to_string().parse(), Ok(next));
            after = Some(next);
        }
    }

    #[test]
    fn pages_show_everything_once_and_in_order() {
        let index = index();
        for (sort, first) in [
            (Sort::Latest, [12, 7, 3, 1]),
            (Sort::Slots, [12, 7, 3, 1]),
            (Sort::Bytes, [1, 3, 7, 12]),
            (Sort::Asked, [1, 3, 7, 12]),
        ] {
            let marks = pages(&index, sort);
            assert_eq!(marks[..4], first.map(|number| council(number).mark()), "{sort:?}");
            let mut all = marks.clone();
            all.sort_unstable();
            all.dedup();
            assert_eq!((marks.len(), all.len()), (11, 11), "{sort:?}");
        }
        let marks = pages(&index, Sort::Mark);
        assert!(marks.is_sorted() && marks.len() == 11);
    }

    #[test]
    fn what_nobody_has_asked_about_is_known_by_its_mark_alone() {
        let index = index();
        let whole =
            index.page(&Wish { sort: Sort::Asked, after: None, limit: 99 }, Duration::from_secs(60), 5);
        assert_eq!((whole.lines.len(), whole.memory, whole.next), (11, 5, None));
        let [first, .., last] = whole.lines.as_slice() else { panic!("{whole:?}") };
        assert_eq!(first.asked, Some(Duration::from_secs(1)));
        assert_eq!((last.asked, last.kept), (None, None));
    }

    #[test]
    fn a_place_that_was_made_up_is_none() {
        for text in ["", "7", "7-", "-000000000000", "x-000000000000", "7-00000000000", "7-00000000000g"] {
            assert_eq!(text.parse::<Place>(), Err(BadPlace), "{text}");
        }
    }
}
