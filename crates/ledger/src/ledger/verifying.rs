//! Verification of the stored history.

use holdoff_paxos::Slot;
use holdoff_paxos::log::Payload;

use super::Ledger;
use crate::certificate::Notary;
use crate::entry::{Hash, Replicated, link};

/// The result of verifying the history that a node keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Verified {
    /// The index of the first verified entry.
    pub first: Slot,
    /// The index of the last verified entry.
    pub last: Slot,
    /// The highest index whose certificate carries valid signatures of a majority.
    pub certified: Slot,
    /// The first mismatch, if any.
    pub broken: Option<String>,
}

impl<M: Replicated, N: Notary> Ledger<M, N> {
    /// Verifies the entries that this node keeps: each follows the previous one, the last one has the hash of the
    /// state, and the signed hash is the hash of the entry at that index.
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
                        // Voters that have been replaced since signed it: it was valid then, and this node cannot
                        // check it now.
                        (true, false) => (Slot(0), None),
                        (true, true) => (*index, None),
                    }
                }
            },
        };
        Verified { first, last, certified, broken }
    }

    /// Returns the hash at each index, from the first entry on that contains the hash of its predecessor.
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
