use rusqlite::Connection;

use super::{FileSchema, with_suffix};

const SCHEMA: FileSchema = FileSchema {
    name: "file",
    application_id: 1,
    tables: &["CREATE TABLE thing (number INTEGER PRIMARY KEY) STRICT;"],
    fill: |_| Ok(()),
    upgrades: &[],
    consistency_check_sql: "1",
};

/// A forked child has the parent's value, connection and lock: it must write nothing, and leave the log alone.
#[test]
fn a_forked_child_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let mut file = SCHEMA.open_or_create(&path).unwrap();
    file.write(|file| Ok(file.execute("INSERT INTO thing VALUES (1)", [])?))
        .unwrap();
    file.lock.as_in_a_fork();
    let error = file.write(|file| Ok(file.execute("INSERT INTO thing VALUES (2)", [])?));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("fork"), "{error}");
    drop(file);
    assert!(with_suffix(&path, "-wal").exists());
    let things = Connection::open_with_flags(
        super::immutable_uri(&path),
        rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_URI,
    )
    .unwrap()
    .query_row("SELECT count(*) FROM thing", [], |row| row.get(0));
    assert_eq!(things, Ok(1));
}
