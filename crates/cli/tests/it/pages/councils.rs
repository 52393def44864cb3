//! The councils page: the acceptor in the daemon, and the data that it keeps for each council.

use holdoff_council::CouncilId;

use crate::pages::daemon::{ACCEPTOR, Daemon};
use crate::pages::device::Device;
use crate::pages::until;
use crate::pages::visitor::Visitor;

const ROWS: &str = "#live tbody th";

#[tokio::test]
async fn a_council_is_seen_as_it_comes_and_its_id_is_not() {
    let daemon = Daemon::start_with(ACCEPTOR);
    let shown = daemon.get("/v1/acceptor").await;
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/councils").await;
    visitor.sees("#acceptor .pick", shown["acceptor"].as_str().unwrap()).await;
    visitor.sees("#acceptor .state", "answers").await;
    visitor.sees("#acceptor .facts", shown["node"].as_str().unwrap()).await;
    visitor.sees("#acceptor .facts", shown["life"].as_str().unwrap()).await;
    visitor.sees(".nothing.card", "It keeps nothing yet.").await;
    visitor.sees("#live-word", "live").await;
    visitor.script("window.before = true", vec![]).await;

    let id = daemon.found("laptop").await;
    let mark = id.parse::<CouncilId>().unwrap().mark().to_string();
    until("it is there, with its letter", async || {
        visitor.texts(ROWS).await == [mark.clone()]
            && visitor.text("#live tbody td:nth-child(6)").await == "1"
    })
    .await;
    let kept = visitor.script("return window.before === true", vec![]).await;
    assert_eq!(kept, true, "the page was not loaded again");
    let [latest, compacted, slots, bytes, letters, asked] =
        visitor.texts("#live tbody td").await.try_into().unwrap();
    assert!(latest != "0" && slots != "0", "{latest} {slots}");
    assert_eq!((&*compacted, &*letters), ("0", "1"), "the invitation is a letter");
    assert!(bytes.ends_with("of 64 MiB") && (asked == "now" || asked.ends_with("ago")), "{bytes} {asked}");
    let page = daemon.page("/councils").await;
    assert!(page.contains(&mark) && !page.contains(&id) && !page.contains(&id[..8]), "{page}");
    visitor.assert_silent("/councils").await;
    visitor.leave().await;
}

#[tokio::test]
async fn many_councils_are_sorted_and_shown_page_by_page() {
    const COUNCILS: u8 = 60;
    let daemon = Daemon::start_with(ACCEPTOR);
    let device = Device::to(&daemon.acceptor().await);
    for council in 1..=COUNCILS {
        device.promise(council, council).await;
    }
    device.pretend().await;
    let marks = |numbers: &mut dyn Iterator<Item = u8>| -> Vec<String> {
        numbers.map(|number| CouncilId([number; 16]).mark().to_string()).collect()
    };
    let visitor = Visitor::to(&daemon.url).await;
    visitor.open("/councils").await;
    visitor.sees("#acceptor .facts", "60 of 10\u{202f}000").await;
    assert_eq!(visitor.text("th[aria-sort=descending]").await, "Last asked");
    visitor.sees(".bars .label", "foreign ballot").await;
    visitor.sees(".columns .row .faint", "1 connection").await;
    visitor.sees(".peers", "from 127.0.0.1:").await;
    visitor.follow("Slots kept").await;
    visitor.sees("th[aria-sort=descending]", "Slots kept").await;
    assert_eq!(visitor.place().await, "/councils?sort=slots");
    assert_eq!(visitor.texts(ROWS).await, marks(&mut (11..=COUNCILS).rev()));
    visitor.follow("More").await;
    until("the rest is there", async || visitor.texts(ROWS).await == marks(&mut (1..11).rev())).await;
    visitor.follow("First").await;
    until("it begins anew", async || visitor.count(ROWS).await == 50).await;
    visitor.follow("Council").await;
    visitor.sees("th[aria-sort=ascending]", "Council").await;
    assert!(visitor.texts(ROWS).await.is_sorted());
    visitor.assert_silent("/councils").await;
    visitor.leave().await;
}
