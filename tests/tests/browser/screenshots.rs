//! Pictures of the pages for the documentation: `docs/screenshots.sh`.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::{
    accessible,
    chromium::{Browser, DESKTOP, PHONE, Settings},
    study::World,
};

/// Tallest picture in pixels.
const MOST: f64 = 9_000.0;

/// The whole page as it would be on a screen without end.
async fn picture(browser: &Browser, file: &Path) {
    let Settings { width, height, .. } = browser.settings();
    let screen = async |height: f64| {
        let screen =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        browser
            .devtools("Emulation.setDeviceMetricsOverride", screen)
            .await;
    };
    // Not the last page's height, below which no page would be.
    screen(f64::from(height)).await;
    accessible::check_fits(browser, "picture").await;
    let metrics = browser.devtools("Page.getLayoutMetrics", json!({})).await;
    let needed = metrics["cssContentSize"]["height"].as_f64().unwrap();
    assert!(needed <= MOST, "{}: {needed} pixels", file.display());
    // A taller screen, not a picture beyond the screen, for which Chromium lays the page out at another width.
    screen(needed).await;
    accessible::check_fits(browser, "picture").await;
    let shot = json!({"format": "png"});
    let answer = browser.devtools("Page.captureScreenshot", shot).await;
    let bytes = decode(answer["data"].as_str().unwrap());
    assert!(bytes.starts_with(b"\x89PNG"), "{}", file.display());
    std::fs::write(file, bytes).unwrap();
}

/// Base64 of the developer tools, with padding.
fn decode(text: &str) -> Vec<u8> {
    let value = |byte: u8| -> u32 {
        match byte {
            b'A'..=b'Z' => u32::from(byte - b'A'),
            b'a'..=b'z' => u32::from(byte - b'a') + 26,
            b'0'..=b'9' => u32::from(byte - b'0') + 52,
            b'+' => 62,
            b'/' => 63,
            _ => panic!("not base64"),
        }
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits =
            group.iter().fold(0, |bits, &byte| bits << 6 | value(byte)) << (6 * (4 - group.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes docs/img; needs Chromium: docs/screenshots.sh"]
async fn screenshots() {
    let images: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "docs", "img"]
        .iter()
        .collect();
    let world = World::new();
    let id = world.estimated("Sleep and movement").await;
    let sparse = world.estimated("Which signals matter").await;
    let out = world.folder.path().join("out").display().to_string();
    let path = ["--sparse", "--lambda", "path", "--k", "2", "--wait"];
    let target = ["estimate", "--json", "--study", &sparse, "--out", &out];
    let arguments = [&target[..], &path].concat();
    world.server.cli_json(&arguments);
    for (base, size) in [(DESKTOP, "desktop"), (PHONE, "phone")] {
        for (dark, light) in [(false, "light"), (true, "dark")] {
            let browser = Browser::start(&world.server.url, Settings { dark, ..base }).await;
            world.log_in(&browser).await;
            for (page, name) in [
                ("/".to_owned(), "studies"),
                ("/studies/new".to_owned(), "create"),
                (format!("/studies/{id}"), "study"),
                (format!("/studies/{sparse}"), "sparse"),
                (format!("/studies/{id}/participate"), "participant"),
            ] {
                browser.open(&page).await;
                accessible::check_fits(&browser, &page).await;
                let file = images.join(format!("page-{name}-{size}-{light}.png"));
                picture(&browser, &file).await;
            }
            browser.close().await;
        }
    }
}
