//! Running the program under test.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use eigenveil_client::http::{HttpSettings, RetryPolicy};
use eigenveil_estimation::Cancel;
use eigenveil_server::{Environment, ServerConfig, Store, StudyId};
use eigenveil_shared::mechanism::PayloadForm;

/// The program that was built with these tests.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_eigenveil-under-test"));
    command
        .env_remove("EIGENVEIL_TOKEN")
        .env_remove("EIGENVEIL_SERVER")
        .env_remove("RUST_LOG");
    command
}

/// A shell that runs this command of it with `"$0" "$@"` standing for the program.
fn shell(command: &str, program: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).arg(program.get_program());
    for (key, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(key, value),
            None => shell.env_remove(key),
        };
    }
    shell
}

/// Runs a command line to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    program()
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Runs a command line that must succeed and prints one JSON object on one line.
pub(crate) fn run_json(arguments: &[&str]) -> serde_json::Value {
    let output = run(arguments);
    assert!(
        output.status.success(),
        "{arguments:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    one_json_line(&output.stdout)
}

pub(crate) fn one_json_line(stdout: &[u8]) -> serde_json::Value {
    let text = std::str::from_utf8(stdout).unwrap();
    assert_eq!(text.matches('\n').count(), 1, "not one line: {text:?}");
    serde_json::from_str(text).unwrap()
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

    /// Starts on this address; a port just left by a killed server may need a moment.
    pub(crate) fn start_on(data: &Path, listen: &str) -> Self {
        Self::start_as(program, data, &["--listen", listen])
    }

    /// Starts with these flags besides `--data` and `--json`; what it says goes to this file.
    pub(crate) fn start_logged(
        program: impl Fn() -> Command,
        data: &Path,
        flags: &[&str],
        log: &Path,
    ) -> Self {
        let logged = || {
            let program = program();
            let mut shell = shell("exec \"$0\" \"$@\" 2>\"$EIGENVEIL_LOG\"", &program);
            shell.env("EIGENVEIL_LOG", log);
            shell
        };
        Self::start_as(logged, data, flags)
    }

    /// Starts within limits of the shell's `ulimit`, such as `ulimit -n 256`. What it says goes to `log`, as JSON.
    pub(crate) fn start_limited(data: &Path, limits: &str, flags: &[&str], log: &Path) -> Self {
        let limited = || {
            let command = format!("{limits}; exec \"$0\" \"$@\" 2>\"$EIGENVEIL_LOG\"");
            let mut shell = shell(&command, &program());
            shell.env("EIGENVEIL_LOG", log);
            shell
        };
        let all = [&["--listen", "127.0.0.1:0", "--log-json"], flags].concat();
        Self::start_as(limited, data, &all)
    }

    /// Starts with these flags besides `--data` and `--json`; what it says is read when it does not start.
    pub(crate) fn start_as(program: impl Fn() -> Command, data: &Path, flags: &[&str]) -> Self {
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
        panic!("{flags:?}: the address stayed taken");
    }

    /// A server that says where it listens, or what it says instead.
    fn spawn(program: &impl Fn() -> Command, data: &Path, flags: &[&str]) -> Result<Self, String> {
        let mut child = program()
            .args(["serve", "--json", "--data"])
            .arg(data)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        if let Ok(started) = serde_json::from_str::<serde_json::Value>(&line) {
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

    /// Nobody reads what it says any more: its standard error is a pipe without an end.
    pub(crate) fn deafen(&mut self) {
        self.child.as_mut().unwrap().stderr.take();
    }

    /// SIGKILL: no farewell, nothing flushed.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM, and waits for the end. Returns whether it ended well.
    pub(crate) fn stop(&mut self) -> bool {
        self.signal("-TERM");
        self.child.take().unwrap().wait().unwrap().success()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.unwrap().success());
    }

    pub(crate) fn listen(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    pub(crate) fn token_file(&self) -> PathBuf {
        self.data.join("operator.token")
    }

    /// A command line against this server, with the operator's token.
    pub(crate) fn cli(&self, arguments: &[&str]) -> Output {
        program()
            .args(arguments)
            .env("EIGENVEIL_SERVER", &self.url)
            .env(
                "EIGENVEIL_TOKEN",
                std::fs::read_to_string(self.token_file()).unwrap(),
            )
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Creates an open study with these flags and returns its identifier.
    pub(crate) fn create_study(&self, flags: &[&str]) -> String {
        let mut arguments = vec!["study", "create", "--json", "--name", "under test"];
        arguments.extend(flags);
        self.cli_json(&arguments)["id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn cli_json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.cli(arguments);
        assert!(
            output.status.success(),
            "{arguments:?} failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        one_json_line(&output.stdout)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Already gone is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Retries for as long as a killed server may stay away.
pub(crate) fn patient() -> HttpSettings {
    HttpSettings {
        retry: RetryPolicy::patient(),
        ..HttpSettings::default()
    }
}

/// Adds a payload of little-endian f32 entries to a sum, in f64.
pub(crate) fn add_payload(sum: &mut [f64], payload: &[u8]) {
    assert_eq!(payload.len(), 4 * sum.len());
    for (total, bytes) in sum.iter_mut().zip(payload.chunks_exact(4)) {
        *total += f64::from(f32::from_le_bytes(bytes.try_into().unwrap()));
    }
}

/// What is on the disk of a server that has stopped: exactly `count` reports with this sum.
pub(crate) fn assert_stored(data: &Path, study: &str, count: u64, expected: &[f64]) {
    let store = Store::open(&ServerConfig::new(data), Environment::system()).unwrap();
    let study = store.study(StudyId::parse(study).unwrap()).unwrap();
    let stored = store.moment(&study, Cancel::NEVER).unwrap();
    let (mut counted, mut sum) = (0, vec![0.0; expected.len()]);
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
    let scale = expected.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    // Products of directions are made in single precision.
    let tolerance = match study.params().mechanism().payload_form() {
        PayloadForm::Seed => 1e-6,
        _ => 1e-12,
    };
    for (at, (ours, exact)) in sum.iter().zip(expected).enumerate() {
        assert!(
            (ours - exact).abs() <= tolerance * scale,
            "entry {at}: {ours} against {exact}"
        );
    }
}

/// The command failed with this exit code and said these words on standard error alone.
#[track_caller]
pub(crate) fn refused(output: &Output, exit: i32, words: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{stderr}");
    assert!(
        output.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    for word in words {
        assert!(stderr.contains(word), "{word:?} is not in: {stderr}");
    }
}

/// The keys of an object.
pub(crate) fn keys(value: &serde_json::Value) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

/// The keys that are promised, in any order, with room for more.
#[track_caller]
pub(crate) fn has_keys(value: &serde_json::Value, wanted: &[&str]) {
    let keys = keys(value);
    for key in wanted {
        assert!(keys.contains(key), "{key} is missing from {keys:?}");
    }
}
