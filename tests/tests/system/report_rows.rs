//! Rows that are not simply one whole row a participant: missing cells, persons with several rows, and the check before
//! anything is perturbed.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use axum::{
    Router,
    http::{Method, StatusCode, header},
    response::IntoResponse as _,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::harness::{
    Folder, ServerProcess, has, json_of, program, refused, says, stderr, succeeded, words,
};

const FEATURES: &str = "name,center,scale,observed,section
height,170,10,1,
weight,70,15,0.8,scales
fat,20,5,0.8,scales
age,40,20,0.9,
";

/// 400 rows: tall people are heavy; every fifth has no weight and fat, every tenth no age.
fn people() -> String {
    let mut text = String::from("person,height,weight,fat,age\n");
    for i in 0..400 {
        let tall = f64::from(i % 41) - 20.0;
        let (height, age) = (170.0 + tall, 40 + (i * 7) % 11);
        let scales = match i % 5 {
            0 => ",".to_owned(),
            _ => format!("{},{}", 70.0 + 1.4 * tall, 20.0 + 0.4 * tall),
        };
        let age = if i % 10 == 3 {
            String::new()
        } else {
            age.to_string()
        };
        writeln!(text, "p{},{height},{scales},{age}", i / 4).unwrap();
    }
    text
}

fn study(server: &ServerProcess, folder: &Folder, name: &str, features: &str) -> String {
    let features = folder.write(&format!("{name}.csv"), features);
    let study = server.cli_json(&format!(
        "study create --name {name} --k 1 --epsilon 8 --features {features}"
    ));
    study["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_check_says_what_would_be_sent_and_leaves_nothing_behind() {
    let folder = Folder::new();
    let server = folder.server();
    let id = study(&server, &folder, "observed", FEATURES);
    let whole = study(
        &server,
        &folder,
        "whole",
        &FEATURES
            .replace(",observed,section", "")
            .replace(",1,\n", "\n")
            .replace(",0.8,scales", "")
            .replace(",0.9,\n", "\n"),
    );
    let rows = folder.write("people.csv", people());
    let files = || std::fs::read_dir(folder.path()).unwrap().count();
    let before = files();
    let check = format!("report --study {id} --rows {rows} --drop person --check");
    let output = server.cli(&check);
    says(&succeeded(&output), &["nothing was perturbed"]);
    // What cells there are is for whoever is at the terminal, and not for programs.
    let messages = stderr(&output);
    says(
        &messages,
        &[
            "rows: 400",
            "sent as zero rows: 0",
            "missing cells: 200",
            "(weight): 80, column 4 (fat): 80, column 5 (age): 40",
        ],
    );
    // The shares here are those of the study.
    assert!(!messages.contains("observed otherwise"), "{messages}");
    let check = format!("report --json --study {whole} --rows {rows} --drop person --check");
    let output = server.cli(&check);
    says(
        &stderr(&output),
        &[
            "sent as zero rows: 120 that",
            "cells without a number: 200",
            "(weight): 80",
            "shares of the squared length: ",
        ],
    );
    let checked = json_of(&output);
    let mut keys: Vec<&String> = checked.as_object().unwrap().keys().collect();
    keys.sort();
    let known = [
        "already_made",
        "delta",
        "epsilon",
        "given_up",
        "participants",
        "pending",
        "refused",
        "study",
    ];
    assert_eq!(keys, known);
    assert_eq!(files(), before, "a file was written");
    assert_eq!(
        (server.accepted(&id), server.accepted(&whole)),
        (0.into(), 0.into())
    );

    // 30 % of the rows are zeros: said, and asked about at a terminal, but without one nothing depends on it.
    let report = format!("report --study {whole} --rows {rows} --drop person");
    let output = server.cli(&report);
    succeeded(&output);
    assert!(stderr(&output).contains("120 of 400 reports (30.0 %)"));
    assert_eq!(server.accepted(&whole), 400);

    // Shares that differ bias the estimate: said also where the reports are sent.
    let others = study(&server, &folder, "others", &FEATURES.replace("0.8", "0.5"));
    let output = server.cli(&format!(
        "report --study {others} --rows {rows} --drop person --ledger {}",
        folder.at("differ")
    ));
    succeeded(&output);
    let differ = "\"weight\" 80.0 % here, 50.0 % in the study";
    assert!(stderr(&output).contains(differ), "{}", stderr(&output));

    let sent = server.cli_json(&format!(
        "report --study {id} --rows {rows} --drop person --ledger {}",
        folder.at("other")
    ));
    has(&sent, "accepted=400");
    assert!(sent["unusable"].is_null());
    let out = folder.at("result");
    server.cli_json(&format!("estimate --study {id} --wait --out {out}"));
    let estimate = folder.read_json("result/estimate.json");
    assert_eq!(
        estimate["params"]["preprocessing"]["features"][1]["observed"],
        0.8
    );
}

#[test]
fn a_person_with_several_rows_sends_one_report() {
    let folder = Folder::new();
    let server = folder.server();
    let id = study(&server, &folder, "persons", FEATURES);
    let rows = folder.write("visits.csv", people());
    let report = format!("report --study {id} --rows {rows} --person person");
    let printed = succeeded(&server.cli(&format!("{report} --check")));
    for words in ["persons: 100", "the rows of one person"] {
        assert!(printed.contains(words), "{printed}");
    }
    let sent = server.cli_json(&report);
    has(&sent, "accepted=100 rows=100");
    assert_eq!(sent["charged"]["rows"], 100);
    // Again: nothing is drawn, charged or counted a second time.
    let again = server.cli_json(&report);
    has(&again, "accepted=0 acknowledged=100");
    assert_eq!(server.accepted(&id), 100);
    // The same file with rows as participants, or with other persons, is another set of participants.
    for other in ["--drop person", "--person age --drop person"] {
        let output = server.cli(&format!("report --study {id} --rows {rows} {other}"));
        assert!(!output.status.success(), "{other}");
        assert_eq!(server.accepted(&id), 100);
    }
    for (flags, words) in [
        ("--person nobody", "nobody"),
        ("--person age --drop person", "age"),
    ] {
        refused(
            &server.cli(&format!("report --study {id} --rows {rows} {flags}")),
            2,
            &[words],
        );
    }
}

/// The table that bindings read too: one person is one, however a file writes it, and two are never one.
#[test]
fn identifiers_of_persons_are_exact_text() {
    let folder = Folder::new();
    let server = folder.server();
    let features = folder.write("features.csv", "name\na\nb\n");
    let study = server.create_study(&format!("--epsilon 4 --features {features}"));
    let cases = include_str!("../../../bindings/conformance/persons.json");
    for case in serde_json::from_str::<Vec<Value>>(cases).unwrap() {
        let labels = case["labels"].as_array().unwrap().iter();
        let lines = labels.map(|label| match label {
            Value::Null => ",1,2\n".to_owned(),
            Value::String(text) => format!("\"{text}\",1,2\n"),
            other => format!("{other},1,2\n"),
        });
        let lines: String = lines.collect();
        let rows = folder.write("persons.csv", format!("who,a,b\n{lines}"));
        let output = server.cli(&format!(
            "report --study {study} --rows {rows} --person who --check"
        ));
        if let Some(row) = case["refused"].as_u64() {
            refused(&output, 2, &[&format!("row {row} ")]);
            continue;
        }
        let persons = case["persons"].as_array().unwrap().iter();
        let last = persons.filter_map(Value::as_u64).max().unwrap();
        says(&succeeded(&output), &[&format!("persons: {}; ", last + 1)]);
    }
}

#[test]
fn weights_are_asked_for_and_sent() {
    let folder = Folder::new();
    let server = folder.server();
    let mut text = String::from("weight,a,b\n");
    for i in 0..200 {
        writeln!(text, "{},{},{}", [1.0, 0.25][i % 2], i % 7, i % 5).unwrap();
    }
    let rows = folder.write("rows.csv", text);
    let features = folder.write("features.csv", "name,center\na,3\nb,2\n");
    let create = |name: &str, flags: &str| {
        let line = format!("study create --name {name} --epsilon 8 --features {features} {flags}");
        server.cli_json(&line)["id"].as_str().unwrap().to_owned()
    };
    let weighted = create("weighted", "--weights --mean-weight 0.625");
    let plain = create("plain", "");
    let report =
        |id: &str, flags: &str| server.cli(&format!("report --study {id} --rows {rows} {flags}"));
    refused(&report(&weighted, "--drop weight"), 2, &["--weight COLUMN"]);
    refused(
        &report(&plain, "--weight weight"),
        2,
        &["leave --weight out"],
    );
    refused(
        &report(&weighted, "--weight weight --person a"),
        2,
        &["cannot be used"],
    );
    succeeded(&report(&weighted, "--weight weight"));
    assert_eq!(server.accepted(&weighted), 200);
    // Whatever the weights are: one of them must not decide about the others.
    let percent = "weight,a,b\n".to_owned() + &"50 %,1,2\n20,3,4\n0,5,6\n".repeat(15);
    let percent = folder.write("percent.csv", percent);
    let output = server.cli(&format!(
        "report --study {weighted} --rows {percent} --weight weight"
    ));
    succeeded(&output);
    says(
        &stderr(&output),
        &["weights: 15 above 1", "30 that are no number above 0"],
    );
    let create = "study create --name x --p 3 --epsilon 4 --weights";
    for (flags, word) in [
        ("--mean-weight 1.5", "0.01 to 1"),
        ("--mean-weight NaN", "0.01 to 1"),
        (
            "--bound-rows clip --radius 1 --centring",
            "normalize the rows",
        ),
    ] {
        refused(&server.cli(&format!("{create} {flags}")), 2, &[word]);
    }
}

/// Whoever waits for a full server reads why at once, also in a log: standard error is no terminal here.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_is_named_while_its_reports_wait() {
    let folder = Folder::new();
    let server = folder.server();
    let id = server.create_study("--p 3 --epsilon 1");
    let study = reqwest::get(format!("{}/v1/studies/{id}", server.url)).await;
    let study = study.unwrap().bytes().await.unwrap();
    let full = json!({"code": "store-full", "detail": "the store is full", "status": 507, "title": "full", "type": "about:blank"});
    let full = full.to_string();
    let answer = move |method: Method| {
        let (study, full) = (study.clone(), full.clone());
        async move {
            let headers = |kind| [(header::CONTENT_TYPE, kind), (header::RETRY_AFTER, "60")];
            match method {
                Method::GET => (headers("application/json"), study).into_response(),
                _ => {
                    let status = StatusCode::INSUFFICIENT_STORAGE;
                    (status, headers("application/problem+json"), full).into_response()
                }
            }
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
    let rows = folder.write("rows.csv", "1,0,0\n0,1,0\n");
    let line =
        format!("report --server http://{address} --study {id} --header no --rows {rows} --yes");
    let mut report = program();
    report.args(words(&line)).stdin(Stdio::null());
    let mut report = report.stderr(Stdio::piped()).spawn().unwrap();
    let stderr_lines = BufReader::new(report.stderr.take().unwrap()).lines();
    let mut stderr_lines = stderr_lines.map(Result::unwrap);
    let why = stderr_lines.find(|line| line.starts_with("waiting for the server"));
    report.kill().unwrap();
    report.wait().unwrap();
    says(
        &why.expect("a reason"),
        &[
            "the store is full [store-full]",
            "sent again for up to 300 s",
        ],
    );
}
