//! Pages: complete without a script, safe in a browser, and nothing for those who may not see it.

use std::{net::SocketAddr, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::ConnectInfo,
    http::{Request, StatusCode, header},
};
use eigenveil_shared::{
    ErrorCode as E,
    api::{CreateAnalystTokenResponse, StudyDocument},
    estimate::Estimate,
    mechanism::MechanismKind,
};
use futures_util::StreamExt as _;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tower::ServiceExt;

use crate::{
    browser::{Browser, Page},
    common::{
        self, Harness, Reply, at, new_id, refused, report,
        waiting::{until, within},
    },
    running::{Running, get},
    tokens::after_rotation,
};

const FORM: [(&str, &str); 8] = [
    ("name", "A <script>alert(1)</script> & \"study\""),
    ("dimension", "8"),
    ("k", "2"),
    ("norm", "normalize"),
    ("mechanism", "double-cap"),
    ("epsilon", "4"),
    ("enrolment", "open"),
    ("users", "1000"),
];

pub(crate) const CREATE: (&str, &str) = ("step", "create");

pub(crate) fn form(changes: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    let mut fields: Vec<_> = FORM
        .iter()
        .filter(|(name, _)| !changes.iter().any(|(changed, _)| changed == name))
        .copied()
        .collect();
    fields.extend(changes);
    fields
}

async fn create(
    browser: &mut Browser<'_>,
    changes: &[(&'static str, &'static str)],
) -> StudyDocument {
    let changes = [changes, &[CREATE]].concat();
    browser.act("/studies/new", &form(&changes)).await;
    let studies = browser.server.app.store().studies();
    studies.last().unwrap().document()
}

async fn analyst_token(server: &Harness, wanted: Value) -> CreateAnalystTokenResponse {
    server.tell("/v1/tokens", wanted).await.json()
}

async fn upload(server: &Harness, study: &StudyDocument, reports: usize) {
    // All different: a duplicate seed would be counted once.
    for number in 1..=reports {
        server
            .counts(study, report(study, new_id(), number as f32))
            .await;
    }
}

#[tokio::test]
async fn everything_works_without_a_script() {
    let server = Harness::new();
    let mut browser = Browser::new(&server);
    assert!(browser.page("/").await.has("#empty"));
    // Operator pages redirect to the login and back.
    let response = browser.get("/studies/new").await;
    assert_eq!(response.status, StatusCode::SEE_OTHER);
    assert_eq!(
        response.headers[header::LOCATION],
        "/login?next=/studies/new"
    );
    let login = browser.page("/login?next=/studies/new").await;
    let next = login.value("input[name=next]");
    let before = browser.cookie.clone();
    let token = server.token.clone();
    let create = browser
        .act("/login", &[("token", &token), ("next", &next)])
        .await;
    assert!(create.has("form#create") && create.has("table#plan"));
    assert_eq!(
        create.all("#mechanism option").len(),
        MechanismKind::ALL.len()
    );
    for kind in MechanismKind::ALL {
        create.says(&format!("option[value='{kind}']"), kind.as_str());
        create.says("#mechanism-help", kind.summary());
    }
    // The session identifier from before the login is worthless now.
    assert_ne!(browser.cookie, before);
    assert!(!create.body().contains(&server.token));

    // The planner shows other numbers for other designs, and keeps the input.
    let mut shown = Vec::new();
    for epsilon in ["2", "8"] {
        let fields = form(&[("epsilon", epsilon), ("step", "plan")]);
        let response = browser.post("/studies/new", &fields).await;
        assert_eq!(response.status, StatusCode::OK);
        let page = Page::new(response);
        assert_eq!(page.value("#epsilon"), epsilon);
        assert_eq!(page.value("#name"), FORM[0].1);
        let text = page.text("#visible");
        let points = text.split("it has ").nth(1).unwrap();
        shown.push(points.split(' ').next().unwrap().parse::<f64>().unwrap());
        browser.figure(&page.links("#planner img")[0]).await;
    }
    assert!(shown[1] < shown[0], "{shown:?}");
    assert!(server.app.store().studies().is_empty());

    // Errors are shown beside their field; nothing is created.
    let wrong = form(&[("epsilon", "17"), ("k", "9"), ("name", ""), CREATE]);
    let page = browser.refused("/studies/new", &wrong, 422).await;
    page.says("#name-help", "it must have 1 to 200");
    assert!(page.has("#epsilon[aria-invalid]"));
    assert_eq!(page.value("#epsilon"), "17");
    assert!(server.app.store().studies().is_empty());

    let page = browser.act("/studies/new", &form(&[CREATE])).await;
    assert_eq!(page.text("h1"), format!("{} open", FORM[0].1));
    let study = server.app.store().studies()[0].document();
    let path = format!("/studies/{}", study.id);

    upload(&server, &study, 40).await;
    let page = browser.page(&path).await;
    assert_eq!(page.text("#reports"), "40");
    // No error is known before the first estimate.
    assert!(!page.has("#error-now"));
    page.says("#outlook", "With 40 participants and ε = 4");
    for source in page.links("img, source") {
        Browser::new(&server).figure(&source).await;
    }

    let estimates = format!("{path}/estimates");
    browser.act(&estimates, &[("k", "2")]).await;
    let location = format!("/v1{path}/estimates/1");
    server.wait_for_estimate(&location).await;
    let page = browser.page(&path).await;
    page.says("#verdict", "stand");
    // Everybody sees its error, with what the error is of.
    let public = Browser::new(&server).page(&path).await;
    assert_eq!(public.text("#error-tile"), page.text("#error-tile"));
    page.says("#error-tile", "expected error of 2 components");
    assert!(!page.has("#outlook p"));
    assert_eq!(page.all("#components tbody tr").len(), 2);
    let downloads = page.links("#downloads a");
    assert_eq!(downloads.len(), 4);
    for (link, format) in downloads.iter().zip(["json", "csv", "npy"]) {
        let file = browser.get(link).await;
        assert_eq!(file.status, StatusCode::OK);
        let name = file.headers[header::CONTENT_DISPOSITION].to_str().unwrap();
        assert!(
            name.starts_with("attachment") && name.contains(format),
            "{name}"
        );
        let api = server.read(&format!("{location}?format={format}")).await;
        assert_eq!(file.body, api.body);
    }
    let notebook: serde_json::Value = browser.get(&downloads[3]).await.json();
    assert!(notebook.to_string().contains("estimate.json"));
    let estimate: Estimate = browser.get(&downloads[0]).await.json();
    assert_eq!((estimate.n, estimate.k), (40, 2));
    assert_eq!(page.has("#warnings"), !estimate.warnings.is_empty());
    for warning in &estimate.warnings {
        page.says("#warnings", warning);
    }
    for source in page.links("#estimate img, #estimate source") {
        browser.figure(&source).await;
        assert_eq!(Browser::new(&server).get(&source).await.status, 401);
    }
    let page = browser.page(&format!("{estimates}/1")).await;
    assert!(page.has("#verdict"));

    let closed = browser.act(&format!("{path}/close"), &[]).await;
    assert_eq!(closed.text("#state"), "closed");
    // Closed for good, as a page says.
    let page = browser.refused(&format!("{path}/open"), &[], 409).await;
    page.says("#error", "from draft to open to closed");

    let gone = browser.act("/logout", &[]).await;
    assert!(!gone.has("a[href='/studies/new']") && browser.cookie.is_none());
    assert!(!browser.page(&path).await.has("#operator, #verdict"));
}

/// The form takes the file that `prepare` writes and the eigenvalues that it prints; an estimate's form has the moment,
/// unless the study has none, and both forms say why.
#[tokio::test]
async fn the_forms_take_what_prepare_writes_and_ask_for_the_moment() {
    let server = Harness::new();
    let mut browser = Browser::operator(&server).await;
    let features = "name;center;scale;observed;section\r\nage;40;20;1;\r\nheight;1;2;0.8;lab\r\nweight;0;1;0.8;lab\r\nx;0;1;1;\r\n";
    let planned = [
        ("features", features),
        ("spectrum", "0.4,0.3,0.2,0.1"),
        ("step", "plan"),
    ];
    let page = Page::new(browser.post("/studies/new", &form(&planned)).await);
    page.says("#listed", "p = 4");
    page.says("#visible", "in 4 features");
    page.says("#expected", "of 2)");
    assert_eq!(page.all("#expected tbody tr").len(), 3);
    browser.figure(&page.links("#planner img")[0]).await;
    let why = "no correlations or regressions";
    page.says("#no-moment", why);
    assert!(page.has("input#last_day[type=date]"));

    let study = create(&mut browser, &[("features", features)]).await;
    assert_eq!(study.params.dimension(), 4);
    let path = format!("/studies/{}", study.id);
    let page = browser.page(&path).await;
    page.says("#no-moment", why);
    assert!(!page.has("#moment"));
    let estimates = format!("{path}/estimates");
    let page = browser.refused(&estimates, &[("moment", "yes")], 422).await;
    page.says("#error", why);

    let study = create(&mut browser, &[("name", "Whole rows")]).await;
    upload(&server, &study, 40).await;
    let path = format!("/studies/{}", study.id);
    assert!(browser.page(&path).await.has("#moment[type=checkbox]"));
    let asked = [("k", "2"), ("moment", "yes")];
    browser.act(&format!("{path}/estimates"), &asked).await;
    let done = server
        .wait_for_estimate(&format!("/v1{path}/estimates/1"))
        .await;
    assert!(done.request.moment && done.estimate.unwrap().mean_report.is_some());

    let columns = ("columns", "name,kind\nage,number 0 120\n");
    let planned = form(&[columns, ("step", "plan")]);
    let page = Page::new(browser.post("/studies/new", &planned).await);
    page.says("#plan", "People who prepare");
    let study = create(&mut browser, &[("name", "Ages"), columns]).await;
    assert!(study.params.preparation().is_ok());
}

#[tokio::test]
async fn names_are_escaped_and_participants_see_what_they_reveal() {
    let server = Harness::new();
    let mut browser = Browser::operator(&server).await;
    let study = create(&mut browser, &[]).await;
    let mut anybody = Browser::new(&server);
    let path = format!("/studies/{}", study.id);
    let participate = format!("{path}/participate");
    for path in ["/", &path, &participate] {
        let page = anybody.page(path).await;
        let escaped = "&lt;script&gt;alert(1)&lt;/script&gt; &amp; ";
        assert!(page.body().contains(escaped), "{path}");
        assert_eq!(page.all("script").len(), 1, "{path}");
    }
    let page = anybody.page(&participate).await;
    // e^4/(1+e^4) = 0.98201…, at most.
    page.says("#belief", "98.3 %");
    page.says("main", &study.fingerprint);
    page.says("main", "74 bytes");
    assert_eq!(page.all("#beliefs tbody tr").len(), 5);
    let picture = anybody.figure(&format!("{path}/belief.svg")).await;
    assert!(String::from_utf8(picture.body).unwrap().contains("98.3"));
    // Two rows that nobody has, and two reports of each, which are reports of this study.
    let picture = anybody.figure(&format!("{path}/report.svg")).await;
    let drawn = String::from_utf8(picture.body).unwrap();
    assert_eq!(drawn.matches("<title>a report of 16 bytes").count(), 4);
    page.says("#report-bytes", "Report 2");
}

/// Public pages. A new route must be listed here, or in the lists of the test below.
const PUBLIC: [&str; 12] = [
    "/",
    "/login",
    "/logout",
    "/studies/{id}",
    "/studies/{id}/events",
    "/studies/{id}/arrivals.svg",
    "/studies/{id}/expected-error.svg",
    "/studies/{id}/participate",
    "/studies/{id}/belief.svg",
    "/studies/{id}/report.svg",
    "/assets/style.css",
    "/assets/live.js",
];

/// Routes of the operator, or for readers of estimates.
const GUARDED: [&str; 8] = [
    "/studies/new",
    "/studies/new/plan",
    "/studies/new/curve.svg",
    "/studies/{id}/open",
    "/studies/{id}/close",
    "/studies/{id}/estimates",
    "/studies/{id}/estimates/{number}",
    "/studies/{id}/estimates/{number}/{file}",
];

#[test]
fn every_route_is_public_or_tested_for_access() {
    let source = include_str!("../../src/pages/mod.rs");
    let compact: String = source.split_whitespace().collect();
    let mut routes: Vec<&str> = compact
        .split(".route(\"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    let mut known = [&PUBLIC[..], &GUARDED[..]].concat();
    routes.sort_unstable();
    known.sort_unstable();
    assert_eq!(routes, known);
    // The path of the icon is a constant.
    assert_eq!(compact.matches(".route(").count(), known.len() + 1);
}

/// Every page and form of the operator without a session, with a planted cookie, with an analyst's session, and without
/// a CSRF token: the login page or an error, and nothing changes.
#[tokio::test]
async fn without_the_right_session_nothing_is_shown_or_changed() {
    let server = Harness::new();
    let mut operator = Browser::operator(&server).await;
    let draft = create(&mut operator, &[("draft", "yes")]).await;
    let second = operator.post("/studies/new", &form(&[CREATE])).await;
    assert_eq!(second.status, StatusCode::UNPROCESSABLE_ENTITY);
    let refusal = String::from_utf8_lossy(&second.body);
    assert!(refusal.contains("a study of this name already"));
    let open = create(&mut operator, &[("name", "Another study")]).await;
    upload(&server, &open, 20).await;
    operator
        .act(&format!("/studies/{}/estimates", open.id), &[("k", "1")])
        .await;
    server.wait_for_estimate(&at(&open, "/estimates/1")).await;
    let wanted = json!({"name": "a", "study": draft.id});
    let analyst_of_other = analyst_token(&server, wanted).await;

    let before = dump(&server);
    let forms = [
        "/studies/new".to_owned(),
        "/studies/new/plan".to_owned(),
        format!("/studies/{}/open", draft.id),
        format!("/studies/{}/close", open.id),
        format!("/studies/{}/estimates", open.id),
    ];
    let pages = [
        "/studies/new/curve.svg?name=x".to_owned(),
        format!("/studies/{}/estimates/1", open.id),
        format!("/studies/{}/estimates/1/estimate.json", open.id),
        format!("/studies/{}/estimates/1/components.csv", open.id),
        format!("/studies/{}/estimates/1/estimate.ipynb", open.id),
        format!("/studies/{}/estimates/1/scree.svg", open.id),
    ];
    let drafts = [
        "",
        "/participate",
        "/events",
        "/arrivals.svg",
        "/expected-error.svg",
        "/belief.svg",
        "/report.svg",
        "/estimates/1",
    ];
    let mut analyst = Browser::new(&server);
    analyst.login(&analyst_of_other.token).await;
    let planted = Browser {
        server: &server,
        cookie: Some(format!("eigenveil-session={}", "ab".repeat(32))),
    };
    for (who, mut browser) in [
        ("nobody", Browser::new(&server)),
        ("planted", planted),
        ("analyst", analyst),
    ] {
        let refused = |answer: &Reply, what: &str| {
            let status = answer.status;
            let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
            assert!(refused, "{who}: {what} answered {status}");
        };
        for path in &forms {
            // With the CSRF token of the visitor's own login page, which everybody can get.
            refused(&browser.post(path, &form(&[CREATE])).await, path);
            refused(&browser.post_raw(path, &form(&[CREATE])).await, path);
        }
        for path in &pages {
            let answer = browser.get(path).await;
            refused(&answer, path);
            assert!(Page::new(answer).has("#error"), "{who}: {path}");
        }
        let answer = browser.get("/studies/new").await;
        if who == "analyst" {
            refused(&answer, "/studies/new");
        } else {
            assert_eq!(answer.headers[header::LOCATION], "/login?next=/studies/new");
        }
        for end in drafts {
            let answer = browser.get(&format!("/studies/{}{end}", draft.id)).await;
            assert_eq!(answer.status, StatusCode::NOT_FOUND, "{who}: {end}");
        }
        let list = browser.page("/").await;
        assert_eq!(list.all("#studies li").len(), 1, "{who} sees drafts");
    }
    // The operator's own session, from a page of another site.
    for path in &forms {
        for key in ["", &"0".repeat(64)] {
            let answer = operator
                .post_raw(path, &[("csrf_token", key), ("k", "1")])
                .await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
        }
        let key = operator.csrf_token().await;
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header("sec-fetch-site", "cross-site");
        let answer = operator
            .send(request, format!("csrf_token={key}&k=1"))
            .await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
    assert_eq!(dump(&server), before);
    assert_eq!(operator.page("/").await.all("#studies li").len(), 2);
}

fn dump(server: &Harness) -> [Vec<Option<String>>; 2] {
    [
        "SELECT group_concat(hex(id) || name || state || reports_accepted) FROM studies",
        "SELECT group_concat(study_pk || ' ' || number || state) FROM estimates",
    ]
    .map(|query| server.column(query))
}

#[tokio::test]
async fn sessions_end_with_their_token_and_wrong_tokens_are_refused() {
    let server = Harness::new();
    let mut browser = Browser::new(&server);
    browser.page("/login").await;
    let guess = [("token", "a guess of mine"), ("next", "/")];
    let page = browser.refused("/login", &guess, 403).await;
    assert!(page.has("#token[aria-invalid]") && page.value("#token").is_empty());
    assert!(!page.body().contains("a guess"));
    let mut operator = Browser::operator(&server).await;
    let mut analyst = Browser::new(&server);
    let created = analyst_token(&server, json!({"name": "a"})).await;
    analyst.login(&created.token).await;
    assert!(!analyst.page("/").await.has("a[href='/login']"));
    let token = format!("/v1/tokens/{}", created.analyst.id);
    server.remove(&token).await;
    assert!(analyst.page("/").await.has("a[href='/login']"));
    assert!(operator.page("/").await.has("a[href='/studies/new']"));
    // Also while a form is on its way.
    let key = operator.csrf_token().await;
    let mut fields = form(&[CREATE]);
    fields.push(("csrf_token", &key));
    let text = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(fields)
        .finish();
    let held_back = Request::post("/studies/new")
        .header(header::COOKIE, operator.cookie.as_deref().unwrap())
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(after_rotation(&server, text))
        .unwrap();
    refused(server.send(held_back), 401, E::Unauthorized).await;
    assert!(server.app.store().studies().is_empty());
    assert!(!operator.page("/").await.has("a[href='/studies/new']"));
}

/// Wrong tokens entered in the form count like those in the API, whatever the forwarding header says; the correct token
/// is accepted meanwhile.
#[tokio::test]
async fn failed_logins_are_limited() {
    let server = Harness::with(|config| config.failed_auth_per_minute = 5);
    let peer: SocketAddr = ([192, 0, 2, 7], 5_000).into();
    let login = async |token: &str, kind: &str| {
        let mut browser = Browser {
            server: &server,
            cookie: Some(format!("eigenveil-session={}", "ab".repeat(32))),
        };
        let key = browser.csrf_token().await;
        let request = Request::post("/login")
            .header(header::CONTENT_TYPE, kind)
            .header(header::HOST, "x")
            .extension(ConnectInfo(peer));
        let form = format!("csrf_token={key}&token={token}");
        browser.send(request, form).await.status
    };
    let kinds = ["application/x-www-form-urlencoded", "text/plain"];
    for guess in 0..5 {
        let status = login(&guess.to_string(), kinds[guess % 2]).await;
        assert_eq!(status, StatusCode::FORBIDDEN);
    }
    for kind in kinds {
        assert_eq!(login("x", kind).await, StatusCode::TOO_MANY_REQUESTS);
    }
    let right = login(&server.token, kinds[0]).await;
    assert_eq!(right, StatusCode::SEE_OTHER);
}

/// (Logins of one token end no session of another: `src/sessions.rs`.)
#[tokio::test]
async fn requests_of_a_session_count_as_requests_with_its_token() {
    let server = Harness::with(|config| config.token_requests_per_minute = Some(4));
    let mut operator = Browser::operator(&server).await;
    let mut statuses = Vec::new();
    for _ in 0..5 {
        statuses.push(operator.get("/").await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
}

/// Anybody may watch, and nobody takes the slots of those who run the study.
#[tokio::test]
async fn anonymous_watchers_leave_slots_for_the_operator() {
    let server = Harness::new();
    let study = server.study(3).await;
    let operator = Browser::operator(&server).await;
    let watch = async |cookie: Option<&str>| {
        let mut request = Request::get(format!("/studies/{}/events", study.id));
        if let Some(cookie) = cookie {
            request = request.header(header::COOKIE, cookie);
        }
        let request = request.body(Body::empty()).unwrap();
        server.routes.clone().oneshot(request).await.unwrap()
    };
    let mut watching = Vec::new();
    let refused = loop {
        let answer = watch(None).await;
        if answer.status() != StatusCode::OK {
            break answer.status();
        }
        watching.push(answer);
        assert!(watching.len() <= 256, "no end");
    };
    assert_eq!(refused, StatusCode::TOO_MANY_REQUESTS);
    let own = watch(operator.cookie.as_deref()).await;
    assert_eq!(own.status(), StatusCode::OK);
}

/// A stream of a study where nothing happens writes at every poll all the same: a write is what shows that the browser
/// has gone and its slot is free.
#[tokio::test]
async fn an_idle_stream_is_written_to_at_every_poll() {
    let server = Harness::new();
    let study = server.study(3).await;
    let request = Request::get(format!("/studies/{}/events", study.id));
    let request = request.body(Body::empty()).unwrap();
    let response = server.routes.clone().oneshot(request).await.unwrap();
    let mut frames = response.into_body().into_data_stream();
    // A busy machine may take longer than a poll to make it.
    let mut first = Bytes::from_static(b":\n\n");
    while first == ":\n\n" {
        first = within("an event", frames.next()).await.unwrap().unwrap();
    }
    assert!(first.starts_with(b"event: study"), "{first:?}");
    // On a clock that moves only while everybody waits.
    tokio::time::pause();
    let before = tokio::time::Instant::now();
    for _ in 0..4 {
        assert_eq!(frames.next().await.unwrap().unwrap(), ":\n\n");
    }
    assert!(
        before.elapsed() < Duration::from_secs(6),
        "{:?}",
        before.elapsed()
    );
}

#[tokio::test]
async fn errors_are_pages_for_browsers_and_problems_for_programs() {
    let server = Harness::new();
    let mut browser = Browser::new(&server);
    let none = "0".repeat(32);
    for (path, status) in [
        ("/nothing".to_owned(), 404),
        (format!("/studies/{none}"), 404),
        ("/studies/zz".to_owned(), 404),
        (format!("/v1/studies/{none}"), 404),
        (format!("/studies/{none}/estimates/1/x.svg"), 404),
        ("/studies/new/plan".to_owned(), 405),
    ] {
        let answer = browser.get(&path).await;
        assert_eq!(answer.status.as_u16(), status, "{path}");
        let id = answer.headers.get("x-request-id").cloned();
        assert!(id.is_some());
        assert!(Page::new(answer).has("#error"), "{path}");
    }
    refused(server.get("/nothing"), 404, E::NotFound).await;
    let answer = server.get(&format!("/studies/{none}")).await;
    answer.is_problem(404, E::StudyNotFound);
    refused(server.get("/studies/new/plan"), 405, E::MethodNotAllowed).await;
}

/// Over HTTPS the name of the cookie has a prefix, with which neither a page over plain HTTP nor a neighbouring host can
/// plant it; a cookie without the prefix is no session.
#[tokio::test]
async fn over_https_the_session_cookie_cannot_be_planted() {
    let mut server = Harness::new();
    for (base, name, path) in [
        ("", "__Host-eigenveil-session", "Path=/;"),
        ("/deep/er", "__Secure-eigenveil-session", "Path=/deep/er/;"),
    ] {
        if !base.is_empty() {
            server.routes = axum::Router::new().nest(base, server.routes);
        }
        let https = |method: &str, path: &str| {
            Request::builder()
                .method(method)
                .uri(format!("{base}{path}"))
                .header("x-forwarded-proto", "https")
        };
        let mut browser = Browser::new(&server);
        let form = Page::new(browser.send(https("GET", "/login"), String::new()).await);
        let key = form.value("input[name=csrf_token]");
        let login = https("POST", "/login")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let body = format!("csrf_token={key}&token={}", server.token);
        let response = browser.send(login, body).await;
        assert_eq!(response.status, StatusCode::SEE_OTHER, "{response:?}");
        let set = response.headers[header::SET_COOKIE].to_str().unwrap();
        let attributes = ["; Secure", path].iter().all(|part| set.contains(part));
        assert!(
            set.starts_with(name) && attributes && !set.contains("Domain"),
            "{set}"
        );
        let home = browser.send(https("GET", "/studies/new"), String::new());
        assert_eq!(home.await.status, StatusCode::OK);
        // The same identifier under the plain name.
        let id = browser
            .cookie
            .as_deref()
            .unwrap()
            .split_once('=')
            .unwrap()
            .1;
        browser.cookie = Some(format!("eigenveil-session={id}"));
        let planted = browser.send(https("GET", "/studies/new"), String::new());
        assert_eq!(planted.await.status, StatusCode::SEE_OTHER);
    }
}

/// `public_url` decides, whatever a header says.
#[tokio::test]
async fn the_public_address_decides_name_and_path_of_the_cookie() {
    for (url, start) in [
        ("https://study.example", "__Host-eigenveil-session="),
        ("https://study.example/pca", "__Secure-eigenveil-session="),
        ("http://localhost:8080/pca", "eigenveil-session="),
    ] {
        let server = Harness::with(|config| config.public_url = Some(url.parse().unwrap()));
        let proto = if url.starts_with("https") {
            "http"
        } else {
            "https"
        };
        let login = Request::get("/login").header("x-forwarded-proto", proto);
        let response = server.send(login.body(Body::empty()).unwrap()).await;
        let set = response.headers[header::SET_COOKIE].to_str().unwrap();
        let path = if url.ends_with("pca") { "/pca/" } else { "/" };
        assert!(
            set.starts_with(start) && set.contains(&format!("; Path={path};")),
            "{set}"
        );
        assert_eq!(set.ends_with("; Secure"), url.starts_with("https"), "{set}");
    }
}

/// Pages, figures, documents and errors.
#[tokio::test]
async fn no_response_is_sniffed_and_assets_are_cached() {
    let server = Harness::new();
    let study = at(&server.study(3).await, "");
    for path in [
        "/",
        "/v1/studies",
        &study,
        "/nowhere",
        "/metrics",
        "/assets/style.css",
        "/assets/live.js",
        "/assets/icon.svg",
        "/openapi.json",
    ] {
        let headers = server.get(path).await.headers;
        let sniffed = headers[header::X_CONTENT_TYPE_OPTIONS] != "nosniff";
        assert!(!sniffed, "{path}");
        // Over plain HTTP browsers would ignore it.
        let strict = headers.contains_key(header::STRICT_TRANSPORT_SECURITY);
        assert!(!strict, "{path}");
        if let Some((_, kind)) = path.split_once('.').filter(|_| path.starts_with("/assets")) {
            let kind = match kind {
                "css" => "text/css; charset=utf-8",
                "js" => "text/javascript; charset=utf-8",
                _ => "image/svg+xml",
            };
            assert_eq!(headers[header::CONTENT_TYPE], kind);
            let cache_control = headers[header::CACHE_CONTROL].to_str().unwrap();
            assert!(cache_control.contains("max-age"), "{cache_control}");
        }
    }
}

/// A page is shared by all who are not logged in, for a second, and with nobody else.
#[tokio::test]
async fn a_cached_page_is_what_each_visitor_would_get() {
    let mut server = Harness::new();
    let study = server.study_with(json!({"epsilon": 4.0})).await;
    let path = format!("/studies/{}", study.id);
    let mut operator = Browser::operator(&server).await;
    let mut anybody = Browser::new(&server);
    for path in ["/", &path] {
        let operator_page = operator.page(path).await;
        let shared = anybody.page(path).await;
        assert!(operator_page.has("form[action='/logout']") && !shared.has("form"));
        let body = shared.body();
        assert!(!body.contains("csrf_token"), "{body}");
        assert!(body.contains("Log in"), "{body}");
    }
    upload(&server, &study, 1).await;
    assert_eq!(operator.page(&path).await.text("#reports"), "1");
    until("a newer page", async || {
        anybody.page(&path).await.text("#reports") == "1"
    })
    .await;
    operator.act(&format!("{path}/close"), &[]).await;
    for mut browser in [anybody, operator] {
        assert_eq!(browser.page(&path).await.text("#state"), "closed");
        until("a newer list", async || {
            browser.page("/").await.has(".badge.closed")
        })
        .await;
        let told = browser.page(&format!("{path}/participate")).await;
        assert!(told.body().contains("which is closed"));
    }
    let other = server.study_with(json!({"draft": true})).await;
    let mut operator = Browser::operator(&server).await;
    let draft = format!("/studies/{}", other.id);
    operator.page(&draft).await;
    let hidden = Browser::new(&server).get(&draft).await;
    assert_eq!(hidden.status, StatusCode::NOT_FOUND);
    // Mounted elsewhere it has other links.
    server.routes = axum::Router::new().nest("/deep/er", server.routes);
    let body = server.get(&format!("/deep/er{path}")).await.body;
    assert!(String::from_utf8_lossy(&body).contains("href=\"/deep/er/login\""));
}

#[tokio::test]
async fn live_numbers_are_sent_until_the_server_stops() {
    let server = Harness::new();
    let mut operator = Browser::operator(&server).await;
    let study = create(&mut operator, &[]).await;
    upload(&server, &study, 3).await;
    let request = Request::get(format!("/studies/{}/events", study.id))
        .body(Body::empty())
        .unwrap();
    let response = server.routes.clone().oneshot(request).await.unwrap();
    assert_eq!(
        response.headers()[header::CONTENT_TYPE],
        "text/event-stream"
    );
    let mut body = response.into_body();
    let next = async |body: &mut Body| -> Option<String> {
        loop {
            let frame = within("an event or the end", body.frame()).await?;
            let text = String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap();
            // A comment between two events only keeps the stream going.
            if !text.starts_with(':') {
                return Some(text);
            }
        }
    };
    let first = next(&mut body).await.unwrap();
    assert!(
        first.contains("event: study") && first.contains("\"reports\":\"3\""),
        "{first}"
    );
    upload(&server, &study, 2).await;
    let second = next(&mut body).await.unwrap();
    assert!(second.contains("\"reports\":\"5\""), "{second}");
    // A stream of a session ends with it.
    let own = Request::get(format!("/studies/{}/events", study.id))
        .header(header::COOKIE, operator.cookie.as_deref().unwrap())
        .body(Body::empty())
        .unwrap();
    let own = server.routes.clone().oneshot(own).await.unwrap();
    let mut own = own.into_body();
    assert!(next(&mut own).await.is_some());
    operator.post("/logout", &[]).await;
    assert_eq!(within("the end", next(&mut own)).await, None);
    server.app.announce_stop();
    assert_eq!(next(&mut body).await, None);
}

/// A watching browser is disconnected, and the server does not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_does_not_wait_for_watchers() {
    let server = Running::start(|config| config.shutdown_timeout_ms = 24 * 3_600_000).await;
    let design = serde_json::from_value(common::design(&json!({}))).unwrap();
    let study = server.store.create_study(design).await.unwrap();
    let mut stream = server.connect().await;
    let path = format!("/studies/{}/events", study.id());
    get(&mut stream, &path, "").await;
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("event: study") {
        assert_ne!(stream.read_buf(&mut seen).await.unwrap(), 0);
    }
    server.stop().await;
}

/// A page shows fifty of two hundred studies; one is found by part of its name or the beginning of its identifier.
#[tokio::test]
async fn two_hundred_studies_are_paged_and_searchable() {
    let server = Harness::new();
    let mut first = None;
    for number in 0..200 {
        let name = format!("Ward {} of clinic {}", number % 7, number);
        let study = server.study_with(json!({ "name": name })).await;
        first.get_or_insert(study);
    }
    let mut browser = Browser::new(&server);
    let page = browser.page("/").await;
    assert_eq!(page.all("#studies li").len(), 50);
    assert_eq!(page.text("#found"), "200 studies, the newest first.");
    page.says("#studies li", "clinic 199");

    // All words, in any position; the pager keeps the search.
    let page = browser.page("/?q=WARD+3").await;
    let count = page.text("#found");
    assert_eq!(count, "61 of 200 studies.");
    assert_eq!(page.value("#q"), "WARD 3");
    let page = browser.page("/?q=clinic+1").await;
    assert_eq!(page.text("#found"), "131 of 200 studies.");
    let next = &page.links("nav.pager a[rel=next]")[0];
    assert_eq!(next, "/?q=clinic+1&page=2");
    let page = browser.page(next).await;
    assert_eq!(page.all("#studies li").len(), 50);
    assert_eq!(page.text("#found"), "131 of 200 studies.");

    let id = first.unwrap().id;
    let page = browser.page(&format!("/?q={id}")).await;
    page.says("#studies li", "clinic 0");
    let page = browser.page("/?q=%22%3E%3Cscript%3E").await;
    assert!(page.has("#none") && !page.has("#studies"));
    assert_eq!(page.value("#q"), "\"><script>");
}
