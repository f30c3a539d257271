//! Headless Chromium, driven over WebDriver.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};

use crate::waiting::MAX_WAIT;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) dark: bool,
    pub(crate) scripts: bool,
}

impl Settings {
    /// Chromium's windows are at least 500 pixels wide; narrower ones are emulated phone screens.
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

/// A browser with an empty profile and its driver; both end when it is dropped.
pub(crate) struct Browser {
    http: reqwest::Client,
    /// The WebDriver URL of this session.
    session: String,
    origin: String,
    settings: Settings,
    driver: Child,
}

impl Browser {
    /// Starts a browser that may request nothing but this origin.
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
            // Tests run as root in containers, where Chromium's sandbox does not work.
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
            "timeouts": { "script": MAX_WAIT.as_millis() as u64, "pageLoad": MAX_WAIT.as_millis() as u64 },
        });
        let mut browser = Self {
            http: reqwest::Client::new(),
            session: format!("http://127.0.0.1:{port}/session"),
            origin: origin.to_owned(),
            settings,
            driver,
        };
        let asked = json!({"capabilities": {"alwaysMatch": capabilities}});
        let made = browser.command(Method::POST, "", asked).await;
        let id = made
            .as_ref()
            .map(|made| made["sessionId"].as_str().unwrap());
        let id = id.unwrap_or_else(|error| panic!("chromedriver starts Chromium: {error}"));
        browser.session = format!("{}/{id}", browser.session);
        let scheme = if dark { "dark" } else { "light" };
        // The driver clicks at an element's position and does not wait for smooth scrolling.
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

    async fn command(&self, method: Method, path: &str, body: Value) -> Result<Value, String> {
        let mut request = self
            .http
            .request(method.clone(), format!("{}{path}", self.session));
        if method == Method::POST {
            request = request.body(body.to_string());
        }
        let text = request.send().await.unwrap().text().await.unwrap();
        let mut response: Value = serde_json::from_str(&text).unwrap();
        match response["value"]["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(response["value"].take()),
        }
    }

    async fn get(&self, path: &str) -> Value {
        let response = self.command(Method::GET, path, Value::Null).await;
        response.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let response = self.command(Method::POST, path, body).await;
        response.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub(crate) async fn open(&self, path: &str) {
        let url = format!("{}{path}", self.origin);
        self.post("/url", json!({ "url": url })).await;
    }

    pub(crate) async fn path(&self) -> String {
        let url = self.get("/url").await;
        let rest = url.as_str().unwrap().strip_prefix(&self.origin).unwrap();
        rest.split(['?', '#']).next().unwrap().to_owned()
    }

    pub(crate) async fn source(&self) -> String {
        self.get("/source").await.as_str().unwrap().to_owned()
    }

    /// Waits for an element and returns its WebDriver path.
    async fn element(&self, css: &str) -> String {
        let started = Instant::now();
        loop {
            let wanted = json!({"using": "css selector", "value": css});
            match self.command(Method::POST, "/element", wanted).await {
                Ok(found) => {
                    let (_, id) = found.as_object().unwrap().iter().next().unwrap();
                    return format!("/element/{}", id.as_str().unwrap());
                }
                Err(error) if error == "no such element" && started.elapsed() < MAX_WAIT => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("{css}: {error}"),
            }
        }
    }

    pub(crate) async fn find(&self, css: &str) {
        self.element(css).await;
    }

    /// A command about an element, which a script of the page may replace at any moment.
    async fn on_element(&self, method: &Method, css: &str, command: &str, body: &Value) -> Value {
        loop {
            let path = format!("{}/{command}", self.element(css).await);
            match self.command(method.clone(), &path, body.clone()).await {
                Ok(response) => return response,
                Err(error) if error == "stale element reference" => {}
                Err(error) => panic!("{css}: {error}"),
            }
        }
    }

    pub(crate) async fn text(&self, css: &str) -> String {
        let text = self
            .on_element(&Method::GET, css, "text", &Value::Null)
            .await;
        text.as_str().unwrap().to_owned()
    }

    pub(crate) async fn click(&self, css: &str) {
        self.on_element(&Method::POST, css, "click", &json!({}))
            .await;
    }

    pub(crate) async fn fill(&self, css: &str, text: &str) {
        self.on_element(&Method::POST, css, "clear", &json!({}))
            .await;
        let text = json!({ "text": text });
        self.on_element(&Method::POST, css, "value", &text).await;
    }

    /// Runs a script of ours in the page: `sync`, or `async` with a function to call at the end.
    pub(crate) async fn execute(&self, kind: &str, script: &str) -> Value {
        let script = json!({"script": script, "args": []});
        self.post(&format!("/execute/{kind}"), script).await
    }

    /// Evaluates an expression in the page; only if scripts are enabled.
    pub(crate) async fn evaluate(&self, expression: &str) -> Value {
        self.execute("sync", &format!("return ({expression});"))
            .await
    }

    pub(crate) async fn devtools(&self, method: &str, parameters: Value) -> Value {
        let body = json!({"cmd": method, "params": parameters});
        self.post("/goog/cdp/execute", body).await
    }

    /// Fails if the console has warnings since the last call, or a request left the origin. Returns the number of
    /// requests.
    pub(crate) async fn check_log(&self) -> usize {
        let complaints = self.log("browser").await;
        for entry in complaints.as_array().unwrap() {
            // Lower levels are recommendations to the page's developer.
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
        self.post("/se/log", json!({ "type": kind })).await
    }

    pub(crate) async fn close(self) {
        self.command(Method::DELETE, "", Value::Null).await.unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromium ends with its driver.
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Starts the driver on a port that the system chooses. It exits at once if another driver has taken the same port for
/// the other IP version in the meantime.
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
    // Its later output must be drained.
    std::thread::spawn(move || lines.for_each(drop));
    Some((driver, port))
}
