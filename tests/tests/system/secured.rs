//! HTTPS, the configuration file and the check of it, with the real program.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    certificates::Authority,
    patience::PATIENCE,
    program::{ServerProcess, one_json_line, program, refused, run},
};

/// A directory with a configuration file, a certificate for 127.0.0.1 and its authority's.
struct Site {
    folder: TempDir,
    authority: Authority,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("an organisation");
        let site = Self { folder, authority };
        site.issue(&site.authority);
        site.configure("");
        site
    }

    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn issue(&self, authority: &Authority) {
        let issued = authority.issue("127.0.0.1");
        issued.write(self.folder.path());
        fs::write(self.at("ca.pem"), &authority.root_pem).unwrap();
        set_mode(self.at("key.pem"), 0o600);
    }

    /// Writes the configuration with these lines in it.
    fn configure(&self, lines: &str) {
        let text = format!(
            "listen = \"127.0.0.1:0\"\ndata_dir = {:?}\ntls_cert = {:?}\ntls_key = {:?}\ntls_reload_seconds = 0\n{lines}",
            self.data(),
            self.at("cert.pem"),
            self.at("key.pem")
        );
        fs::write(self.at("eigenveil.toml"), text).unwrap();
    }

    fn check(&self, flags: &[&str]) -> std::process::Output {
        let config = self.at("eigenveil.toml");
        let mut arguments = vec!["serve", "--config", &config, "--check-config"];
        arguments.extend(flags);
        run(&arguments)
    }
}

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_whole_path_over_https_with_a_renewed_certificate() {
    let site = Site::new();
    let (config, log) = (site.at("eigenveil.toml"), site.folder.path().join("log"));
    let mut server =
        ServerProcess::start_logged(program, &site.data(), &["--config", &config], &log);
    assert!(
        server.url.starts_with("https://127.0.0.1:"),
        "{}",
        server.url
    );
    let ca = site.at("ca.pem");
    let study = server.create_study(&["--ca-cert", &ca, "--p", "2", "--epsilon", "4"]);
    let rows = site.at("rows.csv");
    fs::write(&rows, "1,2\n2,1\n1,1\n").unwrap();
    let report = [
        "report",
        "--header",
        "no",
        "--json",
        "--study",
        &study,
        "--rows",
        &rows,
        "--ca-cert",
        &ca,
    ];
    assert_eq!(server.cli_json(&report)["accepted"], 3);

    // Without the authority nobody talks to it, and http:// gets nothing either.
    let list = ["study", "list", "--json"];
    refused(&server.cli(&list), 1, &["is not trusted", "--ca-cert"]);
    let plain = format!("http://{}", server.listen().trim_start_matches("https://"));
    let answer = program()
        .args(["study", "list", "--server", &plain])
        .env("EIGENVEIL_TOKEN", "x")
        .output();
    refused(&answer.unwrap(), 1, &["400"]);

    // A pair that does not fit is told of and not used; the right one is.
    let next = Authority::new("another organisation");
    fs::write(site.at("cert.pem"), next.issue("127.0.0.1").certificate).unwrap();
    server.signal("-HUP");
    wait_until("the log says so", || {
        fs::read_to_string(&log)
            .unwrap()
            .contains("is not that of the certificate")
    });
    let trusted = |ca: &str| {
        server
            .cli(&["study", "list", "--json", "--ca-cert", ca])
            .status
            .success()
    };
    assert!(trusted(&ca));
    let old_ca = site.at("old-ca.pem");
    fs::rename(&ca, &old_ca).unwrap();
    site.issue(&next);
    server.signal("-HUP");
    wait_until("the new certificate is used", || trusted(&ca));
    assert!(!trusted(&old_ca));
    assert!(server.stop());
}

#[test]
fn without_a_certificate_a_hangup_is_noted_and_the_server_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let talkative = || {
        let mut program = program();
        program.env("RUST_LOG", "info");
        program
    };
    let data = folder.path().join("data");
    let mut server =
        ServerProcess::start_logged(talkative, &data, &["--listen", "127.0.0.1:0"], &log);
    server.signal("-HUP");
    wait_until("the log says so", || {
        fs::read_to_string(&log)
            .unwrap()
            .contains("no certificate to read again")
    });
    assert!(server.cli(&["study", "list"]).status.success());
    assert!(server.stop());
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_check_says_what_is_wrong_and_changes_nothing() {
    let site = Site::new();
    let output = site.check(&[]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let checked = one_json_line(&site.check(&["--json"]).stdout);
    assert_eq!(checked, serde_json::json!({"ok": true, "warnings": []}));
    assert!(!site.data().exists());

    // 2: what was written in the file or on the line.
    site.configure("max_conections = 5\n");
    refused(
        &site.check(&[]),
        2,
        &[
            "eigenveil.toml",
            "\"max_conections\"",
            "\"max_connections\"",
        ],
    );
    site.configure("max_connections = 0\n");
    refused(&site.check(&[]), 2, &["max_connections is 0", "at least 1"]);
    site.configure("max_connections = \"many\"\n");
    refused(&site.check(&[]), 2, &["line 6"]);
    refused(
        &run(&["serve", "--config", "/none.toml", "--check-config"]),
        2,
        &["/none.toml"],
    );
    refused(&run(&["serve", "--check-config"]), 2, &["--data"]);
    fs::write(site.at("eigenveil.toml"), "").unwrap();
    refused(&site.check(&[]), 2, &["data_dir", "--data"]);
    let open = ["serve", "--data", "/none/data", "--listen", "0.0.0.0:0"];
    refused(
        &run(&open),
        2,
        &["0.0.0.0:0", "--tls-cert", "--insecure-http"],
    );
    site.configure("");
    fs::write(
        site.at("key.pem"),
        Authority::new("x").issue("127.0.0.1").key,
    )
    .unwrap();
    refused(
        &site.check(&[]),
        2,
        &["cert.pem", "key.pem", "made together"],
    );
    let config = site.at("eigenveil.toml");
    refused(
        &run(&["serve", "--config", &config]),
        2,
        &["cert.pem", "key.pem"],
    );
    site.issue(&site.authority);

    // 1: what the machine does not let.
    refused(
        &site.check(&["--listen", "192.0.2.1:0"]),
        1,
        &["cannot listen on 192.0.2.1:0"],
    );
    fs::create_dir(site.data()).unwrap();
    fs::write(site.data().join("thesis.tex"), "x").unwrap();
    refused(&site.check(&[]), 1, &["thesis.tex"]);
    fs::remove_file(site.data().join("thesis.tex")).unwrap();
    let file = site.at("rows.csv");
    fs::write(&file, "x").unwrap();
    refused(&site.check(&["--data", &file]), 1, &["rows.csv"]);

    // Warned of.
    set_mode(site.at("key.pem"), 0o644);
    let output = site.check(&["--json"]);
    let warnings = one_json_line(&output.stdout)["warnings"].to_string();
    assert!(warnings.contains("chmod 600"), "{warnings}");
    assert_eq!(fs::read_dir(site.data()).unwrap().count(), 0);
}

#[test]
fn flags_win_over_the_file() {
    let site = Site::new();
    let other = site.at("other");
    let config = site.at("eigenveil.toml");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let output = site.check(&["--json", "--listen", &listen]);
    let warnings = one_json_line(&output.stdout)["warnings"].to_string();
    assert!(
        warnings.contains(&format!("{listen} is in use")),
        "{warnings}"
    );
    drop(taken);
    let log = site.folder.path().join("log");
    let mut server =
        ServerProcess::start_logged(program, Path::new(&other), &["--config", &config], &log);
    assert!(server.token_file().exists() && !site.data().exists());
    assert!(server.stop());
}

#[test]
fn clients_do_not_speak_plain_http_to_other_machines() {
    for arguments in [
        &["study", "list", "--server", "http://192.0.2.1:9"][..],
        &[
            "report",
            "--header",
            "no",
            "--study",
            "0",
            "--rows",
            "none.csv",
            "--server",
            "http://192.0.2.1:9",
        ],
    ] {
        let output = program()
            .args(arguments)
            .env("EIGENVEIL_TOKEN", "x")
            .output()
            .unwrap();
        refused(
            &output,
            1,
            &["http://192.0.2.1:9", "https://", "--insecure-http"],
        );
    }
}
