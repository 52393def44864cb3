//! Servers that misbehave.

use std::sync::Mutex;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::server::{Server, hold};
use super::*;

const ENDLESS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n";

/// Sends this and then nothing more, without closing the connection.
async fn stalling(beginning: &'static [u8]) -> Server {
    Server::start(move |_, mut stream| async move {
        stream.write_all(beginning).await.unwrap();
        hold(stream).await;
    })
    .await
}

#[tokio::test]
async fn a_body_that_does_not_come_is_a_timeout() {
    let runner = runner(&settings());
    for beginning in [&b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"[..], b"HTTP/1.1 200", b""] {
        let server = stalling(beginning).await;
        let step = HttpStep::get(server.url("/")).timeout(Duration::from_millis(80));
        let fault = fault(&runner, &step).await;
        assert_eq!(class(&fault), Class::Timeout);
        assert_eq!(fault.message(), format!("no complete answer from {} within 80ms", server.address));
    }
}

#[tokio::test]
async fn a_refusal_counts_even_if_its_text_does_not_come() {
    let server = stalling(b"HTTP/1.1 409 X\r\nContent-Length: 10\r\n\r\nhalf").await;
    let fault = fault(&runner(&settings()), &HttpStep::get(server.url("/"))).await;
    assert_eq!(class(&fault), Class::Conflict);
    assert_eq!(fault.message(), format!("HTTP 409 from {}: half", server.address));
}

#[tokio::test]
async fn a_connection_that_breaks_is_transient() {
    let server = Server::start(|_, mut stream| async move {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await.unwrap();
        // The connection closes with outstanding data, so the client receives a reset.
        stream.set_zero_linger().unwrap();
    })
    .await;
    let runner = runner(&settings());
    let broken = fault(&runner, &HttpStep::post(server.url("/?q=hush"))).await;
    assert_eq!(class(&broken), Class::Transient);
    assert!(broken.message().starts_with(&format!("no complete answer from {}", server.address)), "{broken}");
    let early = Server::start(|_, stream| async move { drop(stream) }).await;
    assert_eq!(class(&fault(&runner, &HttpStep::get(early.url("/"))).await), Class::Transient);
    let nobody = early.url("/?q=hush");
    drop(early);
    let refused = loop {
        let refused = fault(&runner, &HttpStep::get(&nobody)).await;
        if refused.message().contains("refused") {
            break refused;
        }
    };
    assert_eq!(class(&refused), Class::Transient);
    assert!(!refused.message().contains("hush"), "{refused}");
}

#[tokio::test]
async fn an_endless_body_is_not_read_on() {
    let (done, written) = oneshot::channel();
    let done = Mutex::new(Some(done));
    let server = Server::start(move |_, mut stream| {
        let done = done.lock().unwrap().take();
        async move {
            stream.write_all(ENDLESS).await.unwrap();
            let (block, mut written) = (vec![b'x'; 65536], 0_usize);
            while stream.write_all(&block).await.is_ok() {
                written += block.len();
            }
            done.unwrap().send(written).unwrap();
        }
    })
    .await;
    let settings = HttpSettings { max_response: 100_000, ..settings() };
    let fault = fault(&runner(&settings), &HttpStep::get(server.url("/"))).await;
    assert_eq!(class(&fault), Class::Permanent);
    assert!(fault.message().contains("longer than http.max_response, 100000 bytes"), "{fault}");
    // The data beyond the limit filled the sockets' buffers, and then the client closed the connection.
    assert!(written.await.unwrap() < 50 << 20);
}

#[tokio::test]
async fn an_announced_length_beyond_the_limit_is_not_even_begun() {
    let server = stalling(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n").await;
    let fault = fault(&runner(&settings()), &HttpStep::get(server.url("/"))).await;
    assert_eq!(class(&fault), Class::Permanent);
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_is_read() {
    let server = Server::saying(super::server::answer(200, "", "12345")).await;
    let settings = HttpSettings { max_response: 5, ..settings() };
    let output = run(&runner(&settings), &HttpStep::get(server.url("/"))).await.unwrap();
    assert_eq!(output["body"], "12345");
}

#[tokio::test]
async fn what_is_not_http_is_transient() {
    let server = Server::saying("SSH-2.0-OpenSSH_9.2p1\r\n").await;
    let runner = runner(&settings());
    assert_eq!(class(&fault(&runner, &HttpStep::get(server.url("/"))).await), Class::Transient);
}

/// Accepts one connection after another and calls this function with each.
async fn accepting<F, Fut>(serve: F) -> String
where
    F: Fn(TcpStream) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            serve(listener.accept().await.unwrap().0).await;
        }
    });
    url
}

#[tokio::test]
async fn a_certificate_nobody_trusts_is_permanent() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key);
    let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
    let url = accepting(move |stream| {
        let accepted = acceptor.accept(stream);
        async move { assert!(accepted.await.is_err(), "the client must not go on") }
    })
    .await;
    let fault = fault(&runner(&settings()), &HttpStep::get(url)).await;
    assert_eq!(class(&fault), Class::Permanent);
    assert!(fault.message().contains("is not trusted"), "{fault}");
}

#[tokio::test]
async fn what_is_not_tls_is_transient() {
    let url = accepting(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        hold(stream).await;
    })
    .await;
    let fault = fault(&runner(&settings()), &HttpStep::get(url)).await;
    assert_eq!(class(&fault), Class::Transient);
}

#[tokio::test]
async fn a_name_nobody_knows_is_transient() {
    let fault = fault(&runner(&settings()), &HttpStep::get("http://nobody.invalid/?q=hush")).await;
    assert_eq!(class(&fault), Class::Transient);
    assert_eq!(fault.message(), "the name cannot be resolved: nobody.invalid");
}

#[tokio::test]
async fn an_absurd_url_is_permanent() {
    let server = Server::saying("").await;
    let url = server.url(&format!("/{}", "x".repeat(70_000)));
    assert_eq!(class(&fault(&runner(&settings()), &HttpStep::get(url)).await), Class::Permanent);
}
