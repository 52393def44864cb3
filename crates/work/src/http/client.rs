//! The clients that send the requests, and the addresses that a request may be sent to.

use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};
use url::{Host, Url};

use super::credentials::AllowedHosts;
use crate::HttpSettings;
use crate::settings::Network;

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
#[derive(Clone)]
pub(super) struct NetworkAccess {
    pub(super) rules: Arc<AddressRules>,
    pub(super) max_redirects: usize,
    /// Whether the proxies of the environment are used. A proxy resolves names itself, so none is used if private
    /// addresses are refused.
    pub(super) proxies: bool,
    pub(super) names: ResolveFn,
}

/// The clients that send the requests, all without redirects, cookies, referers and compression.
pub(super) struct Clients {
    /// For steps.
    pub(super) guarded: Client,
    /// For the token endpoints and the notifications of the settings. The operator configured them, so they may have
    /// private addresses.
    pub(super) trusted: Client,
}

impl Clients {
    pub(super) fn new(reach: &NetworkAccess) -> Result<Self, InvalidHttpSettings> {
        let plain = |uses_proxies: bool| {
            let builder = Client::builder()
                .user_agent(concat!("holdoff/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_max_idle_per_host(MAX_IDLE)
                .redirect(Policy::none())
                .referer(false);
            if uses_proxies { builder } else { builder.no_proxy() }
        };
        let resolver = GuardedResolver { rules: Arc::clone(&reach.rules), names: reach.names };
        let guarded = plain(reach.proxies && !reach.rules.deny_private).dns_resolver(Arc::new(resolver));
        Ok(Self { guarded: build(guarded)?, trusted: build(plain(reach.proxies))? })
    }
}

fn build(builder: ClientBuilder) -> Result<Client, InvalidHttpSettings> {
    builder.build().map_err(|error| InvalidHttpSettings::Client { source: Box::new(error) })
}

/// Returns the text of the cause of an error of the HTTP library, whose own text does not contain it.
fn cause(error: &(dyn Error + Send + Sync + 'static)) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// The reason why a request received no response.
#[derive(Debug, thiserror::Error)]
pub(super) enum SendError {
    #[error(transparent)]
    Http(#[from] reqwest::Error),
    #[error(transparent)]
    Redirect(#[from] RefusedRedirect),
    #[error(transparent)]
    Address(#[from] ForbiddenAddress),
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
    #[error("to an invalid URL")]
    NoUrl,
}

impl NetworkAccess {
    /// Returns the URL that a redirect leads to, after this many redirects. A user name and a password in it are dropped.
    pub(super) fn redirect(&self, url: &Url, location: &str, followed: usize) -> Result<Url, SendError> {
        if followed >= self.max_redirects {
            return Err(RefusedRedirect::TooMany(self.max_redirects).into());
        }
        let mut next = url.join(location).map_err(|_| RefusedRedirect::NoUrl)?;
        if !matches!(next.scheme(), "http" | "https") {
            return Err(RefusedRedirect::NotHttp.into());
        }
        if next.scheme() == "http" && url.scheme() == "https" {
            return Err(RefusedRedirect::Downgrade.into());
        }
        // The URL has a host, so both can be removed.
        let _ = (next.set_username(""), next.set_password(None));
        self.rules.check_url(&next)?;
        Ok(next)
    }
}

/// Resolves a name to its addresses.
pub(super) type ResolveFn = fn(String) -> ResolveFuture;
type ResolveFuture = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Resolves a name with the system's resolver.
pub(super) fn system_resolver(name: String) -> ResolveFuture {
    Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
}

/// The addresses that steps may call.
#[derive(Debug, Default)]
pub(super) struct AddressRules {
    deny_private: bool,
    networks: Vec<Network>,
    hosts: AllowedHosts,
}

/// Steps may not call the address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum ForbiddenAddress {
    #[error("{0} is a link-local address or a metadata service, which steps never call")]
    LinkLocal(String),
    #[error(
        "{0} is a private address, and http.deny_private is set: list its network or host under http.allow"
    )]
    Private(String),
}

impl AddressRules {
    pub(super) fn new(settings: &HttpSettings) -> Self {
        Self {
            deny_private: settings.deny_private.unwrap_or_default(),
            networks: settings.allow.iter().filter_map(|text| Network::parse(text)).collect(),
            hosts: AllowedHosts::new(&settings.allow),
        }
    }

    /// Checks a host that is an IP address. A name is checked when it is resolved.
    pub(super) fn check_url(&self, url: &Url) -> Result<(), ForbiddenAddress> {
        match url.host() {
            Some(Host::Ipv4(address)) => self.check(&address.to_string(), address.into()),
            Some(Host::Ipv6(address)) => self.check(&address.to_string(), address.into()),
            Some(Host::Domain(_)) | None => Ok(()),
        }
    }

    /// Checks an address of a host.
    fn check(&self, host: &str, address: IpAddr) -> Result<(), ForbiddenAddress> {
        if is_link_local(address) {
            return Err(ForbiddenAddress::LinkLocal(host.to_owned()));
        }
        let is_allowed =
            || self.hosts.include_name(host) || self.networks.iter().any(|network| network.contains(address));
        if self.deny_private && is_private(address) && !is_allowed() {
            return Err(ForbiddenAddress::Private(host.to_owned()));
        }
        Ok(())
    }
}

/// Resolves names and removes forbidden addresses. The connection uses exactly the checked addresses, so that a
/// second resolution of the name cannot change them.
struct GuardedResolver {
    rules: Arc<AddressRules>,
    names: ResolveFn,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (rules, names) = (Arc::clone(&self.rules), self.names);
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let (mut allowed, mut refused) = (Vec::new(), None);
            for address in names(host.clone()).await? {
                match rules.check(&host, address.ip()) {
                    Ok(()) => allowed.push(address),
                    Err(why) => refused = Some(why),
                }
            }
            match refused {
                Some(why) if allowed.is_empty() => Err(why.into()),
                _ => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

/// Returns whether an address is link-local, where clouds serve their metadata, or a metadata service elsewhere.
fn is_link_local(address: IpAddr) -> bool {
    // Amazon and Google over IPv6, Alibaba, and Azure's host.
    const METADATA: [IpAddr; 4] = [
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
        IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
        IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
        IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    ];
    match address {
        IpAddr::V6(address) if embedded_v4(address).is_some() => {
            embedded_v4(address).is_some_and(|address| is_link_local(address.into()))
        }
        IpAddr::V6(v6) => v6.is_unicast_link_local() || METADATA.contains(&address),
        IpAddr::V4(v4) => v4.is_link_local() || METADATA.contains(&address),
    }
}

/// Returns the IPv4 address that an IPv6 address embeds: IPv4-mapped, the well-known prefix of NAT64, 6to4.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))),
        _ => None,
    }
}

/// Returns whether an address is not a public host's: loopback, private, link-local (where cloud providers serve
/// their metadata), shared, multicast, reserved, for documentation or benchmarks, or another notation of one of
/// these.
fn is_private(address: IpAddr) -> bool {
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
    if let Some(address) = embedded_v4(address) {
        return is_private_v4(address);
    }
    match address.segments() {
        // Protocol assignments, among them Teredo and benchmarks; documentation.
        [0x2001, second, ..] => second < 0x200 || second == 0xdb8,
        [0x3fff, second, ..] => second < 0x1000,
        [first, ..] => first & 0xe000 != 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(deny_private: bool, allow: &[&str]) -> AddressRules {
        let allow = allow.iter().map(ToString::to_string).collect();
        AddressRules::new(&HttpSettings {
            deny_private: Some(deny_private),
            allow,
            ..HttpSettings::default()
        })
    }

    #[test]
    fn a_redirect_from_https_to_http_is_refused() {
        let rules = Arc::new(rules(false, &[]));
        let reach = NetworkAccess { rules, max_redirects: 2, proxies: false, names: system_resolver };
        let step = |from: &str, to: &str| reach.redirect(&Url::parse(from).unwrap(), to, 0);
        assert!(step("http://a/", "https://a/").is_ok());
        assert_eq!(step("https://a/", "https://u:p@b/").unwrap().as_str(), "https://b/");
        let refused = step("https://a:1/", "http://a:1/").unwrap_err();
        assert!(matches!(refused, SendError::Redirect(RefusedRedirect::Downgrade)), "{refused}");
    }

    #[test]
    fn metadata_services_are_refused_in_every_notation() {
        let rules = rules(false, &["0.0.0.0/0", "::/0", "169.254.169.254"]);
        for text in [
            "169.254.169.254",
            "169.254.0.1",
            "fe80::1",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "100.100.100.200",
            "168.63.129.16",
        ] {
            let refused = rules.check(text, text.parse().unwrap());
            assert_eq!(refused, Err(ForbiddenAddress::LinkLocal(text.to_owned())), "{text}");
        }
        assert_eq!(rules.check("a", "10.0.0.1".parse().unwrap()), Ok(()));
    }

    #[test]
    fn listed_networks_and_hosts_are_permitted() {
        let rules =
            rules(true, &["10.1.0.0/16", "fd12::/32", "127.0.0.1", "db.internal", "*.svc.cluster.local"]);
        let check = |host: &str, address: &str| rules.check(host, address.parse().unwrap()).is_ok();
        for (host, address) in [
            ("a", "10.1.255.1"),
            ("a", "::ffff:10.1.0.1"),
            ("a", "fd12:0:1::1"),
            ("127.0.0.1", "127.0.0.1"),
            ("DB.internal.", "10.9.0.1"),
            ("api.svc.cluster.local", "10.9.0.1"),
            ("a", "1.1.1.1"),
        ] {
            assert!(check(host, address), "{host} {address}");
        }
        for (host, address) in [
            ("a", "10.2.0.1"),
            ("a", "fd13::1"),
            ("127.0.0.2", "127.0.0.2"),
            ("svc.cluster.local", "10.9.0.1"),
            ("xdb.internal", "10.9.0.1"),
            ("db.internal.example", "10.9.0.1"),
        ] {
            assert!(!check(host, address), "{host} {address}");
        }
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
        let rules = rules(true, &[]);
        for url in ["http://127.1/", "http://0x7f000001/", "http://2130706433/", "http://[::ffff:7f00:1]/"] {
            assert!(rules.check_url(&Url::parse(url).unwrap()).is_err(), "{url}");
        }
        assert_eq!(rules.check_url(&Url::parse("http://example.com/").unwrap()), Ok(()));
    }
}
