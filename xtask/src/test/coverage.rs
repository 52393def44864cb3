//! Which tests a run leaves out, and why.
//!
//! A quick run has at least one test of every printed promise, on every engine, with fewer seeds (the tests ask
//! `holdoff_testbed::scaled`). A deep run has all tests. `CONTRIBUTING.md` has the table of promises.

use holdoff_testbed::KUBECONFIG_VARIABLE;

use super::catalogue::Depth;

/// Tests that run only with `--deep`, by the beginning of their names.
const DEEP: &[&str] = &[
    // Pages: a quick run opens every page once in light and walks the main paths.
    "holdoff-cli it pages::bulk::",
    "holdoff-cli it pages::conflict::nothing_changes",
    "holdoff-cli it pages::conflict::who_comes_second",
    "holdoff-cli it pages::councils::many_councils",
    "holdoff-cli it pages::every::every_page_in_dark",
    "holdoff-cli it pages::filters::",
    "holdoff-cli it pages::foreign::",
    "holdoff-cli it pages::keyboard::",
    "holdoff-cli it pages::ledger::a_token_of_one_namespace",
    "holdoff-cli it pages::ledger::older_entries",
    "holdoff-cli it pages::live::the_overview",
    "holdoff-cli it pages::login::a_token_of_one_namespace",
    "holdoff-cli it pages::login::revoking",
    "holdoff-cli it pages::planted::",
    "holdoff-cli it pages::policy::somebody_else",
    "holdoff-cli it pages::prefix::",
    "holdoff-cli it pages::queues::",
    "holdoff-cli it pages::settings::",
    "holdoff-cli it pages::work::a_task",
    // Processes: a quick run kills one of each kind; network namespaces, rolling restarts and backups are deep.
    "holdoff-cli it cluster::backup::",
    "holdoff-cli it cluster::restart::",
    "holdoff-cli it council::a_council_goes_on_in_network_namespaces",
    "holdoff-cli it demo::every_figure",
    "holdoff-cli it ledger::linear::one_order_of_events_with_a_leader_that_is_cut_off",
    "holdoff-cli it ledger::parted::",
    "holdoff-cli it ledger::rolling::",
    "holdoff-cli it ledger::signals::who_starts_again",
    "holdoff-cli it ledger::words::a_history_whose_beginning",
    "holdoff-lock it chaos::on_a_ledger",
    // Exhaustive models that take more than ten seconds of processor time.
    "holdoff-paxos lib log::model::a_fork_is_mended",
    "holdoff-paxos lib log::model::a_leader_sends_what_it_has_not_stored",
    "holdoff-paxos lib log::model::mutants::what_is_inherited",
    "holdoff-paxos lib log::model::what_two_leaders_decide",
    "holdoff-paxos lib slot::model::one_value_is_chosen",
    // Planted defects that need many seeds, and statistics.
    "holdoff-council lib simulation::contention::",
    "holdoff-council lib simulation::mutants::a_promise_is_stored",
    "holdoff-council lib simulation::mutants::a_restart_knows",
    "holdoff-gossip lib simulation::scenes::a_liar",
    "holdoff-lock lib simulation::mutants::jitter_clamped",
    "holdoff-sim it election::holdoff_holds_its_bars",
];

/// Tests of the real Kubernetes cluster that a variable names.
const KUBERNETES: &str = "::kubernetes_cluster::";

/// Why a run leaves a test out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeftOut {
    /// `--deep` runs it.
    ToDeep,
    /// There is no Kubernetes cluster.
    NoKubernetes,
}

/// Returns why a run of this depth leaves the test out, if it does.
pub(super) fn left_out(name: &str, depth: Depth) -> Option<LeftOut> {
    if name.contains(KUBERNETES) && std::env::var_os(KUBECONFIG_VARIABLE).is_none() {
        return Some(LeftOut::NoKubernetes);
    }
    let is_deep = DEEP.iter().any(|beginning| name.starts_with(beginning));
    (depth == Depth::Quick && is_deep).then_some(LeftOut::ToDeep)
}

/// Returns the entries of the list that no test's name begins with: the tests were renamed or removed.
pub(super) fn stale<'a>(names: &[String]) -> Vec<&'a str> {
    DEEP.iter().copied().filter(|beginning| !names.iter().any(|name| name.starts_with(beginning))).collect()
}
