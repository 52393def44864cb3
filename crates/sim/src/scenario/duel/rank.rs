//! The finishing order of clients, and whether it favours an id.

use serde::{Serialize, Serializer};

/// The finishing ranks of clients, by id, over any number of runs.
///
/// The clients that were not done share the last ranks: each has their mean. A client that was killed has no rank. Sums
/// are integers, so that runs can be added up in any order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ranks(Vec<RankSums>);

/// Sums over the ranks of one id, in halves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct RankSums {
    runs: u64,
    halves: u64,
    squares: u64,
}

/// The rank of one id, over all runs in which it had a rank.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Rank {
    /// The id, from 1.
    pub id: usize,
    /// The mean rank; the first rank is 1.
    pub mean: f64,
    /// The standard error of the mean.
    pub se: f64,
}

impl Ranks {
    /// Returns the ranks of one run, from the clients that were done, in order, and the clients that were alive; both
    /// by number.
    pub(super) fn of(done: &[u32], is_alive: impl Iterator<Item = bool>) -> Self {
        let mut ranks: Vec<_> = is_alive.map(|alive| (alive, None)).collect();
        for (place, number) in (1_u64..).zip(done) {
            if let Some((_, rank)) = ranks.get_mut(*number as usize) {
                *rank = Some(place * 2);
            }
        }
        let living = ranks.iter().filter(|(alive, _)| *alive).count() as u64;
        let shared = done.len() as u64 + 1 + living;
        let places = |(alive, rank): (bool, Option<u64>)| {
            let halves = if alive { rank.unwrap_or(shared) } else { 0 };
            RankSums { runs: u64::from(alive), halves, squares: halves * halves }
        };
        Self(ranks.into_iter().map(places).collect())
    }

    /// Adds the ranks of another run.
    pub fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), RankSums::default());
        }
        for (sum, places) in self.0.iter_mut().zip(&other.0) {
            sum.runs += places.runs;
            sum.halves += places.halves;
            sum.squares += places.squares;
        }
    }

    /// Returns every id that had a rank, in order.
    pub fn iter(&self) -> impl Iterator<Item = Rank> + '_ {
        let known = (1..).zip(&self.0).filter(|(_, places)| places.runs > 0);
        known.map(|(id, places)| places.rank(id))
    }

    /// Returns the mean of all ranks, which is every id's mean if no id is favoured.
    #[expect(clippy::cast_precision_loss, reason = "sums of places stay far below 2^52")]
    pub fn middle(&self) -> f64 {
        let (runs, halves) =
            self.0.iter().fold((0, 0), |(runs, halves), sum| (runs + sum.runs, halves + sum.halves));
        if runs == 0 { 0.0 } else { halves as f64 / 2.0 / runs as f64 }
    }

    /// Returns whether there are no ranks: the scenario does not record them.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Ranks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl RankSums {
    #[expect(clippy::cast_precision_loss, reason = "sums of places stay far below 2^52")]
    fn rank(self, id: usize) -> Rank {
        let (runs, sum, squares) = (self.runs as f64, self.halves as f64 / 2.0, self.squares as f64 / 4.0);
        let mean = sum / runs;
        let variance = ((squares - sum * mean) / (runs - 1.0).max(1.0)).max(0.0);
        Rank { id, mean, se: (variance / runs).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_are_not_done_share_the_last_ranks() {
        let means = |ranks: &Ranks| ranks.iter().map(|rank| (rank.id, rank.mean)).collect::<Vec<_>>();
        let mut ranks = Ranks::of(&[3, 0], [true, true, false, true, true].into_iter());
        assert_eq!(means(&ranks), [(1, 2.0), (2, 3.5), (4, 1.0), (5, 3.5)]);
        assert!((ranks.middle() - 2.5).abs() < 1e-9);
        ranks.add(&Ranks::of(&[0, 1, 2, 3, 4], [true; 5].into_iter()));
        assert_eq!(means(&ranks), [(1, 1.5), (2, 2.75), (3, 3.0), (4, 2.5), (5, 4.25)]);
        let first = ranks.iter().next().unwrap();
        assert!((first.se - 0.5).abs() < 1e-9, "{first:?}");
    }
}
