//! The filter of steps.

use holdoff_work::Filter;

use super::Desk;
use crate::args::FilterArgs;

/// Builds the filter from the arguments, or returns `None` if they do not restrict anything.
pub(super) fn filter(desk: &Desk, args: &FilterArgs) -> Option<Filter> {
    let mut filter = Filter::states(args.states.iter().copied());
    filter.task = args.task;
    filter.namespace.clone_from(&args.namespace);
    filter.queue.clone_from(&args.queue);
    filter.operation.clone_from(&args.operation);
    filter.class = args.class.map(|class| class.name().to_owned());
    filter.older_than = args.older_than;
    filter.stale_after = args.stale.then_some(desk.settings.stale_after);
    filter.text.clone_from(&args.text);
    (filter != Filter::default()).then_some(filter)
}

/// Formats the filter as given on the command line, for the audit log.
pub(super) fn words(args: &FilterArgs) -> String {
    let states: Vec<_> = args.states.iter().map(ToString::to_string).collect();
    let said = [
        ("state", (!states.is_empty()).then(|| states.join(","))),
        ("operation", args.operation.clone()),
        ("queue", args.queue.clone()),
        ("namespace", args.namespace.clone()),
        ("class", args.class.map(|class| class.name().to_owned())),
        ("task", args.task.map(|task| task.to_string())),
        ("text", args.text.clone()),
        ("older-than", args.older_than.map(crate::output::time)),
        ("stale", args.stale.then(String::new)),
    ];
    let said =
        said.into_iter().filter_map(|(key, value)| Some(format!("--{key} {}", value?).trim_end().to_owned()));
    said.collect::<Vec<_>>().join(" ")
}
