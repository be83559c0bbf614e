//! The floor: what the HTTP stack alone can do. The same library, protocols and threads as the server's, the same
//! headers and body, and nothing behind them. What the database costs is the distance to this.

use std::convert::Infallible;
use std::path::Path;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Serves until it is killed. The file holds an answer as it was on the wire: status line, headers, body.
///
/// One thread a core, each with connections and a reactor of its own, as the server has it.
pub fn run(answer: &Path) -> Result<()> {
    let answer = parse(&std::fs::read(answer)?)?;
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    println!("floor at http://{}/", listener.local_addr()?);
    let cores = std::thread::available_parallelism()?.get();
    let lanes: Vec<_> = (0..cores).map(|_| start_lane(answer.clone())).collect();
    for (stream, lane) in listener.incoming().zip(lanes.iter().cycle()) {
        let stream = stream?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        lane.send(stream)?;
    }
    Ok(())
}

/// A thread that answers the connections it is sent.
fn start_lane(answer: Answer) -> UnboundedSender<std::net::TcpStream> {
    let (sender, mut connections) = unbounded_channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            while let Some(stream) = connections.recv().await {
                let stream = TcpStream::from_std(stream).expect("a socket");
                tokio::spawn(serve(stream, answer.clone()));
            }
        });
    });
    sender
}

async fn serve(stream: TcpStream, answer: Answer) {
    let service = service_fn(move |request| respond(request, answer.clone()));
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None);
    // A client that goes away is how every run ends.
    drop(builder.serve_connection(TokioIo::new(stream), service).await);
}

#[derive(Clone)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

async fn respond(
    request: Request<Incoming>,
    answer: Answer,
) -> Result<Response<Full<Bytes>>, Infallible> {
    // A body is received in whole, as the server must.
    drop(request.into_body().collect().await);
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    Ok(response)
}

fn parse(bytes: &[u8]) -> Result<Answer> {
    let end = memchr::memmem::find(bytes, b"\r\n\r\n").context("an answer has headers")?;
    let head = std::str::from_utf8(&bytes[..end])?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.get(9..12)).context("a status line")?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').context("a header")?;
        // The library itself sends these two.
        if !["content-length", "date"].contains(&name.to_ascii_lowercase().as_str()) {
            headers.append(
                HeaderName::from_bytes(name.as_bytes())?,
                HeaderValue::from_str(value.trim())?,
            );
        }
    }
    let body = Bytes::copy_from_slice(&bytes[end + 4..]);
    Ok(Answer { status: status.parse()?, headers, body })
}
