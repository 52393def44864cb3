//! Which councils an acceptor keeps, and how much of each: kept up to date by the writer, so that a look costs no disk.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::{CouncilId, Mark, Seat, Slot};

/// What an acceptor keeps of a council.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Line {
    /// By which it is told from others. Its id is a secret among those who take part.
    pub mark: Mark,
    /// How much is kept. It is known when the council was asked about since the start.
    pub kept: Option<Kept>,
    /// How long ago it was asked about.
    pub asked: Option<Duration>,
}

/// How much is kept of a council.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Kept {
    /// The highest slot in which something was accepted.
    pub latest: Slot,
    /// The last slot that a snapshot stands for.
    pub floor: Slot,
    /// Slots since then.
    pub slots: u64,
    /// Bytes of values, letters and the snapshot.
    pub bytes: u64,
    /// Letters for those who come.
    pub letters: u64,
}

impl Kept {
    pub(super) fn of(seat: &Seat) -> Self {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let (slots, bytes, letters) = (count(seat.slots()), count(seat.bytes()), count(seat.letters()));
        Self { latest: seat.latest(), floor: seat.floor(), slots, bytes, letters }
    }
}

/// By what councils are sorted: the most first, and those that nothing is known of last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Sort {
    /// When they were asked about.
    #[default]
    Asked,
    /// By their marks.
    Mark,
    /// By their latest slots.
    Latest,
    /// By what they are compacted up to.
    Floor,
    /// By how many slots are kept.
    Slots,
    /// By their bytes.
    Bytes,
    /// By their letters.
    Letters,
}

impl Sort {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Asked, Self::Mark, Self::Latest, Self::Floor, Self::Slots, Self::Bytes, Self::Letters];

    /// Its name.
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

/// The councils that somebody wants to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// In which order.
    pub sort: Sort,
    /// After this one: where the page before has ended.
    pub after: Option<Place>,
    /// How many at most.
    pub limit: usize,
}

/// A place in a list of councils. It stays what it is while councils come and change.
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

/// This is no place in a list of councils.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this is no place in a list of councils: take one as a page before has told it")]
pub struct BadPlace;

/// A page of the councils.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Councils {
    /// How many there are in all.
    pub count: usize,
    /// About how much memory those in use take, in bytes.
    pub memory: usize,
    /// Those of this page.
    pub lines: Vec<Line>,
    /// Where it has ended, if there are more.
    pub next: Option<Place>,
}

/// Every council that has something on the disk.
#[derive(Debug, Default)]
pub(super) struct Index {
    by_council: HashMap<CouncilId, Entry>,
}

#[derive(Debug)]
struct Entry {
    mark: Mark,
    /// How much is kept, and when it was asked about.
    known: Option<(Kept, Duration)>,
}

impl Index {
    pub(super) fn new(councils: impl Iterator<Item = CouncilId>) -> Self {
        let entry = |council: CouncilId| (council, Entry { mark: council.mark(), known: None });
        Self { by_council: councils.map(entry).collect() }
    }

    /// A council was asked about, and this is what is kept of it.
    pub(super) fn note(&mut self, council: CouncilId, kept: Kept, now: Duration) {
        let entry = || Entry { mark: council.mark(), known: None };
        self.by_council.entry(council).or_insert_with(entry).known = Some((kept, now));
    }

    /// A page. It takes as long as looking at every council once, and sorting those of the page.
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

    /// All pages of two, one after the other.
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
