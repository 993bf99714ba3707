//! A real Chromium, driven through WebDriver.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::request;
use crate::server::Server;

pub struct Browser {
    driver: Child,
    /// Held open: a driver that cannot write its output ends.
    _said: BufReader<ChildStdout>,
    port: u16,
    session: String,
}

/// A laptop's screen.
const WIDTH: u32 = 1366;
const HEIGHT: u32 = 768;
const PATIENCE: Duration = Duration::from_secs(30);
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

const HOW_TO_GET: &str = "these tests need Chromium and its driver: `cargo xtask test` installs them on Debian, elsewhere \
                          `chromium` and `chromedriver` must be on the path";

impl Browser {
    pub fn start() -> Browser {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver: {error}; {HOW_TO_GET}"));
        let mut said = BufReader::new(driver.stdout.take().unwrap());
        let port = port_of(&mut said).unwrap_or_else(|| panic!("chromedriver does not say its port; {HOW_TO_GET}"));
        let mut browser = Browser { driver, _said: said, port, session: String::new() };
        let arguments = [
            "--headless=new".to_string(),
            "--no-sandbox".into(),
            "--disable-dev-shm-usage".into(),
            "--disable-gpu".into(),
            "--hide-scrollbars".into(),
            "--force-color-profile=srgb".into(),
            format!("--window-size={WIDTH},{HEIGHT}"),
        ];
        let options = json!({ "args": arguments });
        let wanted = json!({
            "capabilities": { "alwaysMatch": {
                "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" },
                "pageLoadStrategy": "normal",
            } },
        });
        let answer = browser.call("POST", "/session", &wanted);
        browser.session = answer["sessionId"].as_str().unwrap().to_string();
        browser.resize(WIDTH, HEIGHT);
        browser
    }

    /// Logs in with the token.
    pub fn enter(&self, server: &Server) {
        self.go(&server.address());
    }

    /// Opens an address and waits until the page's script has filled it.
    pub fn go(&self, address: &str) {
        self.command("POST", "url", &json!({ "url": address }));
        self.wait_until_filled();
    }

    pub fn page(&self, server: &Server, path: &str) {
        self.go(&format!("http://127.0.0.1:{}{path}", server.port));
    }

    pub fn wait_until_filled(&self) {
        self.wait_for("the page to be filled", "return document.body.dataset.ready === 'yes'");
        let problem = self.run("return document.querySelector('#status.problem')?.textContent ?? ''");
        assert_eq!(problem, "", "the page says what is wrong");
    }

    /// Sets the size of the viewport, in CSS pixels.
    pub fn resize(&self, width: u32, height: u32) {
        self.command(
            "POST",
            "chromium/send_command",
            &json!({
                "cmd": "Emulation.setDeviceMetricsOverride",
                "params": { "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false },
            }),
        );
    }

    pub fn dark(&self) {
        self.command(
            "POST",
            "chromium/send_command",
            &json!({
                "cmd": "Emulation.setEmulatedMedia",
                "params": { "features": [{ "name": "prefers-color-scheme", "value": "dark" }] },
            }),
        );
    }

    /// Runs a script and returns its result.
    pub fn run(&self, script: &str) -> Value {
        self.command("POST", "execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Runs a script and returns what it later passes to its last argument (a callback).
    pub fn run_until_told(&self, script: &str) -> Value {
        self.command("POST", "execute/async", &json!({ "script": script, "args": [] }))
    }

    pub fn wait_for(&self, what: &str, script: &str) {
        let begin = Instant::now();
        while self.run(script) != true {
            assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}: {}", self.text("body"));
            sleep(Duration::from_millis(20));
        }
    }

    pub fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({})?.innerText ?? ''", json!(selector));
        self.run(&script).as_str().unwrap_or_default().to_string()
    }

    /// The texts of all matching elements.
    pub fn texts(&self, selector: &str) -> Vec<String> {
        let script = format!("return [...document.querySelectorAll({})].map((one) => one.innerText)", json!(selector));
        serde_json::from_value(self.run(&script)).unwrap()
    }

    pub fn attribute(&self, selector: &str, name: &str) -> String {
        let script = format!("return document.querySelector({})?.getAttribute({})", json!(selector), json!(name));
        self.run(&script).as_str().unwrap_or_default().to_string()
    }

    /// Clicks as a person does: the element must exist, be visible and not covered.
    pub fn click(&self, selector: &str) {
        let element = self.find(selector);
        self.command("POST", &format!("element/{element}/click"), &json!({}));
    }

    pub fn click_link(&self, text: &str) {
        let element = self.find_by("link text", text);
        self.command("POST", &format!("element/{element}/click"), &json!({}));
        self.wait_until_filled();
    }

    /// Types keys into an element; names such as `\u{E012}` are WebDriver's codes for arrows and other special keys.
    pub fn type_into(&self, selector: &str, text: &str) {
        let element = self.find(selector);
        self.command("POST", &format!("element/{element}/value"), &json!({ "text": text }));
    }

    /// Holds a key down for a while on the focused element.
    pub fn hold(&self, key: &str, time: Duration) {
        let actions = json!([
            { "type": "keyDown", "value": key },
            { "type": "pause", "duration": time.as_millis() as u64 },
            { "type": "keyUp", "value": key },
        ]);
        self.command("POST", "actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] }));
    }

    pub fn screenshot(&self, path: &Path) {
        let answer = self.command("GET", "screenshot", &Value::Null);
        std::fs::write(path, base64(answer.as_str().unwrap())).unwrap();
    }

    /// Errors that pages have logged since the last call.
    pub fn errors(&self) -> Vec<String> {
        let log = self.command("POST", "se/log", &json!({ "type": "browser" }));
        let entries = log.as_array().unwrap().iter().filter(|entry| entry["level"] == "SEVERE");
        entries.map(|entry| entry["message"].as_str().unwrap_or_default().to_string()).collect()
    }

    /// Shows text as a terminal would, on a separate page.
    pub fn command_line_page(&self, folder: &Path, text: &str) {
        let escaped = text.replace('&', "&amp;").replace('<', "&lt;");
        let style =
            "margin:0;padding:18px 22px;color:#e4e8eb;white-space:pre-wrap;font:13px/1.45 'DejaVu Sans Mono',monospace";
        let page = folder.join("terminal.html");
        let html = format!(
            "<!doctype html><meta charset=utf-8><body style=\"margin:0;background:#14181c\"><pre style=\"{style}\">{escaped}</pre>"
        );
        std::fs::write(&page, html).unwrap();
        self.command("POST", "url", &json!({ "url": format!("file://{}", page.display()) }));
    }

    fn find(&self, selector: &str) -> String {
        self.find_by("css selector", selector)
    }

    fn find_by(&self, using: &str, value: &str) -> String {
        let found = self.command("POST", "element", &json!({ "using": using, "value": value }));
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("{value}: {found}")).to_string()
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        self.call(method, &format!("/session/{}/{path}", self.session), body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let host = format!("127.0.0.1:{}", self.port);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let headers = [("Host", host.as_str()), ("Content-Type", "application/json; charset=utf-8")];
        let answer = request(self.port, method, path, &headers, body.as_bytes());
        let value = answer.json()["value"].clone();
        assert_eq!(answer.status, 200, "{path} {body}: {value}");
        value
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.call("DELETE", &format!("/session/{}", self.session), &Value::Null);
        } else if !self.session.is_empty() {
            let host = format!("127.0.0.1:{}", self.port);
            request(self.port, "DELETE", &format!("/session/{}", self.session), &[("Host", &host)], b"");
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// The port, from the line that the driver prints when it listens.
fn port_of(said: &mut impl BufRead) -> Option<u16> {
    let lines = said.lines().map_while(Result::ok);
    lines.filter_map(|line| line.split("successfully on port ").nth(1)?.trim_end_matches('.').parse().ok()).next()
}

fn base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let bytes: Vec<u8> = text.bytes().filter(|byte| *byte != b'=').collect();
    let mut out = Vec::with_capacity(bytes.len() * 3 / 4);
    for group in bytes.chunks(4) {
        let bits = group.iter().enumerate().fold(0, |bits, (at, byte)| bits | value(*byte) << (18 - 6 * at));
        out.extend(&bits.to_be_bytes()[1..group.len()]);
    }
    out
}
