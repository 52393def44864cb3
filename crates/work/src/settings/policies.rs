//! Policies that wait longer than `stale_after` permits.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use holdoff_policy::{Attempt, MAX_TABLE, Policy, PolicyScope, PolicySet, format_duration};

use super::Settings;

/// Policies that can wait longer at once than [`Settings::stale_after`]. No policy of the set becomes active.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LongWaits {
    /// Every such policy, by name.
    pub waits: Vec<LongWait>,
    /// The maximum wait.
    pub limit: Duration,
}

/// The longest wait of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LongWait {
    /// The policy.
    pub policy: String,
    /// The longest wait at once.
    pub wait: Duration,
    /// Whether the wait comes from the policy's contention settings and not from its growth.
    pub is_contention: bool,
}

impl Settings {
    /// Refuses policies that can wait longer at once than [`stale_after`](Settings::stale_after). Otherwise a step
    /// that only waits would be reported as stale.
    ///
    /// Checks every policy that an operation could have: the policies that the file defines, those that operations,
    /// defaults and namespaces name, and `notification` if there are notifications. The check uses the policy's own
    /// longest wait and the limit of its contention settings. It ignores a longer `Retry-After`, because the other
    /// side chooses it.
    ///
    /// ```
    /// use holdoff_policy::PolicySet;
    /// use holdoff_work::Settings;
    ///
    /// let text = "[work]\nstale_after = \"1h\"\n[policies.slow]\nextends = \"standard\"\nbase = \"2h\"\ncap = \"3h\"";
    /// let (set, settings) = (PolicySet::from_toml(text)?, Settings::from_toml(text)?);
    /// let refused = settings.check_policies(&set).unwrap_err();
    /// assert!(refused.to_string().starts_with("policy `slow` can wait 3h at once"));
    /// # Ok::<(), holdoff_policy::Problems>(())
    /// ```
    pub fn check_policies(&self, set: &PolicySet) -> Result<(), LongWaits> {
        let mut names = usable(set);
        if !self.notify.is_empty() {
            names.insert("notification");
        }
        let policies = names.into_iter().filter_map(|name| Some((name, set.policy(name)?)));
        let waits = policies.filter_map(|(name, policy)| {
            let (wait, is_contention) = longest_wait(policy);
            (wait > self.stale_after).then(|| LongWait { policy: name.to_owned(), wait, is_contention })
        });
        let waits: Vec<_> = waits.collect();
        if waits.is_empty() { Ok(()) } else { Err(LongWaits { waits, limit: self.stale_after }) }
    }
}

/// Returns the names of the policies that an operation could have.
fn usable(set: &PolicySet) -> BTreeSet<&str> {
    let own = set.policies().keys().map(String::as_str).filter(|name| set.is_own(name));
    let scopes = || std::iter::once(set.root()).chain(set.namespaces().values());
    let named =
        scopes().flat_map(|scope| scope.operations.values()).map(|operation| operation.policy.as_str());
    let defaults = scopes().filter_map(|scope: &PolicyScope| scope.default.as_deref());
    let last = set.root().default.is_none().then_some(PolicySet::DEFAULT_POLICY);
    own.chain(named).chain(defaults).chain(last).collect()
}

/// Returns the longest wait of a policy at once, and whether it comes from the contention settings.
fn longest_wait(policy: &Policy) -> (Duration, bool) {
    let waits = policy.attempts().saturating_sub(1);
    // Within `MAX_TABLE` attempts every growth reaches its maximum, except linear growth, which only rises.
    let walked = waits.min(u32::try_from(MAX_TABLE).unwrap_or(u32::MAX));
    let (mut last, mut longest) = (Duration::ZERO, Duration::ZERO);
    for attempt in (1..=walked).chain((waits > walked).then_some(waits)) {
        last = policy.window(Attempt::new(attempt), last).high();
        longest = longest.max(last);
    }
    let contention =
        policy.contention().filter(|_| waits > 0).map_or(Duration::ZERO, |contention| contention.limit);
    let within_deadline = |wait: Duration| policy.deadline().map_or(wait, |deadline| wait.min(deadline));
    (within_deadline(longest.max(contention)), contention > longest)
}

impl std::error::Error for LongWaits {}

impl fmt::Display for LongWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = format_duration(self.limit);
        for (index, LongWait { policy, wait, is_contention }) in self.waits.iter().enumerate() {
            let (line, wait) = (if index > 0 { "\n" } else { "" }, format_duration(*wait));
            let key = if *is_contention { "contention.limit" } else { "cap" };
            write!(
                f,
                "{line}policy `{policy}` can wait {wait} at once, and a step counts as stale after {limit}: \
                 lower the policy's {key} to {limit} or less, or raise stale_after in [work]"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Vec<String> {
        let (set, settings) = (PolicySet::from_toml(text).unwrap(), Settings::from_toml(text).unwrap());
        let waits = settings.check_policies(&set).map_or_else(|refused| refused.waits, |()| Vec::new());
        waits.into_iter().map(|long| format!("{} {}", long.policy, format_duration(long.wait))).collect()
    }

    #[test]
    fn the_longest_reachable_wait_counts() {
        let with = |policy: &str| refused(&format!("[policies.p]\n{policy}"));
        assert_eq!(with("base = \"1h\"\ncap = \"30d\"\nattempts = 3"), Vec::<String>::new());
        assert_eq!(with("base = \"1h\"\ncap = \"30d\"\nattempts = 7"), ["p 32h"]);
        assert_eq!(with("growth = \"list\"\ndelays = [\"1s\", \"2d\", \"1s\"]"), ["p 2d"]);
        assert_eq!(with("growth = \"list\"\ndelays = [\"1s\", \"2d\"]\nattempts = 2"), Vec::<String>::new());
        let line = "growth = \"linear\"\nbase = \"1s\"\ncap = \"30d\"\nattempts";
        assert_eq!(with(&format!("{line} = 86401")), Vec::<String>::new());
        assert_eq!(with(&format!("{line} = 86402")), ["p 86401s"]);
        assert_eq!(with(&format!("{line} = \"unlimited\"")), ["p 30d"]);
        let decorrelated = "base = \"1h\"\njitter = \"decorrelated\"\ncap = \"30d\"\nattempts";
        assert_eq!(with(&format!("{decorrelated} = 4")), ["p 27h"]);
        assert_eq!(with("base = \"2d\"\ncap = \"2d\"\ndeadline = \"20h\""), Vec::<String>::new());
        assert_eq!(with("base = \"1s\"\ncontention = { slot = \"1s\", limit = \"2d\" }"), ["p 2d"]);
        assert_eq!(with("base = \"2d\"\ncap = \"2d\"\nattempts = 1"), Vec::<String>::new());
    }

    #[test]
    fn only_policies_that_an_operation_can_use_count() {
        let stale = "[work]\nstale_after = \"20s\"\n";
        assert_eq!(
            refused(stale),
            Vec::<String>::new(),
            "`standard` has five attempts, and waits 12 s at most"
        );
        assert_eq!(refused(&format!("default = \"step\"\n{stale}")), ["step 1m"]);
        assert_eq!(refused(&format!("{stale}[namespaces.eu.operations]\n\"a\" = \"step\"")), ["step 1m"]);
        assert_eq!(refused(&format!("{stale}[[work.notify]]\nurl = \"http://x\"")), ["notification 264s"]);
    }
}
