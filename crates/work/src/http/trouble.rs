//! Classifies requests that received no usable response.
//!
//! | event | class |
//! |---|---|
//! | the name is not found; the connection is refused, reset or closed early; no HTTP response | transient |
//! | no connection or no complete response in time | timeout |
//! | the certificate is not trusted, has expired, or is another host's | permanent: an operator must act |
//! | too many redirects, or a redirect to plain http or to another scheme | permanent |
//! | a private address, if those are denied | permanent |
//! | the request cannot be written | permanent |
//!
//! Messages are built from the kinds of errors, never from their texts, which may contain a URL and its query.

use std::error::Error;
use std::io;
use std::time::Duration;

use holdoff_policy::{Class, Failure, format_duration};

use super::address::PrivateAddress;
use super::answer::Unread;
use super::client::RefusedRedirect;
use super::gate::Health;
use crate::Fault;

/// The fault of a request without a usable response, and its information about the destination's health.
pub(super) struct Missed {
    pub(super) fault: Fault,
    pub(super) health: Health,
}

/// Classifies a request without a complete response in time. A timeout that is shorter than the usual one tells
/// nothing about the destination's health. Otherwise one caller with short timeouts could open the breaker for all
/// callers.
pub(super) fn too_slow(destination: &str, limit: Duration, usual: Duration) -> Missed {
    let message = format!("no complete answer from {destination} within {}", format_duration(limit));
    let health = if limit < usual { Health::Unknown } else { Health::Failing };
    Missed { fault: Fault::new(Class::Timeout, message), health }
}

/// Classifies a body that was too long or did not arrive.
pub(super) fn unread(unread: &Unread, destination: &str, limit: usize) -> Missed {
    match unread {
        Unread::TooLong => {
            let message =
                format!("the answer of {destination} is longer than http.max_response, {limit} bytes");
            Missed { fault: Fault::permanent(message), health: Health::Alive }
        }
        Unread::Broken(error) => judge(error, destination),
    }
}

/// Classifies a request that received no response.
pub(super) fn judge(error: &reqwest::Error, destination: &str) -> Missed {
    let local = |message: String| {
        let fault = Fault::new(Failure::permanent().local(), message);
        Missed { fault, health: Health::Unknown }
    };
    if let Some(private) = find::<PrivateAddress>(error) {
        return local(private.to_string());
    }
    if let Some(refused) = find::<RefusedRedirect>(error) {
        let fault = Fault::permanent(format!("{destination} redirects {refused}"));
        return Missed { fault, health: Health::Alive };
    }
    if error.is_builder() {
        return local(format!("the request to {destination} cannot be written"));
    }
    if error.is_redirect() {
        let fault = Fault::permanent(format!("{destination} redirects to something that cannot be called"));
        return Missed { fault, health: Health::Alive };
    }
    if let Some(rustls::Error::InvalidCertificate(wrong)) = find::<rustls::Error>(error) {
        let fault = Fault::permanent(format!("the certificate of {destination} is not trusted: {wrong}"));
        return Missed { fault, health: Health::Unknown };
    }
    let class = if error.is_timeout() { Class::Timeout } else { Class::Transient };
    Missed { fault: Fault::new(class, no_answer(error, destination)), health: Health::Failing }
}

fn no_answer(error: &reqwest::Error, destination: &str) -> String {
    if error.is_dns() {
        return format!("the name cannot be resolved: {destination}");
    }
    let what = if error.is_connect() { "no connection to" } else { "no complete answer from" };
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
