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

/// The first byte of a TLS handshake. No HTTP method begins so.
const TLS_HANDSHAKE: u8 = 0x16;

/// How a TLS handshake begins: its type, and a version from 3.1 to 3.4. As the length of a message of MongoDB's it would say 65 KB and more, which no
/// client begins with; but 22 alone may well be the lowest byte of such a length.
const TLS_BYTES: usize = 3;

/// How often more of a beginning is looked for that is too short to tell.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

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
                Ok(stream) => protocol.greet(stream, address, tls, stopped).await,
                Err(error) => Err(error.into()),
            };
            // Clients come and go as they like: nothing that an operator must know.
            if let Err(error) = served {
                log::debug!("connection from {address}: {error}");
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
        let Some(encrypted) = unless_stopped(&mut stopped, is_encrypted(&stream)).await? else {
            return Ok(());
        };
        if !encrypted {
            return match self {
                Self::Http(front_end) => front_end.serve_plain(stream, local, stopped).await,
                Self::Mongo(front_end) => {
                    told(address, front_end.serve(stream, at, stopped).await);
                    Ok(())
                }
            };
        }
        let stream = unless_stopped(&mut stopped, tls.accept(stream)).await?;
        match self {
            Self::Http(front_end) => front_end.serve_tls(stream, local, stopped).await,
            Self::Mongo(front_end) => {
                told(address, front_end.serve(stream, at, stopped).await);
                Ok(())
            }
        }
    }
}

/// Bytes that make no sense are an operator's affair: something speaks to us that should not, or a driver is broken.
fn told(address: SocketAddr, served: Result<(), String>) {
    if let Err(error) = served {
        log::warn!("MongoDB connection from {address} closed: {error}");
    }
}

/// Whether a connection begins with a TLS handshake; `None` if it ends before it begins.
async fn is_encrypted(stream: &TcpStream) -> io::Result<Option<bool>> {
    let mut bytes = [0; TLS_BYTES];
    let mut seen = 0;
    loop {
        match stream.peek(&mut bytes).await? {
            0 => return Ok(None),
            // As far as one can see, and there is no more to come.
            count if count == seen => sleep(LOOK_AGAIN).await,
            count => seen = count,
        }
        if let Some(verdict) = is_handshake(&bytes[..seen]) {
            return Ok(Some(verdict));
        }
    }
}

/// Whether bytes are the beginning of a TLS handshake; `None` if there are too few to tell.
fn is_handshake(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [] => None,
        [TLS_HANDSHAKE, 3, 1..=4] => Some(true),
        [TLS_HANDSHAKE] | [TLS_HANDSHAKE, 3] => None,
        _ => Some(false),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_is_told_from_a_message_whose_length_begins_alike() {
        let cases: [(&[u8], Option<bool>); 10] = [
            (&[], None),
            (&[0x16], None),
            (&[0x16, 3], None),
            (&[0x16, 3, 1], Some(true)),
            (&[0x16, 3, 3], Some(true)),
            // A message of 278 bytes, of 790, and of 22: the shortest that there is, and a bit.
            (&[0x16, 1], Some(false)),
            (&[0x16, 3, 0], Some(false)),
            (&[0x16, 0], Some(false)),
            (b"G", Some(false)),
            (&[0x3A, 3, 1], Some(false)),
        ];
        for (bytes, wanted) in cases {
            assert_eq!(is_handshake(bytes), wanted, "{bytes:?}");
        }
    }
}
