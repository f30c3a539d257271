//! Estimates: requested, computed in order, fetched, cancelled, resumed after a restart.

use axum::http::{StatusCode, header};
use eigenveil_server::EstimateList;
use eigenveil_shared::{
    ErrorCode as E,
    api::{EstimateJob, EstimateState, StudyDocument},
    estimate::{ComponentCount, Estimate, Verdict},
    packed::{packed_index, packed_len},
    privacy::PrivacyStatement,
};
use eigenveil_store::database_path;
use serde_json::json;

use crate::{
    browser::Browser,
    common::{Harness, at, batch_with, new_id, params, refused, waiting::until},
};

/// Ten thousand noiseless reports of the row e₂ (a cheap substitute for the law of large numbers), so that the result
/// is known.
async fn study_with_reports(server: &Harness, p: usize) -> StudyDocument {
    study_with_reports_of(server, p, &[(1, 1, 1.0)]).await
}

/// A study with these noiseless reports, given by their nonzero entries.
async fn study_with_reports_of(
    server: &Harness,
    p: usize,
    report: &[(usize, usize, f32)],
) -> StudyDocument {
    let names: Vec<_> = (0..p).map(|i| json!({"name": format!("=f,{i}")})).collect();
    let study = server
        .study_with(json!({"dimension": p, "features": names, "epsilon": 8.0, "default_k": 2}))
        .await;
    let mut entries = vec![0.0_f32; packed_len(p)];
    for &(i, j, entry) in report {
        entries[packed_index(p, i, j)] = entry;
    }
    let payload: Vec<u8> = entries.iter().flat_map(|x| x.to_le_bytes()).collect();
    for _ in 0..4 {
        let reports: Vec<_> = (0..2_500).map(|_| (new_id(), &payload)).collect();
        server.receipt(&study, batch_with(&study, &reports)).await;
    }
    study
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_estimate_can_be_fetched_in_every_format() {
    let server = Harness::new();
    let study = study_with_reports(&server, 5).await;
    let location = server.ask_estimate(&study, json!({})).await;
    let done = server.wait_for_estimate(&location).await;
    assert_eq!(
        (done.number, done.state),
        (1, EstimateState::Done),
        "{:?}",
        done.problem
    );
    let estimate = done.estimate.unwrap();
    assert_eq!((estimate.n, estimate.p, estimate.k), (10_000, 5, 2));
    assert_eq!(estimate.requested_k, ComponentCount::Fixed(2));
    assert_eq!(estimate.components[0].loadings, [0.0, 1.0, 0.0, 0.0, 0.0]);
    assert_eq!(estimate.components[0].verdict, Verdict::Above);
    assert!((estimate.total_variance.unwrap() - 1.0).abs() < 1e-12);
    assert_eq!(estimate.privacy, PrivacyStatement::new(params(&study)));
    assert_eq!(estimate.fingerprint, study.fingerprint);
    assert_eq!(estimate.params.rows().unwrap(), params(&study));
    // The influence of one report.
    let expected = params(&study).mechanism().report_influence(5) / 10_000.0;
    let influence = estimate.influence;
    assert!(influence > 0.0 && (influence - expected).abs() < 1e-12 * expected);

    let json = server.read(&format!("{location}?format=json")).await;
    assert_eq!(json.json::<Estimate>(), estimate);

    let csv = server.read(&format!("{location}?format=csv")).await;
    assert_eq!(csv.headers[header::CONTENT_TYPE], "text/csv; charset=utf-8");
    let mut reader = csv::Reader::from_reader(csv.body.as_slice());
    assert_eq!(
        reader.headers().unwrap(),
        vec![
            "feature".to_owned(),
            "component_1 (above)".to_owned(),
            format!("component_2 ({})", estimate.components[1].verdict.as_str()),
        ]
    );
    for (i, record) in reader.records().enumerate() {
        let record = record.unwrap();
        // The name is the feature's, also where a spreadsheet could take it for a formula.
        assert_eq!(record[0], format!("=f,{i}"));
        for (j, component) in estimate.components.iter().enumerate() {
            assert_eq!(record[j + 1].parse::<f64>().unwrap(), component.loadings[i]);
        }
    }

    let npy = server.read(&format!("{location}?format=npy")).await.body;
    assert_eq!(&npy[..8], b"\x93NUMPY\x01\x00");
    let header_len = usize::from(u16::from_le_bytes([npy[8], npy[9]]));
    assert_eq!((10 + header_len) % 64, 0);
    let head = std::str::from_utf8(&npy[10..10 + header_len]).unwrap();
    assert_eq!(
        head.trim_end(),
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 5), }"
    );
    assert!(head.ends_with('\n'));
    let numbers: Vec<f64> = npy[10 + header_len..]
        .chunks_exact(8)
        .map(|b| f64::from_le_bytes(b.try_into().unwrap()))
        .collect();
    let rows = estimate.components.iter();
    let rows: Vec<f64> = rows.flat_map(|c| c.loadings.clone()).collect();
    assert_eq!(numbers, rows);

    for query in ["format=xml", "format=", "fmt=csv", "format=csv&x=1"] {
        let response = server.read(&format!("{location}?{query}")).await;
        response.is_problem(422, E::InvalidRequest);
    }
    // A finished estimate never changes, even after a restart.
    let response = server.remove(&location).await;
    response.is_problem(409, E::InvalidTransition);
    let server = server.restart();
    let again = server.wait_for_estimate(&location).await;
    assert_eq!(again.estimate.unwrap(), estimate);
    // However large it is, as JSON it is sent as it is stored, without parsing.
    let stored = "{\"not\":   \"parsed\"}";
    let update = "UPDATE estimates SET estimate = ?";
    server.database().execute(update, [stored]).unwrap();
    let response = server.read(&format!("{location}?format=json")).await;
    assert_eq!(response.status, StatusCode::OK);
    assert_eq!(response.headers[header::CONTENT_TYPE], "application/json");
    assert_eq!(response.body, stored.as_bytes());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_mean_report_and_its_correlations_are_there_if_asked_for() {
    let server = Harness::new();
    let entries = [(0, 0, 0.5), (0, 1, 0.25), (1, 1, 0.5)];
    let study = study_with_reports_of(&server, 3, &entries).await;
    let plain = server.ask_estimate(&study, json!({})).await;
    server.wait_for_estimate(&plain).await;
    let text = server.read(&format!("{plain}?format=json")).await.body;
    assert!(!String::from_utf8_lossy(&text).contains("mean_report"));
    let path = format!("/studies/{}", study.id);
    let mut browser = Browser::operator(&server).await;
    assert!(!browser.page(&path).await.has("#correlations"));

    let asked = server.ask_estimate(&study, json!({"moment": true})).await;
    let done = server.wait_for_estimate(&asked).await;
    assert!(done.request.moment);
    let list: EstimateList = server.read(&at(&study, "/estimates")).await.json();
    let mut listed = list.estimates.iter();
    assert!(listed.len() == 2 && listed.all(|job| job.estimate.is_none()));
    let report = done.estimate.unwrap().mean_report.unwrap();
    for (entry, of) in report.iter().zip([0.5, 0.25, 0.0, 0.5, 0.0, 0.0]) {
        assert!((entry - of).abs() < 1e-12, "{report:?}");
    }
    // Two of the three are refused: the third feature has no variance.
    let page = browser.page(&path).await;
    for words in [
        "1 of 3, 2 refused",
        "describe directions only, not values",
        "Correlation of directions",
        "=f,0 ~ =f,1",
        "0.50",
    ] {
        page.says("#correlations", words);
    }

    for (changes, words) in [
        (json!({"dimension": 1_001}), "1000 features, not 1001"),
        (json!({"weights": {"mean": 0.5}}), "weights"),
    ] {
        let path = at(&server.study_with(changes).await, "/estimates");
        let request = server.tell(&path, json!({"moment": true}));
        let problem = refused(request, 422, E::InvalidRequest).await;
        assert!(problem.detail.contains(words), "{}", problem.detail);
    }
}

/// A request of a study without reports is queued, and fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_requests_are_rejected_before_they_are_queued() {
    let server = Harness::new();
    let study = server.study(3).await;
    let path = at(&study, "/estimates");
    for request in [
        json!({"k": 0}),
        json!({"k": 4}),
        json!({"sparse": {"lambda": -1.0}}),
    ] {
        refused(server.tell(&path, request), 422, E::InvalidRequest).await;
    }
    for request in [json!({"k": "many"}), json!({"sparse": {"gamma": 1}})] {
        refused(server.tell(&path, request), 400, E::MalformedJson).await;
    }
    let list = server.read(&path).await;
    assert_eq!(list.json::<EstimateList>().estimates, []);
    let large = [u64::MAX.to_string(), format!("{}9", u64::MAX)];
    for number in ["0", "1", "-1", "x", &large[0], &large[1]] {
        let estimate = format!("{path}/{number}");
        refused(server.read(&estimate), 404, E::EstimateNotFound).await;
        refused(server.remove(&estimate), 404, E::EstimateNotFound).await;
    }
    let location = server.ask_estimate(&study, json!({})).await;
    let failed = server.wait_for_estimate(&location).await;
    assert_eq!(
        (failed.state, failed.estimate),
        (EstimateState::Failed, None)
    );
    let problem = failed.problem.unwrap();
    assert_eq!((problem.code, problem.status), (E::EstimateFailed, 422));
    assert!(problem.detail.contains("n = 0"), "{}", problem.detail);
    for format in ["json", "csv", "npy"] {
        let response = server.read(&format!("{location}?format={format}")).await;
        response.is_problem(409, E::EstimateNotReady);
    }
}

/// A job that never ends by itself: cancelled ones stay cancelled, unfinished ones run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_are_queued_cancelled_and_survive_a_restart() {
    // The server would wait for its estimates for ever: it stops soon only because they are interrupted.
    let server = Harness::with(|config| config.shutdown_timeout_ms = 24 * 3_600_000);
    let study = study_with_reports(&server, 40).await;
    // Reports without structure, so that the solver has work to do.
    let noisy: Vec<_> = (0..2_500)
        .map(|_| {
            let entries =
                (0..packed_len(40) as u32).map(|i| (i * 7_919 % 1_000) as f32 / 500.0 - 1.0);
            (
                new_id(),
                entries.flat_map(f32::to_le_bytes).collect::<Vec<u8>>(),
            )
        })
        .collect();
    server.receipt(&study, batch_with(&study, &noisy)).await;
    let endless = json!({"k": 2, "sparse": {"tolerance": 1e-300, "max_iterations": 1_000_000}});
    let first = server.ask_estimate(&study, endless).await;
    let second = server.ask_estimate(&study, json!({"k": 1})).await;
    let third = server.ask_estimate(&study, json!({"k": 2})).await;
    for location in [&first, &second, &third] {
        let response = server.read(&format!("{location}?format=npy")).await;
        response.is_problem(409, E::EstimateNotReady);
    }
    // Cancel a waiting one, twice.
    for _ in 0..2 {
        let cancelled = server.remove(&second).await;
        assert_eq!(cancelled.status, StatusCode::OK);
        let cancelled: EstimateJob = cancelled.json();
        assert_eq!(cancelled.state, EstimateState::Cancelled);
    }
    let attempts = || server.column::<u32>("SELECT attempts FROM estimates LIMIT 1");
    until("the first has begun", async || attempts() == [1]).await;
    // Reports and studies continue meanwhile, and the server stops although a job is running.
    assert_eq!(server.accepted(&study).await, 12_500);
    let server = server.restart();
    assert_eq!(server.state_of(&first).await, EstimateState::Running);
    assert_eq!(server.state_of(&second).await, EstimateState::Cancelled);
    assert_eq!(server.state_of(&third).await, EstimateState::Running);
    // Cancelling the running one lets the next one start.
    server.remove(&first).await;
    let ended = server.wait_for_estimate(&third).await;
    assert_eq!(ended.state, EstimateState::Done);
    assert_eq!(server.state_of(&first).await, EstimateState::Cancelled);
    let response = server.read(&format!("{second}?format=csv")).await;
    response.is_problem(409, E::EstimateNotReady);
}

/// A job that crashed the process three times fails instead of running again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crashing_job_is_abandoned() {
    let server = Harness::new();
    let study = server.study(3).await;
    let (directory, config) = server.stop();
    rusqlite::Connection::open(database_path(&config.data_dir))
        .unwrap()
        .execute(
            "INSERT INTO estimates (study_pk, number, state, request, attempts, created_at_ms)
             VALUES (1, 1, 'running', '{}', 3, 0)",
            [],
        )
        .unwrap();
    let server = Harness::start(directory, config);
    let failed = server.wait_for_estimate(&at(&study, "/estimates/1")).await;
    assert_eq!(failed.state, EstimateState::Failed);
    assert!(failed.problem.unwrap().detail.contains("stopped 3 times"));
}
