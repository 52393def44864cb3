//! The councils' acceptor that runs in this daemon, and its JSON representation.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use holdoff_council::acceptor::{
    AcceptorInspector, AcceptorLimits, ConnectedClient, CouncilPage, CouncilQuery, CouncilSummary,
    RecentActivity, Sort,
};
use holdoff_policy::{as_micros_i64, as_micros_u64};
use holdoff_work::Moment;
use serde::Serialize;
use utoipa::ToSchema;

use crate::problem::{Kind, Problem};
use crate::{clock, schema};

/// Timeout for the acceptor's writer to list the councils that it stores.
const LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// The acceptor in this daemon.
#[derive(Debug)]
pub(crate) struct LocalAcceptor {
    pub(crate) inspector: AcceptorInspector,
    /// The time at which it started.
    pub(crate) started_at: Moment,
}

impl LocalAcceptor {
    /// Wraps an acceptor that has just started.
    pub(crate) fn new(inspector: AcceptorInspector) -> Self {
        Self { inspector, started_at: clock::wall() }
    }

    /// Returns the contact that other nodes need to reach the acceptor, as one word to copy and paste.
    pub(crate) fn contact(&self) -> String {
        format!("{}@{}", self.inspector.key(), self.inspector.address())
    }

    pub(crate) fn node_id(&self) -> String {
        format!("{:032x}", self.inspector.node().0)
    }

    pub(crate) fn incarnation(&self) -> String {
        format!("{:016x}", self.inspector.incarnation())
    }

    /// Returns a page of the councils that the acceptor stores.
    pub(crate) async fn councils(&self, query: CouncilQuery) -> Result<CouncilPage, Problem> {
        let found = tokio::time::timeout(LIST_TIMEOUT, self.inspector.councils(query)).await;
        let seconds = LIST_TIMEOUT.as_secs();
        let busy = |_| {
            Problem::unavailable(format!(
                "the acceptor did not answer within {seconds} s, because its disk is busy"
            ))
        };
        found.map_err(busy)?.map_err(|stopped| Problem::unavailable(stopped.to_string()))
    }
}

/// Returns the sort order of councils that `word` names.
pub(crate) fn parse_sort(word: &str) -> Result<Sort, Problem> {
    let found = Sort::ALL.into_iter().find(|sort| sort.name() == word);
    let names = Sort::ALL.map(Sort::name).join(", ");
    found.ok_or_else(|| Problem::new(Kind::InvalidQuery, format!("sort: expected one of {names}")))
}

/// Returns the time `ago` before now, on this daemon's clock.
pub(crate) fn moment_before(ago: Duration) -> Moment {
    Moment::from_micros(clock::wall().as_micros().saturating_sub(as_micros_i64(ago)))
}

/// The maximum number of connected keys that are shown.
const MAX_PEERS: usize = 100;

/// The acceptor of councils in this daemon.
#[derive(Serialize, ToSchema)]
#[schema(as = Acceptor)]
pub(crate) struct AcceptorView {
    /// The contact for other nodes, as one word: the key and the address.
    acceptor: String,
    #[schema(pattern = "^[0-9a-f]{64}$")]
    key: String,
    #[schema(value_type = String)]
    address: SocketAddr,
    /// The id of the acceptor in councils.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    node: String,
    /// The incarnation of its storage.
    #[schema(pattern = "^[0-9a-f]{16}$")]
    incarnation: String,
    #[schema(value_type = schema::MomentText)]
    started_at: Moment,
    /// The reason why it has stopped, if it has: its disk has failed.
    stopped: Option<String>,
    /// Requests answered since the start, by kind.
    requests: BTreeMap<&'static str, u64>,
    /// Requests rejected since the start, by reason.
    rejected: BTreeMap<&'static str, u64>,
    recent: RecentActivityView,
    connections: usize,
    /// The connected peers, those with the most connections first; at most 100.
    peers: Vec<PeerView>,
    limits: LimitsView,
}

/// The activity of an acceptor within the last minute.
#[derive(Serialize, ToSchema)]
#[schema(as = AcceptorActivity)]
struct RecentActivityView {
    /// The length of the window; shorter just after the start.
    window_us: u64,
    requests: u64,
    /// The number of batches in which requests were answered.
    batches: u64,
    /// The size of the largest batch.
    largest_batch: u64,
    /// The number of commits to disk.
    commits: u64,
    /// The median duration of a commit.
    commit_p50_us: Option<u64>,
    /// The 99th percentile of the duration of a commit.
    commit_p99_us: Option<u64>,
}

/// The connections of one key.
#[derive(Serialize, ToSchema)]
#[schema(as = AcceptorPeer)]
struct PeerView {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    key: String,
    /// The address of each connection.
    #[schema(value_type = Vec<String>)]
    from: Vec<SocketAddr>,
}

/// The limits of an acceptor.
#[derive(Serialize, ToSchema)]
#[schema(as = AcceptorLimits)]
struct LimitsView {
    councils: usize,
    /// The maximum number of bytes of a council.
    council_bytes: usize,
    /// The maximum number of slots of a council since its snapshot.
    council_slots: usize,
    /// The maximum number of mail messages of a council.
    council_mail_messages: usize,
}

/// The space that a council uses on an acceptor. Absent figures are unknown until a device sends a request about the
/// council.
#[derive(Serialize, ToSchema)]
#[schema(as = Council)]
pub(crate) struct CouncilView {
    /// The council's short id. The full id is a secret of the members.
    #[schema(pattern = "^[0-9a-f]{12}$")]
    short_id: String,
    /// The highest slot with an accepted value.
    latest: Option<u64>,
    /// The last slot that the snapshot covers.
    compacted: Option<u64>,
    /// The number of slots since the snapshot.
    slots: Option<u64>,
    /// The bytes of values, mail messages and the snapshot.
    bytes: Option<u64>,
    /// The number of uncollected mail messages.
    mail_messages: Option<u64>,
    /// The time of the last request about the council since the start.
    #[schema(value_type = Option<schema::MomentText>)]
    last_request_at: Option<Moment>,
}

impl AcceptorView {
    /// Returns the representation of an acceptor.
    pub(crate) fn new(acceptor: &LocalAcceptor) -> Self {
        let inspector = &acceptor.inspector;
        let (stats, peers) = (inspector.stats(), inspector.connected());
        Self {
            acceptor: acceptor.contact(),
            key: inspector.key().to_string(),
            address: inspector.address(),
            node: acceptor.node_id(),
            incarnation: acceptor.incarnation(),
            started_at: acceptor.started_at,
            stopped: inspector.stopped().map(|why| why.to_string()),
            recent: stats.recent.into(),
            requests: stats.requests,
            rejected: stats.refused,
            connections: peers.iter().map(|peer| peer.from.len()).sum(),
            peers: peers.into_iter().take(MAX_PEERS).map(Into::into).collect(),
            limits: inspector.limits().into(),
        }
    }
}

impl CouncilView {
    /// Returns the representation of a council.
    pub(crate) fn new(council: &CouncilSummary) -> Self {
        Self {
            short_id: council.short_id.to_string(),
            latest: council.usage.map(|usage| usage.latest.0),
            compacted: council.usage.map(|usage| usage.floor.0),
            slots: council.usage.map(|usage| usage.slots),
            bytes: council.usage.map(|usage| usage.bytes),
            mail_messages: council.usage.map(|usage| usage.mail_messages),
            last_request_at: council.last_request.map(moment_before),
        }
    }
}

impl From<RecentActivity> for RecentActivityView {
    fn from(recent: RecentActivity) -> Self {
        Self {
            window_us: as_micros_u64(recent.window),
            requests: recent.requests,
            batches: recent.batches,
            largest_batch: recent.largest_batch,
            commits: recent.commits,
            commit_p50_us: recent.commit_p50.map(as_micros_u64),
            commit_p99_us: recent.commit_p99.map(as_micros_u64),
        }
    }
}

impl From<ConnectedClient> for PeerView {
    fn from(connected: ConnectedClient) -> Self {
        Self { key: connected.key.to_string(), from: connected.from }
    }
}

impl From<&AcceptorLimits> for LimitsView {
    fn from(limits: &AcceptorLimits) -> Self {
        Self {
            councils: limits.councils,
            council_bytes: limits.council.bytes,
            council_slots: limits.council.slots,
            council_mail_messages: limits.council.mail_messages,
        }
    }
}
