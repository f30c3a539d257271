//! HTTPS, the configuration file and --check-config, with the real program. (Which certificates are refused, and how:
//! `server/tests/server/tls.rs` and `client/tests/client/tls.rs`.)

use std::{fs, path::Path};

use crate::{
    certificates::Authority,
    harness::{Folder, ServerProcess, json_of, refused, run, says, succeeded},
    waiting::until,
};

/// A directory with a configuration file, a certificate for 127.0.0.1 and that of its authority.
struct Site {
    folder: Folder,
    authority: Authority,
}

impl Site {
    fn new() -> Self {
        let folder = Folder::new();
        let authority = Authority::new("an organisation");
        let site = Self { folder, authority };
        site.issue(&site.authority);
        site.configure("");
        site
    }

    fn at(&self, name: &str) -> String {
        self.folder.at(name)
    }

    fn issue(&self, authority: &Authority) {
        authority.issue("127.0.0.1").write(self.folder.path());
        self.folder.write("ca.pem", &authority.root_pem);
        set_mode(self.at("key.pem"), 0o600);
    }

    fn configure(&self, lines: &str) {
        let [data, certificate, key] = ["data", "cert.pem", "key.pem"].map(|name| self.at(name));
        let text = format!(
            "listen = \"127.0.0.1:0\"\ndata_dir = {data:?}\ntls_cert = {certificate:?}\ntls_key = {key:?}\n\
             tls_reload_seconds = 0\n{lines}"
        );
        self.folder.write("eigenveil.toml", text);
    }

    fn check(&self, flags: &str) -> std::process::Output {
        let config = self.at("eigenveil.toml");
        run(&format!("serve --config {config} --check-config {flags}"))
    }

    fn warnings(&self, flags: &str) -> String {
        json_of(&self.check(&format!("{flags} --json")))["warnings"].to_string()
    }

    /// A server with this configuration on this data directory.
    fn server(&self, data: &str) -> ServerProcess {
        let config = format!("--config {}", self.at("eigenveil.toml"));
        let (data, log) = (self.at(data), self.at("log"));
        ServerProcess::start_logged("info", Path::new(&data), &config, Path::new(&log))
    }
}

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Waits until the log contains these words.
async fn logged(folder: &Folder, words: &str) {
    until(words, async || folder.read("log").contains(words)).await;
}

#[tokio::test]
async fn full_run_over_https_with_a_renewed_certificate() {
    let site = Site::new();
    let mut server = site.server("data");
    let ca = format!("--ca-cert {}", site.at("ca.pem"));
    let study = server.create_study(&format!("{ca} --p 2 --epsilon 4"));
    let rows = site.folder.write("rows.csv", "1,2\n2,1\n1,1\n");
    let sent = server.report(&study, &format!("{rows} {ca}"));
    assert_eq!(sent["accepted"], 3);

    let list = |more: &str| server.cli(&format!("study list {more}"));
    refused(&list(""), 1, &["is not trusted", "--ca-cert"]);

    fs::rename(site.at("ca.pem"), site.at("old-ca.pem")).unwrap();
    site.issue(&Authority::new("another organisation"));
    server.signal("-HUP");
    until("the new certificate is used", async || {
        list(&ca).status.success()
    })
    .await;
    let old = list(&format!("--ca-cert {}", site.at("old-ca.pem")));
    assert!(!old.status.success());
    assert!(server.stop());
}

#[tokio::test]
async fn sighup_without_a_certificate_is_harmless() {
    let folder = Folder::new();
    let (data, log) = (folder.path().join("data"), folder.path().join("log"));
    let mut server = ServerProcess::start_logged("info", &data, "--listen 127.0.0.1:0", &log);
    server.signal("-HUP");
    logged(&folder, "there is no certificate to reload").await;
    succeeded(&server.cli("study list"));
    assert!(server.stop());
}

#[test]
fn check_config_reports_problems_and_changes_nothing() {
    let site = Site::new();
    succeeded(&site.check(""));
    let checked = json_of(&site.check("--json"));
    assert_eq!(
        checked,
        serde_json::json!({"ok": true, "public_url": null, "warnings": []})
    );
    assert!(!Path::new(&site.at("data")).exists());

    // Exit code 2: errors in the file (all of them: `server/src/config/file.rs`) or on the command line.
    site.configure("max_conections = 5\n");
    refused(&site.check(""), 2, &["eigenveil.toml", "max_conections"]);
    refused(
        &run("serve --config /none.toml --check-config"),
        2,
        &["/none.toml"],
    );
    refused(&run("serve --check-config"), 2, &["--data"]);
    site.folder.write("eigenveil.toml", "");
    refused(&site.check(""), 2, &["data_dir", "--data"]);
    site.configure("");

    // Exit code 1: the machine does not allow it.
    let elsewhere = site.check("--listen 192.0.2.1:0");
    refused(&elsewhere, 1, &["cannot listen on 192.0.2.1:0"]);

    // Warnings.
    set_mode(site.at("key.pem"), 0o644);
    says(&site.warnings(""), &["chmod 600"]);
    assert!(!Path::new(&site.at("data")).exists());
}

/// Clients refuse the certificate that everybody makes, and accept the one of the guide's command.
#[test]
fn the_guides_command_makes_a_certificate_that_clients_accept() {
    let folder = Folder::new();
    let openssl = |arguments: &str| {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", arguments]).current_dir(folder.path());
        command.output().unwrap()
    };
    if !openssl("openssl version").status.success() {
        println!("SKIPPED: openssl is not here");
        return;
    }
    let guide = include_str!("../../../docs/run-a-server.md").replace("\\\n", "");
    let command = guide
        .lines()
        .find_map(|line| line.strip_prefix("$ openssl req"));
    let command = format!("openssl req{}", command.unwrap());
    let command = command
        .replace("DNS:study.example", "IP:127.0.0.1")
        .replace("study.example", "127.0.0.1");
    let naive = "openssl req -x509 -newkey rsa:2048 -nodes -keyout server-key.pem -out server-cert.pem -subj /CN=127.0.0.1";
    let [certificate, key, log] =
        ["server-cert.pem", "server-key.pem", "log"].map(|name| folder.at(name));
    let tls = format!("--listen 127.0.0.1:0 --tls-cert {certificate} --tls-key {key}");
    for (command, warned) in [(naive, true), (command.as_str(), false)] {
        succeeded(&openssl(command));
        let data = folder.path().join("data");
        let mut server = ServerProcess::start_logged("warn", &data, &tls, Path::new(&log));
        let listed = server.cli(&format!("study list --ca-cert {certificate}"));
        assert_eq!(listed.status.success(), !warned);
        assert!(server.stop());
        assert_eq!(folder.read("log").contains("CA:TRUE"), warned);
    }
}

#[test]
fn flags_override_the_config_file() {
    let site = Site::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let warnings = site.warnings(&format!("--listen {listen}"));
    says(&warnings, &[&format!("{listen} is in use")]);
    let mut server = site.server("other");
    assert!(server.token_file().exists() && !Path::new(&site.at("data")).exists());
    assert!(server.stop());
}
