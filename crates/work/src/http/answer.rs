//! The response: a bounded part of it, and never the access token that was sent.

use std::time::Duration;

use holdoff_policy::{Class, ClassMap, Failure, Replay, retry_after_from_headers};
use http::header::{CONTENT_TYPE, DATE, HeaderMap, RETRY_AFTER};
use reqwest::Response;
use serde::Serialize;
use serde_json::value::RawValue;

use super::check::destination;
use super::gate::Health;
use super::trouble::Missed;
use crate::{Fault, Payload, clock};

/// The number of bytes of an error response that are read for its message.
const EXCERPT_BYTES: usize = 16 * 1024;
const EXCERPT_CHARS: usize = 200;
/// The status has the essential information, so its text is read for at most this long.
const EXCERPT_PATIENCE: Duration = Duration::from_secs(1);

/// The reason why a body was not read to its end.
pub(super) enum Unread {
    /// The body is longer than the limit.
    TooLong,
    /// The connection failed before the end of the body.
    Broken(reqwest::Error),
}

/// Returns whether the `Content-Length` exceeds the limit.
pub(super) fn announces_more(response: &Response, limit: usize) -> bool {
    let announced = response.content_length().unwrap_or_default();
    usize::try_from(announced).map_or(true, |announced| announced > limit)
}

/// Reads the body up to `limit` bytes. After an error, the part that arrived before stays in `body`.
pub(super) async fn read(response: &mut Response, limit: usize, body: &mut Vec<u8>) -> Result<(), Unread> {
    while let Some(chunk) = response.chunk().await.map_err(Unread::Broken)? {
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
struct Output {
    status: u16,
    body: Body,
    /// The length of a body that is not text and is therefore not included.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Body {
    Json(Box<RawValue>),
    Text(String),
    Nothing,
}

/// Creates the step's output: `{"status":200,"body":…}`. A body with a JSON content type stays JSON, other text
/// becomes a string, and of any other body only the length is included.
pub(super) fn output(
    status: u16,
    headers: &HeaderMap,
    body: Vec<u8>,
    token: Option<&str>,
) -> Result<Payload, Fault> {
    let length = body.len();
    let (body, bytes) = match String::from_utf8(body) {
        Ok(text) if text.is_empty() => (Body::Nothing, None),
        Ok(text) => (text_body(blot_out(text, token), says_json(headers)), None),
        Err(_) => (Body::Nothing, Some(length)),
    };
    Payload::json(&Output { status, body, bytes })
        .map_err(|_| Fault::permanent("the answer cannot be written as JSON"))
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
fn blot_out(text: String, token: Option<&str>) -> String {
    const BLOT: &str = "[credential]";
    let Some(token) = token.filter(|token| !token.is_empty()) else { return text };
    // Some JSON encoders write `/` as `\/`.
    text.replace(token, BLOT).replace(&token.replace('/', "\\/"), BLOT)
}

/// Converts a response with an unexpected status into a fault.
pub(super) async fn refused(mut response: Response, classes: &ClassMap, token: Option<&str>) -> Missed {
    let status = response.status().as_u16();
    // A status that is neither a failure nor expected would be the same at the next attempt.
    let class = classes.http(status, Replay::Safe).unwrap_or(Class::Permanent);
    let failure = Failure::new(class);
    let asked = retry_after(response.headers());
    let failure = asked.map_or(failure, |wait| failure.with_retry_after(wait));
    let is_down = status >= 500 && matches!(class, Class::Transient | Class::Timeout);
    let health = if is_down { Health::Failing } else { Health::Alive };
    let from = destination(response.url());
    let mut body = Vec::new();
    // The part that arrived in time is sufficient.
    let _ = tokio::time::timeout(EXCERPT_PATIENCE, read(&mut response, EXCERPT_BYTES, &mut body)).await;
    let message = match excerpt(&body, token) {
        said if said.is_empty() => format!("HTTP {status} from {from}"),
        said => format!("HTTP {status} from {from}: {said}"),
    };
    Missed { fault: Fault::new(failure, message), health }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    retry_after_from_headers(text(RETRY_AFTER)?, text(DATE), clock::wall())
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
    let text = blot_out(text.to_owned(), token);
    let mut said = String::new();
    for word in text.split(|c: char| c.is_whitespace() || is_control(c)).filter(|word| !word.is_empty()) {
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

/// Returns whether a character is a control character, or changes or hides the characters next to it.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: &'static str, body: &[u8], token: Option<&str>) -> String {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, kind.parse().unwrap())]);
        let payload = output(200, &headers, body.to_vec(), token).unwrap();
        String::from_utf8(payload.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_body_is_json_text_or_only_a_length() {
        let json = "application/vnd.x+json; charset=utf-8";
        assert_eq!(written(json, b"{\"n\":1.10}", None), r#"{"status":200,"body":{"n":1.10}}"#);
        assert_eq!(written(json, b"{oops", None), r#"{"status":200,"body":"{oops"}"#);
        assert_eq!(written("text/plain", b"1", None), r#"{"status":200,"body":"1"}"#);
        assert_eq!(written("text/plain", b"", None), r#"{"status":200,"body":null}"#);
        assert_eq!(written("text/plain", b"\xff\xfe", None), r#"{"status":200,"body":null,"bytes":2}"#);
    }

    #[test]
    fn an_echoed_token_is_blotted_out() {
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
    fn an_excerpt_is_short_and_plain() {
        assert_eq!(excerpt(b"<b>\r\n\x1b[31mred\x07</b>\n", None), "<b> [31mred </b>");
        assert_eq!(excerpt("a\u{202e}b".as_bytes(), None), "a b");
        assert_eq!(excerpt("ä".repeat(500).as_bytes(), None).chars().count(), 200);
        assert_eq!(excerpt(&"ä".as_bytes()[..1], None), "");
        assert_eq!(excerpt(&[b'x', 0xff, b'y'], None), "");
    }
}
