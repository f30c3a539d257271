//! Sites report their tables from the command line to a real server: once each, whatever happens, and only what was shown
//! to them. (`client/tests/client/site.rs` and `site_upload.rs` look into the ledger.)

use std::{
    process::{Child, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    documentation::as_typed,
    harness::{
        Folder, ServerProcess, has, json_of, mode_of, refused, run, run_json, says, stderr,
        succeeded,
    },
    html,
};

/// A server with a study of sites whose rows have three numbers.
struct Consortium {
    server: ServerProcess,
    folder: Folder,
    study: String,
}

impl Consortium {
    fn new(flags: &str) -> Self {
        let folder = Folder::new();
        let server = folder.server();
        let study = server.create_study(&format!("--p 3 --epsilon 4 --max-rows 1000 {flags}"));
        Self {
            server,
            folder,
            study,
        }
    }

    /// A file with a new token of this site.
    fn token(&self, site: &str, more: &str) -> String {
        let number = self.folder.names("").len();
        let out = self.folder.at(&format!("token{number}.txt"));
        let line = format!(
            "study tokens {} --site '{site}' --out {out} {more}",
            self.study
        );
        let answer = self.server.cli_json(&line);
        assert_eq!(answer["count"], 1);
        assert_eq!(mode_of(&out), 0o600);
        out
    }

    fn line(&self, site: &str, rows: &str, more: &str) -> String {
        let study = &self.study;
        format!("report --header no --study {study} --site '{site}' --rows {rows} {more}")
    }

    fn report(&self, site: &str, rows: &str, more: &str) -> Output {
        self.server.cli(&self.line(site, rows, more))
    }

    /// Reports a table that is to be acknowledged.
    #[track_caller]
    fn approved(&self, site: &str, rows: &str, more: &str) -> serde_json::Value {
        self.server
            .cli_json(&self.line(site, rows, &format!("--approve {more}")))
    }

    #[track_caller]
    fn spent(&self, issued: u64, spent: u64) {
        let counts = self
            .server
            .cli_json(&format!("study tokens {}", self.study));
        has(&counts, &format!("issued={issued} spent={spent}"));
        assert_eq!(self.server.accepted(&self.study), spent);
    }
}

/// A table without a header.
fn table(rows: usize, offset: usize) -> String {
    let rows = (offset..offset + rows).map(|i| format!("{},{},{}\n", i % 7, i % 5 + 1, i % 3));
    rows.collect()
}

#[test]
fn every_sites_table_is_one_report_that_is_asked_for_and_charged_once() {
    let sites = Consortium::new("");
    let tables = [("North", 30), ("St. Mary", 50), ("Ärhus-2", 20)];
    let mut ledgers = Vec::new();
    for (site, rows) in tables {
        let file = sites.folder.write("table.csv", table(rows, rows));
        let tokens = format!("--tokens {}", sites.token(site, ""));
        let nobody = sites.report(site, &file, &tokens);
        let words = [
            "Each row of the table",
            "everybody but the site",
            &format!("shown only to you: rows: {rows}"),
            "--approve",
        ];
        refused(&nobody, 2, &words);
        let checked = sites.report(site, &file, &format!("{tokens} --check"));
        says(
            &succeeded(&checked),
            &["nothing was perturbed", &format!("rows: {rows}")],
        );
        let ledger = sites.folder.at(&format!("{site}.ledger"));
        assert!(!std::fs::exists(&ledger).unwrap());
        let first = sites.approved(site, &file, &tokens);
        has(
            &first,
            &format!("accepted=1 acknowledged=1 pending=0 charged.rows={rows}"),
        );
        // Again, without its token, and where nobody is asked.
        let again = json_of(&sites.report(site, &file, "--json"));
        has(&again, "accepted=0 acknowledged=1 charged.rows=0");
        let study = &sites.study;
        let give_up = format!("report --give-up --study {study} --site '{site}' --rows {file}");
        has(&run_json(&give_up), "given_up=0 acknowledged=1");
        ledgers.push((ledger, rows));
    }
    sites.spent(3, 3);
    for (ledger, rows) in ledgers {
        let receipt = succeeded(&run(&format!("receipt '{ledger}'")));
        says(&receipt, &[format!("a table of {rows} rows")]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_on_the_studys_page_works() {
    let sites = Consortium::new("--rows-per-person 2");
    let url = format!("{}/studies/{}/participate", sites.server.url, sites.study);
    let answer = reqwest::get(url).await.unwrap().error_for_status().unwrap();
    let page = html::parse(&answer.text().await.unwrap());
    let printed = html::text(html::select(&page, "#report-command")[0]);
    sites.folder.write(
        "TABLE.csv",
        "who,a,b,c\nx,1,2,3\nx,2,2,3\nx,1,1,1\ny,3,2,1\n",
    );
    let token = sites.token("NAME", "");
    std::fs::rename(token, sites.folder.at("TOKEN.txt")).unwrap();
    let line = printed.replace("COLUMN", "who");
    let reported = as_typed(&sites.folder, &format!("{line} --approve"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    says(
        &stderr(&reported),
        &["Each person at one site", "persons: 2", "more than 2: 1"],
    );
    says(
        &succeeded(&reported),
        &["1 report acknowledged (1 now)", "2 persons"],
    );
    let give_up = html::text(html::select(&page, "#give-up-command")[0]);
    let given_up = as_typed(&sites.folder, &give_up).output().unwrap();
    says(&succeeded(&given_up), &["nothing to give up", "1 report"]);
    sites.spent(1, 1);
}

/// The server's answer about a token is known before anything is charged.
#[test]
fn a_token_that_cannot_be_used_charges_nothing() {
    let sites = Consortium::new("");
    let file = sites.folder.write("table.csv", table(60, 0));
    let (north, small) = (
        sites.token("North", ""),
        sites.token("North", "--max-rows 59"),
    );
    let south = sites.token("South", "");
    let report = |more: &str| sites.report("North", &file, &format!("--approve {more}"));
    let unknown = sites.folder.write("unknown.txt", "ab".repeat(32));
    let two = sites.folder.write(
        "two.txt",
        format!("{}\n{}\n", "ab".repeat(32), "cd".repeat(32)),
    );
    let cases: [(String, i32, &[&str]); 7] = [
        (String::new(), 2, &["--tokens FILE", "study tokens"]),
        (
            format!("--tokens {unknown}"),
            1,
            &["[participant-token-unknown]"],
        ),
        (format!("--tokens {two}"), 2, &["one token"]),
        (
            format!("--tokens {small}"),
            2,
            &["60 rows", "at most 59", "nothing was charged"],
        ),
        (
            format!("--tokens {south}"),
            2,
            &["\"South\"", "\"North\"", "--site"],
        ),
        (
            format!("--tokens {north} --min-rows 61"),
            2,
            &["60 rows", "at least 61", "--min-rows", "psilon"],
        ),
        (
            format!("--tokens {north} --limit-epsilon-per-study 3"),
            1,
            &["[budget-exceeded]"],
        ),
    ];
    for (more, exit, words) in cases {
        println!("{more}");
        let output = report(&more);
        refused(&output, exit, words);
        assert!(!std::fs::exists(sites.folder.at("North.ledger")).unwrap());
    }
    sites.spent(3, 0);
    // Spent for another table of the same site.
    has(
        &sites.approved("North", &file, &format!("--tokens {north}")),
        "accepted=1",
    );
    let other = sites.folder.write("other.csv", table(10, 0));
    let more = format!("--tokens {north} --ledger {}", sites.folder.at("other"));
    let spent = sites.report("North", &other, &format!("--approve {more}"));
    says(&stderr(&spent), &["[token-spent]", "nothing was charged"]);
    assert!(!std::fs::exists(sites.folder.at("other")).unwrap());
    sites.spent(3, 1);
}

/// A table without persons makes one report for ever.
#[test]
fn a_table_that_is_not_the_same_is_refused() {
    let sites = Consortium::new("");
    let text = table(40, 0);
    let file = sites.folder.write("table.csv", &text);
    let token = sites.token("North", "");
    sites.approved("North", &file, &format!("--tokens {token}"));
    let receipt = format!("receipt {}", sites.folder.at("North.ledger"));
    let before = run_json(&receipt);
    let mut turned: Vec<&str> = text.lines().collect();
    turned.reverse();
    let shorter = text.lines().take(39).collect::<Vec<_>>();
    let tables = [
        turned.join("\n"),
        shorter.join("\n"),
        text.replacen("1,2,1", "1,2,2", 1),
        format!("{text}1,1,1\n"),
    ];
    let other = sites.token("North", "");
    for changed in tables {
        let file = sites.folder.write("table.csv", changed);
        let output = sites.report("North", &file, &format!("--approve --tokens {other}"));
        assert!(!output.status.success() && output.stdout.is_empty());
        says(&stderr(&output), &["--ledger"]);
        assert_eq!(run_json(&receipt), before);
    }
    let file = sites.folder.write("table.csv", "");
    refused(&sites.report("North", &file, "--approve"), 2, &["no rows"]);
    // The ledger has the name of the site.
    let file = sites.folder.write("table.csv", &text);
    let renamed = format!("--approve --ledger {}", sites.folder.at("North.ledger"));
    let output = sites.report("Nort", &file, &renamed);
    refused(&output, 2, &["\"North\"", "\"Nort\""]);
    sites.spent(2, 1);
}

#[test]
fn a_later_table_sends_persons_who_were_never_charged() {
    let sites = Consortium::new("--rows-per-person 3");
    let with_persons = |persons: std::ops::Range<usize>| {
        let rows = persons.map(|person| format!("patient-{person},{},1,2\n", person % 7));
        let mut rows: Vec<String> = rows.collect();
        rows.reverse();
        format!("who,a,b,c\n{}", rows.concat())
    };
    let report = |rows: &str, more: &str| {
        let study = &sites.study;
        sites.server.cli(&format!(
            "report --header yes --study {study} --site North --person who --rows {rows} {more}"
        ))
    };
    let file = sites.folder.write("table.csv", with_persons(0..50));
    let first = sites.token("North", "");
    let without = format!(
        "report --header yes --study {} --site North --drop who --rows {file} --approve --tokens {first}",
        sites.study
    );
    refused(&sites.server.cli(&without), 2, &["--person"]);
    let done = json_of(&report(
        &file,
        &format!("--approve --json --tokens {first}"),
    ));
    has(&done, "accepted=1 charged.rows=50");
    let file = sites.folder.write("table.csv", with_persons(20..80));
    let spent = report(&file, &format!("--approve --tokens {first}"));
    says(&stderr(&spent), &["[token-spent]"]);
    let second = sites.token("North", "--max-rows 30");
    let checked = report(&file, &format!("--check --tokens {second}"));
    says(&succeeded(&checked), &["persons: 30", "charged before: 30"]);
    let done = json_of(&report(
        &file,
        &format!("--approve --json --tokens {second}"),
    ));
    has(&done, "accepted=1 acknowledged=2 charged.rows=30");
    let again = json_of(&report(&file, "--json"));
    has(&again, "accepted=0 acknowledged=2 charged.rows=0");
    sites.spent(2, 2);
    let ledger = std::fs::read(sites.folder.at("North.ledger")).unwrap();
    assert!(!String::from_utf8_lossy(&ledger).contains("patient-"));
    // A table that does not say whose its rows are could charge somebody twice.
    let rows = sites
        .server
        .create_study("--p 3 --epsilon 4 --max-rows 100");
    let plain = sites.folder.write("plain.csv", table(9, 0));
    let line = format!(
        "report --header no --study {rows} --site North --rows {plain} --tokens {second} --approve"
    );
    assert_eq!(sites.server.cli(&line).status.code(), Some(2));
}

/// A program that writes 7 as 7.0 would have everybody charged again.
#[test]
fn persons_whose_numbers_are_spelled_otherwise_are_not_charged_again() {
    let sites = Consortium::new("--rows-per-person 3");
    let write = |name: &str, before: &str, after: &str| {
        let rows = (0..30).map(|person| format!("{before}{person}{after},1,2,3\n"));
        let rows: String = rows.collect();
        sites.folder.write(name, format!("who,a,b,c\n{rows}"))
    };
    let token = || sites.token("North", "");
    let report = |rows: &str, token: &str, more: &str| {
        let study = &sites.study;
        sites.server.cli(&format!(
            "report --header yes --study {study} --site North --person who --rows {rows} --ledger {} --tokens {token} {more}",
            sites.folder.at("North.ledger")
        ))
    };
    let first = write("first.csv", "", "");
    has(
        &json_of(&report(&first, &token(), "--approve --json")),
        "accepted=1 charged.rows=30",
    );
    let floats = write("floats.csv", "", ".0");
    let output = report(&floats, &token(), "--approve");
    refused(
        &output,
        2,
        &["row 1 ", "another spelling", "nothing was charged"],
    );
    // Text that means no number stays another person, and the site is told.
    let letters = write("letters.csv", "n", "");
    let checked = report(&letters, &token(), "--check");
    says(
        &succeeded(&checked),
        &[
            "persons: 30",
            "the ledger knows 30 persons, and none of these",
        ],
    );
    sites.spent(3, 1);
}

#[test]
fn a_row_study_and_one_of_sites_are_not_mistaken() {
    let sites = Consortium::new("");
    let file = sites.folder.write("table.csv", table(9, 0));
    let of_rows = sites.server.create_study("--p 3 --epsilon 4");
    let report = |study: &str, more: &str| {
        sites.server.cli(&format!(
            "report --header no --study {study} --rows {file} {more}"
        ))
    };
    for check in ["", "--check"] {
        let mistaken = report(&sites.study, check);
        refused(&mistaken, 2, &["--site NAME"]);
        let mistaken = report(&of_rows, &format!("--site North {check}"));
        refused(&mistaken, 2, &["leave --site out"]);
    }
    let slash = sites.report("a/b", &file, "--approve");
    refused(&slash, 2, &["\"a/b\"", "--ledger FILE"]);
    assert_eq!(sites.server.accepted(&of_rows), 0);
    sites.spent(0, 0);
    // The ledger has another digest of the file for either kind: nobody is told that the rows are others.
    let ledger = format!("--ledger {}", sites.folder.at("rows.ledger"));
    succeeded(&report(&of_rows, &ledger));
    let more = format!("{ledger} --approve --tokens {}", sites.token("North", ""));
    let after = sites.report("North", &file, &more);
    refused(
        &after,
        1,
        &["study of the other kind", "--same-participants"],
    );
}

/// No value refuses a table, and none is shown; a column of words is only counted.
#[test]
fn no_value_refuses_a_table_and_none_is_printed() {
    let sites = Consortium::new("");
    let lines = (0..40).map(|i| match i % 4 {
        0 => "secretvalue,1,2\n",
        1 => "NaN,1e999,2\n",
        2 => "1,2,3,0.7391\n",
        _ => "secretvalue,,\n",
    });
    let file = sites.folder.write("table.csv", lines.collect::<String>());
    let token = sites.token("North", "");
    let more = format!("--approve --tokens {token}");
    let sent = sites.report("North", &file, &more);
    let asked = stderr(&sent);
    says(&asked, &["shown only to you", "in the count: 40", "cells:"]);
    let printed = succeeded(&sent) + &asked;
    for value in ["secretvalue", "0.7391", "1e999"] {
        assert!(!printed.contains(value), "{printed}");
    }
    sites.spent(1, 1);
}

/// Two runs at once: one waits for or refuses the other, and there is one report.
#[test]
fn two_runs_at_once_make_one_report() {
    let sites = Consortium::new("");
    let file = sites.folder.write("table.csv", table(500, 0));
    let token = sites.token("North", "");
    let line = sites.line(
        "North",
        &file,
        &format!("--approve --json --tokens {token}"),
    );
    let runs: Vec<Child> = (0..4).map(|_| start(&sites.server, &line)).collect();
    let done: Vec<Output> = runs
        .into_iter()
        .map(|run| run.wait_with_output().unwrap())
        .collect();
    assert!(done.iter().any(|run| run.status.success()), "{done:?}");
    has(
        &sites.approved("North", &file, ""),
        "acknowledged=1 charged.rows=0",
    );
    sites.spent(1, 1);
}

fn start(server: &ServerProcess, line: &str) -> Child {
    let mut command = server.command(line);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// 20 sites whose programs are killed anywhere: each site is counted once, and each of its rows is charged once.
fn kill_sites(rounds: u64, seed: u64) {
    const SITES: u64 = 20;
    let sites = Consortium::new("");
    let lines: Vec<String> = (0..SITES)
        .map(|site| {
            let rows = table(200 + site as usize, site as usize);
            let file = sites.folder.write(&format!("table{site}.csv"), rows);
            let token = sites.token(&format!("site {site}"), "");
            let more = format!("--approve --json --tokens {token}");
            sites.line(&format!("site {site}"), &file, &more)
        })
        .collect();
    let begun = Instant::now();
    json_of(
        &sites
            .server
            .cli(&format!("{} --check", lines[0].replace("--approve ", ""))),
    );
    // About as long as a run takes while others run beside it.
    let whole = begun.elapsed().as_micros() as u64 * 4;
    let mut killed = 0;
    for round in 0..rounds {
        let runs: Vec<Child> = lines
            .iter()
            .map(|line| start(&sites.server, line))
            .collect();
        // Each after another part of a run, in each round another one.
        let mut slept = 0;
        for (site, mut run) in (0..).zip(runs) {
            let after = whole * ((site * 37 + round * 11 + seed * 17) % 100) / 100 / SITES;
            thread::sleep(Duration::from_micros(after));
            slept += after;
            run.kill().unwrap();
            killed += u64::from(!run.wait().unwrap().success());
        }
        println!("round {round}: {killed} kills, {slept} us");
    }
    assert!(killed >= rounds, "{killed} kills in {rounds} rounds");
    for (site, line) in lines.iter().enumerate() {
        // Its token was needed only for what was not made.
        let done = json_of(&sites.server.cli(line));
        has(&done, "acknowledged=1 pending=0 refused=0");
        let ledger = sites.folder.at(&format!("site {site}.ledger"));
        let receipt = run_json(&format!("receipt '{ledger}'"));
        let studies = receipt["studies"].as_array().unwrap();
        assert_eq!(studies.len(), 1, "{receipt}");
        assert_eq!(studies[0]["rows"], 200 + site, "{receipt}");
    }
    sites.spent(SITES, SITES);
}

#[test]
fn killed_sites_are_counted_once_and_charged_once() {
    kill_sites(3, 0);
}

#[test]
#[ignore = "minutes of all processors"]
fn killed_sites_are_counted_once_and_charged_once_in_50_rounds() {
    (0..10).for_each(|seed| kill_sites(5, seed));
}
