//! Opens a connection: TCP, TLS, hello and welcome.

use rustls::ClientConfig;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Remote;
use crate::wire::decoder::NoFrame;
use crate::wire::{Decoder, Frame, MAX_GREETING, Terms, VERSION};
use crate::{LinkOptions, PublicKey, Refusal, clock, tls, transport::Stream};

/// The reason why there is no connection.
#[derive(Clone, Debug)]
pub(super) enum Cause {
    /// A failure that may pass without intervention.
    Trouble(String),
    /// The server showed this other key.
    WrongKey(PublicKey),
    /// The peer refused the connection.
    Refused(Refusal),
}

impl Cause {
    /// Returns whether a later attempt may succeed without an operator's intervention.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Trouble(_) => true,
            Self::WrongKey(_) => false,
            Self::Refused(reason) => reason.is_transient(),
        }
    }

    pub(super) fn why(&self) -> String {
        match self {
            Self::Trouble(why) => why.clone(),
            Self::WrongKey(shown) => format!("{shown} is at its address"),
            Self::Refused(reason) => reason.to_string(),
        }
    }

    /// Returns the label value used in metrics.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Trouble(_) => "unreachable",
            Self::WrongKey(_) => "wrong_key",
            Self::Refused(_) => "refused",
        }
    }
}

/// A connection on which the peer has sent its welcome.
pub(super) struct Opened {
    pub(super) stream: TlsStream<Box<dyn Stream>>,
    pub(super) decoder: Decoder,
    pub(super) theirs: Terms,
}

pub(super) async fn open(
    config: Arc<ClientConfig>,
    remote: &Remote,
    options: &LinkOptions,
) -> Result<Opened, Cause> {
    let opening = async {
        let stream = options.transport.connect(&remote.address).await.map_err(|error| trouble(&error))?;
        let connecting = TlsConnector::from(config).connect(tls::no_name(), stream);
        let stream = connecting.await.map_err(|error| match tls::shown(&error) {
            Some(shown) => Cause::WrongKey(shown),
            None => trouble(&error),
        })?;
        greet(stream, options).await
    };
    let limit = options.connect_timeout;
    let late = |_| Err(Cause::Trouble(format!("no connection within {limit:?}")));
    clock::within(limit, opening).await.unwrap_or_else(late)
}

/// Exchanges hello and welcome. In TLS 1.3 a client's handshake completes before the server has checked the client's
/// key: only the welcome proves that the server accepts the client.
async fn greet(mut stream: TlsStream<Box<dyn Stream>>, options: &LinkOptions) -> Result<Opened, Cause> {
    let terms = options.limits.terms();
    let hello = Frame::Hello { oldest: VERSION, newest: VERSION, role: &options.role, terms }.to_bytes();
    // A server may refuse the client before the hello is written, so its answer is read even if the write failed.
    let said = async {
        stream.write_all(&hello).await?;
        stream.flush().await
    };
    let said = said.await;
    let mut decoder = Decoder::new(MAX_GREETING);
    let body = decoder.next(&mut stream).await.map_err(|none| match (none, said) {
        (_, Err(error)) | (NoFrame::Failed(error), Ok(())) => trouble(&error),
        (NoFrame::Malformed(malformed), _) => Cause::Trouble(malformed.to_string()),
        (NoFrame::End, _) => Cause::Trouble("the peer has closed the connection without a word".to_owned()),
    })?;
    match Frame::read(&body) {
        Ok(Frame::Welcome { version: VERSION, terms: theirs }) => {
            decoder.set_limit(options.limits.max_frame);
            Ok(Opened { stream, decoder, theirs })
        }
        Ok(Frame::Welcome { .. }) => Err(Cause::Refused(Refusal::Version)),
        Ok(Frame::Bye { reason }) => Err(Cause::Refused(reason)),
        _ => Err(Cause::Trouble("the peer's first word was no welcome".to_owned())),
    }
}

fn trouble(error: &std::io::Error) -> Cause {
    Cause::Trouble(error.to_string())
}
