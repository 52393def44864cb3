//! The councils' acceptor that runs in this daemon, for the API and the dashboard.

use std::time::Duration;

use holdoff_council::acceptor::{Councils, Lookout, Sort, Wish};
use holdoff_work::Moment;

use crate::clock;
use crate::problem::{Kind, Problem};

/// Timeout for the acceptor's writer to list the councils that it stores.
const PATIENCE: Duration = Duration::from_secs(2);

/// The acceptor in this daemon.
#[derive(Debug)]
pub(crate) struct Acceptor {
    pub(crate) lookout: Lookout,
    /// The time at which it started.
    pub(crate) since: Moment,
}

impl Acceptor {
    /// Wraps an acceptor that has just started.
    pub(crate) fn new(lookout: Lookout) -> Self {
        Self { lookout, since: clock::wall() }
    }

    /// Returns the contact that other nodes need to reach the acceptor, as one word to copy and paste.
    pub(crate) fn name(&self) -> String {
        format!("{}@{}", self.lookout.key(), self.lookout.address())
    }

    pub(crate) fn node(&self) -> String {
        format!("{:032x}", self.lookout.node().0)
    }

    pub(crate) fn life(&self) -> String {
        format!("{:016x}", self.lookout.life())
    }

    /// Returns a page of the councils that the acceptor stores.
    pub(crate) async fn councils(&self, wish: Wish) -> Result<Councils, Problem> {
        let looked = tokio::time::timeout(PATIENCE, self.lookout.councils(wish)).await;
        let seconds = PATIENCE.as_secs();
        let busy = |_| Problem::unavailable(format!("the acceptor's disk has kept it busy for {seconds} s"));
        looked.map_err(busy)?.map_err(|stopped| Problem::unavailable(stopped.to_string()))
    }
}

/// Returns the sort order of councils that `word` names.
pub(crate) fn sort(word: &str) -> Result<Sort, Problem> {
    let found = Sort::ALL.into_iter().find(|sort| sort.name() == word);
    let names = Sort::ALL.map(Sort::name).join(", ");
    found.ok_or_else(|| Problem::new(Kind::InvalidQuery, format!("sort: expected one of {names}")))
}

/// Returns the time `ago` before now, on this daemon's clock.
pub(crate) fn moment(ago: Duration) -> Moment {
    let ago = i64::try_from(ago.as_micros()).unwrap_or(i64::MAX);
    Moment::from_micros(clock::wall().as_micros().saturating_sub(ago))
}
