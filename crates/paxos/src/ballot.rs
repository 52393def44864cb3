//! Ballots: the total order of all proposers' attempts.

use serde::{Deserialize, Serialize};

use crate::{NodeId, Slot};

/// The ballot of one attempt of one member at one slot. The ballots of all members are totally ordered.
///
/// Ballots compare by attempt, then by tie-breaker, then by member. The tie-breaker is a hash of the slot and the
/// member: without it the member with the lowest id would lose every race between equal attempts. The member comes
/// last, so that the ballots of two members are never equal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Ballot {
    attempt: u64,
    tie_breaker: u64,
    member: NodeId,
}

impl Ballot {
    /// Creates the ballot of a member's attempt at a slot, or at all slots from this slot on.
    pub fn new(slot: Slot, attempt: u64, member: NodeId) -> Self {
        Self { attempt, tie_breaker: tie_breaker(slot, member), member }
    }

    /// Returns the number of the attempt, counted from 1.
    pub fn attempt(self) -> u64 {
        self.attempt
    }

    /// Returns the number by which ballots with the same attempt are compared.
    pub fn tie_breaker(self) -> u64 {
        self.tie_breaker
    }

    /// Returns the member that makes the attempt.
    pub fn member(self) -> NodeId {
        self.member
    }

    /// Returns whether the tie-breaker is the hash of this slot and the ballot's member. A ballot from the network may
    /// carry any.
    pub fn is_of(self, slot: Slot) -> bool {
        self.tie_breaker == tie_breaker(slot, self.member)
    }
}

/// Computes the tie-breaker. The hash distributes evenly: over many slots every member wins equally often.
fn tie_breaker(slot: Slot, member: NodeId) -> u64 {
    let [high, low] = [member.0 >> 64, member.0 & u128::from(u64::MAX)].map(u64::try_from);
    mix(mix(mix(slot.0) ^ low.unwrap_or_default()) ^ high.unwrap_or_default())
}

/// The finalizer of `SplitMix64`.
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_attempt_outranks_every_tie_breaker() {
        for member in 0..100 {
            let [earlier, later] = [1, 2].map(|attempt| Ballot::new(Slot(9), attempt, NodeId(member)));
            assert!(later > earlier && later > Ballot::new(Slot(9), 1, NodeId(member + 1)));
        }
    }

    #[test]
    fn tie_breakers_favour_no_member() {
        let wins = |member: u128| {
            let beats_all = |slot: &u64| (0..10).all(|other| ballot(*slot, member) >= ballot(*slot, other));
            (0..20_000_u64).filter(beats_all).count()
        };
        for member in 0..10 {
            let wins = wins(member);
            assert!((1_800..2_200).contains(&wins), "member {member} wins {wins} of 20000");
        }
    }

    #[test]
    fn a_forged_tie_breaker_is_detected() {
        assert!(ballot(3, 1).is_of(Slot(3)));
        assert!(!Ballot { tie_breaker: u64::MAX, ..ballot(3, 1) }.is_of(Slot(3)));
        assert!(!ballot(3, 1).is_of(Slot(4)));
    }

    #[test]
    fn a_tie_breaker_is_a_published_hash_of_the_slot_and_both_halves_of_the_member() {
        let gamma = 0x9e37_79b9_7f4a_7c15;
        let first_of_seed_zero = [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4];
        assert_eq!([0, gamma].map(mix), first_of_seed_zero);
        let member = NodeId((7 << 64) + 5);
        let ballot = Ballot::new(Slot(9), 3, member);
        let parts = (ballot.attempt(), ballot.tie_breaker(), ballot.member());
        assert_eq!(parts, (3, mix(mix(mix(9) ^ 5) ^ 7), member));
    }

    fn ballot(slot: u64, member: u128) -> Ballot {
        Ballot::new(Slot(slot), 1, NodeId(member))
    }
}
