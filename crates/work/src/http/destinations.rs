//! The gates of all destinations.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use url::Url;

use super::gate::{Gate, spread};
use crate::{Destination, Fault, HttpSettings, clock};

/// The maximum number of destinations that are remembered.
const MAX_GATES: usize = 10_000;
/// A destination that was not called for this long does not count as broken.
const LATELY: Duration = Duration::from_secs(600);
/// The wait of a step when all gates are in use.
const NO_ROOM: Duration = Duration::from_secs(1);

/// The gates of all destinations that were called recently.
pub(super) struct Destinations {
    limits: BTreeMap<String, Destination>,
    other: Destination,
    gates: Mutex<HashMap<String, Remembered>>,
    room: usize,
}

struct Remembered {
    gate: Arc<Gate>,
    used_at: Duration,
}

impl Destinations {
    pub(super) fn new(settings: &HttpSettings) -> Self {
        let limits = settings.destinations.iter();
        Self {
            limits: limits.map(|(name, limits)| (name.to_ascii_lowercase(), limits.clone())).collect(),
            other: settings.destination.clone(),
            gates: Mutex::default(),
            room: MAX_GATES,
        }
    }

    /// Returns the gate of `destination`, which is the destination of `url`. Creates the gate if there is none.
    pub(super) fn gate(&self, destination: &str, url: &Url) -> Result<Arc<Gate>, Fault> {
        let now = clock::now();
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = gates.get_mut(destination) {
            known.used_at = now;
            return Ok(Arc::clone(&known.gate));
        }
        if gates.len() >= self.room && !forget_idle(&mut gates) {
            return Err(Fault::busy(
                spread(NO_ROOM, clock::roll()),
                "requests to too many destinations are under way",
            ));
        }
        let gate = Arc::new(Gate::new(destination, self.limits_of(url)));
        gates.insert(destination.to_owned(), Remembered { gate: Arc::clone(&gate), used_at: now });
        Ok(gate)
    }

    /// Returns the names of the recently called destinations whose breakers are not closed.
    pub(super) fn broken(&self) -> Vec<String> {
        let since = clock::now().saturating_sub(LATELY);
        let gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let is_broken = |known: &Remembered| known.used_at >= since && known.gate.is_broken();
        let mut names: Vec<String> =
            gates.iter().filter(|(_, known)| is_broken(known)).map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the limits of the host and port, else of the host, else of all other destinations.
    fn limits_of(&self, url: &Url) -> &Destination {
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        let with_port =
            url.port_or_known_default().and_then(|port| self.limits.get(&format!("{host}:{port}")));
        with_port.or_else(|| self.limits.get(host)).unwrap_or(&self.other)
    }
}

/// Removes the tenth that was idle for longest, so that this happens rarely. Returns `false` if none is idle.
fn forget_idle(gates: &mut HashMap<String, Remembered>) -> bool {
    let is_idle = |known: &Remembered| Arc::strong_count(&known.gate) == 1;
    let mut times: Vec<Duration> =
        gates.values().filter(|known| is_idle(known)).map(|known| known.used_at).collect();
    times.sort_unstable();
    let Some(oldest) = times.get(gates.len() / 10).or(times.last()).copied() else { return false };
    gates.retain(|_, known| !is_idle(known) || known.used_at > oldest);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destinations(room: usize) -> Destinations {
        Destinations { room, ..Destinations::new(&HttpSettings::default()) }
    }

    fn gate(all: &Destinations, host: &str) -> Result<Arc<Gate>, Fault> {
        all.gate(host, &Url::parse(&format!("http://{host}/")).unwrap())
    }

    #[test]
    fn a_port_is_looked_up_before_its_host() {
        let limits = |concurrency| Destination { concurrency, ..Destination::default() };
        let mut settings = HttpSettings { destination: limits(1), ..HttpSettings::default() };
        settings.destinations.insert("A.example".into(), limits(2));
        settings.destinations.insert("a.example:8080".into(), limits(3));
        settings.destinations.insert("b.example:443".into(), limits(4));
        let all = Destinations::new(&settings);
        let found = |url: &str| all.limits_of(&Url::parse(url).unwrap()).concurrency;
        assert_eq!(found("http://a.example/"), 2);
        assert_eq!(found("http://a.example.:8080/"), 3);
        assert_eq!(found("https://b.example/"), 4);
        assert_eq!(found("http://b.example/"), 1);
    }

    #[test]
    fn idle_destinations_are_forgotten_and_busy_ones_are_not() {
        let all = destinations(3);
        let held = gate(&all, "a").unwrap();
        for host in ["b", "c", "d", "e", "f"] {
            gate(&all, host).unwrap();
            assert!(all.gates.lock().unwrap().len() <= 3);
        }
        assert!(Arc::ptr_eq(&held, &gate(&all, "a").unwrap()));
    }

    #[test]
    fn when_all_are_busy_a_new_one_waits() {
        let all = destinations(2);
        let held = [gate(&all, "a").unwrap(), gate(&all, "b").unwrap()];
        assert!(gate(&all, "c").is_err());
        drop(held);
        gate(&all, "c").unwrap();
    }
}
