//! The parameters of a run, and the event queue between the contenders and the store.

use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::{Policy, as_micros_u64};
use holdoff_sim::kernel::{EventQueue, SimRng};

use super::contender::{ContenderRole, SimulatedContender, SkewedClock};
use super::network::{Response, SimulatedResource, SimulatedStore, StoreRequest};
use super::{FaultCounts, Mutant, Violation};
use crate::notify::Notification;
use crate::row::Row;
use crate::{Nonce, Token};

/// More events than any run takes.
const MAX_EVENTS: u32 = 500_000;

/// The parameters and fault rates of a run.
#[derive(Clone, Debug)]
pub(super) struct SimulationPlan {
    pub(super) seed: u64,
    pub(super) contenders: usize,
    /// The number of acquisitions of each contender.
    pub(super) acquisitions: u32,
    pub(super) lease: Duration,
    pub(super) policy: Arc<Policy>,
    pub(super) fastest_us: u64,
    pub(super) slowest_us: u64,
    pub(super) loses_request: f64,
    pub(super) loses_response: f64,
    pub(super) loses_notification: f64,
    /// The probability that a message arrives long after its sender has stopped waiting.
    pub(super) is_late: f64,
    /// The probability that an acquisition ends in a crash.
    pub(super) crashes: f64,
    /// The probability that a holder whose lease has expired asks for a renewal, as a client without a guard may do.
    pub(super) renews_late: f64,
    /// The probability that a write is delayed between the check of the guard and the write.
    pub(super) freezes: f64,
    pub(super) wrong_clocks: bool,
    /// How far the store's wall clock is ahead at the beginning.
    pub(super) store_ahead_us: u64,
    pub(super) store_faults: Vec<(u64, StoreFault)>,
    /// The number of crashes of the store soon after a grant that is not on the disk yet.
    pub(super) store_crashes: u32,
}

/// A fault of the store as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) enum StoreFault {
    Crash,
    /// Sets the wall clock, so far ahead.
    ClockStep(u64),
    /// Takes a backup. It is no fault yet.
    BackUp,
    Restore,
}

/// The clock of the store is this far ahead unless it steps.
const AHEAD_US: u64 = 60_000_000;

impl SimulationPlan {
    pub(super) fn of(seed: u64) -> Self {
        let mut rng = SimRng::of(seed, u64::MAX);
        let lease = Duration::from_millis(rng.between(500, 10_000));
        // In some runs nearly every message is lost: only then do unlikely sequences occur.
        let is_extreme = rng.happens(0.2);
        let mut rate = |worst: f64| if rng.happens(0.8) { rng.unit() * worst } else { 0.0 };
        let worst = if is_extreme { 0.7 } else { 0.15 };
        let (loses_request, loses_response, loses_notification) = (rate(worst), rate(worst), rate(0.5));
        let (is_late, crashes, freezes) = (rate(0.1), rate(0.3), rate(0.4));
        let policy = match rng.between(0, 3) {
            0 => Policy::preset("lock").unwrap(),
            1 => Policy::preset("lock-aggressive").unwrap(),
            _ => crate::Settings::default().with_lease(lease * 2).policy(),
        };
        Self {
            seed,
            contenders: usize::try_from(rng.between(2, 8)).unwrap(),
            acquisitions: u32::try_from(rng.between(1, 5)).unwrap(),
            lease,
            policy: Arc::new(policy),
            fastest_us: rng.between(50, 2_000),
            slowest_us: rng.between(2_000, 50_000),
            loses_request,
            loses_response,
            loses_notification,
            is_late,
            crashes,
            freezes,
            renews_late: if rng.happens(0.5) { 0.5 } else { 0.0 },
            wrong_clocks: rng.happens(0.8),
            store_ahead_us: AHEAD_US,
            store_faults: Self::store_faults(&mut rng),
            store_crashes: u32::try_from(rng.between(0, 4)).unwrap(),
        }
    }

    /// Draws the faults of the store.
    fn store_faults(rng: &mut SimRng) -> Vec<(u64, StoreFault)> {
        let mut at =
            |faults: u64| (0..rng.between(0, faults)).map(|_| rng.between(0, 8_000_000)).collect::<Vec<_>>();
        let (mut steps, backups, restores) = (at(4), at(4), at(4));
        // A restore relies on a clock that is not set back, and a step forward ends leases early, which the checks of
        // mutual exclusion have to excuse. Some runs therefore have only the one or the other.
        let (kind, mut ahead_us) = (rng.between(0, 3), AHEAD_US);
        let mut faults = Vec::new();
        if kind > 0 {
            faults.extend(backups.into_iter().map(|at_us| (at_us, StoreFault::BackUp)));
            faults.extend(restores.into_iter().map(|at_us| (at_us, StoreFault::Restore)));
        }
        if kind < 2 {
            steps.sort_unstable();
            faults.extend(steps.into_iter().map(|at_us| {
                let by_us = rng.between(1_000_000, 10_000_000);
                let is_forward = kind == 1 || rng.happens(0.5);
                ahead_us = if is_forward { ahead_us + by_us } else { ahead_us - by_us };
                (at_us, StoreFault::ClockStep(ahead_us))
            }));
        }
        faults
    }

    /// Returns the same plan without faults, and with time for every contender's turn.
    pub(super) fn without_faults(mut self) -> Self {
        (self.loses_request, self.loses_response, self.loses_notification) = (0.0, 0.0, 0.0);
        (self.is_late, self.crashes, self.freezes, self.wrong_clocks) = (0.0, 0.0, 0.0, false);
        self.renews_late = 0.0;
        (self.store_faults, self.store_crashes) = (Vec::new(), 0);
        let patient =
            self.policy.to_builder().attempts(Policy::UNLIMITED).deadline(Duration::from_secs(86_400));
        self.policy = Arc::new(patient.build().unwrap());
        self
    }
}

#[derive(Debug)]
pub(super) struct Simulation {
    pub(super) plan: SimulationPlan,
    pub(super) mutant: Mutant,
    pub(super) queue: EventQueue<SimulationEvent>,
    pub(super) contenders: Vec<SimulatedContender>,
    pub(super) rng: SimRng,
    pub(super) store: SimulatedStore,
    pub(super) resource: SimulatedResource,
    pub(super) stats: RunStats,
    pub(super) nonces: u128,
    /// The contenders that are reading back the outcome of a request.
    pub(super) is_reading_back: Vec<bool>,
    pub(super) renewals: Policy,
    /// When the store's clock last stepped forward.
    stepped_forward_us: Option<u64>,
    /// The number of requests that arrived in the current millisecond.
    pub(super) burst: (u64, u32),
}

/// The result of a run.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct RunStats {
    pub(super) acquired: u32,
    pub(super) gave_up: u32,
    pub(super) lost: u32,
    /// Grants whose response was lost and that were read back.
    pub(super) read_back: u32,
    pub(super) writes: u32,
    pub(super) refused_writes: u32,
    pub(super) acquires: u32,
    pub(super) events: u32,
    /// The most requests that arrived within a millisecond.
    pub(super) busiest: u32,
    pub(super) faults: FaultCounts,
}

impl RunStats {
    pub(super) fn add(&mut self, other: &Self) {
        self.acquired += other.acquired;
        self.gave_up += other.gave_up;
        self.lost += other.lost;
        self.read_back += other.read_back;
        self.writes += other.writes;
        self.refused_writes += other.refused_writes;
        self.acquires += other.acquires;
        self.events += other.events;
        self.busiest = self.busiest.max(other.busiest);
    }
}

#[derive(Debug)]
pub(super) enum SimulationEvent {
    /// An event for a contender in one of its roles.
    For {
        to: usize,
        generation: u64,
        what: ContenderEvent,
    },
    Arrival {
        from: usize,
        call: u64,
        is_late: bool,
        request: StoreRequest,
    },
    /// The write of an acquisition that was executed on an earlier state of the row.
    Overwrite {
        from: usize,
        call: u64,
        before: Box<Row>,
        request: StoreRequest,
    },
    WriteArrival {
        from: usize,
        token: Token,
        nonce: Nonce,
    },
    Freeze(usize),
    Crash(usize),
    /// Kills the holder of the lock for good.
    CrashHolder,
    Restart(usize),
    Store(StoreFault),
}

#[derive(Debug)]
pub(super) enum ContenderEvent {
    Start,
    Timer {
        call: u64,
    },
    Notification(Notification),
    /// A response; `None` if it did not arrive in time.
    Response {
        call: u64,
        response: Option<Response>,
    },
    CheckThenWrite,
    /// The write that follows a check of the guard, after any delay.
    Write {
        token: Token,
        nonce: Nonce,
        incarnation: u64,
    },
    EndOfWork,
}

impl Simulation {
    pub(super) fn new(plan: SimulationPlan, mutant: Mutant) -> Self {
        let mut rng = SimRng::of(plan.seed, 1 << 32);
        let mut faults = FaultCounts::default();
        let contenders = (0..plan.contenders).map(|number| {
            let clock = if plan.wrong_clocks {
                faults.skewed += 1;
                let drift = i64::try_from(rng.between(0, 20_000)).unwrap() - 10_000;
                SkewedClock { offset_us: rng.between(0, 3_600_000_000), drift_ppm: drift }
            } else {
                SkewedClock { offset_us: 1_000_000, drift_ppm: 0 }
            };
            SimulatedContender {
                clock,
                rng: SimRng::of(plan.seed, number as u64),
                role: ContenderRole::Idle,
                generation: 0,
                incarnation: 0,
                frozen_until_us: 0,
                call: 0,
                acquisitions_left: plan.acquisitions,
            }
        });
        let contenders = contenders.collect();
        let store = SimulatedStore::new(&plan, mutant);
        let stats = RunStats { faults, ..RunStats::default() };
        let (queue, resource) = (EventQueue::new(), SimulatedResource::default());
        let is_reading_back = vec![false; plan.contenders];
        let renewals = Policy::preset("lock-aggressive").unwrap();
        let (nonces, burst) = (0, (0, 0));
        Self {
            plan,
            mutant,
            queue,
            contenders,
            rng,
            store,
            resource,
            stats,
            nonces,
            is_reading_back,
            renewals,
            stepped_forward_us: None,
            burst,
        }
    }

    /// Kills the holder of the lock at this time.
    pub(super) fn kill_holder_at(mut self, at_us: u64) -> Self {
        self.queue.push(at_us, SimulationEvent::CrashHolder);
        self
    }

    /// Processes all events, then checks that every contender has finished and that no state is left.
    pub(super) fn run(mut self) -> Result<RunStats, Violation> {
        for to in 0..self.plan.contenders {
            let at_us = self.rng.between(0, 2_000_000);
            self.queue.push(at_us, SimulationEvent::For { to, generation: 0, what: ContenderEvent::Start });
        }
        for (at_us, fault) in self.plan.store_faults.clone() {
            self.queue.push(at_us, SimulationEvent::Store(fault));
        }
        while let Some((now_us, event)) = self.queue.pop() {
            self.stats.events += 1;
            if self.stats.events > MAX_EVENTS {
                return Err(Violation::NotTerminating);
            }
            self.handle(now_us, event)?;
            self.check_mutual_exclusion(now_us)?;
        }
        if let Some((number, left)) = self
            .contenders
            .iter()
            .enumerate()
            .find(|(_, one)| !matches!(one.role, ContenderRole::Done | ContenderRole::Crashed))
        {
            return Err(Violation::LeftBehind(format!("{number} is still {:?}", left.role)));
        }
        // The clock may have been set back by as much as it was ahead, and everything lasts longer by that.
        let later = self.store_time(self.queue.now_us(), 0) + Duration::from_micros(AHEAD_US);
        let later = later + self.plan.lease * 2 + self.plan.policy.cap() * 2;
        if self.store.row.holder(later).is_some() || self.store.row.waiting(later) > 0 {
            return Err(Violation::LeftBehind(format!("{:?}", self.store.row)));
        }
        self.resource.audit()?;
        self.stats.writes = u32::try_from(self.resource.writes.len()).unwrap();
        self.stats.refused_writes = self.resource.refused;
        Ok(self.stats)
    }

    fn handle(&mut self, now_us: u64, event: SimulationEvent) -> Result<(), Violation> {
        match event {
            SimulationEvent::For { to, generation, what } => {
                let contender = &self.contenders[to];
                if now_us < contender.frozen_until_us {
                    // A frozen contender receives the event when it resumes.
                    self.queue.push(contender.frozen_until_us, SimulationEvent::For { to, generation, what });
                    return Ok(());
                }
                let is_meant =
                    contender.generation == generation || matches!(what, ContenderEvent::Write { .. });
                if is_meant { self.act(to, now_us, what) } else { Ok(()) }
            }
            SimulationEvent::Arrival { from, call, is_late, request } => {
                self.stats.faults.late += u32::from(is_late && self.contenders[from].call != call);
                self.arrive(from, call, request, now_us)
            }
            SimulationEvent::Overwrite { from, call, before, request } => {
                let response = self.store.overwrite(*before, &request, self.store_time(now_us, from))?;
                self.respond(from, call, response, now_us);
                Ok(())
            }
            SimulationEvent::WriteArrival { from, token, nonce } => {
                let holds = self.contenders[from].believes(now_us)
                    && matches!(self.contenders[from].role, ContenderRole::Holding { token: held, .. } if held == token);
                if !self.resource.write(token, nonce) && holds && !self.leases_ended_early(now_us) {
                    return Err(Violation::HolderRejected(from));
                }
                Ok(())
            }
            SimulationEvent::Freeze(number) => {
                let lease_us = as_micros_u64(self.plan.lease);
                let contender = &mut self.contenders[number];
                let until_us = now_us + contender.rng.between(lease_us, lease_us * 3);
                contender.frozen_until_us = contender.frozen_until_us.max(until_us);
                self.stats.faults.frozen +=
                    u32::from(matches!(contender.role, ContenderRole::Holding { .. }));
                Ok(())
            }
            SimulationEvent::CrashHolder => {
                if let Some(holder) = self.contenders.iter_mut().find(|one| one.believes(now_us)) {
                    holder.set_role(ContenderRole::Crashed);
                }
                Ok(())
            }
            SimulationEvent::Crash(number) => {
                let contender = &mut self.contenders[number];
                if !matches!(
                    contender.role,
                    ContenderRole::Idle | ContenderRole::Done | ContenderRole::Crashed
                ) {
                    contender.set_role(ContenderRole::Crashed);
                    contender.incarnation += 1;
                    contender.frozen_until_us = 0;
                    self.stats.faults.crashed += 1;
                    let after = contender.rng.between(1_000, 5_000_000);
                    self.queue.push(now_us + after, SimulationEvent::Restart(number));
                }
                Ok(())
            }
            SimulationEvent::Store(fault) => {
                let (now, faults) = (self.store.time(now_us), &mut self.stats.faults);
                match fault {
                    StoreFault::Crash => faults.grants_lost += u32::from(self.store.crash(now)),
                    StoreFault::BackUp => self.store.back_up(),
                    StoreFault::Restore => faults.restored += u32::from(self.store.restore(now)),
                    StoreFault::ClockStep(ahead_us) => {
                        self.store.set_clock(ahead_us);
                        faults.clock_steps += 1;
                        if self.store.time(now_us) > now {
                            self.stepped_forward_us = Some(now_us);
                        }
                    }
                }
                Ok(())
            }
            SimulationEvent::Restart(number) => {
                self.idle(number, now_us);
                Ok(())
            }
        }
    }

    /// Delivers a request to the store.
    fn arrive(
        &mut self,
        from: usize,
        call: u64,
        request: StoreRequest,
        now_us: u64,
    ) -> Result<(), Violation> {
        let is_acquire = matches!(request, StoreRequest::Acquire { .. });
        if is_acquire {
            self.stats.acquires += 1;
            let slot = now_us / 1_000;
            self.burst = if self.burst.0 == slot { (slot, self.burst.1 + 1) } else { (slot, 1) };
            self.stats.busiest = self.stats.busiest.max(self.burst.1);
        }
        if is_acquire && self.mutant == Mutant::TakeoverWithoutCompare {
            let (before, after) = (Box::new(self.store.row.clone()), self.rng.between(100, 20_000));
            self.queue.push(now_us + after, SimulationEvent::Overwrite { from, call, before, request });
            return Ok(());
        }
        let (response, notification) = self.store.serve(&request, self.store_time(now_us, from))?;
        if let Some(stale) = self.store.renewed_stale.take().filter(|_| !self.leases_ended_early(now_us)) {
            return Err(stale);
        }
        self.respond(from, call, response, now_us);
        if is_acquire
            && self.store.has_unwritten_grant()
            && self.plan.store_crashes > 0
            && self.rng.happens(0.6)
        {
            self.plan.store_crashes -= 1;
            let at_us = now_us + self.rng.between(0, 300_000);
            self.queue.push(at_us, SimulationEvent::Store(StoreFault::Crash));
        }
        if let Some(notification) = notification {
            self.notify(notification, now_us);
        }
        Ok(())
    }

    fn respond(&mut self, to: usize, call: u64, response: Response, now_us: u64) {
        if self.rng.happens(self.plan.loses_response) {
            self.stats.faults.responses_lost += 1;
            self.lose_message(to, call, now_us);
            return;
        }
        let at_us = now_us + self.delay_us();
        let generation = self.contenders[to].generation;
        self.queue.push(
            at_us,
            SimulationEvent::For {
                to,
                generation,
                what: ContenderEvent::Response { call, response: Some(response) },
            },
        );
    }

    /// Handles a lost message. The sender either learns at once that the connection is gone, or waits until its time
    /// limit.
    pub(super) fn lose_message(&mut self, to: usize, call: u64, now_us: u64) {
        if self.rng.happens(0.5) {
            let (generation, at_us) = (self.contenders[to].generation, now_us + self.delay_us());
            self.queue.push(
                at_us,
                SimulationEvent::For {
                    to,
                    generation,
                    what: ContenderEvent::Response { call, response: None },
                },
            );
        }
    }

    fn notify(&mut self, notification: Notification, now_us: u64) {
        for to in 0..self.contenders.len() {
            if self.rng.happens(self.plan.loses_notification) {
                self.stats.faults.notifications_lost += 1;
                continue;
            }
            let (generation, at_us) = (self.contenders[to].generation, now_us + self.delay_us());
            self.queue.push(
                at_us,
                SimulationEvent::For { to, generation, what: ContenderEvent::Notification(notification) },
            );
        }
    }

    pub(super) fn delay_us(&mut self) -> u64 {
        self.rng.between(self.plan.fastest_us, self.plan.slowest_us)
    }

    /// Returns the store's time; with the mutant, the wall clock of the requester.
    fn store_time(&self, now_us: u64, from: usize) -> Duration {
        match self.mutant {
            Mutant::RemoteWallClock => self.contenders[from].clock.local(now_us),
            _ => self.store.time(now_us),
        }
    }

    /// Returns whether a holder may exist whose lease was ended by a step of the store's clock. Such a holder loses its
    /// lock at its next renewal.
    fn leases_ended_early(&self, now_us: u64) -> bool {
        let lease_us = as_micros_u64(self.plan.lease);
        self.stepped_forward_us.is_some_and(|stepped_us| now_us < stepped_us + 2 * lease_us)
    }

    fn check_mutual_exclusion(&self, now_us: u64) -> Result<(), Violation> {
        if self.leases_ended_early(now_us) {
            return Ok(());
        }
        let mut believers = (0..self.contenders.len()).filter(|one| self.contenders[*one].believes(now_us));
        match (believers.next(), believers.next()) {
            (Some(one), Some(other)) => Err(Violation::TwoHolders(now_us, one, other)),
            _ => Ok(()),
        }
    }
}
