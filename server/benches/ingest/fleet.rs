//! Servers on one PostgreSQL, each a process of its own, beside the embedded store; PostgreSQL's own COPY of the same bytes
//! is the floor.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Instant,
};

use eigenveil_server::{Environment, Server, ServerConfig};
use eigenveil_shared::{
    api::{CreateStudyRequest, IssueTokensResponse},
    enrolment::{MAX_TOKENS_PER_REQUEST, ParticipantToken, TOKEN_LEN},
};
use eigenveil_store::{Store, Study, migrate_store, testing::cluster::Cluster};
use serde_json::json;
use tempfile::TempDir;

use super::{Load, SEEDS, directory, process::Process};

const ROWS: u32 = 1_000_000;
const TOKENS: usize = 5 * MAX_TOKENS_PER_REQUEST;

/// Credentials of the reports.
#[derive(Clone, Copy, PartialEq)]
enum Admitted {
    ByNothing,
    ByTokens,
    /// Tokens that the study does not know.
    Refused,
}

/// Another process of this program: `URL DIRECTORY`. Prints its address.
pub(crate) fn serve(arguments: &[String]) {
    let [url, directory] = arguments else {
        panic!("two arguments");
    };
    let config = ServerConfig {
        listen: ([127, 0, 0, 1], 0).into(),
        store: Some(url.parse().unwrap()),
        ..ServerConfig::new(directory)
    };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let server = Server::bind(config, Environment::system()).await.unwrap();
        println!("{}", server.local_addr());
        server.run(std::future::pending()).await.unwrap();
    });
}

struct Serving {
    process: Child,
    address: String,
}

impl Serving {
    fn start(url: &str, directory: &TempDir, number: usize) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["serve", url])
            .arg(directory.path().join(number.to_string()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut address = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut address).unwrap();
        Self {
            process,
            address: address.trim().to_owned(),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Middle of 101 writes of a page with fdatasync, in milliseconds.
fn sync_ms(directory: &TempDir) -> f64 {
    let mut file = File::create(directory.path().join("sync")).unwrap();
    let mut times: Vec<f64> = (0..101)
        .map(|_| {
            let begun = Instant::now();
            file.write_all(&[0; 8_192]).unwrap();
            file.sync_data().unwrap();
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[50]
}

/// Without what another load has left to be vacuumed.
fn new_database(cluster: &Cluster) {
    cluster.sql("postgres", "DROP DATABASE IF EXISTS bench WITH (FORCE)");
    cluster.sql("postgres", "CREATE DATABASE bench");
}

fn copy(cluster: &Cluster, directory: &TempDir) {
    new_database(cluster);
    cluster.sql(
        "bench",
        "CREATE TABLE floor (id bytea, seed bytea) WITH (autovacuum_enabled = off)",
    );
    let mut text = String::new();
    for row in 0..ROWS {
        let mixed = u64::from(row).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        text += &format!("\\\\x{row:032x}\t\\\\x{mixed:016x}{row:016x}\n");
    }
    let file = directory.path().join("rows");
    std::fs::write(&file, text).unwrap();
    let begun = Instant::now();
    cluster.sql("bench", &format!("\\copy floor FROM '{}'", file.display()));
    let rate = f64::from(ROWS) / begun.elapsed().as_secs_f64();
    println!("COPY of {ROWS} identifiers and seeds, no index, one commit: {rate:.0} rows/s");
}

pub(crate) fn beside_copy() {
    let directory = directory();
    for (name, settings, has_standby) in [
        ("PostgreSQL", &[][..], false),
        (
            "PostgreSQL, synchronous standby",
            &["synchronous_standby_names=standby"][..],
            true,
        ),
    ] {
        let Some(cluster) = Cluster::start_with(settings) else {
            return;
        };
        let _standby = has_standby.then(|| cluster.standby("standby"));
        println!("{name}, {:.2} ms a sync", sync_ms(&directory));
        if !has_standby {
            copy(&cluster, &directory);
        }
        let batches = Load {
            batch: 1_000,
            ..Load::singles(40, SEEDS, 12)
        };
        for (load, admitted) in [
            (batches, Admitted::ByNothing),
            (batches, Admitted::ByTokens),
            (batches, Admitted::Refused),
            (Load::singles(40, SEEDS, 256), Admitted::ByNothing),
        ] {
            if !has_standby && admitted == Admitted::ByNothing {
                print!("embedded: ");
                load.print();
            }
            for servers in 1..=3 {
                on(&cluster, &directory, load, admitted, servers);
            }
        }
    }
}

/// A file with the study's tokens, or with as many that it does not know.
async fn tokens(store: &Store, study: &Study, admitted: Admitted, directory: &TempDir) -> PathBuf {
    let mut bytes = Vec::with_capacity(TOKENS * TOKEN_LEN);
    while bytes.len() < TOKENS * TOKEN_LEN {
        let issued = store.issue_tokens(study, MAX_TOKENS_PER_REQUEST).await;
        let IssueTokensResponse { tokens } = issued.unwrap();
        let issued = tokens.iter().map(|text| ParticipantToken::parse(text));
        bytes.extend(issued.flat_map(|token| *token.unwrap().as_bytes()));
    }
    if admitted == Admitted::Refused {
        let others = bytes.chunks_mut(TOKEN_LEN);
        others.for_each(|token| token[0] ^= 1);
    }
    let file = directory.path().join("tokens");
    std::fs::write(&file, bytes).unwrap();
    file
}

fn on(cluster: &Cluster, directory: &TempDir, load: Load, admitted: Admitted, number: usize) {
    new_database(cluster);
    let url = cluster.url("bench");
    let config = ServerConfig {
        store: Some(url.parse().unwrap()),
        ..ServerConfig::new(directory.path().join("own"))
    };
    migrate_store(&config.of_store(), &Environment::system()).unwrap();
    let store = Store::open(&config.of_store(), Environment::system()).unwrap();
    let wanted: CreateStudyRequest = serde_json::from_value(json!({
        "name": "bench", "dimension": load.p, "mechanism": load.mechanism, "epsilon": 1.0,
        "enrolment": if admitted == Admitted::ByNothing { "open" } else { "token" },
    }))
    .unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let study = runtime.block_on(store.create_study(wanted)).unwrap();
    let tokens = (admitted != Admitted::ByNothing)
        .then(|| runtime.block_on(tokens(&store, &study, admitted, directory)));
    drop(store);
    let path = format!("/v1/studies/{}/reports", study.id());
    // After the study: they know it from the start.
    let servers: Vec<Serving> = (0..number)
        .map(|n| Serving::start(&url, directory, n))
        .collect();
    let addresses: Vec<&str> = servers
        .iter()
        .map(|server| server.address.as_str())
        .collect();
    let cpu = || -> Vec<f64> {
        let of_servers = servers
            .iter()
            .map(|s| Process::child(s.process.id()).cpu_seconds());
        of_servers
            .chain([Process::family_seconds(cluster.pid())])
            .collect()
    };
    // Of the database: its log and its tables.
    let bytes = || {
        ["pg_current_wal_lsn() - '0/0'", "pg_database_size('bench')"].map(|what| {
            let text = cluster.sql("bench", &format!("SELECT {what}"));
            text.trim().parse::<f64>().unwrap()
        })
    };
    let (before, size) = (cpu(), bytes());
    let canonical = &study.document().canonical_params;
    let (this, addresses) = (Process::this(), addresses.join(","));
    let outcome = load.send(&this, &addresses, &path, canonical, tokens.as_deref());
    let counted = cluster.sql(
        "bench",
        &format!(
            "SELECT sum(n) FROM eigenveil.buckets JOIN eigenveil.studies USING (study) WHERE id = '\\x{}'",
            study.id()
        ),
    );
    let wanted = match admitted {
        Admitted::Refused => 0,
        Admitted::ByNothing | Admitted::ByTokens => outcome.reports,
    };
    assert_eq!(counted, wanted.to_string());
    let spent: Vec<String> = before
        .iter()
        .zip(cpu())
        .map(|(before, after)| format!("{:.1}", (after - before) * 1e6 / outcome.reports as f64))
        .collect();
    let grown = size.iter().zip(bytes());
    let grown: Vec<String> = grown
        .map(|(before, after)| format!("{:.0}", (after - before) / outcome.reports as f64))
        .collect();
    let label = match admitted {
        Admitted::ByNothing => "",
        Admitted::ByTokens => ", with tokens",
        Admitted::Refused => ", refused for their tokens",
    };
    println!(
        "{number} server(s), connections={} batch={}{label}: {:.0} reports/s, µs of CPU a report of each and of PostgreSQL: {}, bytes of log and of tables: {}",
        load.connections,
        load.batch,
        outcome.rate,
        spent.join(" "),
        grown.join(" ")
    );
}
