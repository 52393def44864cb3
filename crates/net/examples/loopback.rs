//! Measures the cost of a call over loopback: `cargo run --release -p holdoff-net --example loopback`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use holdoff_net::{
    AllowList, Handler, HandlerError, Link, LinkOptions, Peer, PeerAddress, SecretKey, Server, ServerOptions,
};
use tokio::time::Instant;

struct Echo;

#[async_trait]
impl Handler for Echo {
    async fn call(&self, _peer: &Peer, request: Bytes) -> Result<Bytes, HandlerError> {
        Ok(request)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    const CALLS: usize = 20_000;
    let (mine, theirs) = (SecretKey::generate()?, SecretKey::generate()?);
    let options = ServerOptions { allow: AllowList::only([mine.public()]), ..ServerOptions::default() };
    let server = Server::start(&theirs, "127.0.0.1:0", Echo, options).await?;
    let remote = PeerAddress { key: theirs.public(), address: server.address().to_string() };
    let (link, _pushes) = Link::new(&mine, remote, LinkOptions::default())?;

    let began = Instant::now();
    link.connect().await?;
    println!("connect: {:?}", began.elapsed());

    for size in [32, 1024, 64 * 1024] {
        let request = Bytes::from(vec![7; size]);
        let mut took = Vec::with_capacity(CALLS);
        for _ in 0..CALLS / (1 + size / 4096) {
            let began = Instant::now();
            link.call(request.clone()).await?;
            took.push(began.elapsed());
        }
        took.sort_unstable();
        let at = |percent: usize| took.get(took.len() * percent / 100).copied().unwrap_or_default();
        println!(
            "{size} bytes, one after the other: median {:?}, 90 % {:?}, 99 % {:?}",
            at(50),
            at(90),
            at(99)
        );
    }

    let (link, request) = (Arc::new(link), Bytes::from_static(&[7; 32]));
    let began = Instant::now();
    let callers = (0..64).map(|_| {
        let (link, request) = (link.clone(), request.clone());
        tokio::spawn(async move {
            for _ in 0..CALLS / 64 {
                link.call(request.clone()).await?;
            }
            Ok::<(), holdoff_net::Error>(())
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await??;
    }
    let each = began.elapsed() / u32::try_from(CALLS)?;
    println!("32 bytes, 64 at once: {each:?} each");
    server.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
