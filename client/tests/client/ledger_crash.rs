//! The device is killed at arbitrary points. The test program runs itself as the child.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use eigenveil_client::{EntryState, Ledger, Limits, Result, book::Entry};
use eigenveil_shared::{ErrorCode, codec, preprocess::Row, study::to_hex};

use crate::{
    common::{PAYLOAD_LEN, assert_says, study},
    files::{self, Folder, acknowledge, refuse},
    layout_1::to_layout_1,
};

const CHILD: &str = "ledger_crash::child";
const FOLDER: &str = "EIGENVEIL_TEST_LEDGER_FOLDER";
const STUDIES: usize = 12;
/// The study whose report the device gives up in the end, if there is a file of this name.
const GIVEN_UP: &str = "study-08";
const EPSILON: f64 = 0.125;

fn ledger_path(folder: &Path) -> PathBuf {
    folder.join("ledger")
}

/// The reports that the network has seen, one per line.
fn sent_path(folder: &Path) -> PathBuf {
    folder.join("sent")
}

/// An entry's report: its identifier, and all that is sent.
fn bytes_of(ledger: &Ledger, entry: &Entry) -> Result<String> {
    let body = ledger.request(entry)?.body;
    Ok(format!("{}{}", entry.report(), to_hex(&body)))
}

/// Works as a device until it is killed: sends pending reports, takes part in the other studies, sends those. Its row
/// is another one each time.
#[test]
fn child() {
    let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let mut out = std::io::stdout();
    // `strace` counts the calls of each thread: this one gets ahead of the test runner's.
    (0..20).for_each(|_| out.write_all(b"\n").unwrap());
    out.write_all(b"begins\n").unwrap();
    let mut ledger = Ledger::open(ledger_path(&folder)).unwrap();
    let mut network = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(sent_path(&folder))
        .unwrap();
    let mut send = |ledger: &mut Ledger, number: usize, entry: &Entry| {
        // The line break comes first: the line before may have been cut.
        let bytes = bytes_of(ledger, entry).unwrap();
        let line = format!("\n{} {bytes};", entry.study());
        network.write_all(line.as_bytes()).unwrap();
        network.sync_data().unwrap();
        match number % 4 {
            // The answer never comes, in this run.
            0 => {}
            1 => refuse(ledger, entry, "internal", "no"),
            _ => acknowledge(ledger, entry),
        }
    };
    ledger
        .set_limits(Limits::new(1.0, EPSILON * STUDIES as f64, 2e-5).unwrap())
        .unwrap();
    ledger.requeue_refused().unwrap();
    for (number, entry) in ledger.pending().unwrap().iter().enumerate() {
        send(&mut ledger, number + 2, entry);
    }
    let changing = f64::from(std::process::id());
    // The last one is one too many, whatever was killed before.
    for number in 0..=STUDIES {
        let study = study(&format!("study-{number:02}"), EPSILON);
        let row = Row::new(vec![changing, 1.0, 2.0, number as f64, 5.0]);
        let taken = ledger.participate(&study, &row);
        if number == STUDIES {
            let code = taken.unwrap_err().code();
            assert_eq!(code, Some(ErrorCode::BudgetExceeded));
            continue;
        }
        let taken = taken.unwrap();
        if taken.entry().state() == &EntryState::Pending {
            send(&mut ledger, number, taken.entry());
        }
    }
    if folder.join(GIVEN_UP).exists() && ledger.give_up(GIVEN_UP).unwrap().given_up == 1 {
        let line = format!("\n{GIVEN_UP} given up;");
        network.write_all(line.as_bytes()).unwrap();
        network.sync_data().unwrap();
    }
    drop(ledger);
    out.write_all(b"finished\n").unwrap();
}

fn start(folder: &Path) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut child = files::child(CHILD)
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(std::result::Result::ok);
    // The test runner may write its own words before the child's first.
    assert!(lines.any(|line| line.ends_with("begins")));
    (child, lines)
}

/// Runs the device and kills it after this time; whether it had finished before.
fn run_and_kill(folder: &Path, after: Duration) -> bool {
    let (mut child, mut lines) = start(folder);
    spin(after);
    child.kill().unwrap();
    let finished = lines.any(|line| line == "finished");
    let status = child.wait().unwrap();
    assert!(finished || killed(status), "it failed itself: {status}");
    finished
}

#[cfg(unix)]
pub(crate) fn killed(status: std::process::ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(9)
}

#[cfg(not(unix))]
pub(crate) fn killed(status: std::process::ExitStatus) -> bool {
    !status.success()
}

/// Waits to the microsecond, which sleeping does not.
pub(crate) fn spin(time: Duration) {
    let until = Instant::now() + time;
    thread::sleep(time.saturating_sub(Duration::from_millis(1)));
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// One device over all its restarts, as this test knows it.
#[derive(Clone, Default)]
struct Device {
    /// Study → the only bytes it may ever get.
    fixed: BTreeMap<String, String>,
    charged: usize,
}

impl Device {
    fn note(&mut self, study: &str, bytes: &str) {
        let fixed = self.fixed.entry(study.to_owned());
        let was = fixed.or_insert_with(|| bytes.to_owned());
        assert_eq!(*was, bytes, "study {study} got a second report");
    }

    fn runs_to_the_end(&mut self, folder: &Path) {
        let (mut child, mut lines) = start(folder);
        assert!(lines.any(|line| line == "finished"));
        assert!(child.wait().unwrap().success());
        self.check(folder);
    }

    /// One report for ever, nothing lost, nothing refunded. A whole line counts as sent, and so does
    /// the beginning of one.
    fn check(&mut self, folder: &Path) {
        let text = fs::read_to_string(sent_path(folder)).unwrap_or_default();
        let (mut sent, mut given_up) = (BTreeSet::new(), false);
        let mut beginnings = Vec::new();
        for line in text.lines() {
            match line.strip_suffix(';').and_then(|line| line.split_once(' ')) {
                Some((_, "given up")) => given_up = true,
                Some((study, bytes)) => {
                    assert!(!(given_up && study == GIVEN_UP), "it was sent");
                    let len = codec::report_len(PAYLOAD_LEN);
                    assert_eq!(bytes.len(), 32 + 2 * len);
                    self.note(study, bytes);
                    sent.insert(study.to_owned());
                }
                None => beginnings.push(line),
            }
        }
        let ledger = Ledger::open(ledger_path(folder)).unwrap();
        let pending = ledger.pending().unwrap();
        for pending in &pending {
            self.note(pending.study(), &bytes_of(&ledger, pending).unwrap());
        }
        let receipt = ledger.receipt().unwrap();
        let entries = receipt.studies.iter();
        let entries: BTreeMap<_, _> = entries.map(|own| (own.study.as_str(), own)).collect();
        assert_eq!(entries.len(), receipt.studies.len());
        for (study, bytes) in &self.fixed {
            let entry = entries.get(study.as_str());
            let report = entry.map(|entry| entry.report.as_str());
            assert_eq!(report, Some(&bytes[..32]), "the charge of {study}");
        }
        for beginning in beginnings {
            if let Some((study, bytes)) = beginning.split_once(' ') {
                let fits = self.fixed[study].starts_with(bytes) || "given up".starts_with(bytes);
                assert!(fits, "{beginning}");
            }
        }
        for (study, entry) in &entries {
            match &entry.state {
                EntryState::Pending => {
                    assert!(pending.iter().any(|pending| pending.study() == *study));
                }
                // Nothing is acknowledged or refused that was not sent.
                _ => assert!(sent.contains(*study), "{study} was never sent"),
            }
        }
        if given_up {
            assert_eq!(entries[GIVEN_UP].state, EntryState::GivenUp);
        }
        assert!(entries.len() >= self.charged, "a charge was taken back");
        self.charged = entries.len();
        assert_eq!(receipt.spent.epsilon, EPSILON * entries.len() as f64);
    }
}

/// A generator for the moments; SplitMix64.
pub(crate) struct KillTimes(pub(crate) u64);

impl KillTimes {
    pub(crate) fn next_below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// How long a device takes that is not killed.
fn whole_run() -> Duration {
    let folder = Folder::new();
    let begun = Instant::now();
    Device::default().runs_to_the_end(folder.path());
    begun.elapsed()
}

/// Kills devices until this many kills came in the middle of something.
fn kill_devices(wanted: usize, seed: u64) {
    let started = Instant::now();
    let whole = whole_run();
    let mut moments = KillTimes(seed);
    let (mut kills, mut devices) = (0, 0);
    while kills < wanted {
        let folder = tempfile::tempdir().unwrap();
        let mut device = Device::default();
        devices += 1;
        if devices % 2 == 1 {
            fs::write(folder.path().join(GIVEN_UP), "").unwrap();
        }
        // Three whole runs bring every report through; a device is killed on the way there.
        let mut finished = 0;
        while finished < 3 {
            // Most kills come early in a run, where an unkilled run would do the most.
            let limit = whole.as_micros() as u64 / (1 + moments.next_below(8));
            let after = Duration::from_micros(moments.next_below(limit.max(1)));
            match run_and_kill(folder.path(), after) {
                true => finished += 1,
                false => kills += 1,
            }
            device.check(folder.path());
            // Every other device begins each run with an upgrade.
            if devices % 2 == 0 {
                to_layout_1(&ledger_path(folder.path()));
            }
            if kills >= wanted {
                break;
            }
        }
        // In the end, unkilled: everything is sent, and the same.
        (0..4).for_each(|_| device.runs_to_the_end(folder.path()));
        assert_eq!(device.fixed.len(), STUDIES);
        let text = fs::read_to_string(sent_path(folder.path())).unwrap();
        for study in device.fixed.keys() {
            assert!(text.contains(&format!("{study} {}", device.fixed[study])));
        }
    }
    println!(
        "{kills} kills, {devices} devices, {:.0} s; an unkilled run takes {:.0} ms",
        started.elapsed().as_secs_f64(),
        whole.as_secs_f64() * 1e3
    );
}

#[test]
fn killed_anywhere_a_device_sends_one_report_per_study_and_loses_none() {
    kill_devices(60, 1);
}

#[test]
#[ignore = "ten minutes"]
fn killed_thousands_of_times() {
    kill_devices(5_000, 2);
}

/// `strace` kills the device at its n-th write, sync or truncation, for every n until it finishes.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "minutes; needs strace"]
fn killed_at_every_system_call_that_changes_a_file() {
    let mut strace = Command::new("strace");
    let works = strace.args(["-f", "-o", "/dev/null", "true"]).status();
    if !works.is_ok_and(|status| status.success()) {
        println!("SKIPPED: strace does not run here");
        return;
    }
    // A new device; one that has pending and refused reports from a run before; that one with a ledger of layout 1.
    for (runs_before, old) in [(0, false), (1, false), (1, true)] {
        let mut kills = Vec::new();
        let calls = "write pwrite64 fsync fdatasync ftruncate unlink renameat2";
        for call in calls.split(' ') {
            // Each call is counted by itself.
            let mut number = 1;
            while !killed_at(call, number, runs_before, old) {
                number += 1;
            }
            kills.push((call, number - 1));
        }
        println!("{runs_before} runs before, layout 1: {old}: killed at each of {kills:?}");
        let total: usize = kills.iter().map(|(_, kills)| kills).sum();
        assert!(total > 60, "{kills:?}");
    }
}

/// Kills a device at its n-th call of this name and brings it to the end; whether there was none.
#[cfg(target_os = "linux")]
fn killed_at(call: &str, number: usize, runs_before: usize, old: bool) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let mut device = Device::default();
    (0..runs_before).for_each(|_| device.runs_to_the_end(folder.path()));
    if old {
        to_layout_1(&ledger_path(folder.path()));
    }
    let status = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e"])
        .arg(format!("trace={call}"))
        .arg("-e")
        .arg(format!("inject={call}:signal=KILL:when={number}"))
        .arg(env::current_exe().unwrap())
        .args(files::child_arguments(CHILD))
        .env(FOLDER, folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    // Killed before it had a file, there is none to damage.
    if ledger_path(folder.path()).exists() {
        survives_damage(folder.path(), &device);
    }
    device.check(folder.path());
    (0..3).for_each(|_| device.runs_to_the_end(folder.path()));
    assert_eq!(device.fixed.len(), STUDIES);
    assert_eq!(crate::layout_1::layout(&ledger_path(folder.path())), 3);
    status.success()
}

/// Does to copies of a killed device what may become of a ledger between a kill and the next start, and goes on with
/// them: everything that was sent is still charged and no study gets a second report, or the ledger is refused. Gives how
/// many were refused.
fn survives_damage(folder: &Path, device: &Device) -> usize {
    let copy_of = |device: &Device| {
        let copy = Folder::new();
        for file in fs::read_dir(folder).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
        (copy, device.clone())
    };
    // The log beside the file is gone.
    let (copy, mut own) = copy_of(device);
    let _ = fs::remove_file(copy.at("ledger-wal"));
    let mut refused = usize::from(!own.goes_on(copy.path()));
    // The file is moved, and its log stays behind. After a run there it is back beside its old log.
    for comes_back in [false, true] {
        let (copy, mut own) = copy_of(device);
        // Another folder, so that the child finds it by the name it knows.
        let moved = copy.at("moved");
        fs::create_dir(&moved).unwrap();
        fs::rename(ledger_path(copy.path()), ledger_path(&moved)).unwrap();
        let _ = fs::copy(sent_path(copy.path()), sent_path(&moved));
        let goes_on = own.goes_on(&moved);
        refused += usize::from(!goes_on);
        if goes_on && comes_back {
            fs::rename(ledger_path(&moved), ledger_path(copy.path())).unwrap();
            fs::copy(sent_path(&moved), sent_path(copy.path())).unwrap();
            refused += usize::from(!own.goes_on(copy.path()));
        }
    }
    // The file has a second name, by which it is opened: refused, and still when it is asked again.
    let (copy, _) = copy_of(device);
    let elsewhere = copy.at("elsewhere");
    fs::hard_link(ledger_path(copy.path()), &elsewhere).unwrap();
    assert_says(Ledger::open(&elsewhere).unwrap_err(), &["2 names"]);
    Ledger::open(&elsewhere).unwrap_err();
    // The file is there and empty.
    let (copy, _) = copy_of(device);
    fs::write(ledger_path(copy.path()), "").unwrap();
    Ledger::open(ledger_path(copy.path())).unwrap_err();
    refused + 2
}

impl Device {
    /// Checks the device, runs it to the end and checks again; `false` when its ledger is refused.
    fn goes_on(&mut self, folder: &Path) -> bool {
        // A file that was being written when its log went may show only when a report is read that it is damaged.
        let read = |ledger: Ledger| -> Result<()> {
            let mut pending = ledger.pending()?.into_iter();
            pending.try_for_each(|pending| bytes_of(&ledger, &pending).map(drop))
        };
        match Ledger::open(ledger_path(folder)).and_then(read) {
            Ok(()) => {}
            Err(error) => {
                let says = ["does not match its last change", "damaged"];
                let error = error.to_string();
                assert!(says.iter().any(|word| error.contains(word)), "{error}");
                return false;
            }
        }
        self.check(folder);
        (0..2).for_each(|_| self.runs_to_the_end(folder));
        true
    }
}

/// The four ways in which a ledger forgot everything, at arbitrary points of a device's life.
#[test]
fn killed_and_then_damaged_a_device_forgets_nothing_or_is_refused() {
    kill_and_damage(12, 3);
}

#[test]
#[ignore = "minutes"]
fn killed_and_then_damaged_hundreds_of_times() {
    kill_and_damage(400, 4);
}

fn kill_and_damage(wanted: usize, seed: u64) {
    let whole = whole_run();
    let mut moments = KillTimes(seed);
    let (mut kills, mut refused) = (0, 0);
    while kills < wanted {
        let folder = tempfile::tempdir().unwrap();
        let mut device = Device::default();
        for _ in 0..6 {
            let after = Duration::from_micros(moments.next_below(whole.as_micros() as u64));
            if run_and_kill(folder.path(), after) {
                break;
            }
            if !ledger_path(folder.path()).exists() {
                // Killed before it had a file that could be damaged: often, where the machine is busy.
                continue;
            }
            kills += 1;
            // As it was killed, before anything has opened it again.
            refused += survives_damage(folder.path(), &device);
            device.check(folder.path());
        }
    }
    println!("{kills} kills, each with 5 damages; refused: {refused}");
    // An emptied file and a second name are refused each time, an old log often, a lost one hardly ever.
    let expected = 2 * kills..=4 * kills;
    assert!(expected.contains(&refused), "{refused} of {kills}");
}
