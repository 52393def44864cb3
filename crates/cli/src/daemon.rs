//! The HTTP client for the daemon, used by the ledger and lock commands.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Response, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::load_layers;
use crate::failure::Failure;

/// The variable with the daemon's URL, which `--url` overrides.
pub(crate) const URL: &str = "HOLDOFF_URL";
/// The variable with the API token, for daemons that require one.
pub(crate) const TOKEN: &str = "HOLDOFF_API_TOKEN";

/// The environment variables that select the daemon and authenticate with it.
pub(crate) const VARIABLES: [&str; 2] = [URL, TOKEN];

/// Exit code for a 503 response: the request had no effect.
pub(crate) const NOT_DONE: u8 = 75;
/// Exit code for an expired deadline: the request may still take effect.
pub(crate) const TIME_WAS_UP: u8 = 124;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than the daemon takes for any response, apart from the wait that a request asks for.
const TIMEOUT: Duration = Duration::from_secs(40);

/// A base path of the daemon's API, and the namespace of its requests. Without a namespace, requests concern all of
/// them.
pub(crate) struct Daemon {
    http: Client,
    base: Url,
    namespace: Option<String>,
}

/// The reason why there is no result.
pub(crate) enum Refusal {
    /// The daemon has refused the request.
    Said(Problem),
    /// The daemon was not reached, so the request had no effect.
    NotReached(String),
    /// The connection succeeded, but no response came. The effect of the request is unknown.
    NoAnswer(String),
}

/// The problem document of an error response.
#[derive(serde::Deserialize)]
pub(crate) struct Problem {
    #[serde(default)]
    pub(crate) status: u16,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    pub(crate) detail: String,
    /// The first retained index of a history whose beginning is compacted.
    pub(crate) first: Option<u64>,
}

impl Daemon {
    /// Creates a client for the daemon's API under this path.
    pub(crate) fn at(address: &str, path: &str, namespace: Option<&str>) -> Result<Self, Failure> {
        let wrong = |why: &str| Failure::Usage(format!("{address:?} is no daemon's address: {why}"));
        let mut base = Url::parse(address).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(wrong("expected http:// or https://"));
        }
        base.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
        let http = Client::builder()
            .default_headers(headers()?)
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            // A daemon never redirects, and the API token must not reach another host.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| Failure::Failed(innermost(&error)))?;
        Ok(Self { http, base, namespace: namespace.map(str::to_owned) })
    }

    pub(crate) async fn get(&self, parts: &[&str], query: &[(&str, String)]) -> Result<Value, Refusal> {
        self.ask(Method::GET, parts, query, None, TIMEOUT).await
    }

    /// Sends a request that the daemon may take up to `wait` longer than usual to answer.
    pub(crate) async fn post(&self, part: &str, mut body: Value, wait: Duration) -> Result<Value, Refusal> {
        if let (Some(body), Some(namespace)) = (body.as_object_mut(), &self.namespace) {
            body.insert("namespace".to_owned(), namespace.clone().into());
        }
        self.ask(Method::POST, &[part], &[], Some(&body), TIMEOUT.saturating_add(wait)).await
    }

    pub(crate) async fn delete(&self, parts: &[&str]) -> Result<Value, Refusal> {
        self.ask(Method::DELETE, parts, &[], None, TIMEOUT).await
    }

    /// Opens a response that streams until the reader closes it.
    pub(crate) async fn stream(&self, part: &str, query: &[(&str, String)]) -> Result<Response, Refusal> {
        self.send(Method::GET, &[part], query, None, Duration::MAX).await
    }

    async fn ask(
        &self,
        method: Method,
        parts: &[&str],
        query: &[(&str, String)],
        body: Option<&Value>,
        timeout: Duration,
    ) -> Result<Value, Refusal> {
        let response = self.send(method, parts, query, body, timeout).await?;
        let text = response.bytes().await.map_err(|error| Refusal::NoAnswer(innermost(&error)))?;
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&text).map_err(|error| not_understood(&error))
    }

    async fn send(
        &self,
        method: Method,
        parts: &[&str],
        query: &[(&str, String)],
        body: Option<&Value>,
        timeout: Duration,
    ) -> Result<Response, Refusal> {
        let mut url = self.url(parts);
        if body.is_none() && (self.namespace.is_some() || !query.is_empty()) {
            let namespace = self.namespace.iter().map(|namespace| ("namespace", namespace));
            url.query_pairs_mut().extend_pairs(namespace).extend_pairs(query);
        }
        let mut request = self.http.request(method, url);
        if timeout < Duration::MAX {
            request = request.timeout(timeout);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(|error| self.no_answer(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.bytes().await.unwrap_or_default();
        let problem = serde_json::from_slice(&text).unwrap_or_else(|_| Problem::of_somebody_else());
        Err(Refusal::Said(Problem { status: status.as_u16(), ..problem }))
    }

    fn no_answer(&self, error: &reqwest::Error) -> Refusal {
        let why = innermost(error);
        if !error.is_connect() {
            return Refusal::NoAnswer(why);
        }
        let address = self.base.origin().ascii_serialization();
        Refusal::NotReached(format!(
            "no daemon answers at {address}: {why}. Does `holdoff serve` run there? --url and ${URL} name another"
        ))
    }

    fn url(&self, parts: &[&str]) -> Url {
        let mut url = self.base.clone();
        // An HTTP URL always accepts more path segments.
        if let Ok(mut path) = url.path_segments_mut() {
            path.extend(parts);
        }
        url
    }
}

/// Returns the daemon's URL: from the flag, the variable, or the daemon's own configuration file.
pub(crate) fn address(named: Option<&str>, config: Option<&Path>) -> Result<String, Failure> {
    let variable = || std::env::var(URL).ok().filter(|url| !url.is_empty());
    named.map(str::to_owned).or_else(variable).map_or_else(|| where_it_listens(config), Ok)
}

/// Returns the API token from the environment, if it is set.
pub(crate) fn token() -> Option<String> {
    std::env::var(TOKEN).ok().filter(|token| !token.is_empty())
}

/// Derives the URL from the configuration file, as seen from the same machine.
fn where_it_listens(config: Option<&Path>) -> Result<String, Failure> {
    let settings = load_layers(config, Vec::new())?.whole.server;
    let mut address = settings.running.listen;
    if address.ip().is_unspecified() {
        let is_v4 = address.is_ipv4();
        address.set_ip(if is_v4 { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) });
    }
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{address}{}", settings.prefix))
}

fn headers() -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    if let Some(token) = token() {
        let wrong = |_| Failure::Usage(format!("${TOKEN} has characters that no token has; copy it again"));
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(wrong)?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// Returns the innermost cause, which is the most specific and contains no URL.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if error.is_timeout() { "time was up".to_owned() } else { cause.to_string() }
}

fn not_understood(error: &serde_json::Error) -> Refusal {
    let detail = format!("{error}; are command and daemon of the same version?");
    let title = "The daemon's answer is not understood".to_owned();
    Refusal::Said(Problem { status: 0, kind: String::new(), title, detail, first: None })
}

/// Decodes a response into the expected type.
pub(crate) fn read<T: DeserializeOwned>(answer: Value) -> Result<T, Failure> {
    serde_json::from_value(answer).map_err(|error| not_understood(&error).into())
}

impl Problem {
    fn of_somebody_else() -> Self {
        let title = "Somebody between this command and the daemon has answered".to_owned();
        let detail = "is the address right?".to_owned();
        Self { status: 0, kind: String::new(), title, detail, first: None }
    }

    /// Returns the problem type, a stable identifier for programs.
    pub(crate) fn kind(&self) -> &str {
        self.kind.rsplit('/').next().unwrap_or_default()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Said(problem) => {
                let said = format!("{}: {}", problem.title, problem.detail);
                match problem.status {
                    400 | 413 | 422 => Self::Usage(said),
                    401 => Self::Failed(format!("{said} (it is sent if ${TOKEN} has one)")),
                    503 => Self::Coded(NOT_DONE, said),
                    504 => Self::Coded(TIME_WAS_UP, said),
                    _ => Self::Failed(said),
                }
            }
            Refusal::NotReached(why) => Self::Failed(why),
            Refusal::NoAnswer(why) => Self::Coded(TIME_WAS_UP, format!("the daemon has not answered: {why}")),
        }
    }
}
