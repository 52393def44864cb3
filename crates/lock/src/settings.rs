//! What locks are like unless an acquisition says otherwise.

mod file;

use std::time::Duration;

use holdoff_policy::{BreakerOptions, Crowd, Policy};

use crate::{Error, Key};

/// The shortest and the longest lease: below, renewals race with the network; above, a crash is never noticed.
pub(crate) const LEASES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(86_400);
const LONGEST_NAME: usize = 200;

/// What locks are like unless an acquisition says otherwise.
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
    /// What the policy is called in the file.
    policy_name: Option<String>,
    pub(crate) wait: Option<Duration>,
    pub(crate) lease: Duration,
    pub(crate) most_waiters: usize,
    pub(crate) name: String,
    pub(crate) breaker: BreakerOptions,
    ledger: Option<String>,
}

impl Settings {
    /// The namespace of keys for which none is given; `default` unless set.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// When to ask again, and when to give up.
    ///
    /// Unless set, it asks like the preset `lock`, but as often as it takes, for twice the lease: so that a holder
    /// that was killed does not fail everybody. Where eight or more wait, it asks the less often the more there are:
    /// whoever lets go names its successor, so a backoff is only the way out when that word was lost.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        (self.policy, self.policy_name) = (Some(policy), None);
        self
    }

    /// How long to wait, however many attempts that takes: of the policy only the delays count. Zero asks once.
    #[must_use]
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// For how long a holder that vanished keeps others out; 30 s unless set. It is renewed while it is held.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How many may wait for one key in this process; 1024 unless set.
    #[must_use]
    pub fn with_most_waiters(mut self, most: usize) -> Self {
        self.most_waiters = most;
        self
    }

    /// What this process is called where people look at locks. Nothing is decided by it.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// When a store that fails is left alone for a while.
    #[must_use]
    pub fn with_breaker(mut self, breaker: BreakerOptions) -> Self {
        self.breaker = breaker;
        self
    }

    /// Which of its ledgers a daemon keeps its locks in; none unless set, and they are kept where its work is. Locks that
    /// are open already stay where they are.
    #[must_use]
    pub fn with_ledger(mut self, name: impl Into<String>) -> Self {
        self.ledger = Some(name.into());
        self
    }

    /// The policy in force.
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

    /// How long is waited at most, if that does not exceed the lease: then a killed holder fails everyone.
    pub fn short_wait(&self) -> Option<Duration> {
        self.longest_wait().filter(|wait| *wait <= self.lease)
    }

    /// What the policy is called, if it was named in the file.
    pub fn policy_name(&self) -> Option<&str> {
        self.policy_name.as_deref()
    }

    /// For how long a holder that vanished keeps others out.
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    /// How long to wait, if that was set.
    pub const fn wait(&self) -> Option<Duration> {
        self.wait
    }

    /// How many may wait for one key in this process.
    pub const fn most_waiters(&self) -> usize {
        self.most_waiters
    }

    /// Which of its ledgers a daemon keeps its locks in, if that was set.
    pub fn ledger(&self) -> Option<&str> {
        self.ledger.as_deref()
    }

    /// How long the policy waits at most; nothing if without end.
    fn longest_wait(&self) -> Option<Duration> {
        let policy = self.policy();
        let total = policy.explain().total.map(|total| Duration::from_micros(total.high_us));
        [policy.deadline(), total].into_iter().flatten().min()
    }
}

/// The preset `lock`, with a rule for crowds: all who wait together ask about forty times a second.
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

/// The same policy with no end but this.
pub(crate) fn until(policy: &Policy, wait: Duration) -> Result<Policy, Error> {
    // A policy counts whole microseconds.
    let wait = Duration::from_micros(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)).min(LONGEST_WAIT);
    // Whoever does not wait asks once, and hears the answer.
    let builder = match wait {
        Duration::ZERO => policy.to_builder().attempts(1),
        wait => policy.to_builder().attempts(Policy::UNLIMITED).deadline(wait),
    };
    builder.build().map_err(|invalid| Error::Settings(invalid.to_string()))
}

/// Longer than anybody waits.
const LONGEST_WAIT: Duration = holdoff_policy::MAX_DELAY;

/// The program and the number of this process.
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
