//! axe-core, which finds accessibility problems.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::pages::visitor::Visitor;

/// The variable with the path of axe-core. By default it is where `cargo xtask test` installs it.
const VARIABLE: &str = "AXE_CORE";

const RUN: &str = "const done = arguments[arguments.length - 1]; \
    axe.run(document, { resultTypes: ['violations'], preload: false }).then( \
    ({ violations }) => done(violations.map(({ id, impact, nodes }) => ({ id, impact, \
        where: nodes.map((node) => `${node.target.join(' ')} (${node.failureSummary.split('\\n').slice(1).join(';').trim()})`) }))), \
    (error) => done(String(error)));";

/// The source of axe-core.
pub(super) struct Axe(String);

impl Axe {
    pub(super) fn find() -> Self {
        let usual = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("../axe/node_modules/axe-core/axe.min.js");
        let path = std::env::var_os(VARIABLE).map_or_else(usual, PathBuf::from);
        let missing = format!("axe-core is missing ({}): `cargo xtask test` installs it", path.display());
        Self(std::fs::read_to_string(&path).expect(&missing))
    }

    /// Returns the violations of the current page that are serious or critical.
    pub(super) async fn violations(&self, visitor: &Visitor) -> Vec<String> {
        if visitor.script("return typeof axe", vec![]).await == "undefined" {
            visitor.script(&self.0, vec![]).await;
        }
        let found = visitor.script_to_end(RUN, vec![]).await;
        let found = found.as_array().unwrap_or_else(|| panic!("axe does not run: {found}"));
        let is_grave = |one: &&Value| one["impact"] == "serious" || one["impact"] == "critical";
        let told = |one: &Value| {
            let places = one["where"].as_array().unwrap();
            let few: Vec<&str> = places.iter().take(3).filter_map(Value::as_str).collect();
            format!("{} ({}), {} ×: {}", one["id"], one["impact"], places.len(), few.join(" | "))
        };
        found.iter().filter(is_grave).map(told).collect()
    }
}
