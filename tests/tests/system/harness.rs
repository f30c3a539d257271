//! Running the program under test.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use eigenveil_client::http::{HttpSettings, RetryPolicy, StudyClient};
use eigenveil_estimation::Cancel;
use eigenveil_server::Environment;
use eigenveil_shared::{mechanism::PayloadKind, packed::packed_len};
use eigenveil_store::{Store, StoreConfig, StudyId};
use serde_json::Value;
use tokio::net::TcpSocket;

/// The program that was built with these tests.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_eigenveil-under-test");

pub(crate) fn program() -> Command {
    without_settings(Command::new(PROGRAM))
}

/// A command without settings from the tests' environment.
pub(crate) fn without_settings(mut command: Command) -> Command {
    for name in ["EIGENVEIL_TOKEN", "EIGENVEIL_SERVER", "RUST_LOG"] {
        command.env_remove(name);
    }
    command
}

/// A shell that runs `before`, such as `ulimit -n 256; exec`, and then becomes the program.
pub(crate) fn shell(before: &str) -> Command {
    let mut shell = without_settings(Command::new("sh"));
    shell.args(["-c", &format!("{before} \"$0\" \"$@\""), PROGRAM]);
    shell
}

fn logged_shell(before: &str, log: &Path) -> Command {
    let mut shell = shell(&format!("exec 2>\"$EIGENVEIL_LOG\"; {before}"));
    shell.env("EIGENVEIL_LOG", log);
    shell
}

/// Splits a command line at blanks, except within single quotes.
pub(crate) fn words(line: &str) -> Vec<&str> {
    let parts = line.split('\'').enumerate();
    let words = parts.flat_map(|(at, part)| match at % 2 {
        0 => part.split_whitespace().collect::<Vec<_>>(),
        _ => vec![part],
    });
    words.collect()
}

/// Runs a command line, without the program's name, to its end.
pub(crate) fn run(line: &str) -> Output {
    let mut program = program();
    program.args(words(line)).stdin(Stdio::null());
    program.output().unwrap()
}

/// Runs a command line with `--json`, which must succeed and print one JSON object on one line.
#[track_caller]
pub(crate) fn run_json(line: &str) -> Value {
    json_of(&run(&format!("{line} --json")))
}

/// The one line of JSON that a command, which must have succeeded, printed.
#[track_caller]
pub(crate) fn json_of(output: &Output) -> Value {
    let text = succeeded(output);
    assert_eq!(text.matches('\n').count(), 1, "not one line: {text:?}");
    serde_json::from_str(&text).unwrap()
}

/// Standard output; asserts success.
#[track_caller]
pub(crate) fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A temporary directory, removed when dropped.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of a file in it, for a command line.
    pub(crate) fn at(&self, name: &str) -> String {
        self.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        std::fs::write(self.at(name), text).unwrap();
        self.at(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub(crate) fn read_json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    pub(crate) fn names(&self, below: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path().join(below)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Starts a server with a data directory in it.
    pub(crate) fn server(&self) -> ServerProcess {
        ServerProcess::start(&self.path().join("data"))
    }
}

/// A port for servers that are told of it: nobody gets it by chance as long as this lives.
pub(crate) struct ReservedPort(TcpSocket);

impl ReservedPort {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // Beside a socket that does not listen, one that is bound to the same port may.
        socket.set_reuseaddr(true).unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        Self(socket)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }
}

/// A server process on a data directory of its own; killed when dropped.
pub(crate) struct ServerProcess {
    child: Option<Child>,
    pub(crate) url: String,
    pub(crate) data: PathBuf,
}

impl ServerProcess {
    /// Starts on a port the system chooses.
    pub(crate) fn start(data: &Path) -> Self {
        Self::start_on(data, "127.0.0.1:0")
    }

    /// Starts on this address; the port of a killed server may be busy for a while.
    pub(crate) fn start_on(data: &Path, listen: &str) -> Self {
        Self::start_as(program, data, &format!("--listen {listen}"))
    }

    /// Starts with these flags besides `--data` and `--json`, logging at this level to `log`.
    pub(crate) fn start_logged(level: &str, data: &Path, flags: &str, log: &Path) -> Self {
        let logged = || {
            let mut shell = logged_shell("exec", log);
            shell.env("RUST_LOG", level);
            shell
        };
        Self::start_as(logged, data, flags)
    }

    /// Starts from a shell after `before`, logging JSON to `log`.
    pub(crate) fn start_limited(data: &Path, before: &str, log: &Path, flags: &str) -> Self {
        let flags = format!("--listen 127.0.0.1:0 --log-json {flags}");
        Self::start_as(|| logged_shell(before, log), data, &flags)
    }

    /// Starts with these flags besides `--data` and `--json`; panics with its standard error if it does not start.
    pub(crate) fn start_as(program: impl Fn() -> Command, data: &Path, flags: &str) -> Self {
        let piped = || {
            let mut program = program();
            program.stderr(Stdio::piped());
            program
        };
        // Five minutes.
        for _ in 0..3_000 {
            match Self::spawn(&piped, data, flags) {
                Ok(server) => return server,
                Err(why) => assert!(
                    why.contains("cannot listen"),
                    "the server did not start: {why}"
                ),
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("{flags}: the address stayed taken");
    }

    /// The server, once it has printed its address; otherwise its standard error.
    fn spawn(program: &impl Fn() -> Command, data: &Path, flags: &str) -> Result<Self, String> {
        let mut child = program()
            .args(["serve", "--json", "--data"])
            .arg(data)
            .args(words(flags))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        if let Ok(started) = serde_json::from_str::<Value>(&line) {
            let url = started["listening"].as_str().unwrap().to_owned();
            return Ok(Self {
                child: Some(child),
                url,
                data: data.to_owned(),
            });
        }
        child.wait().unwrap();
        let mut why = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_string(&mut why).unwrap();
        }
        Err(why)
    }

    /// Closes the reading end of its standard error.
    pub(crate) fn close_stderr(&mut self) {
        self.child.as_mut().unwrap().stderr.take();
    }

    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM, and waits. Returns whether it exited successfully.
    pub(crate) fn stop(&mut self) -> bool {
        self.signal("-TERM");
        self.child.take().unwrap().wait().unwrap().success()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        send_signal(self.id(), signal);
    }

    pub(crate) fn listen(&self) -> &str {
        self.url
            .trim_start_matches("http://")
            .trim_start_matches("https://")
    }

    pub(crate) fn token_file(&self) -> PathBuf {
        self.data.join("operator.token")
    }

    pub(crate) fn token(&self) -> String {
        let text = std::fs::read_to_string(self.token_file()).unwrap();
        text.trim().to_owned()
    }

    /// The command of a command line against this server, with the operator's token.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = program();
        command
            .args(words(line))
            .env("EIGENVEIL_SERVER", &self.url)
            .env("EIGENVEIL_TOKEN", self.token())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn cli(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs a command line with `--json`, which must succeed.
    #[track_caller]
    pub(crate) fn cli_json(&self, line: &str) -> Value {
        json_of(&self.cli(&format!("{line} --json")))
    }

    #[track_caller]
    pub(crate) fn create_study(&self, flags: &str) -> String {
        let created = self.cli_json(&format!(
            "study create --name 'under test' --same-name {flags}"
        ));
        created["id"].as_str().unwrap().to_owned()
    }

    /// Reports all rows of a file without a header.
    #[track_caller]
    pub(crate) fn report(&self, study: &str, rows: &str) -> Value {
        self.cli_json(&format!("report --header no --study {study} --rows {rows}"))
    }

    pub(crate) fn client(&self) -> StudyClient {
        let settings = HttpSettings {
            retry: RetryPolicy::never(),
            ..HttpSettings::default()
        };
        StudyClient::with_settings(&self.url, &settings).unwrap()
    }

    #[track_caller]
    pub(crate) fn accepted(&self, study: &str) -> Value {
        self.cli_json(&format!("study show {study}"))["reports_accepted"].clone()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have exited already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a signal, such as `-TERM`.
pub(crate) fn send_signal(process: u32, signal: &str) {
    let mut kill = Command::new("kill");
    kill.args([signal, &process.to_string()]);
    assert!(kill.status().unwrap().success());
}

pub(crate) fn mode_of(path: impl AsRef<Path>) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Asserts that a stopped server's store has exactly `count` reports with this sum.
pub(crate) fn assert_stored(data: &Path, study: &str, count: u64, expected: &[f64]) {
    let store = Store::open(&StoreConfig::new(data), Environment::system()).unwrap();
    let study = store.study(StudyId::parse(study).unwrap()).unwrap();
    let stored = store.bucket_sums(&study, Cancel::NEVER).unwrap();
    let (mut counted, mut sum) = (0, vec![0.0; packed_len(study.params().sum_dimension())]);
    for (_, bucket) in &stored.buckets {
        counted += bucket.count();
        for (total, value) in sum.iter_mut().zip(bucket.sum().as_slice()) {
            *total += value;
        }
    }
    assert_eq!(
        (counted, stored.n, study.reports_accepted()),
        (count, count, count)
    );
    assert_eq!(sum.len(), expected.len());
    let scale = expected.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    // Seeds are expanded in single precision.
    let tolerance = match study.params().rows().unwrap().mechanism().payload_kind() {
        PayloadKind::Seed => 1e-6,
        _ => 1e-12,
    };
    for (at, (ours, exact)) in sum.iter().zip(expected).enumerate() {
        assert!(
            (ours - exact).abs() <= tolerance * scale,
            "entry {at}: {ours} against {exact}"
        );
    }
}

/// Asserts that the command failed with this exit code and printed these words, on standard error only.
#[track_caller]
pub(crate) fn refused(output: &Output, exit: i32, words: &[&str]) {
    let stderr = stderr(output);
    assert_eq!(output.status.code(), Some(exit), "{stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.is_empty(), "{stdout}");
    says(&stderr, words);
}

/// Asserts that the command line with each of these additions is refused as wrong usage with these words. Returns all
/// messages.
#[track_caller]
pub(crate) fn refuses(line: &str, wrong: &[(&str, &str)]) -> String {
    let mut message = String::new();
    for (more, word) in wrong {
        let output = run(&format!("{line} {more}"));
        println!("{more}");
        refused(&output, 2, &[word]);
        message += &stderr(&output);
    }
    message
}

#[track_caller]
pub(crate) fn says(text: &str, words: &[impl AsRef<str>]) {
    for word in words.iter().map(AsRef::as_ref) {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

/// Asserts that a JSON object has these values: `accepted=4 charged.rows=4 state=done`.
#[track_caller]
pub(crate) fn has(value: &Value, wanted: &str) {
    for pair in wanted.split_whitespace() {
        let (key, wanted) = pair.split_once('=').unwrap();
        let pointer = format!("/{}", key.replace('.', "/"));
        let found = value.pointer(&pointer).unwrap_or(&Value::Null).to_string();
        assert_eq!(found.trim_matches('"'), wanted, "{key} of {value}");
    }
}

/// Asserts that these keys, separated by blanks, are present.
#[track_caller]
pub(crate) fn has_keys(value: &Value, wanted: &str) {
    for key in wanted.split_whitespace() {
        assert!(value.get(key).is_some(), "{key} is missing from {value}");
    }
}
