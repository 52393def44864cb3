//! Addresses: URLs, and the host names of destinations.

use holdoff_policy::file::{Reader, Section};
use url::{Host, ParseError, Url};

/// Reads a URL that a request can be sent to, and returns it as it is written in the file.
pub(super) fn read(reader: &mut Reader<'_>, section: &Section<'_, '_>, key: &str) -> Option<String> {
    let (value, what) = section.get(key)?;
    let written = section.text(reader, key, "https://example.com/hook")?;
    let mut refuse = |message: String, expected: &str| {
        reader.problem(value.span(), message).expected(expected);
    };
    match Url::parse(&written) {
        // The URL parser would drop these characters without an error.
        _ if written.contains(|c: char| c.is_whitespace() || c.is_control()) => {
            refuse(format!("{what} has a space or a control character in it"), "a URL without");
        }
        Err(ParseError::RelativeUrlWithoutBase) => {
            refuse(format!("{what} does not say how to get there"), "https:// or http:// before the host");
        }
        Err(error) => {
            refuse(format!("{what} is not a URL: {error}"), "a URL such as \"https://example.com/hook\"");
        }
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            refuse(format!("{what} is a URL of the scheme `{}`", url.scheme()), "http or https");
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            refuse(
                format!("{what} holds a name or a password"),
                "a URL without; [credentials] is for secrets",
            );
        }
        Ok(_) => return Some(written),
    }
    // The part before an @ may contain a password.
    if written.contains('@') {
        reader.conceal(value.span());
    }
    None
}

/// Checks the name of a destination. The error contains the problem, and the correct name if it can be derived.
pub(super) fn check_destination(written: &str) -> Result<(), (String, Option<String>)> {
    if let Ok(url) = Url::parse(written)
        && url.has_host()
    {
        let (host, port) = (url.host_str().unwrap_or_default(), url.port());
        let right = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        return Err((format!("`{written}` is a whole URL"), Some(right)));
    }
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    let (host, port) = match written.rsplit_once(':') {
        // The colons of an IPv6 address are in brackets.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (written, None),
    };
    if let Some(port) = port.filter(|port| !is_port(port)) {
        return Err((format!("`{port}` is not a port"), None));
    }
    let Ok(parsed) = Host::parse(host) else {
        return Err((format!("`{written}` is neither a host nor a host and a port"), None));
    };
    let usual = parsed.to_string();
    if usual == host {
        return Ok(());
    }
    let right = port.map_or_else(|| usual.clone(), |port| format!("{usual}:{port}"));
    Err((format!("`{written}` is not how the host is written in a request"), Some(right)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_a_port() {
        for right in
            ["api.example.com", "localhost:8080", "127.0.0.1", "[::1]", "[::1]:443", "xn--bcher-kva.de"]
        {
            assert_eq!(check_destination(right), Ok(()), "{right}");
        }
        let near = |written: &str| check_destination(written).unwrap_err().1;
        assert_eq!(near("https://api.example.com:8443/x").as_deref(), Some("api.example.com:8443"));
        assert_eq!(near("API.example.com").as_deref(), Some("api.example.com"));
        assert_eq!(near("bücher.de:80").as_deref(), Some("xn--bcher-kva.de:80"));
        for wrong in ["", "a b", "a:0", "a:99999", "a:x", "::1", "[::1", "a/b"] {
            assert!(check_destination(wrong).is_err(), "{wrong}");
        }
    }
}
