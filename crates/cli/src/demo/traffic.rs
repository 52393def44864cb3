//! The submitted tasks and their times: a function of the seed.

use std::time::Duration;

/// The kind of a submitted task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    /// Charges a customer. The payment service limits the rate of some requests.
    Charge,
    /// Sends a mail. The mail service has outages.
    Mail,
    /// Updates a customer record. The service refuses an update that is based on an old revision.
    Sync { is_stale: bool },
    /// Adds a page to the search index, which is sometimes slow.
    Index,
    /// Builds a report. Its access tokens expire.
    Report,
    /// Exports to a system that rejects the request.
    Export,
    /// Processes an order of five dependent steps.
    Order,
    /// Resizes a photo. A worker pulls the step.
    Photo,
    /// Issues an invoice, in another namespace.
    Invoice,
    /// Sends a newsletter, into a paused queue.
    Newsletter,
}

impl Wish {
    /// Returns the number of steps.
    pub(super) const fn steps(self) -> u64 {
        match self {
            Self::Order => 5,
            _ => 1,
        }
    }
}

/// The next task to submit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Due {
    /// The time since the start.
    pub(super) at: Duration,
    /// The sequence number, from 0.
    pub(super) number: u64,
    pub(super) wish: Wish,
}

/// The first tasks, chosen so that within seconds every kind is present.
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

/// The weight of each kind after that.
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

/// The shortest and the longest pause between two tasks, in milliseconds: about six tasks a second.
const PAUSES_MS: std::ops::RangeInclusive<u64> = 60..=240;

/// All submitted tasks, without end.
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
