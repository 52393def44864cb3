//! TLS: serving, renewal of the certificate, and a broken new certificate.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdoff_server::{Error, NewToken, Options, Server, StoreUrl, TlsFiles, TokenScope};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client};
use tokio::time::Instant;

use crate::support::options;

/// A certificate for localhost, and its key.
struct Pair {
    cert: String,
    key: String,
}

impl Pair {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let pem = |kind: &str, bytes: &[u8]| {
            let text = STANDARD.encode(bytes);
            let lines: Vec<_> =
                text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
            format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
        };
        let cert = pem("CERTIFICATE", made.cert.der());
        Self { cert, key: pem("PRIVATE KEY", &made.signing_key.serialize_der()) }
    }

    fn write(&self, folder: &Path) -> TlsFiles {
        let files = TlsFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem") };
        std::fs::write(&files.cert, &self.cert).unwrap();
        std::fs::write(&files.key, &self.key).unwrap();
        files
    }

    /// Returns a client that trusts only this certificate and keeps no connection open.
    fn client(&self) -> Client {
        let trusted = Certificate::from_pem(self.cert.as_bytes()).unwrap();
        Client::builder().tls_certs_only([trusted]).pool_max_idle_per_host(0).build().unwrap()
    }
}

fn with_tls(folder: &Path, files: TlsFiles) -> Options {
    let mut options = options(StoreUrl::in_directory(folder.join("data")));
    options.server.tls = Some(files);
    options
}

async fn is_served(client: &Client, url: &str) -> bool {
    client.get(format!("{url}/healthz")).send().await.is_ok_and(|answer| answer.status() == 200)
}

async fn until_served(client: &Client, url: &str) {
    let since = Instant::now();
    while !is_served(client, url).await {
        assert!(since.elapsed() < CONDITION_TIMEOUT, "the certificate is not active");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_valid_new_certificate_is_activated() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new, third) = (Pair::new(), Pair::new(), Pair::new());
    let files = old.write(folder.path());
    let server = Server::start(with_tls(folder.path(), files.clone())).await.unwrap();
    assert!(server.url().starts_with("https://"));
    let url = format!("https://localhost:{}", server.address().port());
    assert!(is_served(&old.client(), &url).await);
    assert!(
        !is_served(&new.client(), &url).await,
        "a client that trusts only the other certificate is rejected"
    );
    let plain = Client::new().get(format!("http://{}/healthz", server.address())).send().await;
    assert!(plain.is_err(), "the TLS port does not serve plain HTTP");

    // An open connection continues while the certificate changes.
    let kept = Client::builder().tls_certs_only([Certificate::from_pem(old.cert.as_bytes()).unwrap()]);
    let kept = kept.pool_idle_timeout(None).build().unwrap();
    assert!(is_served(&kept, &url).await);
    new.write(folder.path());
    until_served(&new.client(), &url).await;
    assert!(!is_served(&old.client(), &url).await);
    assert!(is_served(&kept, &url).await, "an open connection survives the new certificate");

    // First a key of another certificate, then no certificate at all.
    let metrics = async || {
        let answer = new.client().get(format!("{url}/metrics")).send().await.unwrap();
        answer.text().await.unwrap()
    };
    let refused = |metrics: &str| {
        let line = metrics.lines().find(|line| line.contains("certificates_read_total{outcome=\"refused\"}"));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
    };
    for (broken, seen) in [(&third.cert, 1), (&"nonsense".to_owned(), 2)] {
        std::fs::write(&files.cert, broken).unwrap();
        let since = Instant::now();
        while refused(&metrics().await) < seen {
            assert!(since.elapsed() < CONDITION_TIMEOUT, "the daemon did not read the new certificate");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(is_served(&new.client(), &url).await, "the previous certificate stays active");
    }
    third.write(folder.path());
    until_served(&third.client(), &url).await;
    server.shutdown().await;
}

/// Neither plain HTTP nor another host of the domain can plant a session, and a browser stays with TLS.
#[tokio::test]
async fn a_session_over_tls_belongs_to_its_host() {
    let folder = tempfile::tempdir().unwrap();
    let pair = Pair::new();
    for (prefix, name) in [("", "__Host-holdoff_session"), ("/ops", "__Secure-holdoff_session")] {
        let mut options = with_tls(&folder.path().join(name), pair.write(folder.path()));
        options.server.require_tokens = true;
        options.server.prefix = prefix.to_owned();
        let server = Server::start(options).await.unwrap();
        let url = format!("https://localhost:{}", server.address().port());
        let token = server.token_store().issue(&NewToken::new("me", TokenScope::Admin)).await.unwrap().token;
        let trusted = Certificate::from_pem(pair.cert.as_bytes()).unwrap();
        let client = Client::builder().tls_certs_only([trusted]).redirect(Policy::none()).build().unwrap();
        let login = client.post(format!("{url}/login")).header("sec-fetch-site", "same-origin");
        let answer = login.body(format!("token={token}")).send().await.unwrap();
        assert_eq!(answer.headers()["strict-transport-security"], "max-age=31536000");
        let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
        assert!(cookie.starts_with(&format!("{name}=")) && cookie.contains("; Secure"), "{cookie}");
        assert!(
            cookie.contains(&format!("; Path={};", if prefix.is_empty() { "/" } else { prefix })),
            "{cookie}"
        );
        let secret = cookie.split(['=', ';']).nth(1).unwrap();
        for (sent, status) in [(name, 200), ("holdoff_session", 303)] {
            let page = client.get(format!("{url}/steps")).header("cookie", format!("{sent}={secret}"));
            assert_eq!(page.send().await.unwrap().status(), status, "{sent}");
        }
    }
}

#[tokio::test]
async fn an_unusable_certificate_prevents_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (Pair::new(), Pair::new());
    let files = one.write(folder.path());
    let refused = async |files: &TlsFiles| {
        let error = Server::start(with_tls(folder.path(), files.clone())).await.unwrap_err();
        assert!(matches!(error, Error::Certificate { .. }), "{error}");
        error.to_string()
    };
    std::fs::write(&files.key, &other.key).unwrap();
    let reason = refused(&files).await;
    assert!(reason.contains("cert.pem is not usable for TLS"), "{reason}");
    std::fs::write(&files.key, "-----BEGIN PRIVATE KEY-----\nhunter2\n").unwrap();
    let reason = refused(&files).await;
    assert!(reason.contains("no private key") && !reason.contains("hunter2"), "{reason}");
    std::fs::remove_file(&files.key).unwrap();
    assert!(refused(&files).await.contains("key.pem"));
}

/// A client that connects and sends nothing delays neither other clients nor a shutdown.
#[tokio::test]
async fn a_pending_handshake_delays_no_other_client() {
    let folder = tempfile::tempdir().unwrap();
    let pair = Pair::new();
    let server = Server::start(with_tls(folder.path(), pair.write(folder.path()))).await.unwrap();
    let url = format!("https://localhost:{}", server.address().port());
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(tokio::net::TcpStream::connect(server.address()).await.unwrap());
    }
    assert!(is_served(&pair.client(), &url).await);
    tokio::time::timeout(CONDITION_TIMEOUT, server.shutdown()).await.unwrap();
}
