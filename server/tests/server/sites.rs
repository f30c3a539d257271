//! Studies of sites over HTTP: creation, tokens, tables, and what is refused. (What an engine does with them:
//! `store/src/testing/conformance.rs`; the test of a report: `estimation/src/input/site_report.rs`.)

use std::num::NonZeroUsize;

use axum::http::StatusCode;
use eigenveil_estimation::SiteSum;
use eigenveil_shared::{
    ErrorCode as E,
    api::{
        ImportOutcome, ImportResponse, IssueTokensResponse, ReportOutcome, ReportResponse,
        SiteToken, StudyDocument, StudyList, TokenCounts,
    },
    codec::{self, SiteReportFormat},
    enrolment::{ENROLLED_BATCH_MEDIA_TYPE, ENROLLED_REPORT_MEDIA_TYPE, ParticipantToken},
    estimate::Estimate,
    mechanism::{MechanismKind, table::RowShares},
    parameters::{Parameters, StudyUnit},
    preprocess::{DEFAULT_CENTRING, Row},
    report::{Report, ReportId},
    site_study::SiteStudyParams,
    study::from_hex,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    browser::Browser,
    common::{Harness, Reply, at, design, new_id, refused, report, with_token},
};

/// A study of sites with three features, with these keys changed.
async fn site_study(server: &Harness, changes: Value) -> StudyDocument {
    server.study_with(of_sites(&changes)).await
}

fn of_sites(changes: &Value) -> Value {
    let mut all = json!({"mechanism": null, "enrolment": "token", "sites": {"max_rows": 5_000}});
    for (key, value) in changes.as_object().unwrap() {
        all[key] = value.clone();
    }
    all
}

fn params(study: &StudyDocument) -> &SiteStudyParams {
    study.params.sites().unwrap()
}

async fn issue(server: &Harness, study: &StudyDocument, sites: Value) -> Vec<ParticipantToken> {
    let path = at(study, "/tokens");
    let response = server.tell(&path, json!({ "sites": sites })).await;
    assert_eq!(response.status, StatusCode::CREATED, "{response:?}");
    let issued: IssueTokensResponse = response.json();
    let tokens = issued.tokens.iter();
    tokens
        .map(|text| ParticipantToken::parse(text).unwrap())
        .collect()
}

async fn send(
    server: &Harness,
    study: &StudyDocument,
    token: &ParticipantToken,
    report: Vec<u8>,
) -> Reply {
    let (path, body) = (at(study, "/reports"), with_token(token, report));
    server.post(&path, ENROLLED_REPORT_MEDIA_TYPE, body).await
}

async fn look_up(server: &Harness, study: &StudyDocument, token: &str) -> Reply {
    let body = json!({ "token": token }).to_string();
    let path = at(study, "/tokens/lookup");
    server.post(&path, "application/json", body).await
}

async fn counts(server: &Harness, study: &StudyDocument) -> TokenCounts {
    server.read(&at(study, "/tokens")).await.json()
}

fn sums(server: &Harness, study: &StudyDocument) -> Vec<SiteSum> {
    let store = server.app.store();
    store.site_sums(&server.stored(study)).unwrap()
}

/// The report of a table of so many rows, made as a site makes it.
fn table(study: &StudyDocument, id: ReportId, rows: usize) -> Vec<u8> {
    let row = |number: usize| Row::new(vec![1.0, number as f64, -2.0]);
    let shares = RowShares::of_rows(rows);
    let sum = params(study).sum(&shares, NonZeroUsize::MIN, row).unwrap();
    encoded(study, id, sum.perturb().unwrap())
}

/// A report of zeros but for these numbers, each in units of the sum; the last number is the count.
fn crafted(study: &StudyDocument, id: ReportId, numbers: &[(usize, f64)]) -> Vec<u8> {
    let format = SiteReportFormat::new(params(study));
    let bytes = |numbers: &[i64]| -> Vec<u8> {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        bytes.collect()
    };
    let mut all = vec![0_i64; format.payload_len() / 8];
    let last = all.len() - 1;
    all[last] = 1;
    let one = format.payload(bytes(&all)).unwrap();
    let step = params(study).mechanism().decode(&one).rows;
    all[last] = 0;
    for (number, value) in numbers {
        all[*number] = (value / step).round() as i64;
    }
    encoded(study, id, bytes(&all))
}

fn encoded(study: &StudyDocument, id: ReportId, payload: Vec<u8>) -> Vec<u8> {
    codec::encode_site_report(&Report {
        id,
        fingerprint: params(study).fingerprint(),
        payload,
    })
}

#[tokio::test]
async fn a_study_of_sites_says_what_a_site_has_to_know() {
    let server = Harness::new();
    let terms = json!({"min_rows": 20, "max_rows": 5_000, "rows_per_person": 10, "site_weights": "precision"});
    let study = site_study(&server, json!({ "sites": terms })).await;
    // What a site relies on: the bytes decode to the parameters and have this fingerprint.
    let bytes = from_hex(&study.canonical_params).unwrap();
    let canonical = Parameters::from_canonical(&bytes).unwrap();
    assert_eq!(canonical, study.params);
    assert_eq!(canonical.fingerprint().to_string(), study.fingerprint);
    let terms = params(&study).terms();
    assert_eq!((terms.min_rows, terms.max_rows), (20, 5_000));
    assert_eq!(terms.rows_per_person, Some(10));
    assert_eq!(
        params(&study).preprocessing().centring,
        Some(DEFAULT_CENTRING)
    );
    assert_eq!(
        study.privacy.mechanism,
        MechanismKind::DiscreteGaussian.into()
    );
    assert!(study.privacy.sentence.contains("Each person at one site"));
    assert_eq!(
        (study.max_batch_reports, study.report_bytes),
        (1, 58 + 11 * 8)
    );
    let listed: StudyList = server.get("/v1/studies").await.json();
    assert_eq!(listed.studies[0].unit, StudyUnit::Site);
    // Without a mean, and with a mechanism of its own.
    let changes = json!({"centring": 0.0, "mechanism": "isotropic-gaussian"});
    let other = site_study(&server, changes).await;
    assert_eq!(params(&other).preprocessing().centring, None);
    assert_eq!(
        other.privacy.mechanism,
        MechanismKind::IsotropicGaussian.into()
    );
    for (changes, code, words) in [
        (
            json!({"enrolment": null}),
            E::InvalidRequest,
            "`enrolment` token",
        ),
        (
            json!({"enrolment": "open"}),
            E::InvalidRequest,
            "`enrolment` token",
        ),
        (
            json!({"mechanism": "double-cap", "delta": null}),
            E::InvalidMechanism,
            "discrete-gaussian",
        ),
        (json!({"weights": {}}), E::InvalidRequest, "`weights`"),
        (
            json!({"calibration": "as-published"}),
            E::InvalidRequest,
            "`calibration`",
        ),
        (
            json!({"sites": {"max_rows": 0}}),
            E::InvalidRequest,
            "0 rows",
        ),
        (
            json!({"sites": {"max_rows": 9, "min_rows": 10}}),
            E::InvalidRequest,
            "10 rows",
        ),
        (
            json!({"sites": {"max_rows": 9, "rows_per_person": 1_001}}),
            E::InvalidRequest,
            "1001 rows",
        ),
        (json!({"dimension": 2_896}), E::InvalidDimension, "2896"),
    ] {
        let response = server
            .tell("/v1/studies", design(&of_sites(&changes)))
            .await;
        let problem = response.is_problem(422, code);
        assert!(problem.detail.contains(words), "{problem:?}");
    }
    for sites in [json!({}), json!({"max_rows": 9, "rows": 1}), json!("site")] {
        let response = server.tell("/v1/studies", design(&of_sites(&json!({ "sites": sites }))));
        refused(response, 400, E::MalformedJson).await;
    }
}

#[tokio::test]
async fn a_table_is_kept_under_the_name_of_its_token() {
    let server = Harness::new();
    let study = site_study(&server, json!({})).await;
    let sites = json!([{"site": "St. Mary", "max_rows": 900}, {"site": "Nord"}]);
    let tokens = issue(&server, &study, sites).await;
    let of_token: SiteToken = look_up(&server, &study, &tokens[0].reveal()).await.json();
    let mary = SiteToken {
        site: "St. Mary".to_owned(),
        max_rows: 900,
        spent: false,
    };
    assert_eq!(of_token, mary);
    let (id, other) = (new_id(), new_id());
    let sent = table(&study, id, 800);
    let decoded = codec::decode_site_report(&sent, &SiteReportFormat::new(params(&study))).unwrap();
    let decoded = params(&study).mechanism().decode(&decoded.payload());
    for (status, expected) in [
        (201, ReportOutcome::Accepted),
        (200, ReportOutcome::Duplicate),
    ] {
        let response = send(&server, &study, &tokens[0], sent.clone()).await;
        let outcome: ReportResponse = response.json();
        assert_eq!(
            (response.status.as_u16(), outcome.outcome),
            (status, expected)
        );
    }
    // One report a token.
    let second = send(&server, &study, &tokens[0], table(&study, other, 100)).await;
    second.is_problem(409, E::TokenSpent);
    let second = send(&server, &study, &tokens[1], table(&study, other, 100)).await;
    assert_eq!(second.status, StatusCode::CREATED, "{second:?}");
    let now = counts(&server, &study).await;
    assert_eq!((now.issued, now.spent), (2, 2));
    let nord = SiteToken {
        site: "Nord".to_owned(),
        max_rows: 5_000,
        spent: true,
    };
    let mary = SiteToken {
        spent: true,
        ..mary
    };
    assert_eq!(now.sites, [nord, mary]);
    // As it was sent, to the last bit, also after a restart.
    let server = server.restart();
    let stored = sums(&server, &study);
    assert_eq!(stored[0].site, "St. Mary");
    assert_eq!(
        (stored[0].rows_noisy, &stored[0].sum),
        (decoded.rows, &decoded.moment)
    );
    assert_eq!((stored.len(), stored[1].site.as_str()), (2, "Nord"));
    let document: StudyDocument = server.get(&at(&study, "")).await.json();
    assert_eq!(document.reports_accepted, 2);
    // Buckets of reports that are alike are what cross-validation takes.
    let request = json!({"k": 1, "sparse": {"lambda": "cv"}});
    let response = server.tell(&at(&study, "/estimates"), request).await;
    let problem = response.is_problem(422, E::InvalidRequest);
    assert!(problem.detail.contains("sites are not"), "{problem:?}");
}

/// Three tables in four reports: what the estimate says of them, in its document and on its page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_estimate_of_tables_has_its_sites_beside_the_components() {
    let server = Harness::new();
    let study = site_study(&server, json!({})).await;
    let names = ["St. Mary", "County", "North", "County"];
    let sites = names.map(|site| json!({"site": site, "max_rows": 2_000}));
    let tokens = issue(&server, &study, json!(sites)).await;
    for (token, rows) in tokens.iter().zip([900, 600, 300, 100]) {
        let response = send(&server, &study, token, table(&study, new_id(), rows)).await;
        assert_eq!(response.status, StatusCode::CREATED, "{response:?}");
    }
    let request = json!({"k": 1, "moment": true});
    let location = server.ask_estimate(&study, request).await;
    let done = server.wait_for_estimate(&location).await;
    let estimate = done
        .estimate
        .unwrap_or_else(|| panic!("{:?}", done.problem));
    assert_eq!((estimate.n, estimate.p, estimate.k), (4, 3, 1));
    assert_eq!(estimate.params, study.params);
    assert!(estimate.is_consistent() && estimate.mean_report.is_some());
    let sites = estimate.sites.as_ref().unwrap();
    let lines: Vec<(&str, u64)> = sites
        .sites
        .iter()
        .map(|line| (line.site.as_str(), line.reports))
        .collect();
    assert_eq!(lines, [("St. Mary", 1), ("County", 2), ("North", 1)]);
    // Six standard deviations: once in 5e8 runs.
    assert!(
        (sites.rows - 1_900.0).abs() < 6.0 * sites.rows_sd,
        "{sites:?}"
    );
    let n_eff = sites.rows * sites.rows / 4.0;
    assert!((estimate.n_eff() - n_eff).abs() < 1e-6 * n_eff, "{sites:?}");
    assert!(sites.comparison.is_some() && sites.robust.is_none());
    let json = server.read(&format!("{location}?format=json")).await;
    assert_eq!(json.json::<Estimate>(), estimate);
    let path = format!("/studies/{}/estimates/1", study.id);
    let page = Browser::operator(&server).await.page(&path).await;
    let page = page.body();
    for words in [
        "rows of 3 sites",
        "St. Mary",
        "Sites like these",
        "among 5 or more",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

/// Nothing that is refused is counted, and none of it spends the token.
#[tokio::test]
async fn what_no_site_sends_is_refused_with_value_and_limit() {
    let server = Harness::new();
    let study = site_study(&server, json!({})).await;
    let tokens = issue(&server, &study, json!([{"site": "a", "max_rows": 300}])).await;
    let token = &tokens[0];
    let id = new_id();
    // The last number of the triangle of dimension 4, and the count.
    let (corner, count) = (9, 10);
    for (numbers, words) in [
        (
            &[(count, 800.0)][..],
            &["counts 800", "at most 300 rows"][..],
        ),
        (&[(count, -200.0)], &["counts -200"]),
        (&[(0, 900.0), (count, 100.0)], &["sum to 900", "100.0 rows"]),
        (&[(corner, -300.0), (count, 100.0)], &["eigenvalue below -"]),
        // An entry off the diagonal, with nothing on it.
        (&[(1, 250.0), (count, 100.0)], &["eigenvalue below -"]),
    ] {
        let response = send(&server, &study, token, crafted(&study, id, numbers)).await;
        let problem = response.is_problem(422, E::ImplausibleReport);
        for word in words {
            assert!(problem.detail.contains(word), "{problem:?}");
        }
    }
    let good = table(&study, id, 200);
    let with = |at: usize, bytes: &[u8]| {
        let mut twin = good.clone();
        twin[at..at + bytes.len()].copy_from_slice(bytes);
        twin
    };
    for (twin, status, code) in [
        (with(0, &[1, 0]), 400, E::UnsupportedVersion),
        (with(0, &[3, 0]), 400, E::UnsupportedVersion),
        (with(2, &[good[2] ^ 1]), 422, E::WrongFingerprint),
        (with(34 + 6, &[0x40]), 400, E::MalformedReport),
        (with(58, &i64::MAX.to_le_bytes()), 422, E::PayloadOutOfRange),
        (good[..good.len() - 1].to_vec(), 400, E::MalformedReport),
        ([&good[..], &[0]].concat(), 413, E::BodyTooLarge),
    ] {
        let problem = send(&server, &study, token, twin).await;
        problem.is_problem(status, code);
    }
    let path = at(&study, "/reports");
    let open = server.post_report(&study, good.clone()).await;
    open.is_problem(403, E::TokenRequired);
    let unknown = ParticipantToken::from_bytes([9; 32]);
    let response = send(&server, &study, &unknown, good.clone()).await;
    response.is_problem(403, E::ParticipantTokenUnknown);
    let batched = with_token(token, good.clone());
    let response = server.post(&path, ENROLLED_BATCH_MEDIA_TYPE, batched).await;
    response.is_problem(415, E::UnsupportedMediaType);
    // Studies of single rows: one whose reports are longer, one whose are shorter.
    let longer = server.study(8).await;
    let problem = server.post_report(&longer, good.clone()).await;
    let problem = problem.is_problem(400, E::UnsupportedVersion);
    assert!(problem.detail.contains("a site's table"), "{problem:?}");
    let shorter = server.study(3).await;
    let of_row = report(&shorter, new_id(), 1.0);
    let response = send(&server, &study, token, of_row).await;
    let problem = response.is_problem(400, E::UnsupportedVersion);
    assert!(problem.detail.contains("single row"), "{problem:?}");
    let now = counts(&server, &study).await;
    assert_eq!((now.spent, sums(&server, &study).len()), (0, 0));
    let response = send(&server, &study, token, good).await;
    assert_eq!(response.status, StatusCode::CREATED, "{response:?}");
}

#[tokio::test]
async fn tokens_of_sites_have_names_and_numbers() {
    let mut server = Harness::with(|config| config.max_site_bytes = 2 * 11 * 8);
    let study = site_study(&server, json!({"sites": {"max_rows": 500, "min_rows": 10}})).await;
    let path = at(&study, "/tokens");
    for (body, code, words) in [
        (json!({"count": 1}), E::InvalidRequest, "`count`"),
        (json!({}), E::InvalidRequest, "names 0 sites"),
        (
            json!({"sites": [{"site": " "}]}),
            E::InvalidName,
            "the name of a site",
        ),
        (
            json!({"sites": [{"site": "North"}, {"site": "North\u{a0}"}]}),
            E::InvalidName,
            "ends with a blank",
        ),
        (
            json!({"sites": [{"site": "North"}, {"site": "Nor\u{200b}th"}]}),
            E::InvalidName,
            "an invisible character",
        ),
        (
            json!({"sites": [{"site": "St. Mary"}, {"site": "St.\u{a0}Mary"}]}),
            E::InvalidName,
            "one that is no space",
        ),
        (
            json!({"sites": [{"site": "St. Mary"}, {"site": "St.  Mary"}]}),
            E::InvalidName,
            "two in a row",
        ),
        (
            json!({"sites": [{"site": "\u{c4}rhus"}, {"site": "A\u{308}rhus"}]}),
            E::InvalidName,
            "form NFC",
        ),
        (
            json!({"sites": [{"site": "a", "max_rows": 9}]}),
            E::InvalidRequest,
            "at most 9 rows",
        ),
        (
            json!({"sites": [{"site": "a", "max_rows": 501}]}),
            E::InvalidRequest,
            "10 to 500 rows",
        ),
        (
            json!({"sites": vec![json!({"site": "a"}); 1_001]}),
            E::InvalidRequest,
            "1001 sites",
        ),
        (
            json!({"sites": vec![json!({"site": "a"}); 3]}),
            E::InvalidRequest,
            "at most 2 reports of 88 bytes",
        ),
    ] {
        let response = server.tell(&path, body).await;
        let problem = response.is_problem(422, code);
        assert!(problem.detail.contains(words), "{problem:?}");
    }
    let rows = server.study_with(json!({"enrolment": "token"})).await;
    let body = json!({"sites": [{"site": "a"}]});
    let response = server.tell(&at(&rows, "/tokens"), body).await;
    response.is_problem(422, E::InvalidRequest);
    let tokens = issue(&server, &study, json!([{"site": "a"}, {"site": "a"}])).await;
    // A study that anybody may ask about tells nothing to who has no token, and echoes none.
    let (text, unknown, known) = ("s3cret", "9".repeat(64), tokens[0].reveal());
    for (of, token, status, code) in [
        (&study, text, 422, E::InvalidRequest),
        (&study, unknown.as_str(), 403, E::ParticipantTokenUnknown),
        (&rows, known.as_str(), 422, E::InvalidRequest),
    ] {
        let problem = look_up(&server, of, token).await.is_problem(status, code);
        assert!(!problem.detail.contains(token), "{problem:?}");
    }
    let path = at(&study, "/tokens/lookup");
    for body in [
        "\"s3cret\"",
        "{\"tokens\": \"s3cret\"}",
        "{\"token\": [\"s3cret\"]}",
    ] {
        let response = server.post(&path, "application/json", body).await;
        let problem = response.is_problem(400, E::MalformedJson);
        assert!(!problem.detail.contains(text), "{problem:?}");
    }
    // Room that is taken away later: the report may come again.
    for token in &tokens {
        let response = send(&server, &study, token, table(&study, new_id(), 20)).await;
        assert_eq!(response.status, StatusCode::CREATED, "{response:?}");
    }
    let more = site_study(&server, json!({})).await;
    let others = issue(&server, &more, json!([{"site": "b"}])).await;
    let token = &others[0];
    let waiting = table(&more, new_id(), 20);
    server.config.max_site_bytes = 1;
    let mut server = server.restart();
    let response = send(&server, &more, token, waiting.clone()).await;
    let problem = response.is_problem(507, E::StoreFull);
    assert!(problem.detail.contains("max_site_bytes"), "{problem:?}");
    let create = server.tell("/v1/studies", design(&of_sites(&json!({}))));
    refused(create, 422, E::InvalidDimension).await;
    server.config.max_site_bytes = 88;
    let server = server.restart();
    let response = send(&server, &more, token, waiting).await;
    assert_eq!(response.status, StatusCode::CREATED, "{response:?}");
}

/// The hash of a changed export made anew.
fn sealed(mut export: Vec<u8>) -> Vec<u8> {
    let sha256 = Sha256::digest(&export);
    export.extend_from_slice(&sha256);
    export
}

#[tokio::test]
async fn the_reports_of_sites_move_with_their_names() {
    let (from, to) = (Harness::new(), Harness::new());
    let study = site_study(&from, json!({})).await;
    let tokens = issue(&from, &study, json!([{"site": "Süd"}, {"site": "b"}])).await;
    let ids = [new_id(), new_id()];
    for (token, id) in tokens.iter().zip(ids) {
        let response = send(&from, &study, token, table(&study, id, 300)).await;
        assert_eq!(response.status, StatusCode::CREATED, "{response:?}");
    }
    let file = from.export(&study).await;
    assert_eq!(&file[..8], b"EVSTUDY2");
    // The last report: 8 and 1 bytes of its name, 8 and 88 of its payload, and the hash.
    let whole = &file[..file.len() - 32];
    let payload = whole.len() - 88;
    let change = |at: usize, bytes: &[u8]| {
        let mut changed = whole.to_vec();
        changed[at..at + bytes.len()].copy_from_slice(bytes);
        sealed(changed)
    };
    let far = (-300.0 / from_step(&study)).round() as i64;
    for (twin, status, code) in [
        (change(7, b"1"), 400, E::MalformedExport),
        (change(7, b"3"), 400, E::MalformedExport),
        (change(payload - 9, b"\n"), 422, E::InvalidName),
        (change(payload - 9, b"\xff"), 400, E::MalformedExport),
        (change(payload - 17, &[2]), 400, E::MalformedExport),
        (
            change(payload - 17, &u64::MAX.to_le_bytes()),
            400,
            E::MalformedExport,
        ),
        (change(payload - 8, &[80]), 400, E::MalformedExport),
        (
            change(payload, &i64::MAX.to_le_bytes()),
            422,
            E::PayloadOutOfRange,
        ),
        (
            change(payload, &far.to_le_bytes()),
            422,
            E::ImplausibleReport,
        ),
        (
            sealed(whole[..payload - 17].to_vec()),
            400,
            E::MalformedExport,
        ),
        (sealed([whole, &[0]].concat()), 400, E::MalformedExport),
        (file[..file.len() - 1].to_vec(), 400, E::MalformedExport),
        ([whole, &[0; 32]].concat(), 400, E::MalformedExport),
    ] {
        let response = to.import(None, twin).await;
        response.is_problem(status, code);
    }
    assert!(to.app.store().studies().is_empty());
    let imported: ImportResponse = to.import(None, file.clone()).await.json();
    assert_eq!(
        (imported.outcome, imported.reports),
        (ImportOutcome::Created, 2)
    );
    assert_eq!(sums(&to, &study), sums(&from, &study));
    assert_eq!(sums(&to, &study)[0].site, "Süd");
    // Tokens stay behind; a report that was counted there is known here.
    let response = send(&to, &study, &tokens[0], table(&study, ids[0], 300)).await;
    assert_eq!(response.status, StatusCode::OK, "{response:?}");
    let response = send(&to, &study, &tokens[0], table(&study, new_id(), 300)).await;
    response.is_problem(403, E::ParticipantTokenUnknown);
    let again: ImportResponse = to.import(None, file).await.json();
    assert_eq!(again.outcome, ImportOutcome::AlreadyImported);
    // A backup has everything, and checks it.
    let backup = from.read("/v1/backup").await.body;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("eigenveil.db"), backup).unwrap();
    let restored = Harness::over(directory, &from.token);
    assert_eq!(sums(&restored, &study), sums(&from, &study));
    let (directory, config) = restored.stop();
    let path = eigenveil_store::database_path(&config.data_dir);
    rusqlite::Connection::open(path)
        .unwrap()
        .execute(
            "UPDATE site_reports SET payload = zeroblob(88) WHERE number = 1",
            [],
        )
        .unwrap();
    let damaged = Harness::start(directory, config);
    let store = damaged.app.store();
    let error = store.site_sums(&damaged.stored(&study)).unwrap_err();
    assert_eq!(error.code(), E::StoreUnavailable);
    assert!(error.detail().contains("checksum"), "{error}");
}

/// A number's step, in units of the sum.
fn from_step(study: &StudyDocument) -> f64 {
    let format = SiteReportFormat::new(params(study));
    let mut payload = vec![0; format.payload_len()];
    payload[0] = 1;
    let one = format.payload(payload).unwrap();
    params(study).mechanism().decode(&one).moment.get(0, 0)
}

#[tokio::test]
async fn pages_of_a_study_of_sites_speak_to_sites() {
    let server = Harness::new();
    let study = site_study(&server, json!({"name": "Registry"})).await;
    let page = |path: String| {
        let server = &server;
        async move {
            let page = server.get(&path).await;
            assert_eq!(page.status, StatusCode::OK, "{path}");
            String::from_utf8(page.body).unwrap()
        }
    };
    let participate = page(format!("/studies/{}/participate", study.id)).await;
    for words in [
        "sites are not anonymous",
        "Each row of the table",
        "but the site itself",
        "--site NAME",
        "1 to 5,000 rows",
        "statement about one row",
    ] {
        assert!(participate.contains(words), "{words}: {participate}");
    }
    assert!(!participate.contains("added to a sum"), "{participate}");
    let study_page = page(format!("/studies/{}", study.id)).await;
    assert!(
        study_page.contains("Estimates are for the operator"),
        "{study_page}"
    );
    let list = page("/".to_owned()).await;
    assert!(list.contains("site reports"), "{list}");
}
