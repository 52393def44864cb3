//! Networks in settings.

use std::net::IpAddr;

/// A network: addresses with the same first bits. An IPv4 network includes the IPv6 notation of its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Network {
    first: u128,
    mask: u128,
}

impl Network {
    /// Parses `10.0.0.0/8`, `fd00::/8`, or a single address. Returns `None` for other text, and for an address that is
    /// not the first of its network.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, length) =
            text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().ok()?;
        let bits: u32 = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Some(bits), |length| length.parse().ok())?;
        let mask = u128::MAX.checked_shl(bits.checked_sub(length)?).unwrap_or(0);
        let first = mapped(address);
        (first & mask == first).then_some(Self { first, mask })
    }

    pub(crate) fn contains(self, address: IpAddr) -> bool {
        mapped(address) & self.mask == self.first
    }
}

fn mapped(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_its_addresses() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::10.0.0.1"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("0.0.0.0/0", "255.1.2.3", "::1"),
            ("fd00::/8", "fdff::1", "fe00::1"),
        ] {
            let parsed = Network::parse(network).unwrap();
            assert!(parsed.contains(inside.parse().unwrap()), "{network} {inside}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{network} {outside}");
        }
        for text in
            ["", "a", "10.0.0.0/33", "10.0.0.1/8", "::/129", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8/8"]
        {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
