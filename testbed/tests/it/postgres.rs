//! A cluster starts, responds, recovers after a crash, and leaves no files or processes behind.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use holdoff_testbed::{Options, Postgres};

#[test]
fn data_survives_an_immediate_restart() {
    let postgres = Postgres::start();
    let url = postgres.create_database("kept");
    let database = url.rsplit('/').next().unwrap();
    postgres.psql(database, "create table notes (text text); insert into notes values ('still here')");
    postgres.restart_immediately();
    assert_eq!(postgres.psql(database, "select text from notes"), "still here");
    postgres.stop_immediately();
    let answers = |postgres: &Postgres| {
        let ready =
            Command::new(postgres.bin("pg_isready")).args(["-q", "-d", &postgres.url("postgres")]).status();
        ready.unwrap().success()
    };
    assert!(!answers(&postgres));
    postgres.restart_immediately();
    assert!(answers(&postgres));
}

#[test]
fn settings_take_effect() {
    let settings = vec![("cluster_name".to_owned(), "it's us".to_owned())];
    let postgres = Postgres::start_with(&Options { fsync: true, settings });
    let setting = |name: &str| postgres.psql("postgres", &format!("select current_setting('{name}')"));
    assert_eq!(setting("fsync"), "on");
    assert_eq!(setting("max_connections"), "200");
    assert_eq!(setting("cluster_name"), "it's us");
}

#[test]
fn the_shared_cluster_is_one_and_each_database_is_new() {
    let ask = || thread::spawn(|| (Postgres::shared().port(), Postgres::shared().create_database("mine")));
    let answers: Vec<_> =
        (0..4).map(|_| ask()).collect::<Vec<_>>().into_iter().map(|t| t.join().unwrap()).collect();
    assert!(answers.iter().all(|(port, _)| *port == answers[0].0));
    let mut urls: Vec<_> = answers.iter().map(|(_, url)| url).collect();
    urls.sort();
    urls.dedup();
    assert_eq!(urls.len(), 4);
}

/// Not a test by itself: the process that the next test kills.
#[test]
#[ignore = "waits until it is killed"]
fn process_to_kill() {
    let postgres = Postgres::start();
    println!("directory={}", postgres.psql("postgres", "show data_directory"));
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn the_cluster_ends_with_a_killed_process() {
    let (_, module) = module_path!().split_once("::").unwrap();
    let name = format!("{module}::process_to_kill");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", &name, "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let directory = lines.find_map(|line| line.split_once("directory=").map(|(_, path)| path.to_owned()));
    let data = PathBuf::from(directory.expect("the child prints its data directory"));
    let process: String = data_process(&data).expect("a running server has a postmaster.pid");
    child.kill().unwrap();
    child.wait().unwrap();
    let is_gone = || !data.parent().unwrap().exists() && !PathBuf::from(format!("/proc/{process}")).exists();
    assert!((0..300).any(|_| is_gone() || nap()), "{} was not removed", data.display());
}

fn data_process(data: &Path) -> Option<String> {
    std::fs::read_to_string(data.join("postmaster.pid")).ok()?.lines().next().map(str::to_owned)
}

#[expect(clippy::disallowed_methods, reason = "waits for another process, which has no way to tell")]
fn nap() -> bool {
    thread::sleep(Duration::from_millis(100));
    false
}
