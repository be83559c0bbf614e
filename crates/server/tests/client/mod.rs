//! A server in a process of its own, and a client that signs: plain HTTP/1.1 over a socket, nothing hidden.

#![allow(dead_code, reason = "each test uses its own part of this")]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde_json::Value;

/// The `sidereal` process.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
    /// What it printed when it was ready.
    pub greeting: String,
}

impl Server {
    /// Starts a server on a free port with its data in `data`, and waits until it is ready.
    pub fn start(data: &Path, arguments: &[&str]) -> Self {
        let data = data.to_str().expect("a path of ours");
        Self::spawn(&[&["--data", data][..], arguments].concat())
    }

    /// Starts a server on a free port, and waits until it is ready.
    pub fn spawn(arguments: &[&str]) -> Self {
        Self::of(command(arguments))
    }

    /// Starts it with a command, and waits until it is ready.
    pub fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary is built");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let mut greeting = String::new();
        while !greeting.contains("clock ") {
            let line = lines
                .next()
                .expect("the server ended before it was ready")
                .expect("it prints text");
            greeting.push_str(&line);
            greeting.push('\n');
        }
        let address = greeting.split("https://").nth(1).and_then(|rest| rest.split('/').next());
        let address =
            address.and_then(|text| text.parse().ok()).expect("the greeting has an address");
        Self { child, address, greeting }
    }

    /// A new connection.
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Where MongoDB drivers connect to.
    pub fn mongo_address(&self) -> SocketAddr {
        let address =
            self.greeting.split("mongodb://").nth(1).and_then(|rest| rest.split('/').next());
        address.and_then(|text| text.parse().ok()).expect("the greeting has an address for MongoDB")
    }

    /// Asks to stop, and waits for the end.
    pub fn terminate(mut self) -> ExitStatus {
        self.signal("-TERM");
        self.child.wait().expect("it is our child")
    }

    /// Ends the process as a power failure would.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is our child");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(sent.expect("there is a kill command").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that has failed leaves no process behind; one that has ended its server finds it gone.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The binary with these arguments, on a free port, without keys from the environment.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidereal"));
    for name in ["SIDEREAL_KEY", "SIDEREAL_SECONDARY_KEY", "SIDEREAL_READ_ONLY_KEY", "SIDEREAL_LOG"]
    {
        command.env_remove(name);
    }
    let is_server = !matches!(arguments.first(), Some(&"check" | &"copy"));
    if is_server && !arguments.contains(&"--port") {
        command.args(["--port", "0"]);
    }
    command.args(arguments);
    command
}

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }
}

/// A connection that signs its requests.
pub struct Client {
    stream: BufReader<TcpStream>,
    /// The server's date, so that nobody here needs a clock.
    date: String,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("it is a socket");
        let mut client = Self { stream: BufReader::new(stream), date: String::new() };
        let probe = client.send("GET", "/_health", &[], "").expect("the server answers");
        client.date = probe.header("date").expect("answers are dated").to_owned();
        client
    }

    /// Sends a request and waits for its answer; `None` if the connection breaks.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Option<Response> {
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        request += &format!("x-ms-version: 2020-07-15\r\nx-ms-date: {}\r\n", self.date);
        request += &format!("authorization: {}\r\n", signature(method, path, &self.date));
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        request += &format!("content-length: {}\r\n\r\n{body}", body.len());
        self.stream.get_mut().write_all(request.as_bytes()).ok()?;
        read_response(&mut self.stream)
    }

    /// The same, for requests whose answer is expected to come.
    pub fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        self.send(method, path, headers, body).expect("the server answers")
    }

    /// Makes a database `d` and a container `c` with the key `/pk`.
    pub fn make_container(&mut self, default_ttl: Option<i64>) {
        assert_eq!(self.call("POST", "/dbs", &[], r#"{"id":"d"}"#).status, 201);
        let ttl = default_ttl.map_or(String::new(), |ttl| format!(r#","defaultTtl":{ttl}"#));
        let definition = format!(
            r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}}{ttl}}}"#
        );
        assert_eq!(self.call("POST", "/dbs/d/colls", &[], &definition).status, 201);
    }
}

/// Reads a response with a length.
pub fn read_response(stream: &mut impl BufRead) -> Option<Response> {
    let line = |stream: &mut dyn BufRead| {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|count| *count > 0)?;
        Some(line.trim_end().to_owned())
    };
    let status = line(stream)?.split(' ').nth(1)?.parse().ok()?;
    let mut headers = Vec::new();
    loop {
        let line = line(stream)?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.push((name.to_lowercase(), value.to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body =
        vec![0; length.map_or(0, |(_, length)| length.parse().expect("a length is a number"))];
    stream.read_exact(&mut body).ok()?;
    Some(Response { status, headers, body })
}

fn signature(method: &str, path: &str, date: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (kind, link) = match parts.len() {
        0 => ("", String::new()),
        count if count % 2 == 1 => (parts[count - 1], parts[..count - 1].join("/")),
        count => (parts[count - 2], parts.join("/")),
    };
    let payload = format!("{}\n{kind}\n{link}\n{}\n\n", method.to_lowercase(), date.to_lowercase());
    let key = STANDARD.decode(cosmos::WELL_KNOWN_KEY).expect("the key is base64");
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), payload.as_bytes());
    format!("type=master&ver=1.0&sig={}", STANDARD.encode(signature))
}
