//! TLS: a certificate and its key, read again when the files change.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

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
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The timeout of a handshake.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);
/// The maximum size in bytes of a certificate chain or a key.
const MAX_FILE: u64 = 1 << 20;

/// The current certificate and its key.
pub(crate) struct Tls {
    files: TlsFiles,
    current: RwLock<Arc<ServerConfig>>,
}

/// The bytes of both files. It implements neither `Debug` nor `Display`, on purpose.
#[derive(Clone, PartialEq, Eq)]
struct Pair {
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Tls {
    pub(crate) fn open(files: TlsFiles) -> Result<(Self, Pem), Error> {
        let pair = Pair::read(&files)?;
        let current = RwLock::new(Arc::new(pair.config(&files)?));
        Ok((Self { files, current }, Pem(pair)))
    }

    /// Performs a handshake with the current certificate.
    pub(crate) async fn greet(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let config = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        match tokio::time::timeout(HANDSHAKE_PATIENCE, TlsAcceptor::from(config).accept(stream)).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(error)) => {
                tracing::debug!(%error, "a handshake failed");
                None
            }
            Err(_) => {
                tracing::debug!("a handshake took too long");
                None
            }
        }
    }

    /// Checks the files until the daemon stops. A pair that is not usable changes nothing. Open connections continue.
    pub(crate) async fn watch(self: Arc<Self>, Pem(mut seen): Pem, stopping: CancellationToken) {
        while stopping.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            let files = self.files.clone();
            let reading = tokio::task::spawn_blocking(move || Pair::read(&files));
            let Ok(read) = reading.await else { continue };
            let pair = match read {
                Ok(pair) if pair == seen => continue,
                Ok(pair) => pair,
                // Logged on each check: without the certificate the next start will fail.
                Err(error) => {
                    tracing::error!(%error, "the certificate cannot be read again; the old one stays in force");
                    continue;
                }
            };
            match pair.config(&self.files) {
                Ok(config) => {
                    *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
                    metrics::certificate_read("renewed");
                    tracing::info!(cert = %self.files.cert.display(), "the new certificate is in force");
                }
                Err(error) => {
                    metrics::certificate_read("refused");
                    tracing::error!(%error, "the new certificate cannot be used; the old one stays in force");
                }
            }
            seen = pair;
        }
    }
}

/// The bytes that were read last.
pub(crate) struct Pem(Pair);

impl Pair {
    fn read(files: &TlsFiles) -> Result<Self, Error> {
        Ok(Self { cert: read(&files.cert)?, key: read(&files.key)? })
    }

    /// Returns the TLS configuration, if the certificate and the key belong together.
    fn config(&self, files: &TlsFiles) -> Result<ServerConfig, Error> {
        let refuse = |path: &Path, why: &dyn std::fmt::Display| Error::Certificate {
            path: path.to_owned(),
            why: why.to_string(),
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.cert)
            .collect::<Result<_, _>>()
            .map_err(|error| refuse(&files.cert, &error))?;
        if chain.is_empty() {
            return Err(refuse(&files.cert, &"there is no certificate in it"));
        }
        // The message does not quote the parser's error: it might contain the key.
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|_| refuse(&files.key, &"there is no private key in it, as PEM"))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| refuse(&files.cert, &error))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| refuse(&files.cert, &error))?;
        Ok(config)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let taken = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
    let taken = taken.and_then(|_| match u64::try_from(bytes.len()) {
        Ok(length) if length <= MAX_FILE => Ok(()),
        _ => Err(io::Error::other("it is longer than any certificate or key")),
    });
    taken.map_err(|error| Error::Certificate { path: path.to_owned(), why: error.to_string() })?;
    Ok(bytes)
}
