//! The response: a bounded part of it, never the access token that was sent, and the class of a request that received no
//! usable response.
//!
//! | event | class |
//! |---|---|
//! | the name is not found; the connection is refused, reset or closed early; no HTTP response | transient |
//! | no connection or no complete response in time | timeout |
//! | the certificate is not trusted, has expired, or is another host's | permanent: an operator must act |
//! | too many redirects, or a redirect to plain http or to another scheme | permanent |
//! | a private address, if those are denied; a link-local address | permanent |
//! | the request cannot be written | permanent |
//!
//! Messages are built from the kinds of errors, never from their texts, which may contain a URL and its query.

use std::error::Error;
use std::io;
use std::time::Duration;

use holdoff_policy::{Class, ClassMap, Failure, Replay, format_duration, is_unprintable};
use holdoff_retry::retry_after;
use http::header::{CONTENT_TYPE, HeaderMap};
use reqwest::Response;
use serde::Serialize;
use serde_json::value::RawValue;

use super::client::{ForbiddenAddress, SendError};
use super::gate::DestinationHealth;
use super::request::destination;
use crate::store::StepOutput;
use crate::{Fault, Payload};

/// The number of bytes of an error response that are read for its message.
const EXCERPT_BYTES: usize = 16 * 1024;
const EXCERPT_CHARS: usize = 200;
/// The status has the essential information, so its text is read for at most this long.
const EXCERPT_TIMEOUT: Duration = Duration::from_secs(1);

/// The reason why a body was not read to its end.
pub(super) enum Unread {
    /// The body is longer than the limit.
    TooLong,
    /// The connection failed before the end of the body.
    Interrupted(reqwest::Error),
}

/// Returns whether the `Content-Length` exceeds the limit.
pub(super) fn exceeds(response: &Response, limit: usize) -> bool {
    let announced = response.content_length().unwrap_or_default();
    usize::try_from(announced).map_or(true, |announced| announced > limit)
}

/// Reads the body up to `limit` bytes. After an error, the part that arrived before stays in `body`.
pub(super) async fn read(response: &mut Response, limit: usize, body: &mut Vec<u8>) -> Result<(), Unread> {
    while let Some(chunk) = response.chunk().await.map_err(Unread::Interrupted)? {
        let room = limit.saturating_sub(body.len());
        body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
        if chunk.len() > room {
            return Err(Unread::TooLong);
        }
    }
    Ok(())
}

/// The output of an HTTP step, which its children receive.
#[derive(Serialize)]
struct HttpOutput {
    status: u16,
    body: Body,
    /// The length of a body that is not text or too long, and is therefore not included.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Body {
    Json(Box<RawValue>),
    Text(String),
    Nothing,
}

/// Creates the step's output: `{"status":200,"body":…}`. A body with a JSON content type stays JSON, other text
/// becomes a string, and of any other body only the length is included. The same holds if the output would exceed
/// `max_output` bytes.
pub(super) fn output(
    status: u16,
    headers: &HeaderMap,
    body: Vec<u8>,
    token: Option<&str>,
    max_output: usize,
) -> Result<StepOutput, Fault> {
    let length = u64::try_from(body.len()).ok();
    let (body, bytes) = match String::from_utf8(body) {
        Ok(text) if text.is_empty() => (Body::Nothing, None),
        Ok(text) => (text_body(redact(text, token), says_json(headers)), None),
        Err(_) => (Body::Nothing, length),
    };
    let payload = payload(&HttpOutput { status, body, bytes })?;
    if payload.bytes.len() > max_output {
        return without_body(status, length, &format!("exceeds work.max_output ({max_output} bytes)"));
    }
    Ok(StepOutput::whole(payload))
}

/// Creates the output of a step whose response is too long to be kept. The destination has done what the request asked
/// for, so the step has succeeded.
pub(super) fn without_body(status: u16, bytes: Option<u64>, why: &str) -> Result<StepOutput, Fault> {
    let payload = payload(&HttpOutput { status, body: Body::Nothing, bytes })?;
    Ok(StepOutput { payload, note: format!("the body of the response was dropped: it {why}") })
}

fn payload(output: &HttpOutput) -> Result<Payload, Fault> {
    Payload::json(output).map_err(|_| Fault::permanent("the response cannot be serialized as JSON"))
}

fn text_body(text: String, is_json: bool) -> Body {
    if !is_json {
        return Body::Text(text);
    }
    serde_json::from_str(&text).map_or(Body::Text(text), Body::Json)
}

fn says_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json")
}

/// Redacts the access token. A server may echo it, and it must not be stored.
fn redact(text: String, token: Option<&str>) -> String {
    const REDACTED: &str = "[credential]";
    let Some(token) = token.filter(|token| !token.is_empty()) else { return text };
    // Some JSON encoders write `/` as `\/`.
    text.replace(token, REDACTED).replace(&token.replace('/', "\\/"), REDACTED)
}

/// Converts a response with an unexpected status into a fault.
pub(super) async fn unexpected_status(
    mut response: Response,
    classes: &ClassMap,
    token: Option<&str>,
) -> FailedRequest {
    let status = response.status().as_u16();
    // A status that is neither a failure nor expected would be the same at the next attempt.
    let class = classes.http(status, Replay::Safe).unwrap_or(Class::Permanent);
    let failure = Failure::new(class);
    let asked = retry_after(response.headers());
    let failure = asked.map_or(failure, |wait| failure.with_retry_after(wait));
    let is_down = status >= 500 && matches!(class, Class::Transient | Class::Timeout);
    let health = if is_down { DestinationHealth::Failing } else { DestinationHealth::Alive };
    let from = destination(response.url());
    let mut body = Vec::new();
    // The part that arrived in time is sufficient.
    let _ = tokio::time::timeout(EXCERPT_TIMEOUT, read(&mut response, EXCERPT_BYTES, &mut body)).await;
    let message = match excerpt(&body, token) {
        said if said.is_empty() => format!("HTTP {status} from {from}"),
        said => format!("HTTP {status} from {from}: {said}"),
    };
    FailedRequest { fault: Fault::new(failure, message), health }
}

/// Returns the beginning of a text, on one line and without characters that manipulate a terminal.
fn excerpt(body: &[u8], token: Option<&str>) -> String {
    let text = match str::from_utf8(body) {
        Ok(text) => text,
        // The limit cut the last character.
        Err(error) if error.error_len().is_none() => {
            body.get(..error.valid_up_to()).and_then(|body| str::from_utf8(body).ok()).unwrap_or_default()
        }
        Err(_) => return String::new(),
    };
    let text = redact(text.to_owned(), token);
    let mut said = String::new();
    for word in text.split(|c: char| c.is_whitespace() || is_unprintable(c)).filter(|word| !word.is_empty()) {
        if !said.is_empty() {
            said.push(' ');
        }
        said.push_str(word);
        if said.len() > 4 * EXCERPT_CHARS {
            break;
        }
    }
    said.chars().take(EXCERPT_CHARS).collect()
}

/// The fault of a request without a usable response, and its information about the destination's health.
pub(super) struct FailedRequest {
    pub(super) fault: Fault,
    pub(super) health: DestinationHealth,
}

/// Classifies a request without a complete response in time. A timeout that is shorter than the usual one tells
/// nothing about the destination's health. Otherwise one caller with short timeouts could open the breaker for all
/// callers.
pub(super) fn too_slow(destination: &str, limit: Duration, usual: Duration) -> FailedRequest {
    let message = format!("no complete response from {destination} within {}", format_duration(limit));
    let health = if limit < usual { DestinationHealth::Unknown } else { DestinationHealth::Failing };
    FailedRequest { fault: Fault::new(Class::Timeout, message), health }
}

/// Classifies a request that received no response, or whose redirect was not followed.
pub(super) fn not_sent(error: &SendError, destination: &str) -> FailedRequest {
    match error {
        SendError::Http(error) => classify(error, destination),
        SendError::Redirect(refused) => {
            let fault = Fault::permanent(format!("{destination} redirects {refused}"));
            FailedRequest { fault, health: DestinationHealth::Alive }
        }
        SendError::Address(forbidden) => FailedRequest {
            fault: Fault::new(Failure::permanent().local(), forbidden.to_string()),
            health: DestinationHealth::Unknown,
        },
    }
}

/// Classifies a request that received no response.
pub(super) fn classify(error: &reqwest::Error, destination: &str) -> FailedRequest {
    let local = |message: String| {
        let fault = Fault::new(Failure::permanent().local(), message);
        FailedRequest { fault, health: DestinationHealth::Unknown }
    };
    if let Some(forbidden) = find::<ForbiddenAddress>(error) {
        return local(forbidden.to_string());
    }
    if error.is_builder() {
        return local(format!("the request to {destination} cannot be encoded"));
    }
    if let Some(rustls::Error::InvalidCertificate(wrong)) = find::<rustls::Error>(error) {
        let fault = Fault::permanent(format!("the certificate of {destination} is not trusted: {wrong}"));
        return FailedRequest { fault, health: DestinationHealth::Unknown };
    }
    let class = if error.is_timeout() { Class::Timeout } else { Class::Transient };
    FailedRequest {
        fault: Fault::new(class, no_answer(error, destination)),
        health: DestinationHealth::Failing,
    }
}

fn no_answer(error: &reqwest::Error, destination: &str) -> String {
    if error.is_dns() {
        return format!("cannot resolve the host name {destination}");
    }
    let what = if error.is_connect() { "no connection to" } else { "no complete response from" };
    match find::<io::Error>(error).map(io::Error::kind) {
        Some(kind) if kind != io::ErrorKind::Other => format!("{what} {destination}: {kind}"),
        _ => format!("{what} {destination}"),
    }
}

/// Returns the first error of this type in the chain of causes. `source` skips the content of an `io::Error`, so it
/// is examined separately.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let deeper = |error: &'a (dyn Error + 'static)| {
        let content = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        content.map_or_else(|| error.source(), |content| Some(content as &(dyn Error + 'static)))
    };
    std::iter::successors(Some(error), |error| deeper(*error)).find_map(|error| error.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: &'static str, body: &[u8], token: Option<&str>) -> String {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]);
        let output = output(200, &headers, body.to_vec(), token, 1000).unwrap();
        String::from_utf8(output.payload.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_body_is_stored_as_json_text_or_length() {
        let json = "application/vnd.x+json; charset=utf-8";
        assert_eq!(written(json, b"{\"n\":1.10}", None), r#"{"status":200,"body":{"n":1.10}}"#);
        assert_eq!(written(json, b"{oops", None), r#"{"status":200,"body":"{oops"}"#);
        assert_eq!(written("text/plain", b"1", None), r#"{"status":200,"body":"1"}"#);
        assert_eq!(written("text/plain", b"", None), r#"{"status":200,"body":null}"#);
        assert_eq!(written("text/plain", b"\xff\xfe", None), r#"{"status":200,"body":null,"bytes":2}"#);
    }

    #[test]
    fn an_echoed_token_is_redacted() {
        let token = Some("s3/cret");
        assert_eq!(
            written("text/plain", b"you said s3/cret", token),
            r#"{"status":200,"body":"you said [credential]"}"#
        );
        assert_eq!(
            written("application/json", br#"["s3\/cret"]"#, token),
            r#"{"status":200,"body":["[credential]"]}"#
        );
        assert_eq!(excerpt(b"bad token s3/cret!", token), "bad token [credential]!");
    }

    #[test]
    fn an_excerpt_is_short_and_on_one_line() {
        assert_eq!(excerpt(b"<b>\r\n\x1b[31mred\x07</b>\n", None), "<b> [31mred </b>");
        assert_eq!(excerpt("a\u{202e}b".as_bytes(), None), "a b");
        assert_eq!(excerpt("ä".repeat(500).as_bytes(), None).chars().count(), 200);
        assert_eq!(excerpt(&"ä".as_bytes()[..1], None), "");
        assert_eq!(excerpt(&[b'x', 0xff, b'y'], None), "");
    }
}
