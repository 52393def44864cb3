//! Rules for the listen address.

use std::net::SocketAddr;

use crate::keep::Keep;
use crate::{Error, Place, Settings};

/// Requires tokens on an address beyond loopback, and TLS unless the settings say that a proxy terminates it.
pub(crate) fn check(address: SocketAddr, settings: &Settings) -> Result<(), Error> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    if !settings.require_tokens {
        return Err(Error::NotLoopback(address));
    }
    if settings.tls.is_none() && !settings.insecure {
        return Err(Error::Plain(address));
    }
    Ok(())
}

/// Requires that a token of scope `admin` exists if tokens are required.
pub(crate) async fn check_admin(
    address: SocketAddr,
    place: &Place,
    settings: &Settings,
    keep: &Keep,
) -> Result<(), Error> {
    if !settings.require_tokens || keep.has_admin().await? {
        return Ok(());
    }
    if address.ip().is_loopback() {
        tracing::warn!(
            "there is no API token of scope admin: `holdoff token create --name ME --scope admin`"
        );
        return Ok(());
    }
    Err(Error::NoAdmin { address, place: place.clone() })
}
