//! The contenders, the store, and the event queue.

mod acting;

use std::time::Duration;

use holdoff_policy::Policy;
use holdoff_sim::kernel::{Chance, EventQueue};

use super::contender::{Clock, Contender, Role};
use super::network::{Request, Resource, Said, Store};
use super::verdict::{Broken, Faults};
use super::{Mutant, Plan};
use crate::row::Row;
use crate::wakes::Heard;
use crate::{Nonce, Token};

/// More events than any run takes.
const MOST_EVENTS: u32 = 500_000;

#[derive(Debug)]
pub(super) struct World {
    plan: Plan,
    mutant: Mutant,
    queue: EventQueue<Event>,
    contenders: Vec<Contender>,
    chance: Chance,
    store: Store,
    resource: Resource,
    ran: Ran,
    nonces: u128,
    /// The contenders that are reading back the outcome of a request.
    asked_back: Vec<bool>,
    renewals: Policy,
    /// The number of requests that arrived in the current millisecond.
    burst: (u64, u32),
}

/// The result of a run.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Ran {
    pub(super) acquired: u32,
    pub(super) gave_up: u32,
    pub(super) lost: u32,
    /// Grants whose response was lost and that were read back.
    pub(super) found_again: u32,
    pub(super) writes: u32,
    pub(super) refused_writes: u32,
    pub(super) bids: u32,
    pub(super) events: u32,
    /// The most requests that arrived within a millisecond.
    pub(super) busiest: u32,
    pub(super) faults: Faults,
}

impl Ran {
    pub(super) fn add(&mut self, other: &Self) {
        self.acquired += other.acquired;
        self.gave_up += other.gave_up;
        self.lost += other.lost;
        self.found_again += other.found_again;
        self.writes += other.writes;
        self.refused_writes += other.refused_writes;
        self.bids += other.bids;
        self.events += other.events;
        self.busiest = self.busiest.max(other.busiest);
    }
}

#[derive(Debug)]
enum Event {
    /// An event for a contender in one of its roles.
    For {
        to: usize,
        life: u64,
        what: What,
    },
    Arrival {
        from: usize,
        call: u64,
        is_late: bool,
        request: Request,
    },
    /// The write of a bid that was executed on an earlier state of the row.
    Overwrite {
        from: usize,
        call: u64,
        before: Box<Row>,
        request: Request,
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
}

#[derive(Debug)]
enum What {
    Start,
    Timer {
        call: u64,
    },
    Heard(Heard),
    /// A response; `None` if it did not arrive in time.
    Answer {
        call: u64,
        said: Option<Said>,
    },
    LookThenWrite,
    /// The write that follows a check of the guard, after any delay.
    Write {
        token: Token,
        nonce: Nonce,
        incarnation: u64,
    },
    EndOfWork,
}

impl World {
    pub(super) fn new(plan: Plan, mutant: Mutant) -> Self {
        let mut chance = Chance::of(plan.seed, 1 << 32);
        let mut faults = Faults::default();
        let contenders = (0..plan.contenders).map(|number| {
            let clock = if plan.wrong_clocks {
                faults.skewed += 1;
                let drift = i64::try_from(chance.between(0, 20_000)).unwrap() - 10_000;
                Clock { offset_us: chance.between(0, 3_600_000_000), drift_ppm: drift }
            } else {
                Clock { offset_us: 1_000_000, drift_ppm: 0 }
            };
            Contender {
                clock,
                chance: Chance::of(plan.seed, number as u64),
                role: Role::Idle,
                life: 0,
                incarnation: 0,
                frozen_until_us: 0,
                call: 0,
                acquisitions_left: plan.acquisitions,
            }
        });
        let contenders = contenders.collect();
        let store = Store::new(plan.lease, mutant);
        let ran = Ran { faults, ..Ran::default() };
        let (queue, resource) = (EventQueue::new(), Resource::default());
        let asked_back = vec![false; plan.contenders];
        let renewals = Policy::preset("lock-aggressive").unwrap();
        let (nonces, burst) = (0, (0, 0));
        Self {
            plan,
            mutant,
            queue,
            contenders,
            chance,
            store,
            resource,
            ran,
            nonces,
            asked_back,
            renewals,
            burst,
        }
    }

    /// Kills the holder of the lock at this time.
    pub(super) fn kill_holder_at(mut self, at_us: u64) -> Self {
        self.queue.push(at_us, Event::CrashHolder);
        self
    }

    /// Processes all events, then checks that every contender has finished and that no state is left.
    pub(super) fn run(mut self) -> Result<Ran, Broken> {
        for to in 0..self.plan.contenders {
            let at_us = self.chance.between(0, 2_000_000);
            self.queue.push(at_us, Event::For { to, life: 0, what: What::Start });
        }
        while let Some((now_us, event)) = self.queue.pop() {
            self.ran.events += 1;
            if self.ran.events > MOST_EVENTS {
                return Err(Broken::Endless);
            }
            self.happen(now_us, event)?;
            self.check_belief(now_us)?;
        }
        if let Some((number, left)) = self
            .contenders
            .iter()
            .enumerate()
            .find(|(_, one)| !matches!(one.role, Role::Done | Role::Crashed))
        {
            return Err(Broken::LeftBehind(format!("{number} is still {:?}", left.role)));
        }
        let later =
            self.store_time(self.queue.now_us(), 0) + self.plan.lease * 2 + self.plan.policy.cap() * 2;
        if self.store.row.holder(later).is_some() || self.store.row.waiting(later) > 0 {
            return Err(Broken::LeftBehind(format!("{:?}", self.store.row)));
        }
        self.resource.audit()?;
        self.ran.writes = u32::try_from(self.resource.writes.len()).unwrap();
        self.ran.refused_writes = self.resource.refused;
        Ok(self.ran)
    }

    fn happen(&mut self, now_us: u64, event: Event) -> Result<(), Broken> {
        match event {
            Event::For { to, life, what } => {
                let contender = &self.contenders[to];
                if now_us < contender.frozen_until_us {
                    // A frozen contender receives the event when it resumes.
                    self.queue.push(contender.frozen_until_us, Event::For { to, life, what });
                    return Ok(());
                }
                let is_meant = contender.life == life || matches!(what, What::Write { .. });
                if is_meant { self.act(to, now_us, what) } else { Ok(()) }
            }
            Event::Arrival { from, call, is_late, request } => {
                self.ran.faults.late += u32::from(is_late && self.contenders[from].call != call);
                self.arrive(from, call, request, now_us)
            }
            Event::Overwrite { from, call, before, request } => {
                let said = self.store.overwrite(*before, &request, self.store_time(now_us, from))?;
                self.answer(from, call, said, now_us);
                Ok(())
            }
            Event::WriteArrival { from, token, nonce } => {
                let holds = self.contenders[from].believes(now_us)
                    && matches!(self.contenders[from].role, Role::Holding { token: held, .. } if held == token);
                if !self.resource.write(token, nonce) && holds {
                    return Err(Broken::HolderRefused(from));
                }
                Ok(())
            }
            Event::Freeze(number) => {
                let lease_us = u64::try_from(self.plan.lease.as_micros()).unwrap();
                let contender = &mut self.contenders[number];
                let until_us = now_us + contender.chance.between(lease_us, lease_us * 3);
                contender.frozen_until_us = contender.frozen_until_us.max(until_us);
                self.ran.faults.frozen += u32::from(matches!(contender.role, Role::Holding { .. }));
                Ok(())
            }
            Event::CrashHolder => {
                if let Some(holder) = self.contenders.iter_mut().find(|one| one.believes(now_us)) {
                    holder.become_(Role::Crashed);
                }
                Ok(())
            }
            Event::Crash(number) => {
                let contender = &mut self.contenders[number];
                if !matches!(contender.role, Role::Idle | Role::Done | Role::Crashed) {
                    contender.become_(Role::Crashed);
                    contender.incarnation += 1;
                    contender.frozen_until_us = 0;
                    self.ran.faults.crashed += 1;
                    let after = contender.chance.between(1_000, 5_000_000);
                    self.queue.push(now_us + after, Event::Restart(number));
                }
                Ok(())
            }
            Event::Restart(number) => {
                self.idle(number, now_us);
                Ok(())
            }
        }
    }

    /// Delivers a request to the store.
    fn arrive(&mut self, from: usize, call: u64, request: Request, now_us: u64) -> Result<(), Broken> {
        let is_bid = matches!(request, Request::Bid { .. });
        if is_bid {
            self.ran.bids += 1;
            let slot = now_us / 1_000;
            self.burst = if self.burst.0 == slot { (slot, self.burst.1 + 1) } else { (slot, 1) };
            self.ran.busiest = self.ran.busiest.max(self.burst.1);
        }
        if is_bid && self.mutant == Mutant::TakeoverWithoutCompare {
            let (before, after) = (Box::new(self.store.row.clone()), self.chance.between(100, 20_000));
            self.queue.push(now_us + after, Event::Overwrite { from, call, before, request });
            return Ok(());
        }
        let (said, heard) = self.store.serve(&request, self.store_time(now_us, from))?;
        self.answer(from, call, said, now_us);
        if let Some(heard) = heard {
            self.tell(heard, now_us);
        }
        Ok(())
    }

    fn answer(&mut self, to: usize, call: u64, said: Said, now_us: u64) {
        if self.chance.happens(self.plan.loses_answer) {
            self.ran.faults.answers_lost += 1;
            self.break_off(to, call, now_us);
            return;
        }
        let at_us = now_us + self.delay_us();
        let life = self.contenders[to].life;
        self.queue.push(at_us, Event::For { to, life, what: What::Answer { call, said: Some(said) } });
    }

    /// Handles a lost message. The sender either learns at once that the connection is gone, or waits until its time
    /// limit.
    fn break_off(&mut self, to: usize, call: u64, now_us: u64) {
        if self.chance.happens(0.5) {
            let (life, at_us) = (self.contenders[to].life, now_us + self.delay_us());
            self.queue.push(at_us, Event::For { to, life, what: What::Answer { call, said: None } });
        }
    }

    fn tell(&mut self, heard: Heard, now_us: u64) {
        for to in 0..self.contenders.len() {
            if self.chance.happens(self.plan.loses_word) {
                self.ran.faults.words_lost += 1;
                continue;
            }
            let (life, at_us) = (self.contenders[to].life, now_us + self.delay_us());
            self.queue.push(at_us, Event::For { to, life, what: What::Heard(heard) });
        }
    }

    fn delay_us(&mut self) -> u64 {
        self.chance.between(self.plan.fastest_us, self.plan.slowest_us)
    }

    /// Returns the store's time; with the mutant, the wall clock of the requester.
    fn store_time(&self, now_us: u64, from: usize) -> Duration {
        match self.mutant {
            Mutant::RemoteWallClock => self.contenders[from].clock.local(now_us),
            _ => Duration::from_micros(now_us),
        }
    }

    fn check_belief(&self, now_us: u64) -> Result<(), Broken> {
        let mut believers = (0..self.contenders.len()).filter(|one| self.contenders[*one].believes(now_us));
        match (believers.next(), believers.next()) {
            (Some(one), Some(other)) => Err(Broken::TwoBelieve(now_us, one, other)),
            _ => Ok(()),
        }
    }
}
