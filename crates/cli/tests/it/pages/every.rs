//! Every page in light and dark, on a phone and on a desktop: no console messages, accessible, small, and with a
//! screenshot.

mod axe;
mod demo;
mod pictures;
mod stage;

use serde_json::Value;

use axe::Axe;
use holdoff_testbed::is_deep;

use crate::pages::daemon::{ACCEPTOR, Daemon, TOKENS};
use crate::pages::device::Device;
use crate::pages::target::Target;
use crate::pages::visitor::Visitor;

const TELEPHONE: u32 = 390;
const DESK: u32 = 1440;

/// The maximum size in bytes of a page with everything it loads.
const HEAVIEST: f64 = 200_000.0;

const WEIGHT: &str = "return performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource')) \
    .filter((one) => !one.name.endsWith('/live')).map((one) => [one.name, one.encodedBodySize])";
const OVERFLOW: &str = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";

#[tokio::test]
async fn every_page_in_light() {
    every_page("light").await;
}

#[tokio::test]
async fn every_page_in_dark() {
    every_page("dark").await;
}

async fn every_page(scheme: &str) {
    let axe = is_deep().then(Axe::find);
    let file = format!("{}{ACCEPTOR}", stage::policies(9));
    let (daemon, target) = (Daemon::with_ledgers(&["default", "other"], &file), Target::start().await);
    let pages = stage::set(&daemon, &target).await;
    stage::write_ledger(&daemon).await;
    let device = Device::to(&daemon.acceptor().await);
    device.promise(1, 9).await;
    device.pretend().await;
    let visitor = Visitor::to(&daemon.url).await;
    let mut wrong = Vec::new();
    for (name, page) in &pages {
        wrong.extend(look(&visitor, axe.as_ref(), scheme, name, page).await);
    }
    visitor.leave().await;

    let daemon = Daemon::start_with(TOKENS);
    let visitor = Visitor::to(&daemon.url).await;
    wrong.extend(look(&visitor, axe.as_ref(), scheme, "login", "/login?next=%2Fsteps").await);
    visitor.log_in(&daemon.token(&["--name", "somebody with a long name", "--scope", "admin"])).await;
    for (name, page) in [
        ("empty-overview", "/"),
        ("empty-steps", "/steps"),
        ("empty-locks", "/locks"),
        ("empty-councils", "/councils"),
        ("empty-ledger", "/ledger"),
    ] {
        wrong.extend(look(&visitor, axe.as_ref(), scheme, name, page).await);
    }
    visitor.leave().await;
    assert!(wrong.is_empty(), "{} in {scheme}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Checks one page in one colour scheme and returns all problems. A quick run checks only the desktop width, without
/// axe.
async fn look(visitor: &Visitor, axe: Option<&Axe>, scheme: &str, name: &str, page: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    visitor.look_by(scheme, DESK).await;
    visitor.open(page).await;
    visitor.assert_silent(page).await;
    weigh(visitor, page).await;
    let widths: &[u32] = if axe.is_some() { &[DESK, TELEPHONE] } else { &[DESK] };
    for &width in widths {
        visitor.look_by(scheme, width).await;
        let overflow = visitor.script(OVERFLOW, vec![]).await;
        if overflow.as_i64().unwrap() > 0 {
            wrong.push(format!("{page} at {width}: {overflow} px wider than the screen"));
        }
        let Some(axe) = axe else { continue };
        pictures::take(visitor, &format!("{name}-{scheme}-{width}")).await;
        let found = axe.violations(visitor).await;
        wrong.extend(found.into_iter().map(|one| format!("{page} at {width}: {one}")));
    }
    wrong
}

async fn weigh(visitor: &Visitor, page: &str) {
    let parts = visitor.script(WEIGHT, vec![]).await;
    let parts = parts.as_array().unwrap();
    assert!(parts.len() >= 2, "{page}: {parts:?}");
    let weight: f64 = parts.iter().map(|part| part[1].as_f64().unwrap()).sum();
    let heaviest: Vec<&Value> = parts.iter().filter(|part| part[1].as_f64().unwrap() > 20_000.0).collect();
    assert!(weight > 2_000.0 && weight <= HEAVIEST, "{page} weighs {weight} bytes, most of it {heaviest:?}");
}
