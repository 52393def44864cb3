//! Every page in both themes and at two widths, checked with axe-core, and the pictures of the documentation.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdoff_testbed::is_deep;
use serde_json::{Value, json};

use crate::pages::daemon::{ACCEPTOR, Daemon, Device, TOKENS, Target};
use crate::pages::until;
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
    let file = format!("{}{ACCEPTOR}", policies(9));
    let (daemon, target) = (Daemon::with_ledgers(&["default", "other"], &file), Target::start().await);
    let pages = set_up(&daemon, &target).await;
    write_ledger(&daemon).await;
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
    visitor.log_in(&daemon.token(&["--name", "an operator with a long name", "--scope", "admin"])).await;
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
        take_picture(visitor, &format!("{name}-{scheme}-{width}")).await;
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
    assert!(
        weight > 2_000.0 && weight <= HEAVIEST,
        "{page} has {weight} bytes; its largest parts: {heaviest:?}"
    );
}

/// The variable with the path of axe-core. By default it is where `cargo xtask test` installs it.
const AXE_VARIABLE: &str = "AXE_CORE";

const RUN: &str = "const done = arguments[arguments.length - 1]; \
    axe.run(document, { resultTypes: ['violations'], preload: false }).then( \
    ({ violations }) => done(violations.map(({ id, impact, nodes }) => ({ id, impact, \
        where: nodes.map((node) => `${node.target.join(' ')} (${node.failureSummary.split('\\n').slice(1).join(';').trim()})`) }))), \
    (error) => done(String(error)));";

/// The source of axe-core.
struct Axe(String);

impl Axe {
    fn find() -> Self {
        let usual = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("../axe/node_modules/axe-core/axe.min.js");
        let path = std::env::var_os(AXE_VARIABLE).map_or_else(usual, PathBuf::from);
        let missing = format!("axe-core is missing ({}): `cargo xtask test` installs it", path.display());
        Self(std::fs::read_to_string(&path).expect(&missing))
    }

    /// Returns the violations of the current page that are serious or critical.
    async fn violations(&self, visitor: &Visitor) -> Vec<String> {
        if visitor.script("return typeof axe", vec![]).await == "undefined" {
            visitor.script(&self.0, vec![]).await;
        }
        let found = visitor.script_to_end(RUN, vec![]).await;
        let found = found.as_array().unwrap_or_else(|| panic!("axe does not run: {found}"));
        let is_grave = |one: &&Value| one["impact"] == "serious" || one["impact"] == "critical";
        let describe = |one: &Value| {
            let places = one["where"].as_array().unwrap();
            let few: Vec<&str> = places.iter().take(3).filter_map(Value::as_str).collect();
            format!("{} ({}), {} ×: {}", one["id"], one["impact"], places.len(), few.join(" | "))
        };
        found.iter().filter(is_grave).map(describe).collect()
    }
}

/// Long enough for one outage of the mail service and the recovery from it.
const LASTS: Duration = Duration::from_secs(75);

/// The demo. It ends when this value is dropped.
struct Demo {
    process: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl Demo {
    async fn play() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_holdoff"))
            .args(["demo", "--listen", "127.0.0.1:0"])
            .env("TMPDIR", folder.path())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let greeting = lines.next().expect("the daemon prints its URL");
        // Drains stdout, so that the demo does not block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let url = greeting.split_whitespace().next().unwrap().to_owned();
        let demo = Self { process, url, _folder: folder };
        // The screenshots show the events of this period, so there is no condition to wait for.
        tokio::time::sleep(LASTS).await;
        demo
    }

    /// Returns the page of a step with many attempts.
    async fn step(&self) -> String {
        let asked = format!("{}/v1/steps?operation=payments.*&min_failures=3&limit=1", self.url);
        let mut steps = Value::Null;
        until("a step has failed several times", async || {
            steps = reqwest::get(&asked).await.unwrap().json().await.unwrap();
            steps["items"][0]["id"].is_string()
        })
        .await;
        format!("/steps/{}", steps["items"][0]["id"].as_str().unwrap())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // On SIGTERM the demo also ends its workers and removes its folders.
        let _ = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }
}

/// The variable that, set to 1, makes the test retake the screenshots of the documentation.
const PICTURES_VARIABLE: &str = "TAKE_PICTURES";
/// The maximum size in bytes of a screenshot in the documentation.
const LARGEST: usize = 120_000;
/// The maximum height of a screenshot, in points from the top of the page.
const TALLEST: f64 = 2400.0;

/// Takes a screenshot of the current page from its top.
async fn take_picture(visitor: &Visitor, name: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../pictures");
    let picture = capture(visitor, "body", TALLEST).await;
    assert!(picture.len() > 4_000, "{name}: a blank picture");
    write(&folder, name, &picture);
}

/// Retakes the documentation's screenshots of the demo, if requested.
#[tokio::test]
async fn the_pictures_of_the_documentation_are_retaken() {
    if std::env::var(PICTURES_VARIABLE).as_deref() != Ok("1") {
        return;
    }
    let demo = Demo::play().await;
    let visitor = Visitor::to(&demo.url).await;
    let step = demo.step().await;
    let what_if = "/policies/payments?set.jitter=none&scenario=row&clients=100";
    for (name, scheme, page, from, height) in [
        ("overview", "light", "/", "body", 830.0),
        ("overview-dark", "dark", "/", "body", 830.0),
        ("step", "light", step.as_str(), "body", 680.0),
        ("what-if", "light", what_if, "#storm", 760.0),
    ] {
        visitor.look_by(scheme, 1200).await;
        visitor.open(page).await;
        let picture = capture(&visitor, from, height).await;
        assert!(picture.len() <= LARGEST, "{name}: {} bytes are too many for a document", picture.len());
        write(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/img"), name, &picture);
    }
    visitor.leave().await;
}

/// Captures the page from the top of an element, up to this height.
async fn capture(visitor: &Visitor, from: &str, tallest: f64) -> Vec<u8> {
    let place = "const page = document.documentElement, at = document.querySelector(arguments[0]).getBoundingClientRect(); \
        const [x, y] = [Math.max(0, at.left + scrollX - 12), Math.max(0, at.top + scrollY - 12)]; \
        return { x, y, width: page.clientWidth - x, height: Math.min(page.scrollHeight - y, arguments[1]), scale: 1 }";
    let clip = visitor.script(place, vec![from.into(), tallest.into()]).await;
    let parameters = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
    let picture = visitor.cdp("Page.captureScreenshot", parameters).await;
    STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
}

fn write(folder: &Path, name: &str, picture: &[u8]) {
    std::fs::create_dir_all(folder).unwrap();
    let path: PathBuf = folder.join(format!("{name}.png"));
    std::fs::write(path, picture).unwrap();
}

/// The operation, the queue, the number of tasks, and the path on the target.
const TRAFFIC: [(&str, &str, usize, &str); 8] = [
    ("mail.send", "mail", 24, "/answer/200"),
    ("mail.digest", "mail", 6, "/answer/503"),
    ("card.charge", "payments", 12, "/answer/200"),
    ("card.refund", "payments", 4, "/answer/400"),
    ("search.index", "default", 5, "/answer/429"),
    ("report.render", "default", 3, "/answer/500"),
    ("webhook.deliver", "hooks", 8, "/answer/200"),
    ("webhook.retire", "hooks", 3, "/slow"),
];

/// Fills the daemon. Returns every page with its name and its address.
async fn set_up(daemon: &Daemon, target: &Target) -> Vec<(&'static str, String)> {
    for (operation, queue, count, path) in TRAFFIC {
        let task = |number: usize| {
            let body = json!({ "order": 1000 + number, "customer": "ada@example.com" });
            json!({ "operation": operation, "queue": queue, "http": { "url": target.at(path), "body": body } })
        };
        daemon.post("/v1/tasks", (0..count).map(task).collect()).await;
    }
    let later =
        daemon.submit(json!({ "operation": "invoice.remind", "payload": { "n": 7 }, "delay": "2h" })).await;
    let failed = daemon.call("invoice.print", "print", &target.at("/gate")).await;
    let conflict = json!({ "url": target.at("/revision"), "body": { "revision": 1, "title": "Terms" } });
    let conflict = daemon.submit(json!({ "operation": "document.store", "http": conflict })).await;
    let graph = graph(daemon, target).await;
    for (key, name, lease) in
        [("deploy", "ci-7", "10m"), ("invoice 7", "billing-1", "20m"), ("nightly/report", "cron-eu", "1h")]
    {
        daemon.post("/v1/locks/acquire", json!({ "key": key, "name": name, "lease": lease })).await;
    }
    for host in ["db-3", "db-3", "db-3", "web-1"] {
        let data = json!({ "host": host, "alert": "disk full" });
        let task = json!({ "operation": "page.oncall", "payload": data });
        daemon.post("/v1/signals", json!({ "fields": ["host", "alert"], "data": data, "task": task })).await;
    }
    for device in ["laptop", "phone", "server-room-2"] {
        daemon.found(device).await;
    }
    // The second deployment equals the daemon's file and stays active; the first one becomes inactive.
    let file = |attempts: u32| json!({ "file": format!("{}{}", crate::pages::daemon::POLICIES, policies(attempts)) });
    let first = daemon.post("/v1/policies", file(6)).await;
    daemon.post("/v1/policies", file(9)).await;
    daemon.post("/v1/queues/pause", json!({ "queue": "hooks" })).await;
    daemon.token(&[
        "--name",
        "nightly export",
        "--scope",
        "read",
        "--namespace",
        "billing",
        "--expires",
        "90d",
    ]);
    daemon.settle(std::slice::from_ref(&failed), "failed").await;
    daemon.settle(std::slice::from_ref(&conflict), "conflicted").await;
    until("all steps have ended", async || {
        let busy = daemon.get("/v1/steps?state=ready,running&operation=mail.*").await;
        busy["items"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
    until("the node is listed as alive", async || daemon.page("/nodes").await.contains("alive")).await;

    let version = first["id"].as_str().unwrap();
    [
        ("overview", "/".to_owned()),
        ("overview-day", "/?window=24h".to_owned()),
        ("tasks", "/tasks".to_owned()),
        ("task", format!("/tasks/{graph}")),
        ("steps", "/steps".to_owned()),
        ("steps-filtered", "/steps?state=failed&operation=mail.*&class=transient&text=nothing".to_owned()),
        ("tasks-none", "/tasks?text=nothing+of+the+kind".to_owned()),
        ("failed", "/failed".to_owned()),
        ("conflicts", "/conflicts".to_owned()),
        ("step", format!("/steps/{failed}/0")),
        ("step-waiting", format!("/steps/{later}/0?payload=shown")),
        ("step-conflicted", format!("/steps/{conflict}/0?payload=shown")),
        ("conflict", format!("/conflicts/{conflict}/0")),
        ("confirm", "/steps/act?state=failed&action=discard".to_owned()),
        ("queues", "/queues".to_owned()),
        ("signals", "/signals".to_owned()),
        ("locks", "/locks?free=too".to_owned()),
        ("councils", "/councils?sort=bytes".to_owned()),
        ("ledger", "/ledger?namespace=default".to_owned()),
        ("policies", "/policies?done=publish".to_owned()),
        ("policy", "/policies/standard".to_owned()),
        (
            "what-if",
            "/policies/mail?set.base=100ms&set.cap=30s&set.jitter=full&scenario=outage&clients=200"
                .to_owned(),
        ),
        ("version", format!("/policies/versions/{version}")),
        ("nodes", "/nodes".to_owned()),
        ("audit", "/audit".to_owned()),
        ("settings", "/settings".to_owned()),
        ("docs", "/docs".to_owned()),
    ]
    .into()
}

/// Returns further policies for the daemon's file.
fn policies(attempts: u32) -> String {
    let mail = "[policies.mail]\nextends = \"quick\"\nbase = \"500ms\"\ncap = \"4s\"\ndeadline = \"1h\"";
    format!(
        "{mail}\nattempts = {attempts}\n[operations]\n\"mail.digest\" = \"quick\"\n\"mail.*\" = \"mail\"\n"
    )
}

async fn graph(daemon: &Daemon, target: &Target) -> String {
    let step = |name: &str, after: &[&str], path: &str| -> Value {
        let http = json!({ "url": target.at(path), "body": { "order": 17 } });
        json!({ "name": name, "operation": format!("order.{name}"), "after": after, "http": http })
    };
    let steps = [
        step("check", &[], "/answer/200"),
        step("charge", &["check"], "/answer/200"),
        step("reserve", &["check"], "/gate"),
        step("tell the customer", &["charge"], "/answer/200"),
        step("ship", &["charge", "reserve"], "/answer/200"),
        step("bill", &["ship"], "/answer/200"),
    ];
    daemon.submit(json!({ "steps": steps })).await
}

/// Writes a ledger whose history has an entry of each kind.
async fn write_ledger(daemon: &Daemon) {
    for transaction in [
        json!({ "goal": "=> +balance(alice, 30), +balance(bob, 5)" }),
        json!({ "goal": "balance(alice, ?a), ?a >= 10 => -balance(alice, ?a), +balance(alice, ?a - 10)" }),
        json!({ "goal": "balance(carol, ?c) => -balance(carol, ?c)" }),
        json!({ "commands": [{ "put": "colour", "value": "red" }, { "increment": "visits" }] }),
    ] {
        daemon.post("/v1/ledger/transactions", transaction).await;
    }
    let key = holdoff_net::SecretKey::from_secret(&[7; 32]).public().to_string();
    let member = json!({ "key": key, "address": "two.example.org:4848", "name": "two", "votes": false });
    daemon.post("/v1/ledger/members", member).await;
}
