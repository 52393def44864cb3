//! The section `[lock]` of the configuration file.

use std::time::Duration;

use holdoff_policy::file::{self, DeTable, Reader, Section};
use holdoff_policy::{Finding, MAX_DELAY, Policy, PolicySet, Problems, Severity, format_duration};

use super::{LEASES, Settings};

const LONGEST_LEDGER: usize = 64;
const KEYS: &[&str] = &["lease", "wait", "policy", "max_waiters", "ledger"];

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
                "waits {wait} at most, and a lease lasts {lease}: a killed holder fails everyone"
            ),
            remedy: format!("wait longer than {lease}, or make the lease shorter than {wait}"),
        })
    }
}

fn read(reader: &mut Reader<'_>, document: &DeTable<'_>, policies: Option<&PolicySet>) -> Settings {
    let mut settings = Settings::default();
    let Some(table) = reader.table_in(document, "lock") else { return settings };
    let section = Section::new(reader, "[lock]", table, KEYS);
    section.duration(reader, "lease", LEASES, &mut settings.lease);
    section.count(reader, "max_waiters", 1..=100_000, &mut settings.most_waiters);
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
    if name.len() <= LONGEST_LEDGER && name.bytes().all(is_plain) {
        return Some(name);
    }
    let (value, _) = section.get("ledger")?;
    reader
        .problem(value.span(), format!("`{name}` is no ledger's name"))
        .expected(format!("at most {LONGEST_LEDGER} letters, digits, `-` and `_`"));
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

    fn problems(text: &str) -> String {
        Settings::from_toml(text).unwrap_err().to_string()
    }

    #[test]
    fn every_key_is_read() {
        let text = "[policies.mine]\nextends = \"lock\"\nbase = \"7ms\"\n\
                    [lock]\nlease = \"2s\"\nwait = \"3s\"\npolicy = \"mine\"\nmax_waiters = 7\nledger = \"locks\"";
        let settings = Settings::from_toml(text).unwrap();
        assert_eq!((settings.lease, settings.most_waiters), (Duration::from_secs(2), 7));
        assert_eq!(settings.ledger(), Some("locks"));
        let policy = settings.policy();
        assert_eq!((policy.deadline(), policy.attempts()), (Some(Duration::from_secs(3)), Policy::UNLIMITED));
        assert!(settings.policy.is_some_and(|policy| policy.deadline() != Some(Duration::from_secs(3))));
        assert_eq!(Settings::from_toml("[work]\nlese = 1").unwrap().lease, Settings::default().lease);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        assert!(problems("[lock]\npolicy = \"lok\"").contains("2:10: there is no policy `lok`"));
        assert!(problems("[lock]\npolicy = \"lok\"").contains("did you mean `lock`?"));
        assert!(problems("[lock]\nlease = \"5ms\"").contains("a value from 100ms to 1d"));
        assert!(problems("[lock]\nlease = 5").contains("2:9: lease is a bare number"));
        assert!(problems("[lock]\nmax_waiters = 0").contains("max_waiters is 0"));
        assert!(problems("[lock]\nledger = \"a/b\"").contains("2:10: `a/b` is no ledger's name"));
        assert!(problems("[lock]\nledger = true").contains("2:10: ledger is"));
        assert!(problems("lock = 1").contains("[lock] is an integer"));
        let broken = "[policies.mine]\nbas = \"1s\"\n[lock]\npolicy = \"mine\"";
        assert!(Settings::from_toml(broken).is_ok(), "the policies say what is wrong with them");
    }

    #[test]
    fn a_wait_that_does_not_exceed_the_lease_is_noticed() {
        let short = |text: &str| Settings::from_toml(text).unwrap().short_wait();
        assert_eq!(short("[lock]\nwait = \"30s\""), Some(Duration::from_secs(30)));
        assert_eq!(short("[lock]\nwait = \"31s\""), None);
        assert!(short("[lock]\npolicy = \"lock\"").is_some(), "the preset alone gives up early");
    }

    #[test]
    fn the_schema_knows_exactly_the_readers_keys() {
        assert_eq!(holdoff_policy::schema_keys("LockTable"), KEYS.iter().copied().collect());
    }
}
