//! The history that is kept, gone over again.

use holdoff_paxos::Slot;
use holdoff_paxos::log::Payload;

use super::Ledger;
use crate::certificate::Notary;
use crate::entry::{Hash, Replicated, link};

/// What came of going over the history that a node keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Verified {
    /// The first entry that was looked at.
    pub first: Slot,
    /// The last one.
    pub last: Slot,
    /// Up to where the signatures of a majority were found to be theirs.
    pub certified: Slot,
    /// What does not fit, if anything.
    pub broken: Option<String>,
}

impl<M: Replicated, N: Notary> Ledger<M, N> {
    /// Goes over the entries that are kept: each stands on the one before, the last is what the state stands on, and what
    /// voters have signed is what stands there.
    pub fn verify(&self) -> Verified {
        let (first, last) = (self.first_kept(), self.state.index);
        let certified = self.certificates.range(first..=last).next_back();
        let (certified, broken) = match self.go_over(first) {
            Err(broken) => (Slot(0), Some(broken)),
            Ok(hashes) => match certified {
                None => (Slot(0), None),
                Some((index, certificate)) => {
                    let here = hashes.iter().find(|(slot, _)| slot == index).map(|(_, hash)| *hash);
                    let is_so = here.is_none_or(|hash| hash == certificate.head.hash);
                    let is_theirs = certificate.head.voters == self.state.voters;
                    let is_signed = is_theirs && certificate.is_genuine(&self.notary);
                    match (is_so, is_signed) {
                        (false, _) => {
                            (Slot(0), Some(format!("a majority has signed another entry at {index}")))
                        }
                        // Signed by voters who have been replaced since: good then, and not to be checked now.
                        (true, false) => (Slot(0), None),
                        (true, true) => (*index, None),
                    }
                }
            },
        };
        Verified { first, last, certified, broken }
    }

    /// The hash at each place, from the first entry on that says what it stands on.
    fn go_over(&self, first: Slot) -> Result<Vec<(Slot, Hash)>, String> {
        let (mut slot, mut hash, mut hashes) = (first, None, Vec::new());
        for entry in &self.history {
            if let Payload::Value(value) = &entry.payload {
                let before = *hash.get_or_insert(value.prev_hash);
                if before != value.prev_hash || value.index != slot {
                    return Err(format!("the entry at {slot} does not stand on the one before it"));
                }
            }
            if let Some(before) = hash {
                let here =
                    link(before, slot, entry).ok_or_else(|| format!("the entry at {slot} has no hash"))?;
                hash = Some(here);
                hashes.push((slot, here));
            }
            slot = slot.next();
        }
        match hash {
            Some(head) if head != self.state.hash => {
                Err("the state stands on another entry than the last".to_owned())
            }
            _ => Ok(hashes),
        }
    }
}
