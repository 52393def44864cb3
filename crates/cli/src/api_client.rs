//! The HTTP client for the daemon, used by the ledger and lock commands.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Method, Response, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::config::load_config;
use crate::error::{CommandError, EXIT_TEMPFAIL, EXIT_TIMEOUT};
use crate::output::escaped;

/// The variable with the daemon's URL, which `--url` overrides.
pub(crate) const URL: &str = "HOLDOFF_URL";
/// The variable with the API token, for daemons that require one.
pub(crate) const API_TOKEN: &str = "HOLDOFF_API_TOKEN";

/// The environment variables that select the daemon and authenticate with it.
pub(crate) const VARIABLES: [&str; 2] = [URL, API_TOKEN];

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longer than the daemon takes for any response, apart from the wait that a request asks for.
const TIMEOUT: Duration = Duration::from_secs(40);

/// A base path of the daemon's API, and the namespace of its requests. Without a namespace, requests concern all of
/// them.
pub(crate) struct ApiClient {
    http: Client,
    base: Url,
    namespace: Option<String>,
}

/// The reason why there is no result.
pub(crate) enum ApiError {
    /// The daemon has refused the request.
    Rejected(ProblemDocument),
    /// The daemon was not reached, so the request had no effect.
    Unreachable(String),
    /// The connection succeeded, but no response came. The effect of the request is unknown.
    NoResponse(String),
}

/// The problem document of an error response.
#[derive(serde::Deserialize)]
pub(crate) struct ProblemDocument {
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
    /// The birth with which to submit a transaction again.
    pub(crate) birth: Option<u64>,
}

impl ApiClient {
    /// Creates a client for the daemon's API under this path.
    pub(crate) fn new(
        address: &DaemonAddress,
        path: &str,
        namespace: Option<&str>,
    ) -> Result<Self, CommandError> {
        let mut base = address.url.clone();
        base.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
        let http = Client::builder()
            .default_headers(headers(address.api_token.as_deref())?)
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            // A daemon never redirects, and the API token must not reach another host.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| CommandError::Failed(root_cause(&error)))?;
        Ok(Self { http, base, namespace: namespace.map(str::to_owned) })
    }

    pub(crate) async fn get(&self, parts: &[&str], query: &[(&str, String)]) -> Result<Value, ApiError> {
        self.call(Method::GET, parts, query, None, TIMEOUT).await
    }

    /// Sends a request that the daemon may take up to `wait` longer than usual to answer.
    pub(crate) async fn post(&self, part: &str, mut body: Value, wait: Duration) -> Result<Value, ApiError> {
        if let (Some(body), Some(namespace)) = (body.as_object_mut(), &self.namespace) {
            body.insert("namespace".to_owned(), namespace.clone().into());
        }
        self.call(Method::POST, &[part], &[], Some(&body), TIMEOUT.saturating_add(wait)).await
    }

    pub(crate) async fn delete(&self, parts: &[&str]) -> Result<Value, ApiError> {
        self.call(Method::DELETE, parts, &[], None, TIMEOUT).await
    }

    /// Opens a response that streams until the reader closes it.
    pub(crate) async fn stream(&self, part: &str, query: &[(&str, String)]) -> Result<Response, ApiError> {
        self.send(Method::GET, &[part], query, None, Duration::MAX).await
    }

    async fn call(
        &self,
        method: Method,
        parts: &[&str],
        query: &[(&str, String)],
        body: Option<&Value>,
        timeout: Duration,
    ) -> Result<Value, ApiError> {
        let response = self.send(method, parts, query, body, timeout).await?;
        let text = response.bytes().await.map_err(|error| ApiError::NoResponse(root_cause(&error)))?;
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&text).map_err(|error| invalid_response(&error))
    }

    async fn send(
        &self,
        method: Method,
        parts: &[&str],
        query: &[(&str, String)],
        body: Option<&Value>,
        timeout: Duration,
    ) -> Result<Response, ApiError> {
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
        let response = request.send().await.map_err(|error| self.send_error(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.bytes().await.unwrap_or_default();
        let problem: ProblemDocument =
            serde_json::from_slice(&text).unwrap_or_else(|_| ProblemDocument::from_intermediary());
        // A problem is only shown, and by many commands.
        let (title, detail) = (escaped(&problem.title), escaped(&problem.detail));
        Err(ApiError::Rejected(ProblemDocument { status: status.as_u16(), title, detail, ..problem }))
    }

    fn send_error(&self, error: &reqwest::Error) -> ApiError {
        let why = root_cause(error);
        if !error.is_connect() {
            return ApiError::NoResponse(why);
        }
        let address = self.base.origin().ascii_serialization();
        ApiError::Unreachable(format!(
            "cannot connect to a daemon at {address}: {why}; start `holdoff serve` there, or set --url or ${URL}"
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

/// The URL of a daemon, and the API token for it.
pub(crate) struct DaemonAddress {
    pub(crate) url: Url,
    pub(crate) api_token: Option<String>,
}

/// Returns the daemon's URL: from the flag, the variable, or the daemon's own configuration file. The API token goes only
/// to a daemon that the user names or to loopback, because anyone may have written the file, and never in clear over a
/// network.
pub(crate) fn address(named: Option<&str>, config: Option<&Path>) -> Result<DaemonAddress, CommandError> {
    let variable = |name| std::env::var(name).ok().filter(|text| !text.is_empty());
    let named = named.map(str::to_owned).or_else(|| variable(URL));
    let is_named = named.is_some();
    let text = named.map_or_else(|| configured_address(config), Ok)?;
    let wrong = |why: &str| CommandError::Usage(format!("invalid daemon URL {text:?}: {why}"));
    let url = Url::parse(&text)
        .map_err(|error| wrong(&format!("{error}; expected http://HOST:PORT or https://HOST:PORT")))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("expected http:// or https://"));
    }
    let api_token = variable(API_TOKEN);
    if api_token.is_some() && !is_loopback(&url) {
        let origin = url.origin().ascii_serialization();
        let refused = |why: &str| CommandError::Usage(format!("${API_TOKEN} is not sent to {origin}: {why}"));
        if !is_named {
            return Err(refused(&format!(
                "the configuration names it; add --url or set ${URL} if it is your daemon"
            )));
        }
        if url.scheme() != "https" {
            return Err(refused(
                "it would cross the network without TLS; use https://, or a tunnel to loopback",
            ));
        }
    }
    Ok(DaemonAddress { url, api_token })
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Derives the URL from the configuration file, as seen from the same machine.
fn configured_address(config: Option<&Path>) -> Result<String, CommandError> {
    let settings = load_config(config, Vec::new())?.settings.server;
    let mut address = settings.running.listen;
    if address.ip().is_unspecified() {
        let is_v4 = address.is_ipv4();
        address.set_ip(if is_v4 { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) });
    }
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    Ok(format!("{scheme}://{address}{}", settings.prefix))
}

fn headers(api_token: Option<&str>) -> Result<HeaderMap, CommandError> {
    let mut headers = HeaderMap::new();
    if let Some(token) = api_token {
        let wrong = |_| {
            CommandError::Usage(format!(
                "${API_TOKEN} contains characters that are invalid in an API token; copy it again"
            ))
        };
        let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(wrong)?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// Returns the innermost cause, which is the most specific and contains no URL.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if error.is_timeout() { "the request timed out".to_owned() } else { cause.to_string() }
}

fn invalid_response(error: &serde_json::Error) -> ApiError {
    let detail = format!("{error}; check that the command and the daemon have the same version");
    let title = "Invalid response from the daemon".to_owned();
    ApiError::Rejected(ProblemDocument {
        status: 0,
        kind: String::new(),
        title,
        detail,
        first: None,
        birth: None,
    })
}

/// Decodes a response into the expected type.
pub(crate) fn read<T: DeserializeOwned>(answer: Value) -> Result<T, CommandError> {
    serde_json::from_value(answer).map_err(|error| invalid_response(&error).into())
}

impl ProblemDocument {
    fn from_intermediary() -> Self {
        let title = "The response is not from a holdoff daemon".to_owned();
        let detail = "check the URL, and proxies between this command and the daemon".to_owned();
        Self { status: 0, kind: String::new(), title, detail, first: None, birth: None }
    }

    /// Returns the problem type, a stable identifier for programs.
    pub(crate) fn kind(&self) -> &str {
        self.kind.rsplit('/').next().unwrap_or_default()
    }
}

impl From<ApiError> for CommandError {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Rejected(problem) => {
                let said = format!("{}: {}", problem.title, problem.detail);
                match problem.status {
                    400 | 413 | 422 => Self::Usage(said),
                    401 => Self::Failed(format!("{said}; set ${API_TOKEN} to an API token")),
                    503 => Self::Coded(EXIT_TEMPFAIL, said),
                    504 => Self::Coded(EXIT_TIMEOUT, said),
                    _ => Self::Failed(said),
                }
            }
            ApiError::Unreachable(why) => Self::Failed(why),
            ApiError::NoResponse(why) => {
                Self::Coded(EXIT_TIMEOUT, format!("the daemon did not respond: {why}"))
            }
        }
    }
}
