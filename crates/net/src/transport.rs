//! What carries the bytes: TCP, or a simulation of it.

use std::io;
use std::net::SocketAddr;

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// Bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

/// A way to reach others and to be reached. Everything above it is the same over every one.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Connects to an address such as `host:port`.
    async fn connect(&self, address: &str) -> io::Result<Box<dyn Stream>>;

    /// Listens at an address.
    async fn listen(&self, address: &str) -> io::Result<Box<dyn Listen>>;
}

/// A place where others connect to.
#[async_trait]
pub trait Listen: Send + Sync {
    /// The next who connects, and from where.
    async fn accept(&mut self) -> io::Result<(Box<dyn Stream>, SocketAddr)>;

    /// Where that is.
    fn address(&self) -> io::Result<SocketAddr>;
}

/// The system's TCP. Small frames are not held back (`TCP_NODELAY`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Tcp;

#[async_trait]
impl Transport for Tcp {
    async fn connect(&self, address: &str) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Box::new(stream))
    }

    async fn listen(&self, address: &str) -> io::Result<Box<dyn Listen>> {
        Ok(Box::new(TcpListener::bind(address).await?))
    }
}

#[async_trait]
impl Listen for TcpListener {
    async fn accept(&mut self) -> io::Result<(Box<dyn Stream>, SocketAddr)> {
        let (stream, from) = Self::accept(self).await?;
        stream.set_nodelay(true)?;
        Ok((Box::new(stream), from))
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

/// Turmoil's TCP: hosts, partitions, delays and crashes out of a seed.
#[cfg(feature = "turmoil")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Turmoil;

#[cfg(feature = "turmoil")]
#[async_trait]
impl Transport for Turmoil {
    async fn connect(&self, address: &str) -> io::Result<Box<dyn Stream>> {
        Ok(Box::new(turmoil::net::TcpStream::connect(address).await?))
    }

    async fn listen(&self, address: &str) -> io::Result<Box<dyn Listen>> {
        Ok(Box::new(turmoil::net::TcpListener::bind(address).await?))
    }
}

#[cfg(feature = "turmoil")]
#[async_trait]
impl Listen for turmoil::net::TcpListener {
    async fn accept(&mut self) -> io::Result<(Box<dyn Stream>, SocketAddr)> {
        let (stream, from) = Self::accept(self).await?;
        Ok((Box::new(stream), from))
    }

    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}
