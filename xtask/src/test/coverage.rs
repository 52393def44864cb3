//! The tests that a run omits, and the reasons.
//!
//! A quick run has at least one test of every printed promise, on every engine, with fewer seeds (the tests ask
//! `holdoff_testbed::scaled`). A deep run has all tests. `CONTRIBUTING.md` has the table of promises.

use holdoff_testbed::KUBECONFIG_VARIABLE;

use super::catalogue::Depth;

/// Tests that run only with `--deep`, by the beginning of their names.
const DEEP: &[&str] = &[
    // Pages: a quick run opens every page once in light and walks the main paths.
    "holdoff-cli it pages::every::every_page_in_dark",
    "holdoff-cli it pages::injection::",
    "holdoff-cli it pages::interaction::a_step_is_retried",
    "holdoff-cli it pages::interaction::filters_combine",
    "holdoff-cli it pages::interaction::the_back_button",
    "holdoff-cli it pages::interaction::the_focus_survives",
    "holdoff-cli it pages::interaction::the_overview",
    "holdoff-cli it pages::login::a_form_from_another_site",
    "holdoff-cli it pages::login::a_namespace_token",
    "holdoff-cli it pages::login::an_api_token_is_shown_once",
    "holdoff-cli it pages::login::revoking",
    "holdoff-cli it pages::policy::a_concurrent_deployment",
    "holdoff-cli it pages::prefix::",
    "holdoff-cli it pages::replication::a_namespace_token",
    "holdoff-cli it pages::replication::councils_are_sorted",
    "holdoff-cli it pages::replication::older_entries",
    "holdoff-cli it pages::work::a_conflict_that_was_already",
    "holdoff-cli it pages::work::a_paused_operation",
    "holdoff-cli it pages::work::a_task",
    "holdoff-cli it pages::work::only_matching_steps",
    "holdoff-cli it pages::work::resolving_keeps",
    // An attack of ten minutes.
    "holdoff-cli it attack::",
    // Processes: a quick run kills one of each kind; network namespaces, rolling restarts and backups are deep.
    "holdoff-cli it cluster::backup::",
    "holdoff-cli it cluster::faults::pgbouncer::a_rolling_restart",
    "holdoff-cli it cluster::faults::pgbouncer::accepted_tasks_finish",
    "holdoff-cli it cluster::faults::postgres::a_rolling_restart",
    "holdoff-cli it cluster::hung::a_request_is_cancelled",
    "holdoff-cli it council::a_council_tolerates_isolated_acceptors",
    "holdoff-cli it demo::the_summary_matches",
    "holdoff-cli it ledger::jepsen::",
    "holdoff-cli it ledger::leaders::a_leader_in_a_minority",
    "holdoff-cli it ledger::leaders::a_rolling_restart",
    "holdoff-cli it ledger::output::a_compacted_history",
    "holdoff-cli it ledger::signals::a_daemon_keeps_its_signals",
    "holdoff-lock it chaos::on_a_ledger",
    // Exhaustive models that take more than ten seconds of processor time.
    "holdoff-paxos lib log::model::a_candidate_that_learns_of_a_change",
    "holdoff-paxos lib log::model::a_forked_log_is_repaired",
    "holdoff-paxos lib log::model::a_leader_sends_unstored_entries",
    "holdoff-paxos lib log::model::clusters_of_two_and_five",
    "holdoff-paxos lib log::model::deciding_part_of_an_inherited_log",
    "holdoff-paxos lib log::model::snapshots_and_proofs",
    "holdoff-paxos lib log::model::two_leaders_decide",
    "holdoff-paxos lib slot::model::one_value_is_chosen",
    // Planted defects that need many seeds, and statistics.
    "holdoff-council lib simulation::contention::",
    "holdoff-council lib simulation::forgetting_used_ballots_in_a_restart_is_found",
    "holdoff-council lib simulation::a_driver_that_sends_before_it_stores_is_found",
    "holdoff-gossip lib simulation::scenarios::a_lying_voter",
    "holdoff-lock lib simulation::mutants::jitter_clamped",
    "holdoff-sim it election::holdoff_keeps_its_limits",
    "holdoff-work it conformance::migrations::a_large_table",
];

/// Tests of the real Kubernetes cluster that a variable names.
const KUBERNETES: &str = "::kubernetes_cluster::";

/// The reason why a run omits a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeftOut {
    /// `--deep` runs it.
    DeepOnly,
    /// There is no Kubernetes cluster.
    NoKubernetes,
}

/// Returns the reason why a run of this depth omits the test, if it does.
pub(super) fn left_out(name: &str, depth: Depth) -> Option<LeftOut> {
    if name.contains(KUBERNETES) && std::env::var_os(KUBECONFIG_VARIABLE).is_none() {
        return Some(LeftOut::NoKubernetes);
    }
    let is_deep = DEEP.iter().any(|beginning| name.starts_with(beginning));
    (depth == Depth::Quick && is_deep).then_some(LeftOut::DeepOnly)
}

/// Returns the entries of the list that no test's name begins with: the tests were renamed or removed.
pub(super) fn stale<'a>(names: &[String]) -> Vec<&'a str> {
    DEEP.iter().copied().filter(|beginning| !names.iter().any(|name| name.starts_with(beginning))).collect()
}
