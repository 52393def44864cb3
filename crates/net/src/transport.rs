//! The transport under TLS: TCP, or a simulation of it.

use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// A bidirectional byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

/// Connects and listens. All other code of this crate is the same over every transport.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Connects to an address such as `host:port`.
    async fn connect(&self, address: &str) -> io::Result<Box<dyn Stream>>;

    /// Listens at an address.
    async fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>>;
}

/// A listener for incoming connections.
#[async_trait]
pub trait Listener: Send + Sync {
    /// Accepts the next connection, and returns its stream and remote address.
    async fn accept(&mut self) -> io::Result<(Box<dyn Stream>, SocketAddr)>;

    /// Returns the local address of the listener.
    fn address(&self) -> io::Result<SocketAddr>;
}

/// TCP of the operating system. Small frames are sent without delay (`TCP_NODELAY`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

#[async_trait]
impl Transport for Tcp {
    async fn connect(&self, address: &str) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }

    async fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(TcpListener::bind(address).await?))
    }
}

#[async_trait]
impl Listener for TcpListener {
    async fn accept(&mut self) -> io::Result<(Box<dyn Stream>, SocketAddr)> {
        let (stream, from) = Self::accept(self).await?;
        stream.set_nodelay(true)?;
        Ok((Box::new(stream), from))
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

/// Turmoil's simulated TCP: a seed determines hosts, partitions, delays and crashes.
#[cfg(feature = "turmoil")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Turmoil;

#[cfg(feature = "turmoil")]
#[async_trait]
impl Transport for Turmoil {
    async fn connect(&self, address: &str) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(turmoil::net::TcpStream::connect(address).await?))
    }

    async fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        Ok(Box::new(turmoil::net::TcpListener::bind(address).await?))
    }
}

#[cfg(feature = "turmoil")]
#[async_trait]
impl Listener for turmoil::net::TcpListener {
    async fn accept(&mut self) -> io::Result<(Box<dyn Stream>, SocketAddr)> {
        let (stream, from) = Self::accept(self).await?;
        Ok((Box::new(stream), from))
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}
