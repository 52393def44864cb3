//! The default settings of acquisitions.

mod file;

use std::time::Duration;

use holdoff_policy::{BreakerOptions, Crowd, Policy};

use crate::{Error, Key};

/// The range of leases. Below it, renewals race with the network; above it, a crash goes unnoticed.
pub(crate) const LEASES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(86_400);
const LONGEST_NAME: usize = 200;

/// The default settings of acquisitions.
///
/// ```
/// use std::time::Duration;
/// use holdoff_lock::{Locks, Settings};
///
/// let settings = Settings::default().with_namespace("billing").with_lease(Duration::from_secs(10));
/// let locks = Locks::memory().with_settings(settings)?;
/// # Ok::<(), holdoff_lock::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) namespace: String,
    pub(crate) policy: Option<Policy>,
    /// The name of the policy in the configuration file.
    policy_name: Option<String>,
    pub(crate) wait: Option<Duration>,
    pub(crate) lease: Duration,
    pub(crate) most_waiters: usize,
    pub(crate) name: String,
    pub(crate) breaker: BreakerOptions,
    ledger: Option<String>,
}

impl Settings {
    /// Sets the default namespace of keys; `default` unless set.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the policy: when to ask again, and when to give up.
    ///
    /// The default policy backs off like the preset `lock`, with any number of attempts, for twice the lease, so that a
    /// killed holder does not fail every contender. With eight or more waiters, the contenders ask less often the more
    /// waiters there are: a release names the next holder, so a backoff matters only if that notification was lost.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        (self.policy, self.policy_name) = (Some(policy), None);
        self
    }

    /// Sets the time to wait, with any number of attempts; only the policy's delays apply. Zero asks once.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets the lease: how long a vanished holder blocks other contenders; 30 s unless set. Held locks are renewed.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets the maximum number of waiters for one key in this process; 1024 unless set.
    #[must_use]
    pub fn with_most_waiters(mut self, most: usize) -> Self {
        self.most_waiters = most;
        self
    }

    /// Sets the displayed name of this process. No decision depends on it.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the circuit breaker: when a failing store is not called for a while.
    #[must_use]
    pub fn with_breaker(mut self, breaker: BreakerOptions) -> Self {
        self.breaker = breaker;
        self
    }

    /// Sets the ledger in which a daemon keeps its locks. Unless set, a daemon keeps them in the store that holds its
    /// work. Locks that are already open stay in their store.
    #[must_use]
    pub fn with_ledger(mut self, name: impl Into<String>) -> Self {
        self.ledger = Some(name.into());
        self
    }

    /// Returns the active policy.
    pub(crate) fn policy(&self) -> Policy {
        let wait = match (&self.policy, self.wait) {
            (Some(policy), None) => return policy.clone(),
            (_, Some(wait)) => wait,
            (None, None) => self.lease * 2,
        };
        let policy = self.policy.clone().or_else(crowded).unwrap_or_default();
        until(&policy, wait).unwrap_or(policy)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        check_lease(self.lease)?;
        Key::new(&self.namespace, "any")?;
        if self.most_waiters == 0 {
            return Err(Error::Settings("the most waiters are 0: at least one must be let wait".to_owned()));
        }
        check_name(&self.name)?;
        if let Some(wait) = self.short_wait() {
            tracing::warn!(
                ?wait,
                lease = ?self.lease,
                "the wait should exceed the lease, or a killed holder fails everyone"
            );
        }
        Ok(())
    }

    /// Returns the longest wait if it does not exceed the lease: then a killed holder fails every contender.
    pub fn short_wait(&self) -> Option<Duration> {
        self.longest_wait().filter(|wait| *wait <= self.lease)
    }

    /// Returns the name of the policy, if the configuration file names one.
    pub fn policy_name(&self) -> Option<&str> {
        self.policy_name.as_deref()
    }

    /// Returns the lease: how long a vanished holder blocks other contenders.
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// Returns the time to wait, if it was set.
    pub const fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// Returns the maximum number of waiters for one key in this process.
    pub const fn most_waiters(&self) -> usize {
        self.most_waiters
    }

    /// Returns the ledger in which a daemon keeps its locks, if it was set.
    pub fn ledger(&self) -> Option<&str> {
        self.ledger.as_deref()
    }

    /// Returns the longest time that the policy waits; `None` if it is unlimited.
    fn longest_wait(&self) -> Option<Duration> {
        let policy = self.policy();
        let total = policy.explain().total.map(|total| Duration::from_micros(total.high_us));
        [policy.deadline(), total].into_iter().flatten().min()
    }
}

/// Returns the preset `lock` with contention-aware backoff: all waiters together ask about forty times a second.
fn crowded() -> Option<Policy> {
    let crowd = Crowd { slot: Duration::from_millis(50), limit: Duration::from_secs(3) };
    Policy::preset("lock")?.to_builder().crowd(crowd).build().ok()
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: "default".to_owned(),
            policy: None,
            policy_name: None,
            wait: None,
            lease: Duration::from_secs(30),
            most_waiters: 1024,
            name: process(),
            breaker: BreakerOptions::default(),
            ledger: None,
        }
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if name.len() <= LONGEST_NAME {
        return Ok(());
    }
    let length = name.len();
    Err(Error::Settings(format!("the holder's name has {length} bytes, and may have {LONGEST_NAME}")))
}

pub(crate) fn check_lease(lease: Duration) -> Result<(), Error> {
    if LEASES.contains(&lease) {
        return Ok(());
    }
    let (least, most) = (LEASES.start(), LEASES.end());
    Err(Error::Settings(format!("the lease is {lease:?}, and must be between {least:?} and {most:?}")))
}

/// Returns the same policy with this wait as its only limit.
pub(crate) fn until(policy: &Policy, wait: Duration) -> Result<Policy, Error> {
    // A policy counts whole microseconds.
    let wait = Duration::from_micros(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)).min(LONGEST_WAIT);
    // With a wait of zero, the contender asks once and receives the response.
    let builder = match wait {
        Duration::ZERO => policy.to_builder().attempts(1),
        wait => policy.to_builder().attempts(Policy::UNLIMITED).deadline(wait),
    };
    builder.build().map_err(|invalid| Error::Settings(invalid.to_string()))
}

/// The upper limit of a wait.
const LONGEST_WAIT: Duration = holdoff_policy::MAX_DELAY;

/// Returns the name of the program and the id of this process.
fn process() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_ref().and_then(|path| path.file_stem()).map(std::ffi::OsStr::to_string_lossy);
    let program: String = program.as_deref().unwrap_or("process").chars().take(100).collect();
    format!("{program}-{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused() {
        let refused = |settings: Settings| settings.check().expect_err("must be refused").to_string();
        assert!(refused(Settings::default().with_lease(Duration::from_millis(10))).contains("lease"));
        assert!(refused(Settings::default().with_namespace("")).contains("namespace"));
        assert!(refused(Settings::default().with_most_waiters(0)).contains("waiters"));
        assert!(refused(Settings::default().with_name("n".repeat(300))).contains("name"));
    }

    #[test]
    fn unless_set_the_wait_exceeds_the_lease() {
        for lease in [Duration::from_millis(100), Duration::from_secs(30), Duration::from_secs(86_400)] {
            let settings = Settings::default().with_lease(lease);
            assert!(settings.check().is_ok());
            assert_eq!(settings.longest_wait(), Some(lease * 2));
        }
        let preset = Settings::default().with_policy(Policy::preset("lock").unwrap());
        assert!(
            preset.longest_wait().unwrap() < Duration::from_secs(7),
            "which is why it is not the default"
        );
    }
}
