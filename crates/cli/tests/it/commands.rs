//! The command's output, compared word by word. `TRYCMD=overwrite cargo test -p holdoff-cli` updates it.

#[test]
fn the_output_of_commands_matches_the_golden_files() {
    trycmd::TestCases::new()
        .env("NO_COLOR", "1")
        .case("tests/cmd/*.trycmd")
        .case("tests/cmd/mistakes/*.trycmd");
}

/// The README's commands, as a new user types them after the installation of `holdoff`.
#[test]
fn the_output_of_commands_matches_the_readme() {
    trycmd::TestCases::new()
        .env("NO_COLOR", "1")
        .register_bin("cargo", trycmd::schema::Bin::Ignore)
        .case("../../README.md");
}

/// The README's first command runs through cargo. Its output must equal the README's.
#[test]
fn the_output_of_the_first_command_matches_the_readme() {
    let readme = std::fs::read_to_string("../../README.md").expect("the README is readable");
    let (_, after) = readme.split_once("$ cargo run --release -- ").expect("the first command");
    let (arguments, shown) = after.split_once('\n').expect("the output of the first command");
    let shown = shown.split("```").next().unwrap_or_default();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_holdoff"))
        .args(arguments.split_whitespace())
        .env("NO_COLOR", "1")
        .output()
        .expect("the command runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), shown.trim_end());
}

/// The committed schema equals the output of the command.
#[test]
fn the_committed_schema_is_up_to_date() {
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_holdoff")).args(["config", "schema"]).output();
    let printed = String::from_utf8_lossy(&output.expect("the command runs").stdout).into_owned();
    let committed = std::fs::read_to_string("../../docs/holdoff.schema.json").unwrap_or_default();
    assert!(committed == printed, "docs/holdoff.schema.json is out of date: run `cargo xtask schema`");
}
