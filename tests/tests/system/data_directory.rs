//! Data directories as people set them up: a database on another disk, folders that others can read.

use std::{fs, os::unix::fs::symlink};

use crate::harness::{Folder, ServerProcess, succeeded};

/// `eigenveil.db` is a link to a file on another disk: its write-ahead log is beside that file.
#[test]
fn a_linked_database_survives_a_kill() {
    let folder = Folder::new();
    let (data, disk) = (folder.path().join("data"), folder.path().join("disk"));
    let mut server = ServerProcess::start(&data);
    let id = server.create_study("--p 4 --epsilon 4");
    assert!(server.stop());
    // Moved as people move it; the link is relative, and there are two of them.
    fs::create_dir(&disk).unwrap();
    fs::rename(data.join("eigenveil.db"), disk.join("large.db")).unwrap();
    symlink("large.db", disk.join("current.db")).unwrap();
    symlink("../disk/current.db", data.join("eigenveil.db")).unwrap();

    let rows = folder.write("rows.csv", "0.1,0.2,0.3,0.4\n0.5,0.1,0.2,0.1\n");
    let mut server = ServerProcess::start(&data);
    server.report(&id, &rows);
    server.kill();
    assert!(disk.join("large.db-wal").exists());
    let mut server = ServerProcess::start(&data);
    assert_eq!(server.accepted(&id), 2);
    succeeded(&server.cli(&format!("backup --out {}", folder.at("backup.db"))));
    assert!(server.stop());
    // A log that is really missing is still noticed, by its own name.
    let mut server = ServerProcess::start(&data);
    server.kill();
    fs::remove_file(disk.join("large.db-wal")).unwrap();
    let refused = crate::harness::run(&format!(
        "serve --listen 127.0.0.1:0 --data {}",
        data.display()
    ));
    crate::harness::refused(&refused, 1, &["large.db-wal is missing"]);
}
