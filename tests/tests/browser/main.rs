//! The pages in Chromium, against the real program: `cargo test --workspace --test browser -- --ignored`.
//!
//! They are ignored by default because they need Debian's `chromium` and `chromium-driver`; `.ci/run` installs both and
//! runs them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod accessible;
mod chromium;
#[path = "../system/harness.rs"]
#[allow(dead_code, reason = "the whole-system tests use the rest")]
mod harness;
mod study;
#[path = "../../../server/tests/common/waiting.rs"]
mod waiting;

use std::{
    fs::File,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use chromium::{Browser, DESKTOP, PHONE, Settings};
use study::{ROWS_SHOWN, World, create};
use waiting::until;

/// Environment variable: file for README's picture of the form, to make it again.
const PICTURE_VARIABLE: &str = "EIGENVEIL_WRITE_PICTURE";

/// The whole page as a PNG, on a screen as tall as the page.
async fn picture(browser: &Browser, file: &Path) {
    let metrics = browser
        .devtools("Page.getLayoutMetrics", serde_json::json!({}))
        .await;
    let Settings { width, .. } = browser.settings();
    let height = &metrics["cssContentSize"]["height"];
    let screen = serde_json::json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
    browser
        .devtools("Emulation.setDeviceMetricsOverride", screen)
        .await;
    let shot = browser.devtools("Page.captureScreenshot", serde_json::json!({}));
    let mut decoder = Command::new("base64")
        .arg("-d")
        .stdin(Stdio::piped())
        .stdout(File::create(file).unwrap())
        .spawn()
        .unwrap();
    let text = shot.await["data"].as_str().unwrap().to_owned();
    decoder
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    assert!(decoder.wait().unwrap().success());
    browser
        .devtools(
            "Emulation.clearDeviceMetricsOverride",
            serde_json::json!({}),
        )
        .await;
}

async fn download(browser: &Browser, css: &str, folder: &Path, file: &str) -> Vec<u8> {
    let behaviour = serde_json::json!({"behavior": "allow", "downloadPath": folder});
    browser
        .devtools("Browser.setDownloadBehavior", behaviour)
        .await;
    browser.click(css).await;
    let path = folder.join(file);
    // Chromium reserves the name with an empty file, and moves the finished one there.
    until("the download", async || {
        path.metadata().is_ok_and(|file| file.len() > 0)
    })
    .await;
    std::fs::read(path).unwrap()
}

/// Checks the downloaded estimate and the log.
async fn finish(world: &World, browser: Browser, id: &str) {
    let link = "#downloads a[href$='estimate.json']";
    let json = download(&browser, link, world.folder.path(), "estimate.json").await;
    let downloaded: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(downloaded["n"], study::ROWS);
    assert_eq!(downloaded["k"], 2);
    assert_eq!(world.server.accepted(id), study::ROWS);
    assert!(browser.check_log().await > 10);
    browser.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium: cargo test --workspace --test browser -- --ignored"]
async fn a_study_is_created_watched_and_estimated() {
    let world = World::new();
    let browser = Browser::start(&world.server.url, DESKTOP).await;
    browser.open("/").await;
    browser.find("#empty").await;
    world.log_in(&browser).await;

    // The planner responds to typing.
    browser.open("/studies/new").await;
    if let Some(file) = std::env::var_os(PICTURE_VARIABLE) {
        picture(&browser, Path::new(&file)).await;
    }
    let before = browser.text("#visible").await;
    browser.fill("#epsilon", "1").await;
    until("the planner follows", async || {
        browser.text("#visible").await != before
    })
    .await;

    // A features file says how many features there are.
    let features = world
        .folder
        .write("features.csv", "name,center,scale\na,0,1\nb,0,1\nc,0,1\n");
    browser.fill("#features-file", &features).await;
    until("the file is read", async || {
        browser
            .evaluate("document.getElementById('features').value.includes('b,0,1')")
            .await
            == true
    })
    .await;
    until("the planner knows p", async || {
        browser.text("#visible").await.contains("in 3 features")
    })
    .await;

    let id = create(&browser, "Watched").await;
    assert_eq!(browser.text("#reports").await, "0");
    browser.evaluate("window.same = true").await;
    // The first report adds a figure to the page.
    world.report_rows(&id, "first.csv");
    until("the first reports are shown", async || {
        browser.text("#reports").await == study::FIRST.to_string()
    })
    .await;
    browser.find("img[src*='arrivals.svg']").await;
    world.report_rows(&id, "rest.csv");
    until("all reports are shown", async || {
        browser.text("#reports").await == ROWS_SHOWN
    })
    .await;
    assert_eq!(
        browser.evaluate("window.same").await,
        true,
        "without loading the page again"
    );

    browser.click("#ask button[type=submit]").await;
    browser.find("#verdict").await;
    finish(&world, browser, &id).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium: cargo test --workspace --test browser -- --ignored"]
async fn all_pages_work_without_scripts() {
    let world = World::new();
    let settings = Settings {
        scripts: false,
        ..DESKTOP
    };
    let browser = Browser::start(&world.server.url, settings).await;
    world.log_in(&browser).await;
    browser.open("/studies/new").await;
    let before = browser.text("#visible").await;
    browser.fill("#name", "Planned").await;
    browser.fill("#epsilon", "1").await;
    browser.click("#create button[value=plan]").await;
    until("the planner answers", async || {
        browser.text("#visible").await != before
    })
    .await;

    let id = create(&browser, "Without scripts").await;
    world.report(&id);
    browser.open(&format!("/studies/{id}")).await;
    assert_eq!(browser.text("#reports").await, ROWS_SHOWN);
    browser.click("#ask button[type=submit]").await;
    // Navigating away sooner would cancel the form's submission.
    browser.find("p.running, #verdict").await;
    until("the estimate", async || {
        browser.open(&format!("/studies/{id}")).await;
        browser.source().await.contains("id=\"verdict\"")
    })
    .await;
    finish(&world, browser, &id).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium: cargo test --workspace --test browser -- --ignored"]
async fn pages_are_accessible() {
    let world = World::new();
    let id = world.estimated("For everybody").await;
    let pages = [
        "/".to_owned(),
        "/login".to_owned(),
        "/studies/new".to_owned(),
        format!("/studies/{id}"),
        format!("/studies/{id}/participate"),
        format!("/studies/{id}/estimates/1"),
    ];
    for base in [DESKTOP, PHONE] {
        for dark in [false, true] {
            let browser = Browser::start(&world.server.url, Settings { dark, ..base }).await;
            world.log_in(&browser).await;
            for page in &pages {
                browser.open(page).await;
                accessible::check_rules(&browser, page).await;
                accessible::check_fits(&browser, page).await;
                if !dark {
                    accessible::check_keyboard(&browser, page).await;
                }
            }
            assert!(browser.check_log().await > 10);
            browser.close().await;
        }
    }
}
