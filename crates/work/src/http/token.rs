//! Fetches access tokens.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, RequestBuilder};
use serde::Deserialize;
use url::form_urlencoded::{Serializer, byte_serialize};

use super::answer;
use super::check::destination;
use crate::{Credential, Secret};

/// The maximum size of a secret, and of a token endpoint's response, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// An access token, and its lifetime if the endpoint reported one. It deliberately implements neither `Debug` nor
/// `Display`.
pub(super) struct FreshToken {
    pub(super) token: String,
    pub(super) lifetime: Option<Duration>,
}

/// The reason why there is no token. It contains no secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoToken {
    #[error("the environment variable {0} is not set, or not text")]
    Env(String),
    #[error("the file {} cannot be read: {kind}", path.display())]
    File { path: PathBuf, kind: io::ErrorKind },
    #[error("the secret is empty")]
    Empty,
    #[error("the token holds characters that cannot be sent")]
    NotSendable,
    #[error("no answer from {0}")]
    NoAnswer(String),
    #[error("HTTP {status} from {from}")]
    Refused { status: u16, from: String },
    #[error("the answer of {0} holds no access_token")]
    NoAccessToken(String),
}

/// Returns the token endpoint of a credential, if it has one.
pub(super) fn endpoint(credential: &Credential) -> Option<&str> {
    match credential {
        Credential::Token { .. } => None,
        Credential::ClientCredentials { token_url, .. } => Some(token_url),
        Credential::Refresh { url, .. } => Some(url),
    }
}

/// Fetches an access token.
pub(super) async fn fetch(
    credential: &Credential,
    client: &Client,
    timeout: Duration,
) -> Result<FreshToken, NoToken> {
    let request = match credential {
        Credential::Token { token } => {
            return Ok(FreshToken { token: read(token).await?, lifetime: None });
        }
        Credential::ClientCredentials { token_url, client_id, client_secret, scope } => {
            // RFC 6749, 2.3.1: both are form-encoded before they become a user name and a password.
            let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
            let secret = read(client_secret).await?;
            client
                .post(token_url)
                .basic_auth(encoded(client_id), Some(encoded(&secret)))
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(grant(scope.as_deref()))
        }
        Credential::Refresh { url, secret } => {
            client.post(url).header(AUTHORIZATION, bearer(&read(secret).await?)?)
        }
    };
    ask(request, timeout).await
}

fn grant(scope: Option<&str>) -> String {
    let mut form = Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    if let Some(scope) = scope {
        form.append_pair("scope", scope);
    }
    form.finish()
}

/// Returns the `Authorization` header of a token. Its `Debug` form hides the token.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, NoToken> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| NoToken::NotSendable)?;
    value.set_sensitive(true);
    Ok(value)
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    /// The lifetime in seconds; some servers send the number as a string.
    #[serde(default)]
    expires_in: serde_json::Value,
}

async fn ask(request: RequestBuilder, timeout: Duration) -> Result<FreshToken, NoToken> {
    let request = request.header(ACCEPT, "application/json").timeout(timeout);
    let mut response = request
        .send()
        .await
        .map_err(|error| NoToken::NoAnswer(error.url().map(destination).unwrap_or_default()))?;
    let from = destination(response.url());
    if !response.status().is_success() {
        return Err(NoToken::Refused { status: response.status().as_u16(), from });
    }
    let mut body = Vec::new();
    if answer::read(&mut response, MAX_BYTES, &mut body).await.is_err() {
        return Err(NoToken::NoAnswer(from));
    }
    let answer: TokenAnswer =
        serde_json::from_slice(&body).map_err(|_| NoToken::NoAccessToken(from.clone()))?;
    if answer.access_token.is_empty() {
        return Err(NoToken::NoAccessToken(from));
    }
    let expires_in = &answer.expires_in;
    let seconds =
        expires_in.as_f64().or_else(|| expires_in.as_str().and_then(|text| text.trim().parse().ok()));
    let lifetime = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    Ok(FreshToken { token: answer.access_token, lifetime })
}

async fn read(secret: &Secret) -> Result<String, NoToken> {
    let text = match secret {
        Secret::Env(name) => std::env::var(name).map_err(|_| NoToken::Env(name.clone()))?,
        Secret::File(path) => {
            let path = path.clone();
            let reading = tokio::task::spawn_blocking(move || {
                read_file(&path).map_err(|error| NoToken::File { path, kind: error.kind() })
            });
            reading.await.map_err(|_| NoToken::Empty)??
        }
    };
    let text = text.trim();
    if text.is_empty() { Err(NoToken::Empty) } else { Ok(text.to_owned()) }
}

fn read_file(path: &Path) -> io::Result<String> {
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    io::read_to_string(std::fs::File::open(path)?.take(limit))
}
