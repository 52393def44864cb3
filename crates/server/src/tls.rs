//! TLS: a certificate and its key, read again when the files change.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::settings::TlsFiles;
use crate::{Error, metrics};

/// The interval between checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size in bytes of a certificate chain or a key.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The current certificate and its key.
pub(crate) struct Tls {
    files: TlsFiles,
    current: RwLock<Arc<ServerConfig>>,
}

/// The bytes of both files. It implements neither `Debug` nor `Display`, on purpose.
#[derive(Clone, PartialEq, Eq)]
struct PemPair {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Tls {
    pub(crate) fn open(files: TlsFiles) -> Result<(Self, Pem), Error> {
        let pair = PemPair::read(&files)?;
        let current = RwLock::new(Arc::new(pair.config(&files)?));
        Ok((Self { files, current }, Pem(pair)))
    }

    /// Performs a handshake with the current certificate.
    pub(crate) async fn handshake(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let config = Arc::clone(&self.current.read());
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(config).accept(stream)).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                None
            }
            Err(_) => {
                tracing::debug!("TLS handshake timed out");
                None
            }
        }
    }

    /// Checks the files until the daemon stops. A pair that is not usable changes nothing. Open connections continue.
    pub(crate) async fn watch(self: Arc<Self>, Pem(mut seen): Pem, stopping: CancellationToken) {
        while stopping.run_until_cancelled(tokio::time::sleep(CHECK_INTERVAL)).await.is_some() {
            let files = self.files.clone();
            let reading = tokio::task::spawn_blocking(move || PemPair::read(&files));
            let Ok(read) = reading.await else { continue };
            let pair = match read {
                Ok(pair) if pair == seen => continue,
                Ok(pair) => pair,
                // Logged on each check: without the certificate the next start will fail.
                Err(error) => {
                    tracing::error!(%error, "failed to read the certificate; the previous one stays active");
                    continue;
                }
            };
            match pair.config(&self.files) {
                Ok(config) => {
                    *self.current.write() = Arc::new(config);
                    metrics::record_certificate("renewed");
                    tracing::info!(cert = %self.files.cert.display(), "activated a new certificate");
                }
                Err(error) => {
                    metrics::record_certificate("refused");
                    tracing::error!(%error, "rejected a new certificate; the previous one stays active");
                }
            }
            seen = pair;
        }
    }
}

/// The bytes that were read last.
pub(crate) struct Pem(PemPair);

impl PemPair {
    fn read(files: &TlsFiles) -> Result<Self, Error> {
        Ok(Self { cert: read(&files.cert)?, key: read(&files.key)? })
    }

    /// Returns the TLS configuration, if the certificate and the key belong together.
    fn config(&self, files: &TlsFiles) -> Result<ServerConfig, Error> {
        let invalid = |path: &Path, why: &dyn std::fmt::Display| Error::Certificate {
            path: path.to_owned(),
            why: why.to_string(),
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.cert)
            .collect::<Result<_, _>>()
            .map_err(|error| invalid(&files.cert, &error))?;
        if chain.is_empty() {
            return Err(invalid(&files.cert, &"the file contains no certificate"));
        }
        // The message does not quote the parser's error: it might contain the key.
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| invalid(&files.key, &"the file contains no private key in PEM format"))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(&files.cert, &error))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| invalid(&files.cert, &error))?;
        Ok(config)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read_result = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    let read_result = read_result.and_then(|_| match u64::try_from(bytes.len()) {
        Ok(length) if length <= MAX_FILE_BYTES => Ok(()),
        _ => Err(io::Error::other("the file is too large for a certificate or a key")),
    });
    read_result.map_err(|error| Error::Certificate { path: path.to_owned(), why: error.to_string() })?;
    Ok(bytes)
}

/// Returns a warning if every user of the machine can read the key. A group may read it: services share keys that way.
pub(crate) fn key_warning(files: &TlsFiles) -> Option<String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = files.key.metadata().map_or(0, |found| found.permissions().mode() & 0o777);
        let key = files.key.display();
        let warning =
            || format!("every user can read the TLS key {key}: it has mode {mode:o}; run `chmod o= {key}`");
        (mode & 0o007 != 0).then(warning)
    }
    #[cfg(not(unix))]
    {
        let _ = files;
        None
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_every_user_can_read_causes_a_warning() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles { cert: folder.path().join("cert.pem"), key: folder.path().join("key.pem") };
        std::fs::write(&files.key, "").unwrap();
        for (mode, expected) in [(0o644, true), (0o604, true), (0o640, false), (0o600, false)] {
            std::fs::set_permissions(&files.key, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(key_warning(&files).is_some(), expected, "{mode:o}");
        }
    }
}
