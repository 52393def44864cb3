//! The daemons of one ledger.

use serde_json::Value;
use tempfile::TempDir;

use crate::ledger::daemon::Daemon;
use crate::ledger::place::{Place, Way, until};

pub(crate) struct Cluster {
    pub(crate) daemons: Vec<Daemon>,
    _folder: TempDir,
}

impl Cluster {
    /// Starts this number of daemons and waits until all of them vote.
    pub(crate) fn start(place: &impl Place, count: usize) -> Self {
        Self::start_with(place, count, |_, _| ())
    }

    /// Starts a cluster and calls `prepare` on each daemon before it has a ledger.
    pub(crate) fn start_with(
        place: &impl Place,
        count: usize,
        mut prepare: impl FnMut(usize, &mut Daemon),
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut daemons: Vec<Daemon> = Vec::new();
        for number in 0..count {
            let mut daemon = Daemon::new(place.way(number), place.node(number), folder.path(), number);
            prepare(number, &mut daemon);
            daemon.begin(daemons.first().map(Daemon::contact).as_deref());
            daemons.push(daemon);
        }
        let cluster = Self { daemons, _folder: folder };
        let [founder, others @ ..] = cluster.daemons.as_slice() else { panic!("nobody") };
        until("the founder leads", || role(&founder.way, "leads"));
        for daemon in others {
            founder.way.must(&["members", "add", &daemon.contact(), "--name", &daemon.name]);
        }
        cluster.until_all_vote();
        cluster
    }

    pub(crate) fn until_all_vote(&self) {
        until("everybody votes and knows it", || {
            for daemon in &self.daemons {
                let status = daemon.way.status();
                let members = status["members"].as_array().map(Vec::as_slice).unwrap_or_default();
                let voters = members.iter().filter(|member| member["votes"] == true).count();
                if voters != self.daemons.len() || status["leader"].is_null() {
                    return Err(format!("{} says {status:#}", daemon.name));
                }
            }
            Ok(())
        });
    }

    /// Returns the number of the running daemon that leads.
    pub(crate) fn leader(&self) -> usize {
        self.leader_among(&(0..self.daemons.len()).collect::<Vec<_>>())
    }

    /// Returns the number of the running daemon among these that leads.
    pub(crate) fn leader_among(&self, numbers: &[usize]) -> usize {
        until("somebody leads", || {
            let leads = |number: &&usize| {
                let daemon = &self.daemons[**number];
                daemon.runs() && daemon.way.status()["role"] == "leads"
            };
            numbers.iter().find(leads).copied().ok_or_else(|| "nobody does".to_owned())
        })
    }

    /// Returns the numbers of all daemons except one.
    pub(crate) fn others(&self, one: usize) -> Vec<usize> {
        (0..self.daemons.len()).filter(|number| *number != one).collect()
    }

    pub(crate) fn ways(&self) -> Vec<Way> {
        self.daemons.iter().map(|daemon| daemon.way.clone()).collect()
    }

    /// Waits until all daemons have the same index and the same leader. Asserts that they then have the same history
    /// and state.
    pub(crate) fn until_equal(&self) -> Value {
        let ways = self.ways();
        let seen = until("all are equal", || {
            let seen: Vec<_> = ways.iter().map(Way::status).collect();
            let is_level = seen.iter().all(|status| {
                status["index"].is_u64()
                    && status["index"] == seen[0]["index"]
                    && status["leader"]["key"] == seen[0]["leader"]["key"]
                    && status["leader"].is_object()
                    && status["pending"] == 0
            });
            if is_level { Ok(seen) } else { Err(format!("{seen:#?}")) }
        });
        for status in &seen {
            for part in ["hash", "state_hash"] {
                assert_eq!(status[part], seen[0][part], "two histories: {seen:#?}");
            }
            assert_eq!(status["counts"]["diverged"], 0, "{status}");
        }
        for way in &ways {
            way.must(&["verify"]);
        }
        seen[0].clone()
    }
}

/// Checks that the daemon's node has this role.
pub(crate) fn role(way: &Way, role: &str) -> Result<(), String> {
    let status = way.status();
    if status["role"] == role { Ok(()) } else { Err(format!("{status:#}")) }
}
