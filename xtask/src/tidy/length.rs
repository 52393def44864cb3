//! Checks the length of files.

use super::File;

const MOST_LINES: usize = 800;
const README_LINES: usize = 150;

pub(super) fn check(files: &[File]) -> Vec<String> {
    let too_long = |file: &&File| {
        let lines = file.text.lines().count();
        let is_readme = file.path.as_os_str() == "README.md";
        (file.has_extension("rs") && lines > MOST_LINES) || (is_readme && lines > README_LINES)
    };
    let say =
        |file: &File| format!("{} has {} lines: split it", file.path.display(), file.text.lines().count());
    files.iter().filter(too_long).map(say).collect()
}
