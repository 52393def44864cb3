//! The actions of a contender. It executes the decisions of the cores, as the runtime does.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::{Broken, Event, Mutant, Request, Role, Said, What, World};
use crate::pursuit::answer_limit;
use crate::store::Answer;
use crate::tenure::{Keep, Tenure};
use crate::wait::{Next, Reply, Wait, Why};
use crate::wakes::Heard;
use crate::{Nonce, Owner, Token};

const MOST_RELEASES: u32 = 5;

impl World {
    pub(super) fn act(&mut self, to: usize, now_us: u64, what: What) -> Result<(), Broken> {
        match what {
            What::Start => self.begin(to, now_us),
            What::Timer { call } if call == self.contenders[to].call => self.timer(to, now_us),
            What::Heard(heard) => self.heard(to, now_us, heard),
            What::Answer { call, said } if call == self.contenders[to].call => {
                self.contenders[to].call += 1;
                self.answered(to, now_us, said)
            }
            What::Timer { .. } | What::Answer { .. } => Ok(()),
            What::LookThenWrite => {
                self.look_then_write(to, now_us);
                Ok(())
            }
            What::Write { token, nonce, incarnation } => {
                if self.contenders[to].incarnation == incarnation {
                    let at_us = now_us + self.delay_us();
                    self.queue.push(at_us, Event::WriteArrival { from: to, token, nonce });
                }
                Ok(())
            }
            What::EndOfWork => {
                self.let_go(to, now_us);
                Ok(())
            }
        }
    }

    /// Schedules the next acquisition after a while, or ends.
    pub(super) fn idle(&mut self, to: usize, now_us: u64) {
        let contender = &mut self.contenders[to];
        contender.become_(Role::Idle);
        if contender.acquisitions_left == 0 {
            contender.become_(Role::Done);
            return;
        }
        let (life, pause) = (contender.life, contender.chance.between(0, 500_000));
        self.queue.push(now_us + pause, Event::For { to, life, what: What::Start });
    }

    fn begin(&mut self, to: usize, now_us: u64) -> Result<(), Broken> {
        self.nonces += 1;
        let nonce = Nonce::new(Uuid::from_u128(self.nonces));
        let (policy, lease) = (Arc::clone(&self.plan.policy), self.plan.lease);
        let contender = &mut self.contenders[to];
        contender.acquisitions_left -= 1;
        let now = contender.clock.local(now_us);
        let wait = Wait::new(nonce, policy, lease, None, now);
        let next = wait.start(now);
        contender.become_(Role::Waiting { nonce, wait, is_paused: false, heard: None, sent: now });
        if contender.chance.happens(self.plan.crashes) {
            let after = contender.chance.between(0, 5_000_000);
            self.queue.push(now_us + after, Event::Crash(to));
        }
        if contender.chance.happens(self.plan.freezes / 2.0) {
            let after = contender.chance.between(0, 5_000_000);
            self.queue.push(now_us + after, Event::Freeze(to));
        }
        self.proceed(to, now_us, next)
    }

    /// Executes the next action of the waiting core.
    fn proceed(&mut self, to: usize, now_us: u64, next: Next) -> Result<(), Broken> {
        let now = self.contenders[to].clock.local(now_us);
        let limit = answer_limit(self.plan.lease);
        let Role::Waiting { nonce, wait, is_paused, heard, sent } = &mut self.contenders[to].role else {
            return Ok(());
        };
        let nonce = *nonce;
        *is_paused = matches!(next, Next::Wait { .. });
        match next {
            Next::Ask { waits } => {
                *sent = now;
                let owner = Owner { nonce, name: to.to_string() };
                self.call(to, now_us, limit, Request::Bid { owner, waits });
            }
            Next::ReadBack => self.call(to, now_us, limit, Request::Granted(nonce)),
            Next::Wait { until } => {
                if let Some(heard) = heard.take() {
                    return self.heard(to, now_us, heard);
                }
                self.set_timer(to, until, now_us);
            }
            Next::Granted { token, sent } => self.hold(to, now_us, nonce, token, sent),
            Next::GiveUp(why) => {
                let is_due = match why {
                    Why::Deadline => wait.deadline().is_some_and(|deadline| deadline <= now),
                    Why::Exhausted => wait.attempts() >= self.plan.policy.attempts(),
                    Why::Refused => false,
                };
                if !is_due {
                    return Err(Broken::GaveUpTooSoon(to, format!("{why:?} {wait:?}")));
                }
                self.ran.gave_up += 1;
                for _ in 0..2 {
                    self.send(to, now_us, Request::Withdraw(nonce));
                }
                self.idle(to, now_us);
            }
        }
        Ok(())
    }

    fn timer(&mut self, to: usize, now_us: u64) -> Result<(), Broken> {
        let now = self.contenders[to].clock.local(now_us);
        match &mut self.contenders[to].role {
            Role::Waiting { wait, .. } => {
                let next = wait.woke(now);
                self.proceed(to, now_us, next)
            }
            Role::Holding { .. } => {
                self.keep(to, now_us);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn heard(&mut self, to: usize, now_us: u64, word: Heard) -> Result<(), Broken> {
        let (now, roll) = (self.contenders[to].clock.local(now_us), self.roll(to));
        let Role::Waiting { wait, is_paused, heard, .. } = &mut self.contenders[to].role else {
            return Ok(());
        };
        if !*is_paused {
            *heard = Some(word);
            return Ok(());
        }
        let next = wait.heard(word, now, roll);
        self.proceed(to, now_us, next)
    }

    fn answered(&mut self, to: usize, now_us: u64, said: Option<Said>) -> Result<(), Broken> {
        let (now, roll) = (self.contenders[to].clock.local(now_us), self.roll(to));
        let from_answer = self.mutant == Mutant::ValidFromAnswer;
        match &mut self.contenders[to].role {
            Role::Waiting { wait, sent, .. } => {
                let sent = if from_answer { now } else { *sent };
                let next = match said {
                    Some(Said::Granted(found)) => {
                        let next = wait.read_back(found, now, roll);
                        self.ran.found_again += u32::from(matches!(next, Next::Granted { .. }));
                        next
                    }
                    Some(Said::Bid(answer)) => wait.answered(reply(&answer), sent, now, roll),
                    // A missing response means the same for a bid and for a read-back.
                    _ if self.asked_back[to] => wait.read_back(None, now, roll),
                    _ => {
                        if self.mutant == Mutant::ReadBackFromLatest {
                            wait.forget_unclear();
                        }
                        wait.answered(Reply::Unclear, sent, now, roll)
                    }
                };
                self.proceed(to, now_us, next)
            }
            Role::Holding { tenure, sent, .. } => {
                match said {
                    Some(Said::Renewed(true)) => tenure.renewed(if from_answer { now } else { *sent }),
                    Some(Said::Renewed(false)) => tenure.refused(),
                    _ => tenure.failed(&self.renewals, now, roll),
                }
                self.keep(to, now_us);
                Ok(())
            }
            Role::LettingGo { tries, .. } if said.is_none() && *tries < MOST_RELEASES => {
                self.release(to, now_us);
                Ok(())
            }
            Role::LettingGo { .. } => {
                self.idle(to, now_us);
                Ok(())
            }
            Role::Idle | Role::Done | Role::Crashed => Ok(()),
        }
    }

    /// Holds the lock, works for a while, and writes several times.
    fn hold(&mut self, to: usize, now_us: u64, nonce: Nonce, token: Token, sent: Duration) {
        self.ran.acquired += 1;
        let lease_us = u64::try_from(self.plan.lease.as_micros()).unwrap();
        let contender = &mut self.contenders[to];
        let tenure = Tenure::new(sent, self.plan.lease);
        contender.become_(Role::Holding { nonce, token, tenure, sent });
        let works_us = contender.chance.between(1_000, lease_us * 3 / 2);
        let life = contender.life;
        for _ in 0..3 {
            let at_us = now_us + contender.chance.between(0, works_us);
            self.queue.push(at_us, Event::For { to, life, what: What::LookThenWrite });
        }
        self.queue.push(now_us + works_us, Event::For { to, life, what: What::EndOfWork });
        self.keep(to, now_us);
    }

    fn keep(&mut self, to: usize, now_us: u64) {
        let now = self.contenders[to].clock.local(now_us);
        let Role::Holding { nonce, token, tenure, sent } = &mut self.contenders[to].role else { return };
        let (nonce, token) = (*nonce, *token);
        match tenure.next(now) {
            Keep::Wait { until } => self.set_timer(to, until, now_us),
            Keep::Renew { by } => {
                *sent = now;
                self.call(to, now_us, by.saturating_sub(now), Request::Renew(nonce, token));
            }
            Keep::Lost => {
                self.ran.lost += 1;
                self.send(to, now_us, Request::Release(nonce, token));
                self.idle(to, now_us);
            }
        }
    }

    fn look_then_write(&mut self, to: usize, now_us: u64) {
        let lease_us = u64::try_from(self.plan.lease.as_micros()).unwrap();
        let contender = &mut self.contenders[to];
        let Role::Holding { nonce, token, tenure, .. } = &contender.role else { return };
        if !tenure.is_valid(contender.clock.local(now_us)) {
            return;
        }
        let what = What::Write { token: *token, nonce: *nonce, incarnation: contender.incarnation };
        if contender.chance.happens(self.plan.freezes) {
            contender.frozen_until_us = now_us + contender.chance.between(lease_us, lease_us * 3);
            self.ran.faults.frozen += 1;
        }
        let life = contender.life;
        self.queue.push(now_us + 1, Event::For { to, life, what });
    }

    fn let_go(&mut self, to: usize, now_us: u64) {
        let Role::Holding { nonce, token, .. } = self.contenders[to].role else { return };
        self.contenders[to].become_(Role::LettingGo { nonce, token, tries: 0 });
        self.release(to, now_us);
    }

    fn release(&mut self, to: usize, now_us: u64) {
        let Role::LettingGo { nonce, token, tries } = &mut self.contenders[to].role else { return };
        *tries += 1;
        let request = Request::Release(*nonce, *token);
        self.call(to, now_us, Duration::from_secs(5), request);
    }

    /// Sends a request, and waits for the response for at most `limit`.
    fn call(&mut self, to: usize, now_us: u64, limit: Duration, request: Request) {
        self.asked_back[to] = matches!(request, Request::Granted(_));
        self.contenders[to].call += 1;
        self.send(to, now_us, request);
        let contender = &self.contenders[to];
        let (life, call) = (contender.life, contender.call);
        let at_us = now_us + u64::try_from(limit.as_micros()).unwrap().max(1);
        self.queue.push(at_us, Event::For { to, life, what: What::Answer { call, said: None } });
    }

    fn send(&mut self, from: usize, now_us: u64, request: Request) {
        if self.chance.happens(self.plan.loses_request) {
            self.ran.faults.requests_lost += 1;
            self.break_off(from, self.contenders[from].call, now_us);
            return;
        }
        let lease_us = u64::try_from(self.plan.lease.as_micros()).unwrap();
        let is_late = self.chance.happens(self.plan.is_late);
        let delay_us =
            if is_late { self.chance.between(lease_us / 2, lease_us * 3) } else { self.delay_us() };
        let call = self.contenders[from].call;
        self.queue.push(now_us + delay_us, Event::Arrival { from, call, is_late, request });
    }

    fn set_timer(&mut self, to: usize, until: Duration, now_us: u64) {
        let contender = &mut self.contenders[to];
        contender.call += 1;
        let (life, call) = (contender.life, contender.call);
        let at_us = contender.clock.when_us(until).max(now_us);
        self.queue.push(at_us, Event::For { to, life, what: What::Timer { call } });
    }

    fn roll(&mut self, to: usize) -> u32 {
        let roll = self.contenders[to].chance.roll();
        if self.mutant == Mutant::PointJitter { 0 } else { roll }
    }
}

fn reply(answer: &Answer) -> Reply {
    match answer {
        Answer::Granted(token) => Reply::Granted(*token),
        Answer::Held(held) => Reply::Held { free_in: Some(held.free_in), waiting: held.waiting },
    }
}
