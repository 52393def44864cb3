//! A user with a browser: the actions and the visible results.

use std::time::{Duration, Instant};

use fantoccini::Locator;
use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use fantoccini::key::Key;
use fantoccini::wd::WebDriverCompatibleCommand;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::pages::{CONDITION_TIMEOUT, until};

/// Records violations of the page's content security policy, from the start of every page on.
const WATCH: &str = "window.forbidden = []; \
    addEventListener('securitypolicyviolation', (e) => forbidden.push(`${e.violatedDirective}: ${e.blockedURI} ${e.sample}`));";

/// A user with a browser.
pub(crate) struct Visitor {
    pub(crate) browser: Browser,
    /// The daemon's URL as the user knows it.
    base: String,
}

impl Visitor {
    pub(crate) async fn to(base: &str) -> Self {
        let visitor = Self { browser: Browser::open().await, base: base.to_owned() };
        visitor.cdp("Page.addScriptToEvaluateOnNewDocument", json!({ "source": WATCH })).await;
        visitor
    }

    pub(crate) async fn open(&self, path: &str) {
        self.browser.client.goto(&format!("{}{path}", self.base)).await.unwrap();
    }

    /// Runs a script in the page through the driver, which the page's policy does not restrict.
    pub(crate) async fn script(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.browser.client.execute(script, arguments).await.unwrap()
    }

    /// Runs a script and waits for the value that it passes to its last argument.
    pub(crate) async fn script_to_end(&self, script: &str, arguments: Vec<Value>) -> Value {
        self.browser.client.execute_async(script, arguments).await.unwrap()
    }

    /// Returns the visible texts of all matching elements.
    pub(crate) async fn texts(&self, css: &str) -> Vec<String> {
        let script = "return Array.from(document.querySelectorAll(arguments[0]), (e) => (e.innerText ?? e.textContent).trim())";
        serde_json::from_value(self.script(script, vec![css.into()]).await).unwrap()
    }

    /// Returns the text of the first matching element, or an empty text if none matches.
    pub(crate) async fn text(&self, css: &str) -> String {
        self.texts(css).await.into_iter().next().unwrap_or_default()
    }

    pub(crate) async fn count(&self, css: &str) -> usize {
        self.texts(css).await.len()
    }

    /// Waits until the first matching element contains this text.
    pub(crate) async fn sees(&self, css: &str, words: &str) {
        let end = Instant::now() + CONDITION_TIMEOUT;
        loop {
            let seen = self.text(css).await;
            if seen.contains(words) {
                return;
            }
            let place = self.place().await;
            assert!(Instant::now() < end, "{css} at {place} does not contain {words:?}, but {seen:?}");
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Returns the value of a field.
    pub(crate) async fn value(&self, css: &str) -> String {
        let script = "return document.querySelector(arguments[0]).value";
        self.script(script, vec![css.into()]).await.as_str().unwrap().to_owned()
    }

    /// Clicks on the first matching element. It retries, because the page may redraw the element.
    pub(crate) async fn click(&self, css: &str) {
        until(&format!("{css} is clicked"), async || {
            let Ok(element) = self.browser.client.find(Locator::Css(css)).await else { return false };
            element.click().await.is_ok()
        })
        .await;
    }

    /// Clicks on the link with this text.
    pub(crate) async fn follow(&self, words: &str) {
        until(&format!("{words} is clicked"), async || {
            let Ok(element) = self.browser.client.find(Locator::LinkText(words)).await else { return false };
            element.click().await.is_ok()
        })
        .await;
    }

    /// Clicks on an element that asks for confirmation, and confirms. Returns the question.
    pub(crate) async fn click_and_agree(&self, css: &str) -> String {
        self.click(css).await;
        let asked = self.browser.client.get_alert_text().await.unwrap();
        self.browser.client.accept_alert().await.unwrap();
        asked
    }

    /// Replaces the content of a field.
    pub(crate) async fn write(&self, css: &str, text: &str) {
        let unfold =
            "document.querySelector(arguments[0])?.closest('details:not([open])')?.firstElementChild.click()";
        self.script(unfold, vec![css.into()]).await;
        let field = self.browser.client.find(Locator::Css(css)).await.unwrap();
        // Selects the content and types over it, as a user does. Clearing the field first would be a separate change.
        field.send_keys(&format!("{}a{}{text}", Key::Control, Key::Null)).await.unwrap();
    }

    /// Selects an option of a list.
    pub(crate) async fn choose(&self, css: &str, label: &str) {
        let list = self.browser.client.find(Locator::Css(css)).await.unwrap();
        list.select_by_label(label).await.unwrap();
    }

    /// Presses and releases a key.
    pub(crate) async fn press(&self, key: char) {
        let keys = KeyActions::new("keys".to_owned());
        let keys = keys.then(KeyAction::Down { value: key }).then(KeyAction::Up { value: key });
        self.browser.client.perform_actions(keys).await.unwrap();
    }

    /// Returns the path and query, relative to the daemon's URL.
    pub(crate) async fn place(&self) -> String {
        let url = self.browser.client.current_url().await.unwrap().to_string();
        url.strip_prefix(&self.base).unwrap_or(&url).to_owned()
    }

    /// Returns the session cookie, if there is one: its value, its path, whether scripts cannot read it, and its
    /// `SameSite` attribute.
    pub(crate) async fn cookie(&self) -> Option<(String, String, bool, String)> {
        let all = self.browser.client.get_all_cookies().await.unwrap();
        let cookie = all.into_iter().find(|cookie| cookie.name() == "holdoff_session")?;
        let same_site = cookie.same_site().map(|same| same.to_string()).unwrap_or_default();
        let is_hidden = cookie.http_only().unwrap_or_default();
        Some((cookie.value().to_owned(), cookie.path().unwrap_or_default().to_owned(), is_hidden, same_site))
    }

    pub(crate) async fn log_in(&self, token: &str) {
        self.write("#token", token).await;
        self.click("form.center button").await;
    }

    /// Asserts that the page has written nothing to the console and has not violated its content security policy.
    pub(crate) async fn assert_silent(&self, page: &str) {
        let forbidden = self.script("return window.forbidden", vec![]).await;
        assert_eq!(forbidden, json!([]), "{page}: forbidden by the page's policy");
        assert_eq!(self.console().await, Vec::<Value>::new(), "{page}: the console is not silent");
    }

    /// Returns the console messages since the last call, without recommendations.
    pub(crate) async fn console(&self) -> Vec<Value> {
        let mut lines = self.browser.console().await;
        lines.retain(|line| line["source"] != "recommendation");
        lines
    }

    /// Asserts that the browser has reported exactly one message, a request refused with this status.
    pub(crate) async fn assert_refused(&self, status: u16) {
        let lines = self.console().await;
        let is_it = |line: &Value| line["message"].as_str().unwrap().contains(&format!("status of {status}"));
        assert!(lines.len() == 1 && lines.iter().all(is_it), "{lines:?}");
    }

    /// Emulates a screen of this width with a light or dark colour scheme.
    pub(crate) async fn look_by(&self, scheme: &str, width: u32) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.cdp("Emulation.setEmulatedMedia", json!({ "features": [feature] })).await;
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.cdp("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Runs a command of the Chrome `DevTools` Protocol.
    pub(crate) async fn cdp(&self, command: &str, parameters: Value) -> Value {
        self.browser.client.issue_cmd(Cdp { command: command.to_owned(), parameters }).await.unwrap()
    }

    pub(crate) async fn leave(self) {
        self.browser.close().await;
    }
}

#[derive(Debug)]
struct Cdp {
    command: String,
    parameters: Value,
}

impl WebDriverCompatibleCommand for Cdp {
    fn endpoint(&self, base: &url::Url, session: Option<&str>) -> Result<url::Url, url::ParseError> {
        base.join(&format!("session/{}/goog/cdp/execute", session.unwrap_or_default()))
    }

    fn method_and_body(&self, _: &url::Url) -> (http::Method, Option<String>) {
        (http::Method::POST, Some(json!({ "cmd": self.command, "params": self.parameters }).to_string()))
    }
}
