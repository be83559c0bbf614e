//! A connection: HTTP 1.1 and 2, told apart by ALPN or by the first three bytes.
//!
//! The server has accepted it and has TLS behind it, if there is any. There are limits on heads and bodies, and on how long a client may keep us waiting
//! ([`crate::patience`]). A stop lets running requests finish.

use std::io;
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
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::server::TlsStream;

use crate::patience::{Activity, Counted, TICK, Watch};
use crate::{FrontEnd, Peer};

/// How long a client may take for its first bytes.
const FIRST_BYTES_TIME_MAX: Duration = Duration::from_secs(10);

/// How often a connection is looked at while the server stops: one on which nothing happens is closed.
const STOP_TICK: Duration = Duration::from_millis(250);

/// The largest head of a request: authorization, continuation and session tokens fit several times.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The most requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;

/// How HTTP/2 begins; no other method begins with these letters.
const HTTP2_PREFACE: &[u8] = b"PRI";

/// Why a connection ended before its time.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

impl FrontEnd {
    /// Answers on a connection until it ends or `stopped` says so. `local` if the client is on this machine.
    pub async fn serve_plain(
        self: Arc<Self>,
        stream: TcpStream,
        local: bool,
        mut stopped: watch::Receiver<bool>,
    ) -> Result<(), Failed> {
        let http2 = tokio::select! {
            http2 = timeout(FIRST_BYTES_TIME_MAX, begins_http2(&stream)) => http2??,
            _ = stopped.wait_for(|stopped| *stopped) => return Ok(()),
        };
        let session = Session { front_end: self, peer: Peer { secure: false, local }, stopped };
        session.counted(stream, http2).await
    }

    /// The same with TLS.
    pub async fn serve_tls(
        self: Arc<Self>,
        stream: TlsStream<TcpStream>,
        local: bool,
        stopped: watch::Receiver<bool>,
    ) -> Result<(), Failed> {
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let session = Session { front_end: self, peer: Peer { secure: true, local }, stopped };
        session.counted(stream, http2).await
    }
}

/// Whether the client speaks HTTP/2: looks at its first bytes without taking them.
async fn begins_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut bytes = [0; HTTP2_PREFACE.len()];
    loop {
        let count = stream.peek(&mut bytes).await?;
        match &bytes[..count] {
            HTTP2_PREFACE => return Ok(true),
            // Too few to tell, and looking again would find the same at once.
            some if !some.is_empty() && HTTP2_PREFACE.starts_with(some) => {
                sleep(Duration::from_millis(5)).await
            }
            _ => return Ok(false),
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
    async fn counted<S>(self, stream: S, http2: bool) -> Result<(), Failed>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let front_end = self.front_end.clone();
        let connections = &front_end.db.traffic().nosql.connections;
        connections.fetch_add(1, Ordering::Relaxed);
        let served = self.serve(stream, http2).await;
        connections.fetch_sub(1, Ordering::Relaxed);
        served
    }

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
                db::turns::let_others_go_first().await;
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
