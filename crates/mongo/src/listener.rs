//! The socket: accepts connections, plain and TLS on the same port, told apart by the first byte.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::FrontEnd;
use crate::connection::Connection;

/// What a listener allows.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: u32,
    /// How long a new connection may take to say its first word.
    pub handshake: Duration,
    /// How long commands may still run after the server was told to stop.
    pub stop: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            handshake: Duration::from_secs(20),
            stop: Duration::from_secs(10),
        }
    }
}

/// The first byte of a TLS handshake. A message's length never begins so: it would be of one length only.
const TLS_HANDSHAKE: u8 = 0x16;

/// A bound socket with a front end behind it.
pub struct Listener {
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
    front_end: Arc<FrontEnd>,
    limits: Limits,
}

impl Listener {
    /// Binds `address`. Without `tls` only plain connections are served.
    pub async fn bind(
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        front_end: Arc<FrontEnd>,
        limits: Limits,
    ) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        Ok(Self { socket, tls: tls.map(TlsAcceptor::from), front_end, limits })
    }

    /// The address that was bound: the port, where any would do.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts and answers until `stop` says so, then waits for what is running.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let slots = Arc::new(Semaphore::new(self.limits.connections as usize));
        let (stopping, stopped) = watch::channel(false);
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = self.accept(&slots) => accepted,
            };
            match accepted {
                Ok((stream, slot)) => self.spawn(stream, slot, stopped.clone()),
                Err(error) => {
                    // Out of file descriptors, most likely: connections that end give some back.
                    log::warn!("cannot accept a MongoDB connection: {error}");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
        drop(self.socket);
        stopping.send_replace(true);
        if timeout(self.limits.stop, slots.acquire_many(self.limits.connections)).await.is_err() {
            log::warn!("MongoDB commands were still running after {:?}", self.limits.stop);
        }
    }

    async fn accept(
        &self,
        slots: &Arc<Semaphore>,
    ) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
        let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (stream, _) = self.socket.accept().await?;
        Ok((stream, slot))
    }

    fn spawn(&self, stream: TcpStream, slot: OwnedSemaphorePermit, stopped: watch::Receiver<bool>) {
        let (front_end, tls, limits) = (self.front_end.clone(), self.tls.clone(), self.limits);
        tokio::spawn(async move {
            let peer = stream.peer_addr();
            if let Err(why) = greet(front_end, stream, tls, limits, stopped).await {
                match peer {
                    Ok(peer) => log::info!("MongoDB connection from {peer} closed: {why}"),
                    Err(_) => log::info!("MongoDB connection closed: {why}"),
                }
            }
            drop(slot);
        });
    }
}

/// Finds out what a connection speaks, and serves it.
async fn greet(
    front_end: Arc<FrontEnd>,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    stopped: watch::Receiver<bool>,
) -> Result<(), String> {
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let local = stream.local_addr().map_err(|error| error.to_string())?;
    let mut first = [0];
    let peeked = timeout(limits.handshake, stream.peek(&mut first)).await;
    let count = peeked.map_err(|_| "it said nothing")?.map_err(|error| error.to_string())?;
    if count == 0 {
        return Ok(());
    }
    let connection = Connection::new(front_end, local, stopped);
    match tls {
        Some(tls) if first[0] == TLS_HANDSHAKE => {
            let accepted = timeout(limits.handshake, tls.accept(stream)).await;
            let stream = accepted
                .map_err(|_| "its TLS handshake took too long".to_owned())?
                .map_err(|error| format!("TLS: {error}"))?;
            connection.serve(stream).await
        }
        _ => connection.serve(stream).await,
    }
}
