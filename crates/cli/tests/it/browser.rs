//! A real browser, controlled through its `WebDriver`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use fantoccini::wd::WebDriverCompatibleCommand;
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::json;

/// A Chromium process with a session. Dropping the value ends both, also when the test panics.
pub(crate) struct Browser {
    pub(crate) client: Client,
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    pub(crate) async fn open() -> Self {
        let (driver, port) = start_driver();
        let profile = tempfile::tempdir().expect("a folder for the profile");
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--window-size=1280,1150",
            &format!("--user-data-dir={}", profile.path().display()),
        ];
        let capabilities = json!({
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let client = ClientBuilder::new(HttpConnector::new())
            .capabilities(capabilities.as_object().expect("an object").clone())
            .connect(&format!("http://127.0.0.1:{port}"))
            .await
            .expect("a session");
        let session = client.session_id().await.expect("an answer").expect("a session");
        Self { client, driver, port, session, _profile: profile }
    }

    /// Returns the console messages of the page so far.
    pub(crate) async fn console(&self) -> Vec<serde_json::Value> {
        let log = self.client.issue_cmd(ReadLog).await.expect("the console's log");
        log.as_array().cloned().unwrap_or_default()
    }

    pub(crate) async fn close(self) {
        let _ = self.client.clone().close().await;
    }

    /// Ends the session. Only the driver stops its Chromium; a killed driver would leave Chromium running.
    fn end_session(&self) -> std::io::Result<()> {
        let mut driver = TcpStream::connect(("127.0.0.1", self.port))?;
        let (session, port) = (&self.session, self.port);
        write!(
            driver,
            "DELETE /session/{session} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
        )?;
        driver.read(&mut [0; 64]).map(drop)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.end_session();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Starts the driver, and returns the port that it announces.
///
/// The driver takes a free port of IPv6, and ends if the port of IPv4 with the same number is taken: it cannot know that
/// port before. Another start takes another number.
fn start_driver() -> (Child, u16) {
    const STARTS: usize = 50;
    let mut last = String::new();
    for _ in 0..STARTS {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver is missing: `cargo xtask test` installs it");
        let output = BufReader::new(driver.stdout.take().expect("the driver's output"));
        last.clear();
        for line in output.lines().map_while(Result::ok) {
            let announced = line.split_once("started successfully on port ");
            if let Some(port) = announced.and_then(|(_, port)| port.trim_end_matches('.').parse().ok()) {
                return (driver, port);
            }
            last.push_str(&line);
            last.push('\n');
        }
        let _ = driver.wait();
        if !last.contains("port not available") {
            break;
        }
    }
    panic!("chromedriver did not start: {last}");
}

/// Chromium's own command to read the console.
#[derive(Debug)]
struct ReadLog;

impl WebDriverCompatibleCommand for ReadLog {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/se/log", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({ "type": "browser" }).to_string()))
    }
}
