//! Behind a company's proxy: a server on this machine is reached directly, and no secret goes to the proxy unless the
//! user allows it.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    process::Command,
    sync::{Arc, Mutex},
};

use crate::harness::{Folder, program, refused, stderr, succeeded, words};

const VARIABLES: [&str; 6] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// A proxy that refuses all requests and records them.
struct RefusingProxy {
    address: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl RefusingProxy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut bytes = [0; 4096];
                let length = stream.read(&mut bytes).unwrap_or(0);
                let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
                log.lock().unwrap().push(text);
                let _ = stream.write_all(
                    b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                );
            }
        });
        Self { address, seen }
    }

    fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    /// The command with this proxy in all proxy variables of its environment.
    fn with_proxy(&self, mut command: Command) -> Command {
        for name in VARIABLES {
            command.env(name, format!("http://me:s3cret@{}", self.address));
        }
        command.env_remove("NO_PROXY").env_remove("no_proxy");
        command
    }
}

#[test]
fn a_proxy_in_the_environment_gets_nothing_meant_for_this_machine() {
    let folder = Folder::new();
    let server = folder.server();
    let proxy = RefusingProxy::start();
    let rows = folder.write("rows.csv", "1,0,0\n0,1,0\n");
    let mut demo = program();
    let out = folder.at("demo");
    demo.args(words(&format!("demo --n 200 --out {out}")));
    succeeded(&proxy.with_proxy(demo).output().unwrap());
    let study = server.create_study("--p 3 --epsilon 1");
    for line in [
        format!("report --study {study} --header no --rows {rows}"),
        "study list".to_owned(),
    ] {
        succeeded(&proxy.with_proxy(server.command(&line)).output().unwrap());
    }
    // Nothing speaks TLS there. (All names of this machine: `client/src/http/transport.rs`.)
    let port = server.listen().rsplit_once(':').unwrap().1;
    let line = format!("study list --server https://127.1:{port}");
    let output = proxy.with_proxy(server.command(&line)).output();
    let address = format!("https://127.0.0.1:{port}");
    refused(&output.unwrap(), 1, &[&address]);
    assert_eq!(proxy.take_requests(), Vec::<String>::new());
    // NO_PROXY is obeyed.
    let far = "study list --server https://far.invalid";
    let mut excepted = proxy.with_proxy(server.command(far));
    excepted.env("NO_PROXY", "*");
    refused(&excepted.output().unwrap(), 1, &["https://far.invalid"]);
    assert_eq!(proxy.take_requests(), Vec::<String>::new());
}

/// The part before a slash would be taken for the proxy's host, and shown.
#[test]
fn a_password_in_the_environment_is_not_shown() {
    for name in VARIABLES {
        let mut command = program();
        command
            .args(words("study list --server https://far.invalid"))
            .env("EIGENVEIL_TOKEN", "x")
            .env(name, "http://me:8641/56@127.0.0.1:3128");
        if name.eq_ignore_ascii_case("http_proxy") {
            command.env("ALL_PROXY", "http://127.0.0.1:9");
        }
        let output = command.output().unwrap();
        refused(&output, 1, &[name, "%2F"]);
        assert!(!stderr(&output).contains("8641"));
    }
}

#[test]
fn a_proxy_reads_no_token_unless_allowed_and_is_named_in_errors() {
    let folder = Folder::new();
    let server = folder.server();
    let proxy = RefusingProxy::start();
    let address = &proxy.address;
    // Plain HTTP through a proxy is plain HTTP to another machine, even if the proxy and the server are here.
    let through = format!("study list --proxy http://me:s3cret@{address}");
    let output = server.cli(&through);
    refused(
        &output,
        1,
        &[&format!("to the proxy http://{address}"), "--insecure-http"],
    );
    let bad = server.cli("study list --proxy me:s3cret@nowhere");
    refused(&bad, 1, &["http://proxy.example:3128", "none"]);
    assert_eq!(proxy.take_requests(), Vec::<String>::new());

    let allowed = server.cli(&format!("{through} --insecure-http"));
    refused(
        &allowed,
        1,
        &[&format!("through the proxy http://{address}"), "403"],
    );
    let mut elsewhere = proxy.with_proxy(server.command("study list --server https://far.invalid"));
    let tunnel = elsewhere.output().unwrap();
    refused(
        &tunnel,
        1,
        &[
            "https://far.invalid",
            &format!("through the proxy http://{address}"),
        ],
    );
    let seen = proxy.take_requests();
    let (plain, tunnels): (Vec<_>, Vec<_>) = seen
        .iter()
        .partition(|text| text.starts_with("GET http://"));
    assert!(!plain.is_empty() && !tunnels.is_empty(), "{seen:?}");
    for text in tunnels {
        assert!(text.starts_with("CONNECT far.invalid:443"), "{text}");
        assert!(
            !text.contains("Bearer") && !text.contains(&server.token()),
            "{text}"
        );
    }
    for output in [output, bad, allowed, tunnel] {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!text.contains("s3cret"), "{text}");
    }
    // `--proxy none` overrides the environment.
    let mut direct = proxy.with_proxy(server.command("study list --proxy none"));
    succeeded(&direct.output().unwrap());
    assert_eq!(proxy.take_requests(), Vec::<String>::new());
}
