//! HTTP/1.1 over one keep-alive connection, by hand: the client shares two cores with the server, so every
//! microsecond that it takes is one that the server does not get.

use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow, bail};
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::sign::Signer;

/// A request being written: its bytes as they go out.
pub struct Request {
    bytes: Vec<u8>,
    body_at: usize,
}

/// Room for the digits of a content length.
const LENGTH_DIGITS: usize = 8;

impl Request {
    /// An empty request, to be filled again and again.
    pub fn new() -> Self {
        Self { bytes: Vec::with_capacity(4096), body_at: 0 }
    }

    /// Starts over: request line, the headers every SDK sends, and the signature.
    pub fn start(&mut self, signer: &mut Signer, verb: &str, path: &str) {
        self.bytes.clear();
        self.body_at = 0;
        self.push(verb).push(" ").push(path).push(" HTTP/1.1\r\n");
        self.push("host: localhost\r\nuser-agent: sidereal-bench\r\naccept: application/json\r\n");
        self.push("x-ms-version: 2020-07-15\r\n");
        signer.sign(verb, path, &mut self.bytes);
    }

    /// Adds a header.
    pub fn header(&mut self, name: &str, value: &str) -> &mut Self {
        self.push(name).push(": ").push(value).push("\r\n")
    }

    /// The partition key header, for a key that is one string.
    pub fn partition_key(&mut self, key: &str) -> &mut Self {
        self.push("x-ms-documentdb-partitionkey: [\"").push(key).push("\"]\r\n")
    }

    /// Ends a request that has no body.
    pub fn end(&mut self) {
        self.push("\r\n");
    }

    /// Ends the headers and gives the buffer to append the body to; [`Self::end_body`] must follow.
    pub fn body(&mut self) -> &mut Vec<u8> {
        self.push("content-type: application/json\r\ncontent-length: ");
        self.push("00000000\r\n\r\n");
        self.body_at = self.bytes.len();
        &mut self.bytes
    }

    /// Writes the length of the body into its header.
    pub fn end_body(&mut self) {
        let length = self.bytes.len() - self.body_at;
        let digits = format!("{length:0LENGTH_DIGITS$}");
        let at = self.body_at - 4 - LENGTH_DIGITS;
        self.bytes[at..at + LENGTH_DIGITS].copy_from_slice(digits.as_bytes());
    }

    fn push(&mut self, text: &str) -> &mut Self {
        self.bytes.extend_from_slice(text.as_bytes());
        self
    }
}

/// An answer, borrowed from its connection's buffer.
pub struct Response<'a> {
    /// The status code.
    pub status: u16,
    /// The status line and headers.
    pub head: &'a [u8],
    /// The body.
    pub body: &'a [u8],
}

impl Response<'_> {
    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(self.head, name)
    }

    /// Status, headers and body, for a message about an answer nobody expected.
    pub fn describe(&self) -> String {
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(600)]);
        format!("{} {body}", self.status)
    }
}

/// A keep-alive connection that carries one request at a time.
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    chunked: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(8192), chunked: Vec::new() })
    }

    /// Sends a request and reads its answer to the end.
    pub async fn exchange(&mut self, request: &Request) -> Result<Response<'_>> {
        self.stream.write_all(&request.bytes).await?;
        self.buffer.clear();
        let mut searched = 0;
        let head_end = loop {
            self.read_more().await?;
            let from = usize::saturating_sub(searched, 3);
            if let Some(at) = memmem::find(&self.buffer[from..], b"\r\n\r\n") {
                break from + at + 4;
            }
            searched = self.buffer.len();
        };
        let head = &self.buffer[..head_end];
        let status = parse_status(head)?;
        let length = match header(head, "content-length") {
            Some(text) => text.parse::<usize>()?,
            None if matches!(status, 204 | 304) => 0,
            None if header(head, "transfer-encoding") == Some("chunked") => {
                self.read_chunks(head_end).await?;
                let (head, body) = (&self.buffer[..head_end], self.chunked.as_slice());
                return Ok(Response { status, head, body });
            }
            None => bail!("an answer without a length: {}", String::from_utf8_lossy(head)),
        };
        while self.buffer.len() < head_end + length {
            self.read_more().await?;
        }
        let (head, body) = self.buffer.split_at(head_end);
        Ok(Response { status, head, body })
    }

    async fn read_more(&mut self) -> Result<()> {
        self.buffer.reserve(4096);
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(anyhow!("the server closed the connection")),
            _ => Ok(()),
        }
    }

    async fn read_chunks(&mut self, mut at: usize) -> Result<()> {
        self.chunked.clear();
        loop {
            let line_end = loop {
                if let Some(end) = memmem::find(&self.buffer[at..], b"\r\n") {
                    break at + end;
                }
                self.read_more().await?;
            };
            let size = usize::from_str_radix(std::str::from_utf8(&self.buffer[at..line_end])?, 16)?;
            let start = line_end + 2;
            while self.buffer.len() < start + size + 2 {
                self.read_more().await?;
            }
            if size == 0 {
                return Ok(());
            }
            self.chunked.extend_from_slice(&self.buffer[start..start + size]);
            at = start + size + 2;
        }
    }
}

fn parse_status(head: &[u8]) -> Result<u16> {
    let digits = head.get(9..12).context("a short status line")?;
    Ok(std::str::from_utf8(digits)?.parse()?)
}

fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let mut rest = head;
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let line = &rest[..end];
        if line.len() > name.len()
            && line[name.len()] == b':'
            && line[..name.len()].eq_ignore_ascii_case(name.as_bytes())
        {
            return std::str::from_utf8(&line[name.len() + 1..]).ok().map(str::trim);
        }
        rest = &rest[end + 1..];
    }
    None
}
