//! Output files of commands: links are followed, pipes and permissions kept, inputs and results not overwritten.

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink},
    process::{Command, Stdio},
};

use crate::harness::{Folder, mode_of, program, refused, run, send_signal, succeeded, words};

#[test]
fn outputs_follow_links_keep_modes_and_spare_inputs() {
    let folder = Folder::new();
    let lines: String = (0..40)
        .map(|i| format!("{},{},1\n", i % 7, i % 3))
        .collect();
    let rows = folder.write("rows.csv", &lines);
    let central =
        format!("central analyze-gauss --k 1 --epsilon 1 --rows {rows} --header no --out");
    let to = |name: &str| run(&format!("{central} {}", folder.at(name)));
    // An input is not written over, whatever it is called.
    fs::hard_link(&rows, folder.at("other")).unwrap();
    refused(&to("other"), 2, &["input of this command"]);
    assert_eq!(folder.read("rows.csv"), lines);
    refused(&to("."), 2, &["directory"]);
    refused(&to("none/out.csv"), 2, &["none is not a directory"]);
    // A link is followed, also to nothing; a file keeps its mode, and a new one has that of others.
    let old = folder.write("old.csv", "old");
    fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
    for (name, mode) in [("old.csv", 0o640), ("new.csv", mode_of(&rows))] {
        let link = folder.at(&format!("to-{name}"));
        symlink(name, &link).unwrap();
        succeeded(&to(&format!("to-{name}")));
        assert!(folder.read(name).starts_with("feature,component1"));
        assert_eq!(mode_of(folder.at(name)), mode);
        assert!(fs::symlink_metadata(link).unwrap().is_symlink());
    }
    // A pipe stays one; its reader gets it all.
    let pipe = folder.at("pipe");
    let status = Command::new("mkfifo").arg(&pipe).status();
    assert!(status.unwrap().success());
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || fs::read_to_string(pipe).unwrap())
    };
    succeeded(&to("pipe"));
    assert_eq!(reader.join().unwrap().lines().count(), 4);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    // Standard output has it before the text, also where that goes to a file.
    let mut printing = program();
    printing
        .args(words(&format!("{central} /dev/stdout")))
        .stdout(fs::File::create(folder.at("printed")).unwrap());
    assert!(printing.status().unwrap().success());
    let printed = folder.read("printed");
    assert!(printed.starts_with("feature,component1") && printed.contains("n = 40"));
    // No partial file is left.
    let mut left = folder.names("");
    left.retain(|name| name.starts_with('.'));
    assert_eq!(left, [""; 0]);
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

/// Only a folder that has a name that the command itself may write; and what is there stays while the work can fail.
#[test]
fn a_folder_with_a_result_is_refused_before_the_work() {
    let folder = Folder::new();
    let server = folder.server();
    let study = server.create_study("--p 2 --epsilon 8");
    let out = folder.at("out");
    // What is not refused at once fails otherwise: the study has no reports, the demo no place for its store, the
    // exhibit no data.
    for (line, name, fails) in [
        (
            "estimate --study ID --wait",
            "lambda_rows.svg",
            "[estimate-failed]",
        ),
        ("moment --study ID", "mean.csv", "[estimate-failed]"),
        ("demo --n 200", "biplot.svg", "throw-away store"),
        ("reproduce wang-xu-table-1", "wang-xu-table-1.svg", "1 of 1"),
    ] {
        println!("{line}");
        let line = line.replace("ID", &study);
        let estimate_into = |more: &str| {
            let mut command = server.command(&format!("{line} --out {out} {more}"));
            command.env("TMPDIR", folder.at("none"));
            command.output().unwrap()
        };
        fs::write(&out, "mine").unwrap();
        refused(&estimate_into("--overwrite"), 2, &[&out, "not a directory"]);
        fs::remove_file(&out).unwrap();
        fs::create_dir(&out).unwrap();
        folder.write("out/notes.txt", "mine");
        refused(&estimate_into(""), 1, &[fails]);
        let old = folder.write(&format!("out/{name}"), "old");
        refused(
            &estimate_into(""),
            2,
            &[name, "another --out", "--overwrite"],
        );
        refused(&estimate_into("--overwrite"), 1, &[fails]);
        assert_eq!(fs::read_to_string(&old).unwrap(), "old");
        fs::remove_dir_all(&out).unwrap();
    }
    // A second demo replaces the first in the folder that is the demo's own.
    fs::create_dir(folder.at("eigenveil-demo")).unwrap();
    folder.write("eigenveil-demo/index.html", "old");
    let mut demo = program();
    demo.args(["demo", "--n", "200"]).current_dir(folder.path());
    demo.env("TMPDIR", folder.at("none"));
    refused(&demo.output().unwrap(), 1, &["throw-away store"]);
}
