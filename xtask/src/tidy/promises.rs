//! Checks that the tables of the documents name tests that exist.

use std::collections::HashSet;

use super::File;

pub(super) fn check(files: &[File]) -> Vec<String> {
    let rust: Vec<&File> = files.iter().filter(|file| file.has_extension("rs")).collect();
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    // A macro may make the test: a name counts wherever the code mentions it.
    let words: HashSet<&str> =
        rust.iter().flat_map(|file| file.text.split(|letter| !is_word(letter))).collect();
    let exists = |name: &str| match name.strip_suffix(".rs") {
        Some(_) => rust.iter().any(|file| file.path.ends_with(name)),
        None => name.rsplit("::").next().is_some_and(|function| words.contains(function)),
    };
    let pages = files.iter().filter(|file| file.has_extension("md"));
    pages
        .flat_map(|page| {
            cells(&page.text).into_iter().flat_map(move |(line, cell)| {
                let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
                names.into_iter().map(move |name| (page, line, name))
            })
        })
        .filter(|(.., name)| !exists(name))
        .map(|(page, line, name)| {
            format!("{}:{line}: the column `test` names {name}, which does not exist", page.path.display())
        })
        .collect()
}

/// Returns the cells below the heading `test`, which is the last one of its table, with the numbers of their lines.
fn cells(text: &str) -> Vec<(usize, &str)> {
    let mut is_in_table = None;
    let mut cells = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let last = line.strip_suffix('|').and_then(|line| line.rsplit('|').next()).map(str::trim);
        match (is_in_table, last) {
            (_, None) => is_in_table = None,
            (None, Some(heading)) => is_in_table = Some(heading == "test"),
            (Some(true), Some(cell)) => cells.push((index + 1, cell)),
            (Some(false), Some(_)) => {}
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_names_a_test_that_does_not_exist_is_found() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.to_owned() };
        let page = "| promise | test |\n|---|---|\n| one | `tests::it_holds`, `it/chaos.rs` |\n| two | `it_is_gone` |\n\n`no_test`\n";
        let files = [
            file("docs/a.md", page),
            file("crates/a/src/b.rs", "fn it_holds() {}"),
            file("crates/a/tests/it/chaos.rs", ""),
        ];
        assert_eq!(check(&files), ["docs/a.md:4: the column `test` names it_is_gone, which does not exist"]);
    }
}
