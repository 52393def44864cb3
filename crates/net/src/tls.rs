//! TLS 1.3 with raw public keys instead of certificates (RFC 7250). The key is the identity of the peer.
//!
//! Both sides prove their keys. A client continues only with the server it expects. A server completes the handshake
//! with every client that proves a key, and checks its allow list right after (see `server/admission.rs`), so that
//! it can tell a refused client the reason.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, OtherError,
    PeerMisbehaved, ServerConfig, SignatureAlgorithm, SignatureScheme,
};

use crate::{PublicKey, SecretKey};

/// The ALPN protocol name, which keeps other protocols apart.
const PROTOCOL: &[u8] = b"holdoff-net";

/// The `SubjectPublicKeyInfo` of an Ed25519 key, up to the key itself.
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Returns the configuration of a client: the server must prove the key `expected`.
pub(crate) fn client(key: &SecretKey, expected: PublicKey) -> Result<Arc<ClientConfig>, Error> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ExpectedKeyVerifier(expected)))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified(key))));
    // A resumed session does not prove the key again.
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

/// Returns the configuration of a server: the client must prove a key.
pub(crate) fn server(key: &SecretKey) -> Result<Arc<ServerConfig>, Error> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(AnyKeyVerifier))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(key))));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

/// Returns a placeholder. A key identifies a server; the name that TLS requires is never sent.
pub(crate) fn no_name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into())
}

/// Returns the key that the other side has proved.
pub(crate) fn proved(certificates: Option<&[CertificateDer<'_>]>) -> Option<PublicKey> {
    certificates?.first().and_then(|spki| read(spki).ok())
}

/// Returns the key that the server has shown, if it was not the expected one.
pub(crate) fn shown(error: &std::io::Error) -> Option<PublicKey> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let Error::InvalidCertificate(CertificateError::Other(OtherError(other))) = error else { return None };
    other.downcast_ref::<WrongServerKey>().map(|shown| shown.0)
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider())).clone()
}

fn spki(key: PublicKey) -> Vec<u8> {
    [SPKI_PREFIX.as_slice(), key.as_bytes()].concat()
}

fn read(spki: &[u8]) -> Result<PublicKey, Error> {
    let key = spki.strip_prefix(&SPKI_PREFIX).and_then(|key| key.try_into().ok());
    key.map(PublicKey::from_bytes).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))
}

fn certified(key: &SecretKey) -> Arc<CertifiedKey> {
    let certificate = CertificateDer::from(spki(key.public()));
    Arc::new(CertifiedKey::new(vec![certificate], Arc::new(TlsSigningKey(key.clone()))))
}

/// The key of this side as a TLS signing key.
#[derive(Clone, Debug)]
struct TlsSigningKey(SecretKey);

impl SigningKey for TlsSigningKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered.contains(&SignatureScheme::ED25519).then(|| Box::new(self.clone()) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(spki(self.0.public()).into())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for TlsSigningKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.0.sign_raw(message).to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

/// The checks that both sides apply to a proof. TLS has one trait for each side; both have these methods.
macro_rules! proof_of_a_key {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _certificate: &CertificateDer<'_>,
            _signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(too_old())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            verify(message, certificate, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

/// Accepts only the server with this key.
#[derive(Debug)]
struct ExpectedKeyVerifier(PublicKey);

/// The error for a server that shows another key.
#[derive(Debug)]
struct WrongServerKey(PublicKey);

impl fmt::Display for WrongServerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server is {}", self.0)
    }
}

impl std::error::Error for WrongServerKey {}

impl ServerCertVerifier for ExpectedKeyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = read(end_entity)?;
        if shown == self.0 {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(WrongServerKey(shown))))))
    }

    proof_of_a_key!();
}

/// Accepts every client that proves a key.
#[derive(Debug)]
struct AnyKeyVerifier;

impl ClientCertVerifier for AnyKeyVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        read(end_entity).map(|_| ClientCertVerified::assertion())
    }

    proof_of_a_key!();
}

fn verify(
    message: &[u8],
    certificate: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let bad = || Error::InvalidCertificate(CertificateError::BadSignature);
    let key = read(certificate)?;
    let bytes: &[u8; 64] = signature.signature().try_into().map_err(|_| bad())?;
    let is_ours = signature.scheme == SignatureScheme::ED25519 && key.verify_raw(message, bytes);
    if is_ours { Ok(HandshakeSignatureValid::assertion()) } else { Err(bad()) }
}

/// Only TLS 1.3 is offered, so this error never occurs.
fn too_old() -> Error {
    Error::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedCipherSuite)
}

#[cfg(test)]
mod tests {
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    /// Performs a handshake. Returns the key that the server saw, and whether the client continued.
    async fn shake(
        client: Arc<ClientConfig>,
        server: Arc<ServerConfig>,
    ) -> (Result<PublicKey, String>, bool) {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (accepted, connected) = tokio::join!(
            TlsAcceptor::from(server).accept(far),
            TlsConnector::from(client).connect(no_name(), near)
        );
        let key = accepted.map_err(|error| error.to_string());
        let key = key.map(|stream| proved(stream.get_ref().1.peer_certificates()).unwrap());
        (key, connected.is_ok())
    }

    /// A certificate with the key of another peer and a signature by the own key.
    fn stolen(shown: PublicKey, own: &SecretKey) -> Arc<CertifiedKey> {
        Arc::new(CertifiedKey::new(
            vec![CertificateDer::from(spki(shown))],
            Arc::new(TlsSigningKey(own.clone())),
        ))
    }

    fn keys() -> (SecretKey, SecretKey, SecretKey) {
        (SecretKey::generate().unwrap(), SecretKey::generate().unwrap(), SecretKey::generate().unwrap())
    }

    #[tokio::test]
    async fn both_sides_prove_their_keys() {
        let (mine, theirs, _) = keys();
        let shaken = shake(client(&mine, theirs.public()).unwrap(), server(&theirs).unwrap()).await;
        assert_eq!(shaken, (Ok(mine.public()), true));
    }

    #[tokio::test]
    async fn a_client_with_a_stolen_public_key_is_refused() {
        let (friend, theirs, thief) = keys();
        let mut config = (*client(&thief, theirs.public()).unwrap()).clone();
        let shown = stolen(friend.public(), &thief);
        config.client_auth_cert_resolver = Arc::new(AlwaysResolvesClientRawPublicKeys::new(shown));
        let (key, _) = shake(Arc::new(config), server(&theirs).unwrap()).await;
        assert!(key.unwrap_err().contains("BadSignature"));
    }

    #[tokio::test]
    async fn a_client_rejects_a_server_with_a_stolen_public_key() {
        let (mine, theirs, impostor) = keys();
        let mut config = (*server(&impostor).unwrap()).clone();
        config.cert_resolver =
            Arc::new(AlwaysResolvesServerRawPublicKeys::new(stolen(theirs.public(), &impostor)));
        let (key, is_connected) = shake(client(&mine, theirs.public()).unwrap(), Arc::new(config)).await;
        assert!(key.is_err() && !is_connected);
    }

    #[tokio::test]
    async fn a_client_without_a_key_is_refused() {
        let (_, theirs, _) = keys();
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(ExpectedKeyVerifier(theirs.public())))
            .with_no_client_auth();
        let (key, _) = shake(Arc::new(config), server(&theirs).unwrap()).await;
        assert!(key.is_err());
    }
}
