//! The inspection interface of an acceptor, and the index of its councils.
//!
//! The writer keeps the index up to date in memory, so a query reads nothing from the disk.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use holdoff_net::Peer;

use super::writer::WriterInspector;
use super::{AcceptorLimits, AcceptorStats, AcceptorStopReason, AcceptorStopped};
use crate::{CouncilAcceptor, CouncilId, NodeId, PublicKey, ShortId, Slot};

/// A view of an acceptor for operators. Holding it does not keep the acceptor running.
pub struct AcceptorInspector {
    key: PublicKey,
    address: SocketAddr,
    incarnation: u64,
    limits: AcceptorLimits,
    inspector: WriterInspector<Peer>,
    peers: Box<dyn Fn() -> Vec<Peer> + Send + Sync>,
}

/// The connections of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ConnectedClient {
    /// The key.
    pub key: PublicKey,
    /// The remote address of each connection.
    pub from: Vec<SocketAddr>,
}

impl AcceptorInspector {
    pub(super) fn new(
        key: PublicKey,
        address: SocketAddr,
        incarnation: u64,
        limits: AcceptorLimits,
        inspector: WriterInspector<Peer>,
        peers: impl Fn() -> Vec<Peer> + Send + Sync + 'static,
    ) -> Self {
        Self { key, address, incarnation, limits, inspector, peers: Box::new(peers) }
    }

    /// Returns the acceptor's key.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// Returns the address on which the acceptor listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the incarnation of the acceptor's store.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns the acceptor's node id in configurations, which is derived from its key and its incarnation.
    pub fn node(&self) -> NodeId {
        NodeId::derive(self.key.as_bytes(), self.incarnation)
    }

    /// Returns the acceptor's limits.
    pub fn limits(&self) -> &AcceptorLimits {
        &self.limits
    }

    /// Returns the reason for which the acceptor has stopped answering, if it has: a disk failure, or a defect of
    /// this program.
    pub fn stopped(&self) -> Option<AcceptorStopReason> {
        self.inspector.stopped()
    }

    /// Returns the acceptor's counters.
    pub fn stats(&self) -> AcceptorStats {
        self.inspector.stats()
    }

    /// Returns the connected keys. The keys with the most connections come first.
    pub fn connected(&self) -> Vec<ConnectedClient> {
        let mut by_key: BTreeMap<PublicKey, Vec<SocketAddr>> = BTreeMap::new();
        for peer in (self.peers)() {
            by_key.entry(peer.key()).or_default().push(peer.address());
        }
        let mut all: Vec<_> = by_key.into_iter().map(|(key, from)| ConnectedClient { key, from }).collect();
        all.sort_by_key(|one| std::cmp::Reverse(one.from.len()));
        all
    }

    /// Returns a page of the acceptor's councils, as of its last commit. The writer serves one such query at a time
    /// and reads nothing from the disk for it.
    pub async fn councils(&self, query: CouncilQuery) -> Result<CouncilPage, AcceptorStopped> {
        self.inspector.councils(query).await
    }
}

impl fmt::Debug for AcceptorInspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptorInspector")
            .field("key", &self.key)
            .field("incarnation", &self.incarnation)
            .finish_non_exhaustive()
    }
}

/// An entry of the index: one council of an acceptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CouncilSummary {
    /// The short id of the council. The id itself is a secret among the council's participants.
    pub short_id: ShortId,
    /// The stored amount. It is unknown until the first request for the council since the start.
    pub usage: Option<CouncilUsage>,
    /// The time since the last request for the council.
    pub last_request: Option<Duration>,
}

/// The amount that an acceptor stores for a council.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CouncilUsage {
    /// The highest slot in which the acceptor has accepted a value.
    pub latest: Slot,
    /// The last slot that the snapshot covers.
    pub floor: Slot,
    /// The number of slots after the snapshot.
    pub slots: u64,
    /// The bytes of values, mail and the snapshot.
    pub bytes: u64,
    /// The number of uncollected mail messages.
    pub mail_messages: u64,
}

impl CouncilUsage {
    pub(super) fn of(acceptor: &CouncilAcceptor) -> Self {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let (slots, bytes, mail_messages) =
            (count(acceptor.slots()), count(acceptor.bytes()), count(acceptor.mail_count()));
        Self { latest: acceptor.latest(), floor: acceptor.floor(), slots, bytes, mail_messages }
    }
}

/// The sort order of councils: the largest value first, and councils with unknown values last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Sort {
    /// By the time of the last request.
    #[default]
    LastRequest,
    /// By the short id.
    ShortId,
    /// By the latest slot.
    Latest,
    /// By the last slot of the snapshot.
    Floor,
    /// By the number of stored slots.
    Slots,
    /// By the stored bytes.
    Bytes,
    /// By the number of mail messages.
    Mail,
}

impl Sort {
    /// All sort orders.
    pub const ALL: [Self; 7] =
        [Self::LastRequest, Self::ShortId, Self::Latest, Self::Floor, Self::Slots, Self::Bytes, Self::Mail];

    /// Returns the name of the sort order.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LastRequest => "last_request",
            Self::ShortId => "short_id",
            Self::Latest => "latest",
            Self::Floor => "compacted",
            Self::Slots => "slots",
            Self::Bytes => "bytes",
            Self::Mail => "mail",
        }
    }
}

/// A query for a page of councils.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CouncilQuery {
    /// The sort order.
    pub sort: Sort,
    /// The cursor at which the previous page ended.
    pub after: Option<CouncilCursor>,
    /// The maximum number of councils on the page.
    pub limit: usize,
}

/// A cursor in a list of councils. It stays valid while councils are added and change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CouncilCursor(Reverse<u64>, ShortId);

impl fmt::Display for CouncilCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Reverse(much), short_id) = self;
        write!(f, "{much}-{short_id}")
    }
}

impl FromStr for CouncilCursor {
    type Err = BadCouncilCursor;

    fn from_str(text: &str) -> Result<Self, BadCouncilCursor> {
        let (much, short_id) = text.split_once('-').ok_or(BadCouncilCursor)?;
        Ok(Self(
            Reverse(much.parse().map_err(|_| BadCouncilCursor)?),
            short_id.parse().map_err(|_| BadCouncilCursor)?,
        ))
    }
}

/// The error for a text that is not a cursor in a list of councils.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid cursor in a list of councils: use the `next` of the previous page")]
pub struct BadCouncilCursor;

/// A page of councils.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CouncilPage {
    /// The number of all councils.
    pub count: usize,
    /// The approximate memory of the councils in use, in bytes.
    pub memory: usize,
    /// The councils of this page.
    pub councils: Vec<CouncilSummary>,
    /// The cursor at which this page ends, if more councils follow.
    pub next: Option<CouncilCursor>,
}

/// All councils that have data on the disk.
#[derive(Debug, Default)]
pub(super) struct CouncilIndex {
    by_council: HashMap<CouncilId, IndexEntry>,
}

#[derive(Debug)]
struct IndexEntry {
    short_id: ShortId,
    /// The stored amount, and the time of the last request.
    known: Option<(CouncilUsage, Duration)>,
}

impl CouncilIndex {
    pub(super) fn new(councils: impl Iterator<Item = CouncilId>) -> Self {
        let entry = |council: CouncilId| (council, IndexEntry { short_id: council.short_id(), known: None });
        Self { by_council: councils.map(entry).collect() }
    }

    /// Records a request for a council, and the amount that is stored for it.
    pub(super) fn note(&mut self, council: CouncilId, usage: CouncilUsage, now: Duration) {
        let entry = || IndexEntry { short_id: council.short_id(), known: None };
        self.by_council.entry(council).or_insert_with(entry).known = Some((usage, now));
    }

    /// Returns a page. The cost is one visit to every council, plus the sort of the page.
    pub(super) fn page(&self, query: &CouncilQuery, now: Duration, memory: usize) -> CouncilPage {
        let entries = self.by_council.values().map(|entry| (entry.cursor(query.sort), entry));
        let mut found: Vec<_> =
            entries.filter(|(cursor, _)| query.after.is_none_or(|after| *cursor > after)).collect();
        let has_more = found.len() > query.limit;
        if has_more {
            found.select_nth_unstable_by_key(query.limit, |(cursor, _)| *cursor);
            found.truncate(query.limit);
        }
        found.sort_unstable_by_key(|(cursor, _)| *cursor);
        CouncilPage {
            count: self.by_council.len(),
            memory,
            next: found.last().filter(|_| has_more).map(|(cursor, _)| *cursor),
            councils: found.into_iter().map(|(_, entry)| entry.line(now)).collect(),
        }
    }
}

impl IndexEntry {
    fn cursor(&self, sort: Sort) -> CouncilCursor {
        let much = self.known.map_or(0, |(usage, last_request)| match sort {
            Sort::LastRequest => holdoff_policy::as_micros_u64(last_request).saturating_add(1),
            Sort::ShortId => 0,
            Sort::Latest => usage.latest.0.saturating_add(1),
            Sort::Floor => usage.floor.0.saturating_add(1),
            Sort::Slots => usage.slots.saturating_add(1),
            Sort::Bytes => usage.bytes.saturating_add(1),
            Sort::Mail => usage.mail_messages.saturating_add(1),
        });
        CouncilCursor(Reverse(much), self.short_id)
    }

    fn line(&self, now: Duration) -> CouncilSummary {
        let last_request = self.known.map(|(_, last_request)| now.saturating_sub(last_request));
        CouncilSummary { short_id: self.short_id, usage: self.known.map(|(usage, _)| usage), last_request }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn council(number: u8) -> CouncilId {
        CouncilId([number; 16])
    }

    fn index() -> CouncilIndex {
        let mut index = CouncilIndex::new((0..10).map(council));
        for number in [3, 1, 7_u8, 12] {
            let much = u64::from(number);
            let usage = CouncilUsage {
                latest: Slot(much),
                floor: Slot(1),
                slots: much,
                bytes: 100 - much,
                mail_messages: 2,
            };
            index.note(council(number), usage, Duration::from_secs(60 - much));
        }
        index
    }

    /// Reads all pages, with two councils on each page.
    fn pages(index: &CouncilIndex, sort: Sort) -> Vec<ShortId> {
        let (mut after, mut short_ids) = (None, Vec::new());
        loop {
            let page = index.page(&CouncilQuery { sort, after, limit: 2 }, Duration::from_secs(60), 0);
            assert_eq!(page.count, 11);
            short_ids.extend(page.councils.iter().map(|line| line.short_id));
            let Some(next) = page.next else { return short_ids };
            assert_eq!(next.to_string().parse(), Ok(next));
            after = Some(next);
        }
    }

    #[test]
    fn pages_list_every_council_once_in_order() {
        let index = index();
        for (sort, first) in [
            (Sort::Latest, [12, 7, 3, 1]),
            (Sort::Slots, [12, 7, 3, 1]),
            (Sort::Bytes, [1, 3, 7, 12]),
            (Sort::LastRequest, [1, 3, 7, 12]),
        ] {
            let short_ids = pages(&index, sort);
            assert_eq!(short_ids[..4], first.map(|number| council(number).short_id()), "{sort:?}");
            let mut all = short_ids.clone();
            all.sort_unstable();
            all.dedup();
            assert_eq!((short_ids.len(), all.len()), (11, 11), "{sort:?}");
        }
        let short_ids = pages(&index, Sort::ShortId);
        assert!(short_ids.is_sorted() && short_ids.len() == 11);
    }

    #[test]
    fn a_council_without_requests_has_only_a_short_id() {
        let index = index();
        let whole = index.page(
            &CouncilQuery { sort: Sort::LastRequest, after: None, limit: 99 },
            Duration::from_secs(60),
            5,
        );
        assert_eq!((whole.councils.len(), whole.memory, whole.next), (11, 5, None));
        let [first, .., last] = whole.councils.as_slice() else { panic!("{whole:?}") };
        assert_eq!(first.last_request, Some(Duration::from_secs(1)));
        assert_eq!((last.last_request, last.usage), (None, None));
    }

    #[test]
    fn an_invalid_cursor_is_rejected() {
        for text in ["", "7", "7-", "-000000000000", "x-000000000000", "7-00000000000", "7-00000000000g"] {
            assert_eq!(text.parse::<CouncilCursor>(), Err(BadCouncilCursor), "{text}");
        }
    }
}
