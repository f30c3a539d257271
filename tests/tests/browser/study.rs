//! A study as its users see it: created, watched, estimated.

use rand::{RngExt as _, SeedableRng as _, rngs::ChaCha12Rng};

use crate::{
    chromium::{Browser, DESKTOP},
    harness::{Folder, ServerProcess},
};

pub(crate) const FEATURES: usize = 12;
/// Number of rows and of reports.
pub(crate) const ROWS: usize = 5_000;
pub(crate) const FIRST: usize = 100;
/// `ROWS` as formatted on pages.
pub(crate) const ROWS_SHOWN: &str = "5,000";

/// A running server, and rows with two strong directions in their first features.
pub(crate) struct World {
    pub(crate) server: ServerProcess,
    pub(crate) folder: Folder,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let rows = rows();
        let (first, rest) = rows.split_at(FIRST);
        folder.write("first.csv", first.concat());
        folder.write("rest.csv", rest.concat());
        Self {
            server: folder.server(),
            folder,
        }
    }

    pub(crate) fn report(&self, study: &str) {
        self.report_rows(study, "first.csv");
        self.report_rows(study, "rest.csv");
    }

    pub(crate) fn report_rows(&self, study: &str, file: &str) {
        self.server.report(study, &self.folder.at(file));
    }

    /// A study with all reports and an estimate.
    pub(crate) async fn estimated(&self, name: &str) -> String {
        let maker = Browser::start(&self.server.url, DESKTOP).await;
        self.log_in(&maker).await;
        let id = create(&maker, name).await;
        self.report(&id);
        maker.open(&format!("/studies/{id}")).await;
        maker.click("#ask button[type=submit]").await;
        maker.find("#verdict").await;
        maker.close().await;
        id
    }

    pub(crate) async fn log_in(&self, browser: &Browser) {
        browser.open("/login").await;
        browser.fill("#token", &self.server.token()).await;
        browser.click("#login button[type=submit]").await;
        browser.find("a[href='/studies/new']").await;
    }
}

/// Fills the form, creates the study and returns its identifier.
pub(crate) async fn create(browser: &Browser, name: &str) -> String {
    browser.open("/studies/new").await;
    browser.fill("#name", name).await;
    browser.fill("#dimension", &FEATURES.to_string()).await;
    browser.fill("#k", "2").await;
    browser.fill("#epsilon", "8").await;
    browser.fill("#users", &ROWS.to_string()).await;
    for (field, text) in [
        ("#purpose", "Which daily habits go together with bad sleep"),
        (
            "#responsible_party",
            "Sleep laboratory, University of Example",
        ),
        ("#contact", "sleep@example.org"),
        // The keys that a date picker takes in English.
        ("#last_day", "12312099"),
    ] {
        browser.fill(field, text).await;
    }
    browser.click("#create button[value=create]").await;
    browser.find("#study").await;
    let path = browser.path().await;
    let id = path.strip_prefix("/studies/").unwrap().to_owned();
    assert_eq!(id.len(), 32, "{path}");
    id
}

/// The participants' rows as lines.
fn rows() -> Vec<String> {
    let mut random = ChaCha12Rng::seed_from_u64(9);
    let mut row = || {
        let a: f64 = random.random_range(-1.0..1.0);
        let b: f64 = random.random_range(-0.7..0.7);
        let values: Vec<String> = (0..FEATURES)
            .map(|i| {
                let signal = match i {
                    0..3 => a,
                    3..6 => b,
                    _ => 0.0,
                };
                format!("{:.4}", signal + random.random_range(-0.15..0.15))
            })
            .collect();
        values.join(",") + "\n"
    };
    (0..ROWS).map(|_| row()).collect()
}
