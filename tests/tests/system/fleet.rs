//! Several servers on one PostgreSQL, as processes that are killed.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use crate::{
    cluster::Cluster,
    documentation::as_typed,
    harness::{Folder, ReservedPort, ServerProcess, json_of, program, stderr, succeeded, words},
};

const ROWS: u64 = 1_500;

/// The program, with this database as its store.
fn on(url: &str) -> Command {
    let mut command = program();
    command.env("EIGENVEIL_STORE", url);
    command
}

fn start(url: &str, data: &Path, port: &ReservedPort) -> ServerProcess {
    let listen = format!("--listen {}", port.address());
    ServerProcess::start_as(|| on(url), data, &listen)
}

/// Three servers; devices upload to two of them, which are killed again and again, and so is the database. Every row is
/// counted once, and the third server estimates.
#[test]
fn killed_servers_and_a_killed_database_lose_nothing() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let cluster = Arc::new(cluster);
    cluster.sql("postgres", "CREATE DATABASE fleet");
    let (url, folder) = (cluster.url("fleet"), Folder::new());
    let data = ["one", "two", "three"].map(|name| folder.path().join(name));
    let early = on(&url)
        .args(["serve", "--data"])
        .arg(&data[0])
        .output()
        .unwrap();
    assert!(
        stderr(&early).contains("eigenveil store migrate"),
        "{}",
        stderr(&early)
    );
    let migrate = || {
        on(&url)
            .args(["store", "migrate", "--data"])
            .arg(&data[0])
            .output()
            .unwrap()
    };
    assert!(succeeded(&migrate()).contains("operator.token"));
    assert!(!succeeded(&migrate()).contains("operator.token"));
    let ports = [0, 1, 2].map(|_| ReservedPort::new());
    let mut servers = [0, 1, 2].map(|number| start(&url, &data[number], &ports[number]));
    let id = servers[0].create_study("--p 6 --epsilon 4");

    let mut text = String::new();
    for row in 0..ROWS {
        let numbers: Vec<String> = (0..6)
            .map(|column| ((row * 13 + column * 5) % 101).to_string())
            .collect();
        text += &(numbers.join(",") + "\n");
    }
    let upload = |number: usize, server: &ServerProcess| -> Child {
        let rows = folder.at(&format!("rows{number}.csv"));
        program()
            .args(words(&format!(
                "report --header no --json --yes --no-batch --server {} --study {id} --rows {rows}",
                server.url
            )))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    for number in 0..2 {
        folder.write(&format!("rows{number}.csv"), &text);
    }
    let mut uploads = [0, 1].map(|number| upload(number, &servers[number]));
    let counted = || -> u64 {
        let sum = "SELECT coalesce(sum(n), 0) FROM eigenveil.buckets";
        cluster.sql("fleet", sum).parse().unwrap()
    };
    for kill in 0..6_u64 {
        while counted() < kill * 300
            && uploads
                .iter_mut()
                .any(|upload| upload.try_wait().unwrap().is_none())
        {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        if kill == 3 {
            cluster.kill();
            cluster.start_again();
            continue;
        }
        let number = (kill % 2) as usize;
        servers[number].kill();
        servers[number] = start(&url, &data[number], &ports[number]);
    }
    for (number, first) in uploads.into_iter().enumerate() {
        let mut output = first.wait_with_output().unwrap();
        // An upload that gave up has kept what it owes.
        for _ in 0..20 {
            if output.status.success() {
                break;
            }
            output = upload(number, &servers[number]).wait_with_output().unwrap();
        }
        let reported = json_of(&output);
        assert_eq!(
            (&reported["acknowledged"], &reported["pending"]),
            (&ROWS.into(), &0.into()),
            "{reported}"
        );
    }
    assert_eq!(counted(), 2 * ROWS);
    let token = servers[0].token();
    let mut estimate = program();
    estimate
        .args(words(&format!(
            "estimate --json --wait --server {} --study {id} --k 2 --out {}",
            servers[2].url,
            folder.at("result")
        )))
        .env("EIGENVEIL_TOKEN", token);
    let estimated = json_of(&estimate.output().unwrap());
    assert_eq!(estimated["n"], 2 * ROWS, "{estimated}");
    assert!(servers[2].stop());
}

/// The guide's commands, as printed, but for what they depend on of the machine: where PostgreSQL and free ports are. The
/// servers leave estimates to the worker.
#[test]
fn the_guide_makes_a_fleet() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/fleet.md");
    let page = std::fs::read_to_string(page).unwrap();
    let block = page.split("```sh\n").nth(1).unwrap();
    let folder = Folder::new();
    let ports = [0, 1].map(|_| ReservedPort::new());
    let rows = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/data/digits.npy");
    std::fs::copy(rows, folder.path().join("rows.npy")).unwrap();
    let mut script = String::from("set -e\ntrap 'kill $(jobs -p)' EXIT\n");
    for line in block.split("```").next().unwrap().lines() {
        let mut line = line
            .replace("sudo -u postgres ", "")
            .replace(" --pwprompt", "")
            .replace("localhost", &cluster.host())
            .replace(":8081", &format!(":{}", ports[0].address().port()))
            .replace(":8082", &format!(":{}", ports[1].address().port()))
            .replace(" ID ", " $(cat id) ");
        if line.starts_with("eigenveil serve") {
            line = line.replace(" --listen", " --estimate-threads 0 --listen");
        }
        if line.starts_with("eigenveil study create") {
            line += " --json | grep -o '[0-9a-f]\\{32\\}' | head -1 > id";
        }
        script += &format!("{line}\n");
        if line.ends_with(" &") && line.contains("serve") {
            let port = line.rsplit([':', ' ']).nth(1).unwrap();
            script += &format!(
                "until (echo > /dev/tcp/127.0.0.1/{port}) 2> /dev/null; do sleep 0.05; done\n"
            );
        }
    }
    let path = std::env::var("PATH").unwrap();
    let path = format!(
        "{}:{}:{path}",
        folder.at("bin"),
        cluster.binaries().display()
    );
    let done = as_typed(&folder, &script)
        .env("PATH", path)
        .env("PGHOST", cluster.directory())
        .env("PGUSER", "postgres")
        .output()
        .unwrap();
    assert!(done.status.success(), "{script}\n{}", stderr(&done));
    assert_eq!(folder.read_json("result/estimate.json")["n"], 1_797);
}

/// A password on the command line is refused, and never printed.
#[test]
fn a_password_on_the_command_line_is_refused() {
    let folder = Folder::new();
    for command in ["serve", "store migrate"] {
        for (url, says) in [
            (
                "postgres://me:secret@nowhere.invalid/store",
                "EIGENVEIL_STORE",
            ),
            ("mysql://me:secret@nowhere.invalid/store", "postgres://"),
        ] {
            let mut program = program();
            program
                .args(words(command))
                .args(["--data", &folder.at("data"), "--store", url]);
            let output = program.output().unwrap();
            assert!(!output.status.success());
            let text = stderr(&output);
            assert!(text.contains(says) && !text.contains("secret"), "{text}");
        }
    }
}
