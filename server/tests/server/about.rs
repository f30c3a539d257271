//! What a study tells the people it invites, and its last day.

use std::sync::Arc;

use axum::http::{Request, StatusCode, header};
use eigenveil_shared::{
    ErrorCode as E,
    about::StudyNotice,
    api::{ImportResponse, StudyDocument, StudyState},
};
use eigenveil_store::{database_path, testing::fixtures::SetClock};
use serde_json::{Value, json};

use crate::{
    browser::{Browser, Page},
    common::{Harness, at, data, design, new_id, refused, report, report_with, waiting::until},
    pages::{CREATE, form},
};

/// 2023-11-14, the day of the test clock.
const TODAY: &str = "2023-11-14";
/// The first millisecond after it.
const TOMORROW: u64 = 1_700_006_400_000;

/// A server whose clock the test sets.
fn timed() -> (Harness, Arc<SetClock>) {
    let (directory, config) = data();
    let clock = SetClock::new();
    (Harness::at(directory, config, &clock), clock)
}

fn told() -> Value {
    json!({
        "purpose": "What <b>keeps</b> people awake & why",
        "responsible_party": "Sleep laboratory \"Example\"",
        "contact": "sleep@example.org",
        "last_day": "2027-03-31",
    })
}

/// Three features, and what people read about them.
fn described() -> Value {
    let mut about = told();
    about["features"] =
        json!([{ "label": "Sleep", "unit": "h" }, {}, { "description": "in <b>one</b> night" }]);
    json!({ "about": about, "features": [{ "name": "a" }, { "name": "b" }, { "name": "c" }] })
}

async fn shown(server: &Harness, study: &StudyDocument) -> StudyDocument {
    server.get(&at(study, "")).await.json()
}

#[tokio::test]
async fn about_is_stored_shown_exported_imported_and_backed_up() {
    let server = Harness::new();
    let study = server.study_with(described()).await;
    let expected: StudyNotice = serde_json::from_value(described()["about"].clone()).unwrap();
    assert_eq!(study.about, expected);
    // The parameters, and so the fingerprint, do not depend on it.
    let features = json!({ "features": described()["features"] });
    let silent = server.study_with(features).await;
    assert_eq!(silent.fingerprint, study.fingerprint);
    assert!(silent.about.is_empty());
    server.count_one(&study).await;

    let (file, silent_file) = (server.export(&study).await, server.export(&silent).await);
    // An older server can read an export that states nothing.
    let says = |file: &[u8]| String::from_utf8_lossy(file).contains("\"about\"");
    assert!(says(&file) && !says(&silent_file));
    let other = Harness::new();
    let imported: ImportResponse = other.import(None, file.clone()).await.json();
    assert_eq!(imported.study.about, expected);
    assert_eq!(shown(&other, &study).await.about, expected);

    let backup = server.read("/v1/backup").await.body;
    let restored = tempfile::tempdir().unwrap();
    std::fs::write(database_path(restored.path()), backup).unwrap();
    let restored = Harness::over(restored, &server.token);
    assert_eq!(shown(&restored, &study).await.about, expected);
    let server = server.restart();
    assert_eq!(shown(&server, &study).await.about, expected);
    assert!(shown(&server, &silent).await.about.is_empty());
}

/// Reports are added up only for the purpose and the responsible party that people read about.
#[tokio::test]
async fn merging_requires_the_same_purpose_and_responsible_party() {
    let server = Harness::new();
    let by = async |responsible: &str, purpose: Value| {
        let about = json!({ "purpose": purpose, "responsible_party": responsible, "last_day": "2027-03-31" });
        server.study_with(json!({ "about": about })).await
    };
    let with = async |purpose: Value| by("A", purpose).await;
    let (given, same) = (with(json!("sleep")).await, with(json!("sleep")).await);
    let (other, silent) = (with(json!("sales")).await, with(Value::Null).await);
    let (others, as_silent) = (by("B", json!("sleep")).await, with(Value::Null).await);
    for study in [&given, &silent] {
        server.count_one(study).await;
    }
    let (file, silent_file) = (server.export(&given).await, server.export(&silent).await);
    for (study, file) in [
        (&other, &file),
        (&silent, &file),
        (&others, &file),
        (&other, &silent_file),
    ] {
        let refused = server.import(Some(&study.id), file.clone()).await;
        refused.is_problem(422, E::InvalidNotice);
    }
    assert_eq!(server.accepted(&other).await, 0);
    for (target, file) in [(&same, file), (&as_silent, silent_file)] {
        let merged: ImportResponse = server.import(Some(&target.id), file).await.json();
        assert_eq!((merged.reports, &merged.study.about), (1, &target.about));
    }
}

/// (Which reports are counted: `store/src/testing/conformance.rs`.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_last_day_nobody_is_invited_and_the_study_is_closed() {
    let (server, clock) = timed();
    let ending = |draft: bool| json!({ "about": { "last_day": TODAY }, "draft": draft });
    let study = server.study_with(ending(false)).await;
    let draft = server.study_with(ending(true)).await;
    clock.set(TOMORROW - 1);
    let page = participate(&server, &study, None).await;
    assert!(page.has("#report-command"));

    clock.set(TOMORROW);
    // Even before the server has closed it, its page shows no command.
    let page = participate(&server, &study, None).await;
    assert!(!page.has("#report-command"));
    page.says("main", "which is closed");
    let late = server.post_report(&study, report(&study, new_id(), 1.0));
    let problem = refused(late, 409, E::StudyEnded).await;
    assert!(problem.detail.contains(TODAY), "{}", problem.detail);
    // Nobody could take part.
    let open = at(&draft, "/open");
    refused(server.order(&open), 422, E::InvalidNotice).await;
    // The server closes it by itself; creating another study wakes it here.
    server.study(3).await;
    until("the study is closed", async || {
        shown(&server, &study).await.state == StudyState::Closed
    })
    .await;
}

async fn participate(server: &Harness, study: &StudyDocument, host: Option<&str>) -> Page {
    let path = format!("/studies/{}/participate", study.id);
    let mut request = Request::get(path);
    if let Some(host) = host {
        request = request.header(header::HOST, host);
    }
    let response = Browser::new(server).send(request, String::new()).await;
    assert_eq!(response.status, StatusCode::OK);
    Page::new(response)
}

#[tokio::test]
async fn the_participate_page_shows_purpose_features_and_parameters() {
    let server = Harness::new();
    let long = "a feature whose name is long, has <i>signs</i> & is shown whole to its last word";
    let study = server
        .study_with(json!({
            "about": told(), "dimension": 2, "norm": { "kind": "clip", "radius": 3.5 }, "centring": 0.25,
            "mechanism": "double-cap", "epsilon": 4.0, "delta": null,
            "features": [
                { "name": "alcohol", "center": 13.0, "scale": 0.8125 },
                { "name": long, "center": 2.6, "scale": 0.75 },
            ],
        }))
        .await;
    let page = participate(&server, &study, Some("study.example:8443")).await;
    let raw = String::from_utf8_lossy(&page.response.body).into_owned();
    assert!(raw.contains("What &lt;b&gt;keeps&lt;/b&gt; people awake &amp; why"));
    assert!(raw.contains("href=\"mailto:sleep@example.org\""));
    for word in [
        "What <b>keeps</b> people awake & why",
        "Sleep laboratory \"Example\"",
        "sleep@example.org",
        "2027-03-31",
    ] {
        page.says("#about", word);
    }
    for word in ["alcohol", "13", "0.8125", long, "2.6", "0.75"] {
        page.says("table#features", word);
    }
    // What a feature means is told where somebody said it, as words that nobody pinned.
    assert!(!page.text("table#features").contains("Meaning"));
    let with_meanings = server.study_with(described()).await;
    let of_words = participate(&server, &with_meanings, None).await;
    for word in ["Meaning", "Sleep (h)", "in <b>one</b> night"] {
        of_words.says("table#features", word);
    }
    of_words.says("main", "not these words");
    let mut two = described();
    two["about"]["features"] = json!([{}, {}]);
    let refused = server.tell("/v1/studies", design(&two)).await;
    refused.is_problem(422, E::InvalidNotice);
    for word in [
        "double-cap",
        "4",
        "0 (pure)",
        "length 3.5",
        "constant 0.25",
        &study.fingerprint,
    ] {
        page.says("#parameters", word);
    }
    assert!(!page.has("#tokens"));
    assert_eq!(
        page.text("#report-command"),
        format!(
            "eigenveil report --server http://study.example:8443 --study {} --fingerprint {} --rows ROWS.csv --header yes",
            study.id, study.fingerprint
        )
    );
    // The study's own page shows the same.
    let mut browser = Browser::new(&server);
    let page = browser.page(&format!("/studies/{}", study.id)).await;
    page.says("#about", "2027-03-31");
    page.says("table#features", long);
}

#[tokio::test]
async fn the_participate_page_shows_what_is_not_stated_and_explains_tokens() {
    let server = Harness::new();
    let study = server.study_with(json!({ "enrolment": "token" })).await;
    // Nothing but a host gets into the command.
    for (host, address) in [
        (Some("127.0.0.1:8080"), "http://127.0.0.1:8080"),
        (Some("a.example';rm"), "SERVER"),
        (Some("a.example$(id)"), "SERVER"),
        (None, "SERVER"),
    ] {
        let page = participate(&server, &study, host).await;
        assert_eq!(page.text("#about").matches("not stated").count(), 4);
        assert_eq!(
            page.text("#report-command"),
            format!(
                "eigenveil report --server {address} --study {} --fingerprint {} --rows ROWS.csv --header yes --tokens TOKENS.txt",
                study.id, study.fingerprint
            )
        );
        let tokens = page.text("#tokens");
        for word in [
            "one-time token",
            "one report",
            "Whoever runs the study",
            "you took part",
            "hash",
            "together",
        ] {
            assert!(tokens.contains(word), "{tokens}");
        }
    }
    let mut operator = Browser::operator(&server).await;
    let page = operator.page(&format!("/studies/{}", study.id)).await;
    let missing = page.text("#not-stated");
    assert!(
        missing.contains("purpose, responsible party, contact, last day"),
        "{missing}"
    );
}

/// Until the rows of a closed study are written anew, which follows by itself, the pages say what the store shows.
#[tokio::test]
async fn the_participate_page_says_what_the_store_shows() {
    let server = Harness::new();
    let [seeds, numbers] = [server.seed_study(json!({})).await, server.study(3).await];
    for (study, payload, pairs) in [
        (
            &seeds,
            vec![0xa7; 16],
            "which seed came with which identifier",
        ),
        (
            &numbers,
            1_f32.to_le_bytes().repeat(6),
            "a report, and so the report itself",
        ),
    ] {
        let body = report_with(study, new_id(), payload);
        server.counts(study, body).await;
        let page = participate(&server, study, None).await;
        page.says("#traces", pairs);
        page.says("#traces", "Once the study is closed");
        server.close(study).await;
        until("the rows are written anew", async || {
            let page = participate(&server, study, None).await;
            let traces = page.text("#traces");
            assert!(traces.contains("bounded as above"), "{traces}");
            traces.contains("no longer shows")
        })
        .await;
        let mut operator = Browser::operator(&server).await;
        let page = operator.page(&format!("/studies/{}", study.id)).await;
        assert!(!page.text("#operator").contains("written anew"));
    }
}

#[tokio::test]
async fn the_form_shows_errors_beside_their_field() {
    let server = Harness::new();
    let mut browser = Browser::operator(&server).await;
    let page = browser.page("/studies/new").await;
    for field in ["purpose", "responsible_party", "contact", "last_day"] {
        assert_eq!(page.all(&format!("input#{field}")).len(), 1, "{field}");
    }
    let design = form(&[
        CREATE,
        ("purpose", "What keeps people awake"),
        ("responsible_party", "Sleep laboratory"),
    ]);
    let past = [&design[..], &[("last_day", "2023-11-13")]].concat();
    let page = browser.refused("/studies/new", &past, 422).await;
    assert_eq!(page.value("input#last_day"), "2023-11-13");
    assert_eq!(page.all("#last_day[aria-invalid=true]").len(), 1);
    let fields = [
        &design[..],
        &[
            ("contact", "https://example.org/sleep"),
            ("last_day", "2027-03-31"),
        ],
    ]
    .concat();
    let page = browser.act("/studies/new", &fields).await;
    page.says("#about", "What keeps people awake");
    let study = server.app.store().studies()[0].document();
    assert_eq!(study.about.missing(), Vec::<&str>::new());
}
