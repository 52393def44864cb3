//! The hosts that a credential may be sent to.

use url::Url;

use crate::{HttpSettings, Notify};

/// The hosts that a credential may be sent to. Without an entry it is sent to no host, because a caller that
/// may submit steps could otherwise have any credential sent to its own server.
#[derive(Debug, Default)]
pub(super) struct Hosts(Vec<Pattern>);

#[derive(Debug)]
struct Pattern {
    /// The host; of a pattern with `*`, the part after the `*`, which begins with the dot.
    host: String,
    is_suffix: bool,
    port: Option<u16>,
}

impl Hosts {
    pub(super) fn new(written: &[String]) -> Self {
        Self(written.iter().map(|text| Pattern::read(text)).collect())
    }

    pub(super) fn include(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
        self.0.iter().any(|pattern| pattern.fits(&host, url.port_or_known_default()))
    }
}

impl Pattern {
    fn read(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        let (host, port) = match text.rsplit_once(':') {
            // The colons of an IPv6 address are in brackets.
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
            _ => (text.as_str(), None),
        };
        let is_suffix = host.starts_with("*.");
        Self { host: host.trim_start_matches('*').to_owned(), is_suffix, port }
    }

    fn fits(&self, host: &str, port: Option<u16>) -> bool {
        let is_port = self.port.is_none() || self.port == port;
        let is_host = if self.is_suffix {
            host.len() > self.host.len() && host.ends_with(&self.host)
        } else {
            host == self.host
        };
        is_port && is_host
    }
}

impl HttpSettings {
    /// Returns the settings in which each credential may also be sent to the hosts of the notifications that name it.
    /// The operator wrote both.
    pub(crate) fn telling(&self, notify: &[Notify]) -> Self {
        let mut settings = self.clone();
        for rule in notify {
            let (Some(name), Ok(url)) = (&rule.credential, Url::parse(&rule.url)) else { continue };
            let (host, port) =
                (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(443));
            settings.credential_hosts.entry(name.clone()).or_default().push(format!("{host}:{port}"));
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes(written: &[&str], url: &str) -> bool {
        let written: Vec<String> = written.iter().map(ToString::to_string).collect();
        Hosts::new(&written).include(&Url::parse(url).unwrap())
    }

    #[test]
    fn a_credential_goes_where_it_was_said_and_nowhere_else() {
        assert!(goes(&["api.example.com"], "https://API.example.com./x"));
        assert!(goes(&["api.example.com"], "https://api.example.com:8443/"));
        assert!(goes(&["api.example.com:443"], "https://api.example.com/"));
        assert!(!goes(&["api.example.com:443"], "http://api.example.com/"));
        assert!(goes(&["[::1]:80"], "http://[::1]/") && goes(&["[::1]"], "http://[0:0::1]:9/"));
        for wrong in [
            "https://example.com/",
            "https://api.example.com.evil.example/",
            "https://evil.example/?api.example.com",
            "https://xapi.example.com/",
            "https://api.example.com@evil.example/",
        ] {
            assert!(!goes(&["api.example.com"], wrong), "{wrong}");
        }
        assert!(!goes(&[], "https://api.example.com/"));
    }

    #[test]
    fn a_star_stands_for_names_before_the_rest() {
        assert!(goes(&["*.example.com"], "https://a.b.example.com/"));
        for wrong in ["https://example.com/", "https://evilexample.com/", "https://example.com.evil.example/"]
        {
            assert!(!goes(&["*.example.com"], wrong), "{wrong}");
        }
        assert!(goes(&["*.example.com:8443"], "https://a.example.com:8443/"));
        assert!(!goes(&["*.example.com:8443"], "https://a.example.com/"));
    }
}
