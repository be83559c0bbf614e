//! Sockets: HTTP and HTTPS, versions 1.1 and 2, on one port.
//!
//! The first byte tells TLS from plain HTTP; ALPN, or the first three bytes, tell HTTP/2 from HTTP/1.1. Each connection is a task on one of the [`Lanes`]. There are
//! limits on connections, on heads and bodies, and on how long a client may keep us waiting
//! ([`crate::patience`]). A stop lets running requests finish.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use crate::lanes::{self, Lanes};
use crate::patience::{Activity, Counted, TICK, Watch};
use crate::{FrontEnd, Peer};

/// What a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time; more wait to be accepted.
    pub connections: u32,
    /// How long running requests may take when the server stops.
    pub stop: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 4096, stop: Duration::from_secs(10) }
    }
}

/// How long a client may take to say whether it speaks TLS, and to shake hands.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// How often a connection is looked at while the server stops: one on which nothing happens is closed.
const STOP_TICK: Duration = Duration::from_millis(250);

/// The largest head of a request: authorization, continuation and session tokens fit several times.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The most requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;

/// How HTTP/2 begins; no other method begins with these letters.
const HTTP2_PREFACE: &[u8] = b"PRI";

/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// A bound socket with a front end behind it.
pub struct Listener {
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
    front_end: Arc<FrontEnd>,
    limits: Limits,
    lanes: Lanes,
}

impl Listener {
    /// Binds `address`. Without `tls` only plain HTTP is spoken.
    pub async fn bind(
        address: SocketAddr,
        tls: Option<Arc<ServerConfig>>,
        front_end: Arc<FrontEnd>,
        limits: Limits,
    ) -> io::Result<Self> {
        let socket = TcpListener::bind(address).await?;
        let lanes = Lanes::start()?;
        Ok(Self { socket, tls: tls.map(TlsAcceptor::from), front_end, limits, lanes })
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
                Ok((stream, address, slot)) => self.spawn(stream, address, slot, stopped.clone()),
                Err(error) => {
                    // Out of file descriptors, most likely: connections that end give some back.
                    log::warn!("cannot accept a connection: {error}");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
        self.front_end.stop();
        drop(self.socket);
        stopping.send_replace(true);
        if timeout(self.limits.stop, slots.acquire_many(self.limits.connections)).await.is_err() {
            log::warn!(
                "requests were still running after {:?}: they are cut off",
                self.limits.stop
            );
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
        let (front_end, tls) = (self.front_end.clone(), self.tls.clone());
        // Out of this thread's reactor, and below into that of its lane.
        let stream = match stream.into_std() {
            Ok(stream) => stream,
            Err(error) => return log::warn!("connection from {address}: {error}"),
        };
        self.lanes.next().spawn(async move {
            let connections = &front_end.metrics.connections;
            connections.fetch_add(1, Ordering::Relaxed);
            let served = match TcpStream::from_std(stream) {
                Ok(stream) => connection(stream, address, tls, &front_end, stopped).await,
                Err(error) => Err(error.into()),
            };
            if let Err(error) = served {
                // Clients come and go as they like: nothing that an operator must know.
                log::debug!("connection from {address}: {error}");
            }
            connections.fetch_sub(1, Ordering::Relaxed);
            drop(slot);
        });
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Finds out what the client speaks, and answers it.
async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    front_end: &Arc<FrontEnd>,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), Failed> {
    stream.set_nodelay(true)?;
    let local = address.ip().to_canonical().is_loopback();
    let start = unless_stopped(&mut stopped, first_bytes(&stream)).await?;
    match tls {
        Some(tls) if start == Start::Tls => {
            let stream = unless_stopped(&mut stopped, tls.accept(stream)).await?;
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let session = Session {
                front_end: front_end.clone(),
                peer: Peer { secure: true, local },
                stopped,
            };
            session.serve(stream, http2).await
        }
        _ => {
            let session = Session {
                front_end: front_end.clone(),
                peer: Peer { secure: false, local },
                stopped,
            };
            session.serve(stream, start == Start::Http2).await
        }
    }
}

/// A step of the handshake, which must not take for ever, and ends when the server stops.
async fn unless_stopped<T>(
    stopped: &mut watch::Receiver<bool>,
    step: impl Future<Output = io::Result<T>>,
) -> Result<T, Failed> {
    tokio::select! {
        done = timeout(HANDSHAKE_TIME_MAX, step) => Ok(done??),
        _ = stopped.wait_for(|stopped| *stopped) => Err("the server is stopping".into()),
    }
}

/// How a connection begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Tls,
    Http1,
    Http2,
}

/// Looks at the first bytes without taking them.
async fn first_bytes(stream: &TcpStream) -> io::Result<Start> {
    let mut bytes = [0; HTTP2_PREFACE.len()];
    loop {
        let count = stream.peek(&mut bytes).await?;
        match &bytes[..count] {
            [TLS_HANDSHAKE, ..] => return Ok(Start::Tls),
            HTTP2_PREFACE => return Ok(Start::Http2),
            // Too few to tell, and looking again would find the same at once.
            some if !some.is_empty() && HTTP2_PREFACE.starts_with(some) => {
                sleep(Duration::from_millis(5)).await
            }
            _ => return Ok(Start::Http1),
        }
    }
}

/// One connection, once it is known what it speaks.
struct Session {
    front_end: Arc<FrontEnd>,
    peer: Peer,
    stopped: watch::Receiver<bool>,
}

impl Session {
    async fn serve<S>(self, stream: S, http2: bool) -> Result<(), Failed>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = Arc::new(Activity::default());
        let io = TokioIo::new(Counted::new(stream, activity.clone()));
        let service = service_fn(|request: Request<Incoming>| {
            let (front_end, activity, peer) = (self.front_end.clone(), activity.clone(), self.peer);
            activity.begin();
            async move {
                let response = front_end.answer(request, peer).await;
                lanes::let_others_go_first().await;
                activity.end();
                Ok::<Response<Full<Bytes>>, std::convert::Infallible>(response)
            }
        });
        let mut stopped = self.stopped.clone();
        let mut ticks = interval(TICK);
        let mut watch = Watch::new(http2);
        // The two kinds of connection have the same methods and no common trait.
        macro_rules! drive {
            ($connection:expr) => {{
                let mut connection = std::pin::pin!($connection);
                loop {
                    tokio::select! {
                        biased;
                        ended = connection.as_mut() => return ended.map_err(Into::into),
                        _ = stopped.wait_for(|stopped| *stopped) => break,
                        _ = ticks.tick() => {
                            if watch.is_over(&activity) {
                                return Err("the client kept us waiting".into());
                            }
                        }
                    }
                }
                connection.as_mut().graceful_shutdown();
                let mut before = activity.progress();
                loop {
                    tokio::select! {
                        ended = connection.as_mut() => return ended.map_err(Into::into),
                        () = sleep(STOP_TICK) => {
                            // Half a request would otherwise keep the server from stopping.
                            if before == (false, before.1) && activity.progress() == before {
                                return Ok(());
                            }
                            before = activity.progress();
                        }
                    }
                }
            }};
        }
        if http2 {
            drive!(http2_builder().serve_connection(io, service))
        } else {
            drive!(http1_builder().serve_connection(io, service))
        }
    }
}

fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // No timer: `patience` watches heads, without the cost of one for each request. No number of headers either: hyper's own, 100, is
    // the one for which it needs no memory.
    builder.header_read_timeout(None).max_buf_size(HEAD_BYTES_MAX).half_close(false);
    builder
}

fn http2_builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(1024 * 1024)
        .initial_connection_window_size(4 * 1024 * 1024);
    builder
}
