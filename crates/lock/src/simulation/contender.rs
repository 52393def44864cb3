//! A contender, on a machine with a clock of its own.

use std::time::Duration;

use holdoff_sim::kernel::Chance;

use crate::tenure::Tenure;
use crate::wait::Wait;
use crate::wakes::Heard;
use crate::{Nonce, Token};

#[derive(Debug)]
pub(super) struct Contender {
    pub(super) clock: Clock,
    pub(super) chance: Chance,
    pub(super) role: Role,
    /// Incremented when the role changes: events for an earlier role are void.
    pub(super) life: u64,
    /// Incremented when the contender crashes.
    pub(super) incarnation: u64,
    pub(super) frozen_until_us: u64,
    pub(super) call: u64,
    pub(super) acquisitions_left: u32,
}

#[derive(Debug)]
pub(super) enum Role {
    Idle,
    Waiting {
        nonce: Nonce,
        wait: Wait,
        /// Whether it waits for notifications, instead of a response.
        is_paused: bool,
        /// The notification that arrived during a call.
        heard: Option<Heard>,
        sent: Duration,
    },
    Holding {
        nonce: Nonce,
        token: Token,
        tenure: Tenure,
        sent: Duration,
    },
    LettingGo {
        nonce: Nonce,
        token: Token,
        tries: u32,
    },
    Done,
    Crashed,
}

impl Contender {
    /// Returns whether the contender would continue the work that the lock protects.
    pub(super) fn believes(&self, now_us: u64) -> bool {
        let Role::Holding { tenure, .. } = &self.role else { return false };
        now_us >= self.frozen_until_us && tenure.is_valid(self.clock.local(now_us))
    }

    /// Takes a new role. No pending event reaches the contender any more.
    pub(super) fn become_(&mut self, role: Role) {
        self.role = role;
        self.life += 1;
        self.call += 1;
    }
}

/// A clock with its own offset and a small drift.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Clock {
    pub(super) offset_us: u64,
    pub(super) drift_ppm: i64,
}

impl Clock {
    pub(super) fn local(&self, now_us: u64) -> Duration {
        let gained = i128::from(now_us) * i128::from(self.drift_ppm) / 1_000_000;
        let local_us = i128::from(self.offset_us) + i128::from(now_us) + gained;
        Duration::from_micros(u64::try_from(local_us).unwrap())
    }

    /// Returns the true time at which the clock shows this time, rounded up.
    pub(super) fn when_us(&self, local: Duration) -> u64 {
        let passed = i128::from(u64::try_from(local.as_micros()).unwrap()) - i128::from(self.offset_us);
        let true_us = passed.max(0) * 1_000_000 / i128::from(1_000_000 + self.drift_ppm);
        u64::try_from(true_us).unwrap() + 2
    }
}
