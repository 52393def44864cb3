//! Pictures of the pages: all of them for whoever works on them, a few for whoever reads about them.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::visitor::Visitor;

/// Set to 1, it has the pictures of the documents taken anew.
const VARIABLE: &str = "HOLDOFF_PICTURES";
/// The most bytes of a picture in the documents.
const LARGEST: usize = 120_000;
/// The most of a page, in points from its top.
const TALLEST: f64 = 2400.0;

/// Takes a picture of the page as it is shown now, from its top.
pub(super) async fn take(visitor: &Visitor, name: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../pictures");
    let picture = capture(visitor, TALLEST).await;
    assert!(picture.len() > 4_000, "{name}: a blank picture");
    write(&folder, name, &picture);
}

/// Those that stand in the documents, if they are wanted.
pub(super) async fn for_the_readme(visitor: &Visitor, scheme: &str, pages: &[(&str, String)]) {
    if std::env::var(VARIABLE).as_deref() != Ok("1") {
        return;
    }
    let wanted: &[(&str, &str, f64)] = match scheme {
        "light" => &[("overview", "", 800.0), ("step", "", 640.0), ("what-if", "", 900.0)],
        _ => &[("overview", "-dark", 800.0)],
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/img");
    for (name, more, height) in wanted {
        let (_, page) = pages.iter().find(|(known, _)| known == name).expect(name);
        visitor.look_by(scheme, 1200).await;
        visitor.open(page).await;
        let picture = capture(visitor, *height).await;
        assert!(picture.len() <= LARGEST, "{name}: {} bytes are too many for a document", picture.len());
        write(&folder, &format!("{name}{more}"), &picture);
    }
}

async fn capture(visitor: &Visitor, tallest: f64) -> Vec<u8> {
    let size = "return [document.documentElement.clientWidth, document.documentElement.scrollHeight]";
    let size = visitor.script(size, vec![]).await;
    let height = size[1].as_f64().unwrap().min(tallest);
    let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": height, "scale": 1 });
    let wish = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
    let picture = visitor.cdp("Page.captureScreenshot", wish).await;
    STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
}

fn write(folder: &Path, name: &str, picture: &[u8]) {
    std::fs::create_dir_all(folder).unwrap();
    let path: PathBuf = folder.join(format!("{name}.png"));
    std::fs::write(path, picture).unwrap();
}
