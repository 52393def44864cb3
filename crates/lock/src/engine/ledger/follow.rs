//! Notifications of released locks: every node receives every change of the table.

use std::sync::Arc;

use holdoff_ledger::machine::{Change, Key, Value};

use super::entry::Entry;
use super::table::{Following, News};
use super::{Inner, digest_of};
use crate::clock;
use crate::engine::again::Again;
use crate::wakes::Heard;

/// Notifies the subscribers of changes while it runs.
pub(super) async fn run(inner: Arc<Inner>, mut following: Option<Box<dyn Following>>) {
    let mut again = Again::new();
    loop {
        if let Some(following) = &mut following {
            listen(&inner, following.as_mut(), &mut again).await;
        }
        tracing::debug!("not following the ledger; those who wait for locks ask by themselves");
        again.wait().await;
        following = inner.table.follow().ok();
        // Changes since the end of the last subscription were missed.
        inner.wakes.tell_all();
    }
}

async fn listen(inner: &Inner, following: &mut dyn Following, again: &mut Again) {
    while let Some(news) = following.next().await {
        again.heard();
        match news {
            News::Changed(changes) => changes.iter().for_each(|change| take_in(inner, change)),
            News::Missed => inner.wakes.tell_all(),
        }
    }
}

/// Handles a change of a lock that has subscribers. From now on this process knows since when the row is unchanged.
fn take_in(inner: &Inner, change: &Change<Key, Value>) {
    let Some(digest) = digest_of(&change.key).filter(|digest| inner.wakes.is_wanted(digest)) else { return };
    let read = |value: &Option<Value>| value.as_ref().and_then(|value| Entry::read(value).ok());
    let (before, after) = (read(&change.before), read(&change.after));
    if let Some(after) = &after {
        inner.observed().look(&digest, after, clock::now());
    }
    if let Some(heard) = heard(before.as_ref(), after.as_ref()) {
        inner.wakes.tell(&digest, heard);
    }
}

/// Returns the notification of a change: the lock was released, or is now reserved for another waiter.
fn heard(before: Option<&Entry>, after: Option<&Entry>) -> Option<Heard> {
    if after.and_then(Entry::holder).is_some() {
        return None;
    }
    let next = after.and_then(Entry::next);
    match next {
        Some((nonce, _)) if next != before.and_then(Entry::next) => Some(Heard::Next(nonce)),
        Some(_) => None,
        None => before
            .is_some_and(|before| before.holder().or(before.next().map(|(nonce, _)| nonce)).is_some())
            .then_some(Heard::Maybe),
    }
}
