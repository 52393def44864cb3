//! The clients that send the requests, and the addresses that a request may be sent to.

use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, ClientBuilder};
use url::{Host, Url};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of idle connections per host.
const MAX_IDLE: usize = 64;

/// The reason why no HTTP request can be sent with these settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidHttpSettings {
    /// The token endpoint of a credential is invalid.
    #[error("the token URL of credential `{credential}` is invalid: {source}")]
    TokenUrl {
        /// The credential.
        credential: String,
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The TLS root certificates of this machine cannot be used.
    #[error(
        "cannot create the HTTPS client: {}; check that the system's root certificates are installed",
        cause(&**.source)
    )]
    Client {
        /// The reason.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// The destinations that requests may reach, and the way to them.
#[derive(Clone, Copy)]
pub(super) struct NetworkAccess {
    /// The addresses that steps must not call.
    pub(super) forbidden: Option<Forbidden>,
    pub(super) max_redirects: usize,
    /// Whether the proxies of the environment are used. A proxy resolves names itself, so none is used if addresses
    /// are checked.
    pub(super) proxies: bool,
    /// The resolver, used if addresses are checked.
    pub(super) names: ResolveFn,
}

/// The clients that send the requests, all without cookies, referers and compression.
pub(super) struct Clients {
    /// For steps.
    pub(super) following: Client,
    /// For steps that expect a redirect themselves.
    pub(super) no_redirects: Client,
    /// For the token endpoints in the settings. The operator configured them, so they may have private addresses, but
    /// a secret follows no redirect.
    pub(super) trusted: Client,
}

impl Clients {
    pub(super) fn new(reach: NetworkAccess) -> Result<Self, InvalidHttpSettings> {
        let open = NetworkAccess { forbidden: None, ..reach };
        let trusted = build(plain(open).redirect(Policy::none()))?;
        let no_redirects = match reach.forbidden {
            Some(_) => build(plain(reach).redirect(Policy::none()))?,
            None => trusted.clone(),
        };
        let following = match reach.max_redirects {
            0 => no_redirects.clone(),
            _ => build(plain(reach).redirect(Policy::custom(move |attempt| follow(attempt, reach))))?,
        };
        Ok(Self { following, no_redirects, trusted })
    }
}

fn plain(reach: NetworkAccess) -> ClientBuilder {
    let builder = Client::builder()
        .user_agent(concat!("holdoff/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE)
        .referer(false);
    match reach.forbidden {
        Some(forbidden) => {
            builder.no_proxy().dns_resolver(Arc::new(GuardedResolver { forbidden, names: reach.names }))
        }
        None if reach.proxies => builder,
        None => builder.no_proxy(),
    }
}

fn build(builder: ClientBuilder) -> Result<Client, InvalidHttpSettings> {
    builder.build().map_err(|error| InvalidHttpSettings::Client { source: Box::new(error) })
}

/// Returns the text of the cause of an error of the HTTP library, whose own text does not contain it.
fn cause(error: &(dyn Error + Send + Sync + 'static)) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// The reason why a redirect was not followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum RefusedRedirect {
    #[error("more than {0} times")]
    TooMany(usize),
    #[error("from https to http, which is not encrypted")]
    Downgrade,
    #[error("to a scheme other than HTTP")]
    NotHttp,
}

fn follow(attempt: Attempt<'_>, reach: NetworkAccess) -> Action {
    match check_redirect(attempt.previous(), attempt.url(), reach) {
        Ok(()) => attempt.follow(),
        Err(check_redirect) => attempt.error(check_redirect),
    }
}

/// Checks whether a redirect to the next URL is permitted. The first of the previous URLs is the step's own.
fn check_redirect(
    previous: &[Url],
    next: &Url,
    reach: NetworkAccess,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    if previous.len() > reach.max_redirects {
        return Err(RefusedRedirect::TooMany(reach.max_redirects).into());
    }
    if !matches!(next.scheme(), "http" | "https") {
        return Err(RefusedRedirect::NotHttp.into());
    }
    if next.scheme() == "http" && previous.last().is_some_and(|url| url.scheme() == "https") {
        return Err(RefusedRedirect::Downgrade.into());
    }
    match reach.forbidden {
        Some(forbidden) => Ok(check_address(next, forbidden)?),
        None => Ok(()),
    }
}

/// Returns whether requests to an address are forbidden.
pub(super) type Forbidden = fn(IpAddr) -> bool;

/// Resolves a name to its addresses.
pub(super) type ResolveFn = fn(String) -> ResolveFuture;
type ResolveFuture = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Resolves a name with the system's resolver.
pub(super) fn system_resolver(name: String) -> ResolveFuture {
    Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
}

/// The address is forbidden.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{host} is a private address, and http.deny_private is set")]
pub(super) struct PrivateAddress {
    host: String,
}

/// Checks a host that is an IP address. A name is checked when it is resolved.
pub(super) fn check_address(url: &Url, forbidden: Forbidden) -> Result<(), PrivateAddress> {
    let address = match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => IpAddr::V6(address),
        Some(Host::Domain(_)) | None => return Ok(()),
    };
    if forbidden(address) { Err(PrivateAddress { host: address.to_string() }) } else { Ok(()) }
}

/// Resolves names and removes forbidden addresses. The connection uses exactly the checked addresses, so that a
/// second resolution of the name cannot change them.
struct GuardedResolver {
    forbidden: Forbidden,
    names: ResolveFn,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (forbidden, names) = (self.forbidden, self.names);
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let all = names(host.clone()).await?;
            let known = !all.is_empty();
            let allowed: Vec<_> = all.into_iter().filter(|address| !forbidden(address.ip())).collect();
            if known && allowed.is_empty() {
                return Err(PrivateAddress { host }.into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// Returns whether an address is not a public host's: loopback, private, link-local (where cloud providers serve
/// their metadata), shared, multicast, reserved, for documentation or benchmarks, or another notation of one of
/// these.
pub(super) fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    // IANA's registry of special-purpose addresses, without the blocks that it calls globally reachable.
    const SPECIAL: [([u8; 4], u32); 15] = [
        ([0, 0, 0, 0], 8),
        ([10, 0, 0, 0], 8),
        ([100, 64, 0, 0], 10),
        ([127, 0, 0, 0], 8),
        ([169, 254, 0, 0], 16),
        ([172, 16, 0, 0], 12),
        ([192, 0, 0, 0], 24),
        ([192, 0, 2, 0], 24),
        ([192, 88, 99, 0], 24),
        ([192, 168, 0, 0], 16),
        ([198, 18, 0, 0], 15),
        ([198, 51, 100, 0], 24),
        ([203, 0, 113, 0], 24),
        ([224, 0, 0, 0], 4),
        ([240, 0, 0, 0], 4),
    ];
    let bits = address.to_bits();
    SPECIAL.iter().any(|(network, length)| {
        let ignored = 32 - length;
        bits >> ignored == Ipv4Addr::from(*network).to_bits() >> ignored
    })
}

/// Returns whether an IPv6 address is private. Only global unicast (`2000::/3`) is public, and not all of it. An
/// address that embeds an IPv4 address is checked by that.
fn is_private_v6(address: Ipv6Addr) -> bool {
    let embedded =
        |high: u16, low: u16| is_private_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match address.segments() {
        // IPv4-mapped addresses, the well-known prefix of NAT64, 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => embedded(high, low),
        // Protocol assignments, among them Teredo and benchmarks; documentation.
        [0x2001, second, ..] => second < 0x200 || second == 0xdb8,
        [0x3fff, second, ..] => second < 0x1000,
        [first, ..] => first & 0xe000 != 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_from_https_to_http_is_refused() {
        let reach =
            NetworkAccess { forbidden: None, max_redirects: 2, proxies: false, names: system_resolver };
        let url = |text: &str| Url::parse(text).unwrap();
        let step = |from: &str, to: &str| check_redirect(&[url(from)], &url(to), reach);
        assert!(step("http://a/", "https://a/").is_ok());
        assert!(step("https://a/", "https://b/").is_ok());
        let refused = step("https://a:1/", "http://a:1/").unwrap_err();
        assert_eq!(refused.downcast_ref(), Some(&RefusedRedirect::Downgrade));
    }

    #[test]
    fn private_addresses_are_recognised_in_every_notation() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2001::1",
            "2001:2::1",
            "2001:db8::1",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "5f00::1",
        ] {
            assert!(is_private(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn public_addresses_are_permitted() {
        for text in [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.169.0.1",
            "198.17.0.1",
            "223.255.255.255",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:101:101::1",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2a00::1",
        ] {
            assert!(!is_private(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn an_address_in_an_unusual_notation_is_checked() {
        for url in ["http://127.1/", "http://0x7f000001/", "http://2130706433/", "http://[::ffff:7f00:1]/"] {
            assert!(check_address(&Url::parse(url).unwrap(), is_private).is_err(), "{url}");
        }
        assert_eq!(check_address(&Url::parse("http://example.com/").unwrap(), is_private), Ok(()));
    }
}
