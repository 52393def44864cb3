//! A store opens with the content and incarnation of its creation, or not at all.

use redb::ReadableTable;

use super::*;
use crate::forgetful::Disk;

const NUMBERS: Numbers = TableDefinition::new("numbers");
const ROWS: TableDefinition<'static, u64, u64> = TableDefinition::new("rows");

fn form(formats: RangeInclusive<u64>) -> Form {
    let make_tables = |writing: &WriteTransaction| writing.open_table(ROWS).map(drop);
    Form { numbers: NUMBERS, formats, cache_bytes: 1 << 20, make_tables }
}

fn rows(opened: &Opened) -> usize {
    opened.database.begin_read().unwrap().open_table(ROWS).unwrap().iter().unwrap().count()
}

#[test]
fn a_file_has_one_life_and_one_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let first = form(1..=1).open(&path).unwrap();
    assert_eq!(rows(&first), 0, "its tables are there from the beginning");
    assert_eq!(form(1..=1).open(&path).unwrap_err(), OpenError::InUse);
    let life = first.life;
    drop(first);
    assert_eq!(form(1..=1).open(&path).unwrap().life, life);
    let another = form(1..=1).open(&directory.path().join("another.redb")).unwrap();
    assert_ne!(another.life, life);
}

#[test]
fn a_file_of_something_else_is_not_opened_nor_changed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.redb");
    let text = b"dear diary".repeat(1000);
    std::fs::write(&path, &text).unwrap();
    assert!(matches!(form(1..=1).open(&path), Err(OpenError::Disk(_))));
    assert_eq!(std::fs::read(&path).unwrap(), text);
}

#[test]
fn where_no_file_can_be_it_is_said_which() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nowhere/store.redb");
    let why = form(1..=1).open(&path).unwrap_err().to_string();
    assert!(why.starts_with(&path.display().to_string()), "{why}");
}

#[test]
fn earlier_formats_are_read_and_others_left_alone() {
    let disk = Disk::default();
    drop(form(2..=2).open_on(disk.handle(), 7).unwrap());
    for (formats, found) in
        [(1..=1, Err(OpenError::Format(2))), (1..=3, Ok(7)), (3..=4, Err(OpenError::Format(2)))]
    {
        assert_eq!(form(formats).open_on(disk.handle(), 8).map(|opened| opened.life), found);
    }
    assert_eq!(form(2..=2).open_on(disk.handle(), 9).unwrap().life, 7);
}

#[test]
fn numbers_that_are_missing_are_not_made_up() {
    let disk = Disk::default();
    let opened = form(1..=1).open_on(disk.handle(), 1).unwrap();
    let writing = opened.database.begin_write().unwrap();
    writing.open_table(NUMBERS).unwrap().remove(LIFE).unwrap();
    writing.commit().unwrap();
    drop(opened);
    let why = form(1..=1).open_on(disk.handle(), 2).unwrap_err();
    assert_eq!(why, OpenError::Disk("it has no life".to_owned()));
}

#[test]
fn cut_at_any_step_of_its_making_it_is_opened_as_a_whole() {
    let mut cuts = 0;
    for steps in 1.. {
        // None, all and some of the unsynced writes survive.
        for roll in 0..8 {
            let disk = Disk::default();
            disk.lose_power_after(steps);
            if form(1..=1).open_on(disk.handle(), 1).is_ok() {
                assert!(cuts > 10, "{cuts}");
                return;
            }
            let mut rolls = roll..;
            disk.crash(|| rolls.next().unwrap_or(0));
            let again = form(1..=1).open_on(disk.handle(), 2).unwrap();
            assert!((1..=2).contains(&again.life) && rows(&again) == 0, "cut after {steps}, roll {roll}");
            cuts += 1;
        }
    }
}
