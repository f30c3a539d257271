//! Data directories as people set them up: a database on another disk, folders that others can read.

use std::{
    fs::{self, Permissions},
    io::{BufRead as _, BufReader, Read as _},
    os::unix::fs::{PermissionsExt as _, symlink},
    process::Stdio,
};

use crate::harness::{Folder, ServerProcess, json_of, program, refused, run, says, succeeded};

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
    let again = run(&format!(
        "serve --listen 127.0.0.1:0 --data {}",
        data.display()
    ));
    refused(&again, 1, &["large.db-wal is missing"]);
}

/// Files readable by others are warned about at start and by `--check-config`, with the chmod that fixes it.
#[test]
fn a_readable_directory_token_or_database_is_a_warning() {
    let folder = Folder::new();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let warnings = || {
        let line = format!(
            "serve --check-config --listen 127.0.0.1:0 --data {}",
            data.display()
        );
        json_of(&run(&format!("{line} --json")))["warnings"].to_string()
    };
    let logged = || {
        let mut server = ServerProcess::start_logged("warn", &data, "--listen 127.0.0.1:0", &log);
        assert!(server.stop());
        folder.read("log")
    };
    assert_eq!((logged().as_str(), warnings().as_str()), ("", "[]"));
    let mut said = Vec::new();
    for (name, mode, wanted) in [
        ("", 0o755, "700"),
        ("", 0o710, "700"),
        ("operator.token", 0o640, "600"),
        ("operator.token", 0o604, "600"),
        ("eigenveil.db", 0o644, "600"),
    ] {
        let path = data.join(name);
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let path_text = path.to_str().unwrap().trim_end_matches('/');
        said.push(format!("(mode {mode:o})"));
        said.push(format!("chmod {wanted} {path_text}"));
        says(&warnings(), &said[said.len() - 2..]);
    }
    // Drop the modes that later ones replaced.
    said.retain(|word| !["(mode 755)", "(mode 640)"].contains(&word.as_str()));
    says(&logged(), &said);
}

/// A start without the file of the operator token, or with that of another server, as after a restore, says so.
#[test]
fn a_start_says_where_the_operator_token_is_missing_or_wrong() {
    let folder = Folder::new();
    let mut server = folder.server();
    assert!(server.stop());
    // The two lines that it prints, and what it warns of.
    let start = || {
        let mut serve = program();
        serve.args(["serve", "--listen", "127.0.0.1:0", "--data"]);
        serve.arg(&server.data).stdout(Stdio::piped());
        let mut serve = serve.stderr(Stdio::piped()).spawn().unwrap();
        let printed = BufReader::new(serve.stdout.take().unwrap()).lines().take(2);
        let printed: Vec<String> = printed.map(Result::unwrap).collect();
        serve.kill().unwrap();
        let mut warned = String::new();
        let mut stderr = serve.stderr.take().unwrap();
        stderr.read_to_string(&mut warned).unwrap();
        serve.wait().unwrap();
        (printed.join("\n"), warned)
    };
    let (right, path) = (server.token(), server.token_file());
    let path_text = path.to_str().unwrap();
    let (printed, warned) = start();
    says(&printed, &[format!("operator token: {path_text}")]);
    assert_eq!(warned, "");
    fs::write(&path, right.replace(['0', '1'], "2")).unwrap();
    says(&start().1, &[path_text, "does not have the operator token"]);
    fs::remove_file(&path).unwrap();
    let data = server.data.display();
    says(
        &start().0,
        &[
            format!("operator token: not in {data}"),
            format!("eigenveil token rotate --data {data}"),
        ],
    );
}
