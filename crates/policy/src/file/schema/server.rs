//! The section about the daemon: `[server]`.

use schemars::JsonSchema;

use super::DurationText;

/// Who may come in, and how.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(super) struct ServerTable {
    /// Whether everybody needs an API token. On loopback nobody does unless it is `required`; elsewhere it must be.
    tokens: Option<TokensWord>,
    /// The names that are answered to where tokens are needed, besides loopback's. Without it: any.
    #[schemars(length(max = 100))]
    hosts: Option<Vec<String>>,
    /// How fast one token may ask, such as "1000/s", "50/m" or "10/h". Without it: no limit.
    #[schemars(regex(pattern = r"^\s*[0-9]+\s*/\s*[smh]\s*$"))]
    rate: Option<String>,
    /// How long is kept who did what. From 1d to 3650d; default: 365d.
    audit_keep: Option<DurationText>,
    /// Whether to serve without TLS where others can listen in: behind a proxy that has it. Default: false.
    insecure: Option<bool>,
    /// The certificate and its key, read again when they change.
    tls: Option<TlsTable>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
enum TokensWord {
    /// Everybody needs one.
    Required,
    /// Nobody needs one, and only loopback is listened on.
    None,
}

#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
struct TlsTable {
    /// The file of the certificate and of those that vouch for it, as PEM.
    cert: String,
    /// The file of its private key, as PEM.
    key: String,
}
