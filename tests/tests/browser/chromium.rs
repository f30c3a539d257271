//! Chromium without a screen, driven over WebDriver.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

use fantoccini::{
    Client, ClientBuilder, Locator, elements::Element, wd::WebDriverCompatibleCommand,
};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};

/// How long is waited for a page to show what it should: longer than a busy machine takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// What a browser is set to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) dark: bool,
    pub(crate) scripts: bool,
}

impl Settings {
    /// Chromium's own windows are 500 pixels wide at least; narrower ones are a phone's screen.
    fn is_phone(self) -> bool {
        self.width < 500
    }
}

pub(crate) const DESKTOP: Settings = Settings {
    width: 1280,
    height: 900,
    dark: false,
    scripts: true,
};

pub(crate) const PHONE: Settings = Settings {
    width: 390,
    height: 844,
    ..DESKTOP
};

/// A browser with an empty profile, and the driver that it came with; both end with it.
pub(crate) struct Browser {
    pub(crate) client: Client,
    origin: String,
    settings: Settings,
    driver: Child,
}

impl Browser {
    /// Starts one that is to see nothing but this origin.
    pub(crate) async fn start(origin: &str, settings: Settings) -> Self {
        let (driver, port) = start_driver();
        let scripts = if settings.scripts { 1 } else { 2 };
        let Settings {
            width,
            height,
            dark,
            ..
        } = settings;
        let mut options = json!({
            // Tests run as root in containers, where Chromium's own sandbox cannot be.
            "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                "--hide-scrollbars", "--force-color-profile=srgb", "--lang=en",
                format!("--window-size={width},{height}")],
            "prefs": { "profile.managed_default_content_settings.javascript": scripts },
        });
        if settings.is_phone() {
            let screen = json!({"width": width, "height": height, "pixelRatio": 1, "touch": true});
            options["mobileEmulation"] = json!({ "deviceMetrics": screen });
        }
        let capabilities = json!({
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        });
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(serde_json::from_value(capabilities).unwrap())
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("chromedriver starts Chromium");
        let browser = Self {
            client,
            origin: origin.to_owned(),
            settings,
            driver,
        };
        let scheme = if dark { "dark" } else { "light" };
        // The driver clicks where a thing is, and does not wait for smooth scrolling.
        let features = json!([
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]);
        browser
            .devtools(
                "Emulation.setEmulatedMedia",
                json!({ "features": features }),
            )
            .await;
        browser
    }

    pub(crate) fn settings(&self) -> Settings {
        self.settings
    }

    /// Opens a path of the origin.
    pub(crate) async fn open(&self, path: &str) {
        let url = format!("{}{path}", self.origin);
        self.client.goto(&url).await.unwrap();
    }

    /// The path of the page that is shown.
    pub(crate) async fn path(&self) -> String {
        self.client.current_url().await.unwrap().path().to_owned()
    }

    /// The element, once it is there.
    pub(crate) async fn find(&self, css: &str) -> Element {
        self.client
            .wait()
            .at_most(PATIENCE)
            .for_element(Locator::Css(css))
            .await
            .unwrap_or_else(|error| panic!("no {css} on the page: {error}"))
    }

    /// The text of an element, which a script of the page may replace at any moment.
    pub(crate) async fn text(&self, css: &str) -> String {
        loop {
            match self.find(css).await.text().await {
                Ok(text) => return text,
                Err(error) if error.is_stale_element_reference() => {}
                Err(error) => panic!("{css}: {error}"),
            }
        }
    }

    pub(crate) async fn click(&self, css: &str) {
        self.find(css).await.click().await.unwrap();
    }

    /// Replaces what a field holds.
    pub(crate) async fn fill(&self, css: &str, text: &str) {
        let field = self.find(css).await;
        field.clear().await.unwrap();
        field.send_keys(text).await.unwrap();
    }

    /// What a script of ours finds in the page; for pages with scripts only.
    pub(crate) async fn evaluate(&self, expression: &str) -> Value {
        let script = format!("return ({expression});");
        self.client.execute(&script, vec![]).await.unwrap()
    }

    /// Calls a method of the developer tools.
    pub(crate) async fn devtools(&self, method: &str, parameters: Value) -> Value {
        let body = json!({"cmd": method, "params": parameters});
        self.extended("goog/cdp/execute", &body).await
    }

    /// Fails when the page has complained since the last call, or anything was asked for beyond the origin. Returns
    /// how many requests there were.
    pub(crate) async fn check_log(&self) -> usize {
        let complaints = self.log("browser").await;
        for entry in complaints.as_array().unwrap() {
            // Below are recommendations of the browser to whoever develops the page.
            let serious = ["WARNING", "SEVERE"].contains(&entry["level"].as_str().unwrap());
            assert!(!serious, "the console has: {entry}");
        }
        let mut requests = 0;
        for entry in self.log("performance").await.as_array().unwrap() {
            let event: Value = serde_json::from_str(entry["message"].as_str().unwrap()).unwrap();
            if event["message"]["method"] != "Network.requestWillBeSent" {
                continue;
            }
            let url = event["message"]["params"]["request"]["url"]
                .as_str()
                .unwrap();
            let own = url.strip_prefix(&self.origin);
            assert!(
                own.is_some_and(|path| path.starts_with('/')) || url.starts_with("data:"),
                "a request left the origin: {url}"
            );
            requests += 1;
        }
        requests
    }

    async fn log(&self, kind: &str) -> Value {
        self.extended("se/log", &json!({ "type": kind })).await
    }

    async fn extended(&self, path: &'static str, body: &Value) -> Value {
        let command = Extended {
            path,
            body: body.to_string(),
        };
        self.client.issue_cmd(command).await.unwrap()
    }

    /// Closes the browser in good order.
    pub(crate) async fn close(self) {
        self.client.clone().close().await.unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromium ends with its driver.
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// A command of chromedriver that WebDriver does not have.
#[derive(Debug)]
struct Extended {
    path: &'static str,
    body: String,
}

impl WebDriverCompatibleCommand for Extended {
    fn endpoint(
        &self,
        base: &url::Url,
        session: Option<&str>,
    ) -> Result<url::Url, url::ParseError> {
        base.join(&format!(
            "session/{}/{}",
            session.unwrap_or_default(),
            self.path
        ))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(self.body.clone()))
    }
}

/// Starts the driver on a port that the system chooses. It ends at once where another driver has taken the same number for
/// the other protocol of the internet meanwhile.
fn start_driver() -> (Child, u16) {
    (0..10)
        .find_map(|_| try_driver())
        .expect("chromedriver says its port")
}

fn try_driver() -> Option<(Child, u16)> {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("chromedriver is needed: apt-get install chromium chromium-driver");
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let port = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    });
    let Some(port) = port else {
        driver.wait().unwrap();
        return None;
    };
    // What it says later must go somewhere.
    std::thread::spawn(move || lines.for_each(drop));
    Some((driver, port))
}
