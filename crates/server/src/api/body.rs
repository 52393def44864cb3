//! Reading and validation of request bodies.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};

use crate::problem::{Kind, Problem};

/// Returns the bytes of a body whose content type is JSON.
pub(super) fn read(
    headers: &HeaderMap,
    body: Result<Bytes, BytesRejection>,
    limit: usize,
) -> Result<Bytes, Problem> {
    check_type(headers)?;
    body.map_err(|rejection| unread(&rejection, limit))
}

/// Requires the content type of JSON. A browser sends this type to another origin only after a preflight request, which
/// the daemon does not answer.
fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let named = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = named.split(';').next().unwrap_or_default().trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::new(
        Kind::NotJson,
        "expected the header `Content-Type: application/json` (curl has `--json`)",
    ))
}

fn unread(rejection: &BytesRejection, limit: usize) -> Problem {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        return Problem::new(Kind::TooLarge, format!("the body may have {limit} bytes; nothing was stored"));
    }
    Problem::new(Kind::InvalidTask, "the body did not arrive in one piece; nothing was stored")
}

/// Returns the caller's `traceparent`. A malformed one is ignored, as the standard requires.
pub(super) fn trace(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let lengths = parts.iter().map(|part| part.len());
    (lengths.eq([2, 32, 16, 2]) && parts.iter().all(|part| is_hex(part))).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_passed_on_if_it_is_one() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", text.parse().unwrap());
            trace(&headers).map(str::to_owned)
        };
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(read(good).as_deref(), Some(good));
        for bad in ["", "00", "00-xyz", &good[1..], &good.to_uppercase(), &format!("{good}-more")] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
