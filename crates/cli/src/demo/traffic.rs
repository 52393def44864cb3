//! What is submitted, and when: a function of the seed.

use std::time::Duration;

/// Something that somebody wants done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    /// Take money; the payment service is asked too often now and then.
    Charge,
    /// Send a mail; the mail service is down for a while now and then.
    Mail,
    /// Bring a customer's record up to date; one that is based on an old revision is refused.
    Sync { is_stale: bool },
    /// Put a page into the search index, which is slow now and then.
    Index,
    /// Build a report; tokens for that expire.
    Report,
    /// Export to a system that does not understand it.
    Export,
    /// An order: five steps that wait for each other.
    Order,
    /// Resize a photo, for whoever pulls it.
    Photo,
    /// Issue an invoice, in another namespace.
    Invoice,
    /// A newsletter, into a queue that is paused.
    Newsletter,
}

impl Wish {
    /// How many steps it makes.
    pub(super) const fn steps(self) -> u64 {
        match self {
            Self::Order => 5,
            _ => 1,
        }
    }
}

/// The next thing to be submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Due {
    /// When, from the start.
    pub(super) at: Duration,
    /// The how-manieth it is, from 0.
    pub(super) number: u64,
    pub(super) wish: Wish,
}

/// What comes first, so that within seconds there is some of everything.
const FIRST: [Wish; 18] = [
    Wish::Photo,
    Wish::Photo,
    Wish::Photo,
    Wish::Newsletter,
    Wish::Order,
    Wish::Mail,
    Wish::Sync { is_stale: true },
    Wish::Export,
    Wish::Report,
    Wish::Charge,
    Wish::Newsletter,
    Wish::Mail,
    Wish::Invoice,
    Wish::Sync { is_stale: true },
    Wish::Index,
    Wish::Newsletter,
    Wish::Photo,
    Wish::Mail,
];

/// How often each is wanted after that.
const SHARES: [(Wish, u32); 11] = [
    (Wish::Charge, 18),
    (Wish::Mail, 20),
    (Wish::Sync { is_stale: false }, 8),
    (Wish::Sync { is_stale: true }, 3),
    (Wish::Index, 14),
    (Wish::Report, 8),
    (Wish::Export, 2),
    (Wish::Order, 7),
    (Wish::Photo, 10),
    (Wish::Invoice, 6),
    (Wish::Newsletter, 4),
];

/// The shortest and the longest pause between two, in milliseconds: about six a second.
const PAUSES_MS: std::ops::RangeInclusive<u64> = 60..=240;

/// Everything that is submitted, without end.
pub(super) struct Traffic {
    chance: fastrand::Rng,
    at: Duration,
    number: u64,
}

impl Traffic {
    pub(super) fn new(seed: u64) -> Self {
        Self { chance: fastrand::Rng::with_seed(seed), at: Duration::ZERO, number: 0 }
    }

    fn draw(&mut self) -> Wish {
        let all = SHARES.iter().map(|(_, share)| share).sum();
        let mut place = self.chance.u32(0..all);
        for (wish, share) in SHARES {
            match place.checked_sub(share) {
                Some(rest) => place = rest,
                None => return wish,
            }
        }
        Wish::Charge
    }
}

impl Iterator for Traffic {
    type Item = Due;

    fn next(&mut self) -> Option<Due> {
        let number = self.number;
        let first = usize::try_from(number).ok().and_then(|place| FIRST.get(place).copied());
        let wish = first.unwrap_or_else(|| self.draw());
        self.at += Duration::from_millis(self.chance.u64(PAUSES_MS));
        self.number += 1;
        Some(Due { at: self.at, number, wish })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_minute(seed: u64) -> Vec<Due> {
        Traffic::new(seed).take_while(|due| due.at < Duration::from_secs(60)).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_traffic() {
        assert_eq!(first_minute(7), first_minute(7));
        assert_ne!(first_minute(7), first_minute(8));
    }

    #[test]
    fn it_is_gentle_and_has_some_of_everything() {
        for seed in 0..20 {
            let minute = first_minute(seed);
            assert!((300..=600).contains(&minute.len()), "{}", minute.len());
            for (wish, _) in SHARES {
                assert!(minute.iter().any(|due| due.wish == wish), "no {wish:?} with seed {seed}");
            }
        }
    }

    #[test]
    fn what_a_page_needs_comes_in_the_first_seconds() {
        let soon: Vec<_> = Traffic::new(1).take_while(|due| due.at < Duration::from_secs(5)).collect();
        for wish in FIRST {
            assert!(soon.iter().any(|due| due.wish == wish), "no {wish:?}");
        }
    }
}
