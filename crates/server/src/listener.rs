//! Sockets: accepts connections for both front ends, plain and TLS on the same port, told apart by the first byte.
//!
//! Each connection is a task on one of the [`Lanes`]; what is spoken on it is the front end's affair. There are limits on how many there are
//! and on how long a client may take to shake hands. A stop lets running requests finish.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::lanes::Lanes;

/// Connections at a time at one socket; more wait to be accepted.
const CONNECTIONS_MAX: u32 = 10_000;

/// How long a client may take to say its first word, and to shake hands.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// How long running requests may take when the server stops.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);

/// The first byte of a TLS handshake. No HTTP method begins so, and no message of MongoDB's that would be this long.
const TLS_HANDSHAKE: u8 = 0x16;

/// What is spoken at a socket.
#[derive(Clone)]
pub enum Protocol {
    /// The NoSQL API.
    Http(Arc<cosmos::FrontEnd>),
    /// The API for MongoDB.
    Mongo(Arc<mongo::FrontEnd>),
}

/// What all sockets share.
#[derive(Clone)]
pub struct Sockets {
    tls: TlsAcceptor,
    lanes: Arc<Lanes>,
}

impl Sockets {
    /// Starts the threads that connections will live on.
    pub fn new(tls: Arc<ServerConfig>) -> io::Result<Self> {
        Ok(Self { tls: TlsAcceptor::from(tls), lanes: Arc::new(Lanes::start()?) })
    }
}

/// A bound socket.
pub struct Listener {
    socket: TcpListener,
    sockets: Sockets,
    protocol: Protocol,
}

impl Listener {
    /// Binds `address`.
    pub async fn bind(
        address: SocketAddr,
        sockets: Sockets,
        protocol: Protocol,
    ) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        Ok(Self { socket, sockets, protocol })
    }

    /// The address that was bound: the port, where any would do.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts and answers until `stop` says so, then waits for what is running.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX as usize));
        let (stopping, stopped) = watch::channel(false);
        let mut stop = std::pin::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = self.accept(&slots) => accepted,
            };
            match accepted {
                Ok((stream, address, slot)) => self.spawn(stream, address, slot, stopped.clone()),
                Err(error) => {
                    // Out of file descriptors, most likely: connections that end give some back.
                    log::warn!("cannot accept a connection: {error}");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
        if let Protocol::Http(front_end) = &self.protocol {
            front_end.stop();
        }
        drop(self.socket);
        stopping.send_replace(true);
        if timeout(STOP_TIME_MAX, slots.acquire_many(CONNECTIONS_MAX)).await.is_err() {
            log::warn!("requests were still running after {STOP_TIME_MAX:?}: they are cut off");
        }
    }

    async fn accept(
        &self,
        slots: &Arc<Semaphore>,
    ) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (stream, address) = self.socket.accept().await?;
        Ok((stream, address, slot))
    }

    fn spawn(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        slot: OwnedSemaphorePermit,
        stopped: watch::Receiver<bool>,
    ) {
        // Out of this thread's reactor, and below into that of its lane.
        let stream = match stream.into_std() {
            Ok(stream) => stream,
            Err(error) => return log::warn!("connection from {address}: {error}"),
        };
        let (protocol, tls) = (self.protocol.clone(), self.sockets.tls.clone());
        self.sockets.lanes.next().spawn(async move {
            let served = match TcpStream::from_std(stream) {
                Ok(stream) => protocol.clone().greet(stream, address, tls, stopped).await,
                Err(error) => Err(error.into()),
            };
            match (served, protocol) {
                (Ok(()), _) => {}
                // Clients come and go as they like: nothing that an operator must know.
                (Err(error), Protocol::Http(_)) => {
                    log::debug!("connection from {address}: {error}");
                }
                (Err(error), Protocol::Mongo(_)) => {
                    log::info!("MongoDB connection from {address} closed: {error}");
                }
            }
            drop(slot);
        });
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Protocol {
    /// Shakes hands, and answers.
    async fn greet(
        self,
        stream: TcpStream,
        address: SocketAddr,
        tls: TlsAcceptor,
        mut stopped: watch::Receiver<bool>,
    ) -> Result<(), Failed> {
        stream.set_nodelay(true)?;
        let at = stream.local_addr()?;
        let local = address.ip().to_canonical().is_loopback();
        let mut first = [0];
        if unless_stopped(&mut stopped, stream.peek(&mut first)).await? == 0 {
            return Ok(());
        }
        if first[0] != TLS_HANDSHAKE {
            return match self {
                Self::Http(front_end) => front_end.serve_plain(stream, local, stopped).await,
                Self::Mongo(front_end) => Ok(front_end.serve(stream, at, stopped).await?),
            };
        }
        let stream = unless_stopped(&mut stopped, tls.accept(stream)).await?;
        match self {
            Self::Http(front_end) => front_end.serve_tls(stream, local, stopped).await,
            Self::Mongo(front_end) => Ok(front_end.serve(stream, at, stopped).await?),
        }
    }
}

/// A step of the handshake, which must not take for ever, and ends when the server stops.
async fn unless_stopped<T>(
    stopped: &mut watch::Receiver<bool>,
    step: impl Future<Output = io::Result<T>>,
) -> Result<T, Failed> {
    tokio::select! {
        done = timeout(HANDSHAKE_TIME_MAX, step) => {
            Ok(done.map_err(|_| "the client kept us waiting before its first request")??)
        }
        _ = stopped.wait_for(|stopped| *stopped) => Err("the server is stopping".into()),
    }
}
