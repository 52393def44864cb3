//! Which steps are meant.

use holdoff_work::Filter;

use super::Desk;
use crate::args::FilterArgs;

/// The filter that was asked for; nothing if everything is meant.
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
