//! Output files of commands: links are followed, pipes and permissions are kept, inputs are not overwritten.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink},
    process::{Command, Stdio},
};

use crate::harness::{
    Folder, mode_of, program, refused, run, send_signal, stderr, succeeded, words,
};

#[test]
fn outputs_follow_links_keep_modes_and_spare_inputs() {
    let folder = Folder::new();
    let lines: String = (0..40)
        .map(|i| format!("{},{},1\n", i % 7, i % 3))
        .collect();
    let rows = folder.write("rows.csv", &lines);
    let central =
        format!("central analyze-gauss --k 1 --epsilon 1 --rows {rows} --header no --out");
    // An input is not written over, whatever it is called.
    symlink("rows.csv", folder.at("alias")).unwrap();
    for out in [rows.clone(), folder.at("alias")] {
        refused(
            &run(&format!("{central} {out}")),
            2,
            &["input of this command"],
        );
    }
    assert_eq!(folder.read("rows.csv"), lines);
    // A directory is refused, and leaves nothing.
    refused(
        &run(&format!("{central} {}", folder.at("."))),
        2,
        &["directory"],
    );
    // A link is followed, and its target keeps its mode.
    let target = folder.write("target.csv", "old");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    symlink("target.csv", folder.at("link.csv")).unwrap();
    succeeded(&run(&format!("{central} {}", folder.at("link.csv"))));
    assert!(folder.read("target.csv").len() > 20);
    assert_eq!(mode_of(&target), 0o600);
    assert!(
        fs::symlink_metadata(folder.at("link.csv"))
            .unwrap()
            .is_symlink()
    );
    // A pipe stays one; its reader gets it all.
    let pipe = folder.at("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || fs::read_to_string(pipe).unwrap())
    };
    succeeded(&run(&format!("{central} {pipe}")));
    assert_eq!(reader.join().unwrap().lines().count(), 4);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    // So does standard output, whose text is not a path.
    assert!(succeeded(&run(&format!("{central} /dev/stdout"))).contains("feature,component1"));
    // A device is written to.
    succeeded(&run(&format!("{central} /dev/null")));
    assert!(
        fs::metadata("/dev/null")
            .unwrap()
            .file_type()
            .is_char_device()
    );
    // No partial file is left.
    assert_eq!(
        folder.names(""),
        ["alias", "link.csv", "pipe", "rows.csv", "target.csv"]
    );
}

#[test]
fn reports_from_a_pipe_need_a_ledger_of_their_own() {
    let folder = Folder::new();
    let server = folder.server();
    let study = server.create_study("--p 2 --epsilon 1");
    let rows = folder.write("rows.csv", "1,2\n\n3,4\n");
    let report =
        format!("report --json --study {study} --format csv --header no --rows /dev/stdin");
    let piped = |flags: &str| {
        let mut command = server.command(&format!("{report} {flags}"));
        command.stdin(fs::File::open(&rows).unwrap());
        command.output().unwrap()
    };
    let ledger = folder.at("ledger");
    refused(&piped(""), 2, &["--ledger", "/dev/stdin"]);
    // Nor may a link to it lie beside the ledger, whatever it is called.
    symlink("/dev/stdin", folder.at("first.csv")).unwrap();
    symlink("first.csv", folder.at("link.csv")).unwrap();
    let mut linked = server.command(&format!(
        "report --study {study} --header no --rows {}",
        folder.at("link.csv")
    ));
    linked.stdin(fs::File::open(&rows).unwrap());
    refused(&linked.output().unwrap(), 2, &["--ledger", "link.csv"]);
    assert!(
        !folder
            .names("")
            .iter()
            .any(|name| name.contains("ledger") || name.contains("eigenveil"))
    );
    // One line is one participant, also a blank one.
    let flags = format!("--ledger {ledger}");
    let sent: serde_json::Value = serde_json::from_str(&succeeded(&piped(&flags))).unwrap();
    assert_eq!(sent["accepted"], 3);
    assert_eq!(mode_of(&ledger), 0o600);
}

/// A signal in the middle of a download leaves no part of the file.
#[test]
fn a_signal_leaves_no_partial_file() {
    for signal in ["-INT", "-TERM", "-KILL"] {
        let folder = Folder::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let mut backup = program();
        backup
            .args(words(&format!(
                "backup --server {server} --out {}",
                folder.at("b.db")
            )))
            .env("EIGENVEIL_TOKEN", "x")
            .stderr(Stdio::null());
        let mut child = backup.spawn().unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/vnd.sqlite3\r\ncontent-length: 900000\r\n\r\nSQL")
            .unwrap();
        send_signal(child.id(), signal);
        assert!(!child.wait().unwrap().success());
        assert_eq!(folder.names(""), [""; 0], "{signal}");
    }
}

/// Nor does it leave the store of a demo.
#[test]
fn a_signal_leaves_no_store_of_a_demo() {
    for signal in ["-INT", "-TERM"] {
        let folder = Folder::new();
        let temporary = folder.path().join("tmp");
        fs::create_dir(&temporary).unwrap();
        let mut demo = program();
        demo.args(words(&format!(
            "demo --n 10000000 --out {}",
            folder.at("out")
        )))
        .env("TMPDIR", &temporary)
        .stderr(Stdio::null());
        let mut child = demo.spawn().unwrap();
        let left = || fs::read_dir(&temporary).unwrap().count();
        while left() == 0 {
            assert!(child.try_wait().unwrap().is_none());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        send_signal(child.id(), signal);
        assert!(!child.wait().unwrap().success());
        assert_eq!(left(), 0, "{signal}");
        assert!(!folder.path().join("out").exists());
    }
}

/// Two outputs of one command under one name, however it is written.
#[test]
fn two_outputs_have_two_names() {
    let folder = Folder::new();
    let there = folder.write("there", "old");
    symlink("there", folder.at("link")).unwrap();
    symlink("new", folder.at("dangling")).unwrap();
    for (out, plot) in [
        ("there", "there"),
        ("there", "link"),
        ("new", "./new"),
        ("dangling", "new"),
    ] {
        let (out, plot) = (folder.at(out), folder.at(plot));
        let line = format!("project --estimate no.json --rows no.csv --out {out} --plot {plot}");
        refused(
            &run(&line),
            2,
            &["--out and --plot are the same file", &out],
        );
    }
    // Two names, or a device that takes both: then the missing estimate is what is wrong.
    for (out, plot) in [
        (there, folder.at("new")),
        ("/dev/null".into(), "/dev/null".into()),
    ] {
        let line = format!("project --estimate no.json --rows no.csv --out {out} --plot {plot}");
        refused(&run(&line), 2, &["no.json"]);
    }
    assert_eq!(folder.read("there"), "old");
}

/// A result that cannot be written is refused before anything is computed or written.
#[test]
fn a_refused_result_leaves_nothing() {
    let folder = Folder::new();
    let server = folder.server();
    let study = server.create_study("--p 2 --epsilon 8");
    let rows: String = (0..200).map(|i| format!("{},1\n", i % 7)).collect();
    server.report(&study, &folder.write("rows.csv", rows));
    let results = folder.at("results");
    let estimate = || {
        server.cli(&format!(
            "estimate --study {study} --k 1 --wait --out {results}"
        ))
    };
    let demo = || run(&format!("demo --n 200 --k 2 --out {results}"));
    // A file where the directory should be; a directory where a file should be.
    fs::write(&results, "mine").unwrap();
    refused(&estimate(), 2, &[&results, "not a directory"]);
    refused(&demo(), 2, &[&results, "not a directory"]);
    assert_eq!(folder.read("results"), "mine");
    fs::remove_file(&results).unwrap();
    for name in [
        "estimate.json",
        "summary.csv",
        "scree.svg",
        ".eigenveil-files",
    ] {
        fs::create_dir_all(format!("{results}/{name}")).unwrap();
        refused(&estimate(), 2, &[name, "directory"]);
        refused(&demo(), 2, &[name, "directory"]);
        assert_eq!(fs::read_dir(&results).unwrap().count(), 1, "{name}");
        fs::remove_dir_all(&results).unwrap();
    }
    // Nor is anybody's own file written over.
    fs::create_dir(&results).unwrap();
    folder.write("results/features.txt", "mine");
    refused(&estimate(), 2, &["features.txt", "another --out"]);
    refused(&demo(), 2, &["features.txt", "another --out"]);
    assert_eq!(folder.names("results"), ["features.txt"]);
    assert_eq!(folder.read("results/features.txt"), "mine");
    fs::remove_dir_all(&results).unwrap();
    // Nor is a directory made for what was refused for another reason.
    let small = server.create_study("--p 2 --epsilon 8");
    let none = server.cli(&format!(
        "estimate --study {small} --k 1 --wait --out {results}"
    ));
    assert_eq!(none.status.code(), Some(1));
    assert!(!fs::exists(&results).unwrap());
}

/// Nor is somebody's own figure noticed only when all is computed; only one that the run may write is in its way.
#[test]
fn a_foreign_figure_is_refused_before_the_work() {
    let folder = Folder::new();
    let server = folder.server();
    let study = server.create_study("--p 2 --epsilon 8");
    let results = folder.at("results");
    // What is not refused at once fails otherwise: the study has no reports, the demo no place for its store.
    let estimate = |more: &str| {
        server.cli(&format!(
            "estimate --study {study} --k 1 --wait --out {results} {more}"
        ))
    };
    let demo = |more: &str| {
        let mut demo = program();
        demo.args(words(&format!("demo --n 200 --out {results} {more}")))
            .env("TMPDIR", folder.at("none"));
        demo.output().unwrap()
    };
    let path = "--sparse --lambda path";
    for (name, writes, others) in [
        ("scree.svg", "", None),
        ("alignment.svg", "", None),
        ("loadings.svg", "--sparse", Some("")),
        ("lambda_path.csv", path, Some("--sparse")),
        ("lambda_path.svg", path, Some("--sparse")),
        ("lambda_rows.svg", path, Some("--sparse")),
    ] {
        fs::create_dir(&results).unwrap();
        folder.write(&format!("results/{name}"), "mine");
        for output in [estimate(writes), demo(writes)] {
            refused(&output, 2, &[name, "no earlier run wrote it"]);
        }
        if let Some(others) = others {
            assert!(!stderr(&estimate(others)).contains(name), "{name}");
            refused(&demo(others), 1, &["throw-away store"]);
        }
        assert_eq!(folder.names("results"), [name]);
        fs::remove_dir_all(&results).unwrap();
    }
    fs::create_dir(&results).unwrap();
    folder.write("results/biplot.svg", "mine");
    refused(
        &demo("--k 2"),
        2,
        &["biplot.svg", "no earlier run wrote it"],
    );
    refused(&demo("--k 1"), 1, &["throw-away store"]);
    assert!(!stderr(&estimate("")).contains("biplot.svg"));
}
