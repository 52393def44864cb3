//! A rolling restart of all daemons under load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::ledger::cluster::Cluster;
use crate::ledger::deeds::Deeds;
use crate::ledger::place::{Loopback, until};

const WORKERS: usize = 3;

#[test]
fn daemons_are_started_anew_one_after_the_other_and_work_goes_on() {
    let mut cluster = Cluster::start(&Loopback::new(3), 3);
    let (deeds, enough) = (Deeds::default(), AtomicBool::new(false));
    let ways = cluster.ways();
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| deeds.go_on(&ways, &enough));
        }
        // Stops the workers also if an assertion fails.
        let _ending = Ending(&enough);
        let more = |many: usize| {
            let goal = deeds.count() + many;
            until("work goes on", || {
                let count = deeds.count();
                if count >= goal { Ok(()) } else { Err(format!("{count} of {goal}")) }
            });
        };
        more(10);
        for number in 0..3 {
            cluster.daemons[number].terminate();
            more(10);
            cluster.daemons[number].start();
            cluster.until_all_vote();
            more(10);
        }
    });
    cluster.until_equal();
    deeds.check(&cluster.ways());
    eprintln!("{} transactions while three daemons were started anew", deeds.count());
}

/// Sets the flag that ends the work when it is dropped, also on panic.
pub(crate) struct Ending<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
