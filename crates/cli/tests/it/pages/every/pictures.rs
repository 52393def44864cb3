//! Screenshots of the pages: all of them for developers, and a few for the documentation.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::demo::Demo;
use crate::pages::visitor::Visitor;

/// The variable that, set to 1, makes the test retake the screenshots of the documentation.
const VARIABLE: &str = "TAKE_PICTURES";
/// The maximum size in bytes of a screenshot in the documentation.
const LARGEST: usize = 120_000;
/// The maximum height of a screenshot, in points from the top of the page.
const TALLEST: f64 = 2400.0;

/// Takes a screenshot of the current page from its top.
pub(super) async fn take(visitor: &Visitor, name: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../pictures");
    let picture = capture(visitor, "body", TALLEST).await;
    assert!(picture.len() > 4_000, "{name}: a blank picture");
    write(&folder, name, &picture);
}

/// Retakes the documentation's screenshots of the demo, if requested.
#[tokio::test]
async fn those_of_the_documents_are_taken_anew() {
    if std::env::var(VARIABLE).as_deref() != Ok("1") {
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
    let wish = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
    let picture = visitor.cdp("Page.captureScreenshot", wish).await;
    STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
}

fn write(folder: &Path, name: &str, picture: &[u8]) {
    std::fs::create_dir_all(folder).unwrap();
    let path: PathBuf = folder.join(format!("{name}.png"));
    std::fs::write(path, picture).unwrap();
}
