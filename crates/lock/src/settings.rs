//! The default settings of acquisitions, and the section `[lock]` of the configuration file.

use std::time::Duration;

use holdoff_policy::file::{self, DeTable, Reader, Section};
use holdoff_policy::{
    BreakerOptions, Contention, Finding, MAX_DELAY, Policy, PolicySet, Problems, Severity, as_micros_u64,
    format_duration, is_unprintable,
};

use crate::{Error, LockKey};

/// The range of leases. Below it, renewals race with the network; above it, a crash goes unnoticed.
pub(crate) const LEASES: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(86_400);
const MAX_NAME_BYTES: usize = 200;
const MAX_LEDGER_NAME_BYTES: usize = 64;
/// The keys of the section `[lock]`.
const FILE_KEYS: &[&str] = &["lease", "wait", "policy", "max_waiters", "ledger"];

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
    pub(crate) max_waiters: usize,
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
    pub fn with_max_waiters(mut self, most: usize) -> Self {
        self.max_waiters = most;
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
        let policy = self.policy.clone().or_else(default_policy).unwrap_or_default();
        until(&policy, wait).unwrap_or(policy)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        check_lease(self.lease)?;
        LockKey::new(&self.namespace, "any")?;
        if self.max_waiters == 0 {
            return Err(Error::Settings("max_waiters is 0: set it to at least 1".to_owned()));
        }
        check_name(&self.name)?;
        if let Some(wait) = self.short_wait() {
            tracing::warn!(
                ?wait,
                lease = ?self.lease,
                "opened locks whose wait does not exceed the lease: if a holder is killed, every contender fails"
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
    pub const fn max_waiters(&self) -> usize {
        self.max_waiters
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
fn default_policy() -> Option<Policy> {
    let contention = Contention { slot: Duration::from_millis(50), limit: Duration::from_secs(3) };
    Policy::preset("lock")?.to_builder().contention(contention).build().ok()
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            namespace: "default".to_owned(),
            policy: None,
            policy_name: None,
            wait: None,
            lease: Duration::from_secs(30),
            max_waiters: 1024,
            name: process(),
            breaker: BreakerOptions::default(),
            ledger: None,
        }
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let length = name.len();
    let why = match name.chars().find(|character| is_unprintable(*character)) {
        _ if length > MAX_NAME_BYTES => format!("has {length} bytes, and the limit is {MAX_NAME_BYTES}"),
        Some(character) => format!("contains {character:?}: remove control and bidi characters"),
        None => return Ok(()),
    };
    Err(Error::Settings(format!("the name of the holder {why}")))
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
    let wait = Duration::from_micros(as_micros_u64(wait)).min(MAX_WAIT);
    // With a wait of zero, the contender asks once and receives the response.
    let builder = match wait {
        Duration::ZERO => policy.to_builder().attempts(1),
        wait => policy.to_builder().attempts(Policy::UNLIMITED).deadline(wait),
    };
    builder.build().map_err(|invalid| Error::Settings(invalid.to_string()))
}

/// The upper limit of a wait.
const MAX_WAIT: Duration = holdoff_policy::MAX_DELAY;

/// Returns the name of the program and the id of this process.
fn process() -> String {
    let program = std::env::current_exe().ok();
    let program = program.as_ref().and_then(|path| path.file_stem()).map(std::ffi::OsStr::to_string_lossy);
    let program: String = program.as_deref().unwrap_or("process").chars().take(100).collect();
    format!("{program}-{}", std::process::id())
}

impl Settings {
    /// Reads the section `[lock]` of `holdoff.toml`. Keys that it does not set are as in [`Settings::default`]. On any
    /// problem it reads nothing, and reports all problems.
    ///
    /// It ignores the other sections; [`PolicySet::from_toml`] checks the policies and the names of the sections.
    ///
    /// ```
    /// use holdoff_lock::Settings;
    /// use std::time::Duration;
    ///
    /// let settings = Settings::from_toml("[lock]\nlease = \"10s\"\nwait = \"15s\"")?;
    /// assert_eq!(settings.lease(), Duration::from_secs(10));
    ///
    /// let problems = Settings::from_toml("[lock]\nlese = \"10s\"").unwrap_err();
    /// assert!(problems.to_string().contains("did you mean `lease`?"));
    /// # Ok::<(), holdoff_policy::Problems>(())
    /// ```
    pub fn from_toml(text: &str) -> Result<Self, Problems> {
        // If the policies themselves have problems, a reference to a policy is not reported.
        let policies = PolicySet::from_toml(text).ok();
        file::read(text, |reader, document| read(reader, document, policies.as_ref()))
    }

    /// Returns a finding if the settings are probably not intended.
    pub fn lint(&self) -> Option<Finding> {
        let wait = self.short_wait()?;
        let (wait, lease) = (format_duration(wait), format_duration(self.lease));
        Some(Finding {
            code: "wait-within-lease",
            severity: Severity::Warning,
            subject: "lock".to_owned(),
            message: format!(
                "the wait ({wait}) does not exceed the lease ({lease}): if a holder is killed, every contender fails"
            ),
            remedy: format!("set a wait above {lease}, or a lease below {wait}"),
        })
    }
}

fn read(reader: &mut Reader<'_>, document: &DeTable<'_>, policies: Option<&PolicySet>) -> Settings {
    let mut settings = Settings::default();
    let Some(table) = reader.table_in(document, "lock") else { return settings };
    let section = Section::new(reader, "[lock]", table, FILE_KEYS);
    section.duration(reader, "lease", LEASES, &mut settings.lease);
    section.count(reader, "max_waiters", 1..=100_000, &mut settings.max_waiters);
    if section.get("wait").is_some() {
        let mut wait = Duration::ZERO;
        section.duration(reader, "wait", Duration::ZERO..=MAX_DELAY, &mut wait);
        settings.wait = Some(wait);
    }
    if let Some((name, policy)) = policies.and_then(|policies| policy(reader, &section, policies)) {
        (settings.policy_name, settings.policy) = (Some(name), Some(policy));
    }
    settings.ledger = ledger(reader, &section);
    settings
}

/// Reads the ledger's name, which must be valid as a file name.
fn ledger(reader: &mut Reader<'_>, section: &Section<'_, '_>) -> Option<String> {
    let name = section.text(reader, "ledger", "default")?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.len() <= MAX_LEDGER_NAME_BYTES && name.bytes().all(is_plain) {
        return Some(name);
    }
    let (value, _) = section.get("ledger")?;
    reader
        .problem(value.span(), format!("`{name}` is not a valid name of a ledger"))
        .expected(format!("at most {MAX_LEDGER_NAME_BYTES} letters, digits, `-` and `_`"));
    None
}

fn policy(
    reader: &mut Reader<'_>,
    section: &Section<'_, '_>,
    policies: &PolicySet,
) -> Option<(String, Policy)> {
    let name = section.text(reader, "policy", "lock")?;
    if let Some(policy) = policies.policy(&name) {
        return Some((name, Policy::clone(policy)));
    }
    let (value, _) = section.get("policy")?;
    let known: Vec<_> = policies.policies().keys().map(String::as_str).collect();
    reader
        .problem(value.span(), format!("there is no policy `{name}`"))
        .expected(format!("one of {}", known.join(", ")))
        .nearest(&name, known);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_rejected() {
        let refused = |settings: Settings| settings.check().expect_err("must be refused").to_string();
        assert!(refused(Settings::default().with_lease(Duration::from_millis(10))).contains("lease"));
        assert!(refused(Settings::default().with_namespace("")).contains("namespace"));
        assert!(refused(Settings::default().with_max_waiters(0)).contains("waiters"));
        assert!(refused(Settings::default().with_name("n".repeat(300))).contains("name"));
    }

    #[test]
    fn the_default_wait_exceeds_the_lease() {
        for lease in [Duration::from_millis(100), Duration::from_secs(30), Duration::from_secs(86_400)] {
            let settings = Settings::default().with_lease(lease);
            assert!(settings.check().is_ok());
            assert_eq!(settings.longest_wait(), Some(lease * 2));
        }
        let preset = Settings::default().with_policy(Policy::preset("lock").unwrap());
        assert!(
            preset.longest_wait().unwrap() < Duration::from_secs(7),
            "the preset's longest wait is too short for a default"
        );
    }

    fn problems(text: &str) -> String {
        Settings::from_toml(text).unwrap_err().to_string()
    }

    #[test]
    fn every_key_is_read() {
        let text = "[policies.mine]\nextends = \"lock\"\nbase = \"7ms\"\n\
                    [lock]\nlease = \"2s\"\nwait = \"3s\"\npolicy = \"mine\"\nmax_waiters = 7\nledger = \"locks\"";
        let settings = Settings::from_toml(text).unwrap();
        assert_eq!((settings.lease, settings.max_waiters), (Duration::from_secs(2), 7));
        assert_eq!(settings.ledger(), Some("locks"));
        let policy = settings.policy();
        assert_eq!((policy.deadline(), policy.attempts()), (Some(Duration::from_secs(3)), Policy::UNLIMITED));
        assert!(settings.policy.is_some_and(|policy| policy.deadline() != Some(Duration::from_secs(3))));
        assert_eq!(Settings::from_toml("[work]\nlese = 1").unwrap().lease, Settings::default().lease);
    }

    #[test]
    fn a_problem_in_the_file_is_reported_with_its_position() {
        assert!(problems("[lock]\npolicy = \"lok\"").contains("2:10: there is no policy `lok`"));
        assert!(problems("[lock]\npolicy = \"lok\"").contains("did you mean `lock`?"));
        assert!(problems("[lock]\nlease = \"5ms\"").contains("a value from 100ms to 1d"));
        assert!(problems("[lock]\nlease = 5").contains("2:9: lease is a bare number"));
        assert!(problems("[lock]\nmax_waiters = 0").contains("max_waiters is 0"));
        assert!(problems("[lock]\nledger = \"a/b\"").contains("2:10: `a/b` is not a valid name of a ledger"));
        assert!(problems("[lock]\nledger = true").contains("2:10: ledger is"));
        assert!(problems("lock = 1").contains("[lock] is an integer"));
        let broken = "[policies.mine]\nbas = \"1s\"\n[lock]\npolicy = \"mine\"";
        assert!(Settings::from_toml(broken).is_ok(), "the policy reader reports the problem");
    }

    #[test]
    fn a_wait_within_the_lease_is_reported() {
        let short = |text: &str| Settings::from_toml(text).unwrap().short_wait();
        assert_eq!(short("[lock]\nwait = \"30s\""), Some(Duration::from_secs(30)));
        assert_eq!(short("[lock]\nwait = \"31s\""), None);
        assert!(short("[lock]\npolicy = \"lock\"").is_some(), "the preset gives up before the lease expires");
    }

    #[test]
    fn the_schema_has_exactly_the_keys_of_the_reader() {
        assert_eq!(holdoff_policy::schema_keys("LockTable"), FILE_KEYS.iter().copied().collect());
    }
}
