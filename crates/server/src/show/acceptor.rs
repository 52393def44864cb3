//! The JSON representation of an acceptor and its councils.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use holdoff_council::acceptor::{Connected, Lately, Limits, Line};
use holdoff_work::Moment;
use serde::Serialize;
use utoipa::ToSchema;

use crate::acceptor::{Acceptor, moment};
use crate::schema;

/// The maximum number of connected keys that are shown.
const MOST_PEERS: usize = 100;

/// The acceptor of councils in this daemon.
#[derive(Serialize, ToSchema)]
#[schema(as = Acceptor)]
pub(crate) struct ShownAcceptor {
    /// What others need to know of it, as one word to paste: its key and its address.
    acceptor: String,
    #[schema(pattern = "^[0-9a-f]{64}$")]
    key: String,
    #[schema(value_type = String)]
    address: SocketAddr,
    /// By which councils count it.
    #[schema(pattern = "^[0-9a-f]{32}$")]
    node: String,
    /// The life of its storage.
    #[schema(pattern = "^[0-9a-f]{16}$")]
    life: String,
    #[schema(value_type = schema::MomentText)]
    started_at: Moment,
    /// Why it answers nobody any more, if so: its disk has failed.
    stopped: Option<String>,
    /// Questions answered since the start, by kind.
    asked: BTreeMap<&'static str, u64>,
    /// Questions refused since the start, by reason.
    refused: BTreeMap<&'static str, u64>,
    lately: ShownLately,
    connections: usize,
    /// Who is connected: those with the most connections first, 100 at most.
    peers: Vec<ShownPeer>,
    limits: ShownLimits,
}

/// What an acceptor did within the last minute.
#[derive(Serialize, ToSchema)]
#[schema(as = AcceptorLately)]
struct ShownLately {
    /// How long that is: less just after the start.
    over_us: u64,
    questions: u64,
    /// How often some were answered together.
    batches: u64,
    /// The most that were.
    largest_batch: u64,
    /// How often something was written.
    commits: u64,
    /// So long, or less, took half of the writing.
    commit_p50_us: Option<u64>,
    /// So long, or less, took all but one in a hundred.
    commit_p99_us: Option<u64>,
}

/// Whoever is connected with one key.
#[derive(Serialize, ToSchema)]
#[schema(as = AcceptorPeer)]
struct ShownPeer {
    #[schema(pattern = "^[0-9a-f]{64}$")]
    key: String,
    /// From where, each connection.
    #[schema(value_type = Vec<String>)]
    from: Vec<SocketAddr>,
}

/// How much an acceptor takes on.
#[derive(Serialize, ToSchema)]
#[schema(as = AcceptorLimits)]
struct ShownLimits {
    councils: usize,
    /// Bytes of a council.
    council_bytes: usize,
    /// Slots of a council since its snapshot.
    council_slots: usize,
    /// Letters of a council.
    council_letters: usize,
}

/// What an acceptor keeps of a council. What stays untold is not known until somebody asks about it.
#[derive(Serialize, ToSchema)]
#[schema(as = Council)]
pub(crate) struct ShownCouncil {
    /// By which it is told from others; its id is a secret among those who take part.
    #[schema(pattern = "^[0-9a-f]{12}$")]
    mark: String,
    /// The highest slot in which something was accepted.
    latest: Option<u64>,
    /// The last slot that a snapshot stands for.
    compacted: Option<u64>,
    /// Slots since then.
    slots: Option<u64>,
    /// Bytes of values, letters and the snapshot.
    bytes: Option<u64>,
    /// Letters for those who come.
    letters: Option<u64>,
    /// When somebody asked about it, since the start.
    #[schema(value_type = Option<schema::MomentText>)]
    asked_at: Option<Moment>,
}

/// Returns the representation of an acceptor.
pub(crate) fn show_acceptor(acceptor: &Acceptor) -> ShownAcceptor {
    let lookout = &acceptor.lookout;
    let (figures, peers) = (lookout.figures(), lookout.connected());
    ShownAcceptor {
        acceptor: acceptor.name(),
        key: lookout.key().to_string(),
        address: lookout.address(),
        node: acceptor.node(),
        life: acceptor.life(),
        started_at: acceptor.since,
        stopped: lookout.stopped(),
        lately: figures.lately.into(),
        asked: figures.asked,
        refused: figures.refused,
        connections: peers.iter().map(|peer| peer.from.len()).sum(),
        peers: peers.into_iter().take(MOST_PEERS).map(Into::into).collect(),
        limits: lookout.limits().into(),
    }
}

/// Returns the representation of a council.
pub(crate) fn show_council(line: &Line) -> ShownCouncil {
    ShownCouncil {
        mark: line.mark.to_string(),
        latest: line.kept.map(|kept| kept.latest.0),
        compacted: line.kept.map(|kept| kept.floor.0),
        slots: line.kept.map(|kept| kept.slots),
        bytes: line.kept.map(|kept| kept.bytes),
        letters: line.kept.map(|kept| kept.letters),
        asked_at: line.asked.map(moment),
    }
}

impl From<Lately> for ShownLately {
    fn from(lately: Lately) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            over_us: micros(lately.over),
            questions: lately.questions,
            batches: lately.batches,
            largest_batch: lately.largest_batch,
            commits: lately.commits,
            commit_p50_us: lately.commit_p50.map(micros),
            commit_p99_us: lately.commit_p99.map(micros),
        }
    }
}

impl From<Connected> for ShownPeer {
    fn from(connected: Connected) -> Self {
        Self { key: connected.key.to_string(), from: connected.from }
    }
}

impl From<&Limits> for ShownLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            councils: limits.councils,
            council_bytes: limits.council.bytes,
            council_slots: limits.council.slots,
            council_letters: limits.council.letters,
        }
    }
}
