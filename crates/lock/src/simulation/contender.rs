//! A contender, on a machine with a clock of its own. It executes the decisions of the cores, as the runtime does.

use std::sync::Arc;
use std::time::Duration;

use holdoff_policy::as_micros_u64;
use holdoff_sim::kernel::SimRng;
use uuid::Uuid;

use super::network::{Response, StoreRequest};
use super::run::{ContenderEvent, Simulation, SimulationEvent};
use super::{Mutant, Violation};
use crate::acquisition::request_timeout;
use crate::notify::Notification;
use crate::store::AcquireOutcome;
use crate::validity::{HolderAction, Validity};
use crate::wait::{StoreReply, WaitAction, WaitFailure, WaitState};
use crate::{Nonce, Owner, Token};

const MAX_RELEASES: u32 = 5;

#[derive(Debug)]
pub(super) struct SimulatedContender {
    pub(super) clock: SkewedClock,
    pub(super) rng: SimRng,
    pub(super) role: ContenderRole,
    /// Incremented when the role changes: events for an earlier role are void.
    pub(super) generation: u64,
    /// Incremented when the contender crashes.
    pub(super) incarnation: u64,
    pub(super) frozen_until_us: u64,
    pub(super) call: u64,
    pub(super) acquisitions_left: u32,
}

#[derive(Debug)]
pub(super) enum ContenderRole {
    Idle,
    Waiting {
        nonce: Nonce,
        wait: WaitState,
        /// Whether it waits for notifications, instead of a response.
        is_paused: bool,
        /// The notification that arrived during a call.
        pending: Option<Notification>,
        sent: Duration,
    },
    Holding {
        nonce: Nonce,
        token: Token,
        validity: Validity,
        sent: Duration,
    },
    Releasing {
        nonce: Nonce,
        token: Token,
        attempts: u32,
    },
    Done,
    Crashed,
}

impl SimulatedContender {
    /// Returns whether the contender would continue the work that the lock protects.
    pub(super) fn believes(&self, now_us: u64) -> bool {
        let ContenderRole::Holding { validity, .. } = &self.role else { return false };
        now_us >= self.frozen_until_us && validity.is_valid(self.clock.local(now_us))
    }

    /// Takes a new role. No pending event reaches the contender any more.
    pub(super) fn set_role(&mut self, role: ContenderRole) {
        self.role = role;
        self.generation += 1;
        self.call += 1;
    }
}

/// A clock with its own offset and a small drift.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SkewedClock {
    pub(super) offset_us: u64,
    pub(super) drift_ppm: i64,
}

impl SkewedClock {
    pub(super) fn local(&self, now_us: u64) -> Duration {
        let gained = i128::from(now_us) * i128::from(self.drift_ppm) / 1_000_000;
        let local_us = i128::from(self.offset_us) + i128::from(now_us) + gained;
        Duration::from_micros(u64::try_from(local_us).unwrap())
    }

    /// Returns the true time at which the clock shows this time, rounded up.
    pub(super) fn when_us(&self, local: Duration) -> u64 {
        let passed = i128::from(as_micros_u64(local)) - i128::from(self.offset_us);
        let true_us = passed.max(0) * 1_000_000 / i128::from(1_000_000 + self.drift_ppm);
        u64::try_from(true_us).unwrap() + 2
    }
}

impl Simulation {
    pub(super) fn act(&mut self, to: usize, now_us: u64, what: ContenderEvent) -> Result<(), Violation> {
        match what {
            ContenderEvent::Start => self.begin(to, now_us),
            ContenderEvent::Timer { call } if call == self.contenders[to].call => self.timer(to, now_us),
            ContenderEvent::Notification(notification) => self.on_notification(to, now_us, notification),
            ContenderEvent::Response { call, response } if call == self.contenders[to].call => {
                self.contenders[to].call += 1;
                self.on_response(to, now_us, response)
            }
            ContenderEvent::Timer { .. } | ContenderEvent::Response { .. } => Ok(()),
            ContenderEvent::CheckThenWrite => {
                self.check_then_write(to, now_us);
                Ok(())
            }
            ContenderEvent::Write { token, nonce, incarnation } => {
                if self.contenders[to].incarnation == incarnation {
                    let at_us = now_us + self.delay_us();
                    self.queue.push(at_us, SimulationEvent::WriteArrival { from: to, token, nonce });
                }
                Ok(())
            }
            ContenderEvent::EndOfWork => {
                self.stop_working(to, now_us);
                Ok(())
            }
        }
    }

    /// Schedules the next acquisition after a while, or ends.
    pub(super) fn idle(&mut self, to: usize, now_us: u64) {
        let contender = &mut self.contenders[to];
        contender.set_role(ContenderRole::Idle);
        if contender.acquisitions_left == 0 {
            contender.set_role(ContenderRole::Done);
            return;
        }
        let (generation, pause) = (contender.generation, contender.rng.between(0, 500_000));
        self.queue.push(now_us + pause, SimulationEvent::For { to, generation, what: ContenderEvent::Start });
    }

    fn begin(&mut self, to: usize, now_us: u64) -> Result<(), Violation> {
        self.nonces += 1;
        let nonce = Nonce::new(Uuid::from_u128(self.nonces));
        let (policy, lease) = (Arc::clone(&self.plan.policy), self.plan.lease);
        let contender = &mut self.contenders[to];
        contender.acquisitions_left -= 1;
        let now = contender.clock.local(now_us);
        let wait = WaitState::new(nonce, policy, lease, None, now);
        let next = wait.first_action(now);
        contender.set_role(ContenderRole::Waiting {
            nonce,
            wait,
            is_paused: false,
            pending: None,
            sent: now,
        });
        if contender.rng.happens(self.plan.crashes) {
            let after = contender.rng.between(0, 5_000_000);
            self.queue.push(now_us + after, SimulationEvent::Crash(to));
        }
        if contender.rng.happens(self.plan.freezes / 2.0) {
            let after = contender.rng.between(0, 5_000_000);
            self.queue.push(now_us + after, SimulationEvent::Freeze(to));
        }
        self.proceed(to, now_us, next)
    }

    /// Executes the next action of the waiting core.
    fn proceed(&mut self, to: usize, now_us: u64, next: WaitAction) -> Result<(), Violation> {
        let now = self.contenders[to].clock.local(now_us);
        let limit = request_timeout(self.plan.lease);
        let ContenderRole::Waiting { nonce, wait, is_paused, pending, sent } = &mut self.contenders[to].role
        else {
            return Ok(());
        };
        let nonce = *nonce;
        *is_paused = matches!(next, WaitAction::Wait { .. });
        match next {
            WaitAction::TryAcquire { waits_for } => {
                *sent = now;
                let owner = Owner { nonce, name: to.to_string() };
                self.call(to, now_us, limit, StoreRequest::Acquire { owner, waits_for });
            }
            WaitAction::ReadBack => self.call(to, now_us, limit, StoreRequest::Granted(nonce)),
            WaitAction::Wait { until } => {
                if let Some(pending) = pending.take() {
                    return self.on_notification(to, now_us, pending);
                }
                self.set_timer(to, until, now_us);
            }
            WaitAction::Granted { token, sent } => self.hold(to, now_us, nonce, token, sent),
            WaitAction::GiveUp(why) => {
                let is_due = match why {
                    WaitFailure::Deadline => wait.deadline().is_some_and(|deadline| deadline <= now),
                    WaitFailure::Exhausted => wait.attempts() >= self.plan.policy.attempts(),
                    WaitFailure::Rejected => false,
                };
                if !is_due {
                    return Err(Violation::GaveUpTooEarly(to, format!("{why:?} {wait:?}")));
                }
                self.stats.gave_up += 1;
                for _ in 0..2 {
                    self.send(to, now_us, StoreRequest::Withdraw(nonce));
                }
                self.idle(to, now_us);
            }
        }
        Ok(())
    }

    fn timer(&mut self, to: usize, now_us: u64) -> Result<(), Violation> {
        let now = self.contenders[to].clock.local(now_us);
        match &mut self.contenders[to].role {
            ContenderRole::Waiting { wait, .. } => {
                let next = wait.timer_fired(now);
                self.proceed(to, now_us, next)
            }
            ContenderRole::Holding { .. } => {
                self.keep(to, now_us);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on_notification(
        &mut self,
        to: usize,
        now_us: u64,
        notification: Notification,
    ) -> Result<(), Violation> {
        let (now, roll) = (self.contenders[to].clock.local(now_us), self.roll(to));
        let ContenderRole::Waiting { wait, is_paused, pending, .. } = &mut self.contenders[to].role else {
            return Ok(());
        };
        if !*is_paused {
            *pending = Some(notification);
            return Ok(());
        }
        let next = wait.on_notification(notification, now, roll);
        self.proceed(to, now_us, next)
    }

    fn on_response(&mut self, to: usize, now_us: u64, response: Option<Response>) -> Result<(), Violation> {
        let (now, roll) = (self.contenders[to].clock.local(now_us), self.roll(to));
        let from_response = self.mutant == Mutant::ValidFromResponse;
        match &mut self.contenders[to].role {
            ContenderRole::Waiting { wait, sent, .. } => {
                let sent = if from_response { now } else { *sent };
                let next = match response {
                    Some(Response::Granted(found)) => {
                        let next = wait.on_read_back(found, now, roll);
                        self.stats.read_back += u32::from(matches!(next, WaitAction::Granted { .. }));
                        next
                    }
                    Some(Response::Acquire(answer)) => wait.on_reply(reply(&answer), sent, now, roll),
                    // A missing response means the same for an acquisition and for a read-back.
                    _ if self.is_reading_back[to] => wait.on_read_back(None, now, roll),
                    _ => {
                        if self.mutant == Mutant::ReadBackFromLatest {
                            wait.forget_unknown();
                        }
                        wait.on_reply(StoreReply::Unknown, sent, now, roll)
                    }
                };
                self.proceed(to, now_us, next)
            }
            ContenderRole::Holding { validity, sent, .. } => {
                match response {
                    Some(Response::Renewed(true)) => {
                        validity.renewed(if from_response { now } else { *sent });
                    }
                    Some(Response::Renewed(false)) => validity.refused(),
                    _ => validity.failed(&self.renewals, now, roll),
                }
                self.keep(to, now_us);
                Ok(())
            }
            ContenderRole::Releasing { attempts, .. } if response.is_none() && *attempts < MAX_RELEASES => {
                self.release(to, now_us);
                Ok(())
            }
            ContenderRole::Releasing { .. } => {
                self.idle(to, now_us);
                Ok(())
            }
            ContenderRole::Idle | ContenderRole::Done | ContenderRole::Crashed => Ok(()),
        }
    }

    /// Holds the lock, works for a while, and writes several times.
    fn hold(&mut self, to: usize, now_us: u64, nonce: Nonce, token: Token, sent: Duration) {
        self.stats.acquired += 1;
        let lease_us = as_micros_u64(self.plan.lease);
        let contender = &mut self.contenders[to];
        let validity = Validity::new(sent, self.plan.lease);
        contender.set_role(ContenderRole::Holding { nonce, token, validity, sent });
        let works_us = contender.rng.between(1_000, lease_us * 3 / 2);
        let generation = contender.generation;
        for _ in 0..3 {
            let at_us = now_us + contender.rng.between(0, works_us);
            self.queue
                .push(at_us, SimulationEvent::For { to, generation, what: ContenderEvent::CheckThenWrite });
        }
        self.queue.push(
            now_us + works_us,
            SimulationEvent::For { to, generation, what: ContenderEvent::EndOfWork },
        );
        self.keep(to, now_us);
    }

    fn keep(&mut self, to: usize, now_us: u64) {
        let now = self.contenders[to].clock.local(now_us);
        let ContenderRole::Holding { nonce, token, validity, sent } = &mut self.contenders[to].role else {
            return;
        };
        let (nonce, token) = (*nonce, *token);
        match validity.next(now) {
            HolderAction::Wait { until } => self.set_timer(to, until, now_us),
            HolderAction::Renew { by } => {
                *sent = now;
                self.call(to, now_us, by.saturating_sub(now), StoreRequest::Renew(nonce, token));
            }
            HolderAction::Lost => {
                self.stats.lost += 1;
                let renews_late = self.contenders[to].rng.happens(self.plan.renews_late);
                let request = if renews_late {
                    StoreRequest::Renew(nonce, token)
                } else {
                    StoreRequest::Release(nonce, token)
                };
                self.send(to, now_us, request);
                self.idle(to, now_us);
            }
        }
    }

    fn check_then_write(&mut self, to: usize, now_us: u64) {
        let lease_us = as_micros_u64(self.plan.lease);
        let contender = &mut self.contenders[to];
        let ContenderRole::Holding { nonce, token, validity, .. } = &contender.role else { return };
        if !validity.is_valid(contender.clock.local(now_us)) {
            return;
        }
        let what = ContenderEvent::Write { token: *token, nonce: *nonce, incarnation: contender.incarnation };
        if contender.rng.happens(self.plan.freezes) {
            contender.frozen_until_us = now_us + contender.rng.between(lease_us, lease_us * 3);
            self.stats.faults.frozen += 1;
        }
        let generation = contender.generation;
        self.queue.push(now_us + 1, SimulationEvent::For { to, generation, what });
    }

    fn stop_working(&mut self, to: usize, now_us: u64) {
        let ContenderRole::Holding { nonce, token, .. } = self.contenders[to].role else { return };
        self.contenders[to].set_role(ContenderRole::Releasing { nonce, token, attempts: 0 });
        self.release(to, now_us);
    }

    fn release(&mut self, to: usize, now_us: u64) {
        let ContenderRole::Releasing { nonce, token, attempts } = &mut self.contenders[to].role else {
            return;
        };
        *attempts += 1;
        let request = StoreRequest::Release(*nonce, *token);
        self.call(to, now_us, Duration::from_secs(5), request);
    }

    /// Sends a request, and waits for the response for at most `limit`.
    fn call(&mut self, to: usize, now_us: u64, limit: Duration, request: StoreRequest) {
        self.is_reading_back[to] = matches!(request, StoreRequest::Granted(_));
        self.contenders[to].call += 1;
        self.send(to, now_us, request);
        let contender = &self.contenders[to];
        let (generation, call) = (contender.generation, contender.call);
        let at_us = now_us + as_micros_u64(limit).max(1);
        self.queue.push(
            at_us,
            SimulationEvent::For { to, generation, what: ContenderEvent::Response { call, response: None } },
        );
    }

    fn send(&mut self, from: usize, now_us: u64, request: StoreRequest) {
        if self.rng.happens(self.plan.loses_request) {
            self.stats.faults.requests_lost += 1;
            self.lose_message(from, self.contenders[from].call, now_us);
            return;
        }
        let lease_us = as_micros_u64(self.plan.lease);
        let is_late = self.rng.happens(self.plan.is_late);
        let delay_us = if is_late { self.rng.between(lease_us / 2, lease_us * 3) } else { self.delay_us() };
        let call = self.contenders[from].call;
        self.queue.push(now_us + delay_us, SimulationEvent::Arrival { from, call, is_late, request });
    }

    fn set_timer(&mut self, to: usize, until: Duration, now_us: u64) {
        let contender = &mut self.contenders[to];
        contender.call += 1;
        let (generation, call) = (contender.generation, contender.call);
        let at_us = contender.clock.when_us(until).max(now_us);
        self.queue.push(at_us, SimulationEvent::For { to, generation, what: ContenderEvent::Timer { call } });
    }

    fn roll(&mut self, to: usize) -> u32 {
        let roll = self.contenders[to].rng.roll();
        if self.mutant == Mutant::PointJitter { 0 } else { roll }
    }
}

fn reply(answer: &AcquireOutcome) -> StoreReply {
    match answer {
        AcquireOutcome::Granted(token) => StoreReply::Granted(*token),
        AcquireOutcome::Refused(held) => {
            StoreReply::Held { free_in: Some(held.free_in), waiting: held.waiting }
        }
    }
}
