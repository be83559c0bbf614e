//! A client of a running server, for the commands that are one: it signs like any SDK and speaks HTTP/1.1, plain or with TLS.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use model::clock::{Clock, SystemClock};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::config::Remote;

/// How often a request that the server throttles is tried again.
const THROTTLED_MAX: usize = 100;

/// One connection to a server.
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
    key: String,
    clock: SystemClock,
}

/// An answer.
pub struct Answer {
    /// The HTTP status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Answer {
    /// The body as a value.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).context("the server's answer is not JSON")
    }

    /// A header's text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The server's own words about a refusal.
    fn message(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let text = body["message"].as_str().unwrap_or_default();
        let text = text.split("\r\nActivityId").next().unwrap_or_default();
        let text = text.strip_prefix("Message: ").unwrap_or(text);
        let errors: Value = serde_json::from_str(text).unwrap_or_default();
        errors["Errors"][0].as_str().unwrap_or(text).to_owned()
    }
}

impl Client {
    /// Connects to a server.
    pub async fn connect(remote: &Remote) -> Result<Self> {
        let uri: Uri = remote.endpoint.parse().context("the endpoint is not an address")?;
        let host = uri.host().context("the endpoint has no host, as in http://127.0.0.1:8081")?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => bail!("the endpoint must begin with http:// or https://"),
        };
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let host = host.trim_matches(['[', ']']);
        let stream = TcpStream::connect((host, port)).await.with_context(|| {
            format!("no server answers at {} (see --endpoint)", remote.endpoint)
        })?;
        stream.set_nodelay(true).context("cannot set up the connection")?;
        let sender = match secure {
            false => begin(stream).await?,
            true => {
                let connector = TlsConnector::from(Arc::new(trust(remote)?));
                let name = ServerName::try_from(host.to_owned()).context("bad host name")?;
                let stream = connector.connect(name, stream).await.context(
                    "the server's certificate is not trusted: name the right one with --ca",
                )?;
                begin(stream).await?
            }
        };
        let key = remote.key.clone().unwrap_or_else(|| cosmos::WELL_KNOWN_KEY.to_owned());
        let authority = uri.authority().map_or_else(String::new, ToString::to_string);
        Ok(Self { sender, authority, key, clock: SystemClock::new() })
    }

    /// Sends a request and waits for its answer, whatever that is; throttled ones are sent again.
    pub async fn send(
        &mut self,
        method: &str,
        (parts, query): (&[&str], &str),
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Answer> {
        let mut path: String =
            parts.iter().flat_map(|part| ["/".to_owned(), escape(part)]).collect();
        if path.is_empty() {
            path.push('/');
        }
        if !query.is_empty() {
            path = format!("{path}?{query}");
        }
        for _ in 0..THROTTLED_MAX {
            let (date, authorization) = cosmos::sign(&self.key, method, parts, self.clock.now())?;
            let mut request = Request::builder()
                .method(method)
                .uri(&path)
                .header("host", &self.authority)
                .header("x-ms-version", "2020-07-15")
                .header("x-ms-date", date)
                .header("authorization", authorization);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let request = request.body(Full::new(body.clone())).context("bad request")?;
            self.sender.ready().await.context("the connection is lost")?;
            let answer =
                self.sender.send_request(request).await.context("the connection is lost")?;
            let (head, body) = answer.into_parts();
            let body = body.collect().await.context("the connection is lost")?.to_bytes();
            let answer = Answer { status: head.status, headers: head.headers, body };
            if answer.status != StatusCode::TOO_MANY_REQUESTS {
                return Ok(answer);
            }
            let wait = answer.header("x-ms-retry-after-ms").and_then(|text| text.parse().ok());
            tokio::time::sleep(Duration::from_millis(wait.unwrap_or(100))).await;
        }
        Err(anyhow!("the server has no request units for this: its throughput is too low"))
    }

    /// Sends a request whose answer must be good.
    pub async fn ask(
        &mut self,
        method: &str,
        (parts, query): (&[&str], &str),
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Answer> {
        let answer = self.send(method, (parts, query), headers, body).await?;
        ensure!(
            answer.status != StatusCode::UNAUTHORIZED,
            "the server does not take this key (see --key)"
        );
        ensure!(answer.status.is_success(), "{}: {}", answer.status, answer.message());
        Ok(answer)
    }

    /// The JSON at a path.
    pub async fn get(&mut self, parts: &[&str], query: &str) -> Result<Value> {
        self.ask("GET", (parts, query), &[], Bytes::new()).await?.json()
    }
}

/// The answer's refusal as text, for those who go on after it.
pub fn refusal(answer: &Answer) -> String {
    format!("{}: {}", answer.status, answer.message())
}

async fn begin<S>(stream: S) -> Result<SendRequest<Full<Bytes>>>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await.context("no HTTP")?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            log::debug!("the connection has ended: {error}");
        }
    });
    Ok(sender)
}

fn trust(remote: &Remote) -> Result<ClientConfig> {
    let path = remote.ca.as_ref().context(
        "https:// needs --ca FILE, the certificate to trust (for a server of this machine: its sidereal-data/tls/ca.pem). \
         On this machine http:// will do.",
    )?;
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    for certificate in certificates {
        let certificate = certificate.with_context(|| format!("cannot read {}", path.display()))?;
        roots.add(certificate).with_context(|| format!("cannot use {}", path.display()))?;
    }
    Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// A name as a path's segment.
fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte))
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_segments() {
        assert_eq!(escape("a-b_c.d~1"), "a-b_c.d~1");
        assert_eq!(escape("a b/ü"), "a%20b%2F%C3%BC");
    }
}
