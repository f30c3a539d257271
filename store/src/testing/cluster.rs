//! PostgreSQL clusters for tests, run as another user if the tests run as root. Tests print SKIPPED if PostgreSQL is
//! not installed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail that way")]

use std::{
    os::unix::{
        fs::{MetadataExt as _, chown},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// A PostgreSQL cluster for tests, stopped when its last owner drops it.
pub struct Cluster {
    directory: TempDir,
    binaries: PathBuf,
    /// `name=value`.
    settings: &'static [&'static str],
    postgres: Mutex<Child>,
}

/// User and group that PostgreSQL, which refuses root, runs as.
fn other_user() -> Option<(u32, u32)> {
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = users
        .lines()
        .find(|line| line.starts_with("postgres:"))
        .expect("a user postgres");
    let mut numbers = line
        .split(':')
        .skip(2)
        .map(|number| number.parse().unwrap());
    Some((numbers.next().unwrap(), numbers.next().unwrap()))
}

fn binaries() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("initdb"));
    let debian_candidates = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let debian_candidates =
        debian_candidates.filter_map(|entry| Some(entry.ok()?.path().join("bin/initdb")));
    // Debian's own folder first: it has all of them.
    let found = debian_candidates
        .chain(on_path)
        .find_map(|initdb| initdb.canonicalize().ok())?;
    Some(found.parent()?.to_owned())
}

fn as_other_user(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = other_user() {
        command.uid(user).gid(group);
    }
    command
}

fn own_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    if let Some((user, group)) = other_user() {
        chown(directory.path(), Some(user), Some(group)).unwrap();
    }
    directory
}

/// Runs a command that creates a data directory.
fn make_data(command: &mut Command, directory: &Path) {
    command
        .current_dir(directory)
        .arg("-D")
        .arg(directory.join("data"));
    let output = command.output().unwrap();
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{messages}");
}

impl Cluster {
    /// The cluster that is shared with other running tests; `None` if PostgreSQL is not installed.
    pub fn shared() -> Option<Arc<Self>> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        let mut shared = lock(&SHARED);
        if let Some(cluster) = shared.upgrade() {
            return Some(cluster);
        }
        let cluster = Arc::new(Self::start()?);
        *shared = Arc::downgrade(&cluster);
        Some(cluster)
    }

    /// A new one.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// A new one with these settings.
    pub fn start_with(settings: &'static [&'static str]) -> Option<Self> {
        let Some(binaries) = binaries() else {
            println!("SKIPPED: no PostgreSQL is installed (initdb; apt-get install postgresql)");
            return None;
        };
        let directory = own_directory();
        let mut initdb = as_other_user(&binaries.join("initdb"));
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8"]);
        initdb.args(["--no-locale", "--no-sync"]);
        make_data(&mut initdb, directory.path());
        Some(Self::begin(binaries, directory, settings))
    }

    /// A standby of this cluster, named like this in `synchronous_standby_names`.
    pub fn standby(&self, name: &str) -> Self {
        let directory = own_directory();
        let primary = self.directory.path().display();
        let mut copy = as_other_user(&self.binaries.join("pg_basebackup"));
        copy.args([
            "--checkpoint=fast",
            "--no-sync",
            "--write-recovery-conf",
            "-d",
        ]);
        copy.arg(format!(
            "host={primary} user=postgres application_name={name}"
        ));
        make_data(&mut copy, directory.path());
        let settings = &["wal_retrieve_retry_interval=500ms"];
        Self::begin(self.binaries.clone(), directory, settings)
    }

    /// Makes the cluster ask this user for a password; by default it trusts every user.
    pub fn ask_for_password(&self, user: &str) {
        let file = self.directory.path().join("data/pg_hba.conf");
        let rules = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("local all {user} scram-sha-256\n{rules}")).unwrap();
        let loaded = || self.sql("postgres", "SELECT pg_conf_load_time()");
        let before = loaded();
        self.sql("postgres", "SELECT pg_reload_conf()");
        while loaded() == before {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Changes a setting, and waits until it applies.
    pub fn set(&self, name: &str, value: &str) {
        self.sql("postgres", &format!("ALTER SYSTEM SET {name} = '{value}'"));
        self.sql("postgres", "SELECT pg_reload_conf()");
        while self.sql("postgres", &format!("SHOW {name}")) != value {
            std::thread::sleep(Duration::from_millis(20));
        }
        // The checkpointer tells the others whether commits wait for a standby, once it has read the settings itself.
        self.sql("postgres", "CHECKPOINT");
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        assert_eq!(self.sql("postgres", "SELECT pg_promote(true, 300)"), "t");
    }

    fn begin(binaries: PathBuf, directory: TempDir, settings: &'static [&'static str]) -> Self {
        let cluster = Self {
            postgres: Mutex::new(Self::run(&binaries, directory.path(), settings)),
            directory,
            binaries,
            settings,
        };
        cluster.start_again();
        cluster
    }

    fn run(binaries: &Path, directory: &Path, settings: &[&str]) -> Child {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(directory.join("log"))
            .unwrap();
        as_other_user(&binaries.join("postgres"))
            .current_dir(directory)
            .arg("-D")
            .arg(directory.join("data"))
            .arg("-k")
            .arg(directory)
            .args([
                "-c",
                "listen_addresses=",
                "-c",
                // As many tests run at once as the machine has processors.
                "max_connections=500",
                "-c",
                "deadlock_timeout=100ms",
            ])
            .args(settings.iter().flat_map(|setting| ["-c", setting]))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// Identifier of its main process.
    pub fn pid(&self) -> u32 {
        lock(&self.postgres).id()
    }

    /// Kills the server process, as a crash of the machine would, but without damage to the disk.
    pub fn kill(&self) {
        let mut postgres = lock(&self.postgres);
        postgres.kill().unwrap();
        postgres.wait().unwrap();
    }

    /// Starts the server unless it runs, also after [`kill`](Self::kill), and waits until it answers.
    pub fn start_again(&self) {
        let begun = Instant::now();
        loop {
            let mut postgres = lock(&self.postgres);
            // After a kill the child processes keep the files open for moments: until then it ends at once.
            if postgres.try_wait().unwrap().is_some() {
                *postgres = Self::run(&self.binaries, self.directory.path(), self.settings);
            } else if self.try_sql("postgres", "SELECT 1").is_ok() {
                return;
            }
            drop(postgres);
            let log =
                std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            assert!(
                begun.elapsed() < Duration::from_secs(300),
                "PostgreSQL does not start: {log}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn try_sql(&self, database: &str, sql: &str) -> Result<String, String> {
        let done = Command::new(self.binaries.join("psql"))
            .arg("-h")
            .arg(self.directory.path())
            .args([
                "-U",
                "postgres",
                "-X",
                "-A",
                "-t",
                "-q",
                "-v",
                "ON_ERROR_STOP=1",
                "-d",
                database,
                "-c",
                sql,
            ])
            .output()
            .unwrap();
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned()),
            false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
        }
    }

    /// The address of one of its databases.
    pub fn url(&self, database: &str) -> String {
        Self::url_of(&[self], database)
    }

    /// The address of a database on whichever of these clusters is the primary.
    pub fn url_of(clusters: &[&Self], database: &str) -> String {
        let hosts: Vec<String> = clusters.iter().map(|cluster| cluster.host()).collect();
        format!("postgres://postgres@{}/{database}", hosts.join(","))
    }

    /// The cluster's socket directory, escaped for an address.
    pub fn host(&self) -> String {
        self.directory().to_str().unwrap().replace('/', "%2F")
    }

    /// Directory of its socket, among others.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Where its programs are.
    pub fn binaries(&self) -> &Path {
        &self.binaries
    }

    /// The answer of a query of this database.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        self.try_sql(database, sql).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut postgres = lock(&self.postgres);
        if !matches!(postgres.try_wait(), Ok(None)) {
            return;
        }
        // At once, and without leaving shared memory behind.
        let pid = postgres.id().to_string();
        let _ = Command::new("kill").args(["-QUIT", &pid]).status();
        let _ = postgres.wait();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
