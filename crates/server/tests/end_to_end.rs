//! The binary from outside: start, serve, stop, start again; what it says when it cannot.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod client;

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Output;
use std::sync::Arc;

use client::{Server, command, read_response};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto};

const PK: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);

#[test]
fn what_was_written_is_there_after_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let mut client = server.client();
    client.make_container(Some(3600));
    let created = client.call("POST", "/dbs/d/colls/c/docs", &[PK], r#"{"id":"1","pk":"a","n":1}"#);
    assert_eq!(created.status, 201);
    assert!(server.terminate().success());

    let server = Server::start(data.path(), &[]);
    let mut client = server.client();
    let read = client.call("GET", "/dbs/d/colls/c/docs/1", &[PK], "");
    assert_eq!((read.status, &read.body), (200, &created.body));
    assert_eq!(read.header("etag"), created.header("etag"));
    assert_eq!(client.call("GET", "/dbs/d/colls/c", &[], "").json()["defaultTtl"], 3600);
    drop(client);
    assert!(server.terminate().success());

    let checked = command(&["check", data.path().to_str().unwrap()]).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn the_greeting_says_what_one_must_know() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &["--clock", "virtual"]);
    let authority = data.path().canonicalize().unwrap().join("tls/ca.pem");
    for part in ["https://127.0.0.1:", "C2y6…", authority.to_str().unwrap(), "virtual"] {
        assert!(server.greeting.contains(part), "{part} in {}", server.greeting);
    }
    let key = "b3VyLW93bi1rZXktZm9yLXRoaXMtdGVzdA==";
    let server = Server::spawn(&["--in-memory", "--key", key]);
    assert!(
        server.greeting.contains("b3Vy…") && !server.greeting.contains(key),
        "{}",
        server.greeting
    );
    assert_eq!(server.client().call("GET", "/dbs", &[], "").status, 401);
}

#[test]
fn plain_and_encrypted_share_the_port() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let mut plain = server.client();
    let account = plain.call("GET", "/", &[], "").json();
    assert_eq!(account["writableLocations"][0]["databaseAccountEndpoint"], "http://localhost/");
    let shown = plain.call("GET", "/_explorer/emulator.pem", &[], "").body;
    let authority = std::fs::read(data.path().join("tls/ca.pem")).unwrap();
    assert_eq!(shown, authority);

    for (offered, chosen) in [(&["http/1.1"][..], "http/1.1"), (&["h2", "http/1.1"][..], "h2")] {
        let mut stream = encrypted(server.address, &authority, offered);
        stream.write_all(b"").unwrap();
        if chosen == "http/1.1" {
            stream.write_all(b"GET /_health HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
            assert_eq!(read_response(&mut BufReader::new(&mut stream)).unwrap().status, 200);
        } else {
            expect_http2(&mut stream);
        }
        assert_eq!(stream.conn.alpn_protocol(), Some(chosen.as_bytes()));
    }
}

/// A MongoDB `ping` in a message of so many bytes.
fn ping(length: usize) -> Vec<u8> {
    let named = [&b"\x10ping\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0"[..]].concat();
    let frame = 16 + 5 + 4 + named.len() + b"\x02f\0".len() + 4 + 1 + 1;
    let filler = length.checked_sub(frame).expect("longer than a bare ping");
    let mut bytes: Vec<u8> =
        [length as i32, 1, 0, 2013, 0].into_iter().flat_map(i32::to_le_bytes).collect();
    bytes.push(0);
    bytes.extend((length as i32 - 21).to_le_bytes());
    bytes.extend(named);
    bytes.extend(b"\x02f\0");
    bytes.extend((filler as i32 + 1).to_le_bytes());
    bytes.extend(vec![b'x'; filler]);
    bytes.extend([0, 0]);
    assert_eq!(bytes.len(), length);
    bytes
}

/// Sends a ping, and reads what answers it.
fn expect_pong(stream: &mut (impl Read + Write), length: usize) {
    stream.write_all(&ping(length)).unwrap();
    let mut head = [0; 16];
    stream.read_exact(&mut head).unwrap();
    let mut rest = vec![0; i32::from_le_bytes(head[..4].try_into().unwrap()) as usize - 16];
    stream.read_exact(&mut rest).unwrap();
    assert_eq!(rest[5 + 4..5 + 4 + 12], *b"\x01ok\0\0\0\0\0\0\0\xF0\x3F");
}

#[test]
fn mongodb_clients_share_a_port_too_however_long_their_first_message() {
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let address = server.mongo_address();
    // 278 and 790 begin as a TLS handshake does.
    for length in [100, 278, 534, 790] {
        expect_pong(&mut TcpStream::connect(address).unwrap(), length);
    }
    let mut open = TcpStream::connect(address).unwrap();
    expect_pong(&mut open, 100);
    let metrics = server.client().call("GET", "/metrics", &[], "");
    let metrics = String::from_utf8(metrics.body).unwrap();
    for line in [
        r#"sidereal_connections{api="nosql"} 1"#,
        r#"sidereal_requests_total{operation="mongodb_other",outcome="ok"} 5"#,
        r#"sidereal_request_seconds_count{operation="mongodb_other"} 5"#,
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(metrics.contains("sidereal_connections{api=\"mongodb\"} "), "{metrics}");
    let mut slow = TcpStream::connect(address).unwrap();
    slow.write_all(&ping(790)[..1]).unwrap();
    slow.flush().unwrap();
    let authority = std::fs::read(data.path().join("tls/ca.pem")).unwrap();
    expect_pong(&mut encrypted(address, &authority, &[]), 100);
    // The rest of the slow one.
    slow.write_all(&ping(790)[1..]).unwrap();
    slow.read_exact(&mut [0; 16]).unwrap();
}

#[test]
fn bytes_that_are_no_message_cost_their_connection_and_a_line_in_the_log() {
    let data = tempfile::tempdir().unwrap();
    let log = data.path().join("log");
    let mut command = command(&["--data", data.path().join("data").to_str().unwrap()]);
    command.stderr(std::fs::File::create(&log).unwrap());
    let server = Server::of(command);
    let mut good = TcpStream::connect(server.mongo_address()).unwrap();
    expect_pong(&mut good, 100);
    let mut bad = TcpStream::connect(server.mongo_address()).unwrap();
    let from = bad.local_addr().unwrap();
    bad.write_all(&[0xFF; 16]).unwrap();
    assert_eq!(bad.read(&mut [0; 1]).unwrap(), 0, "it is closed without an answer");
    expect_pong(&mut good, 100);
    drop((good, bad));
    assert!(server.terminate().success());
    let log = std::fs::read_to_string(log).unwrap();
    let line = format!("MongoDB connection from {from} closed: a message of -1 bytes");
    assert!(log.contains(&line), "{log}");
}

#[test]
fn http2_needs_no_announcement() {
    let server = Server::spawn(&["--in-memory"]);
    expect_http2(&mut TcpStream::connect(server.address).unwrap());
}

#[test]
fn a_virtual_clock_expires_a_session_in_no_time() {
    let server = Server::spawn(&["--in-memory", "--clock", "virtual"]);
    let mut client = server.client();
    client.make_container(Some(7_776_000));
    assert_eq!(
        client.call("POST", "/dbs/d/colls/c/docs", &[PK], r#"{"id":"1","pk":"a"}"#).status,
        201
    );
    let moved = client.call("POST", "/_admin/clock", &[], r#"{"advance":7776000}"#);
    assert_eq!((moved.status, &moved.json()["purged"]), (200, &1.into()));
    assert_eq!(client.call("GET", "/dbs/d/colls/c/docs/1", &[PK], "").status, 404);

    let server = Server::spawn(&["--in-memory"]);
    assert_eq!(server.client().call("POST", "/_admin/clock", &[], r#"{"advance":1}"#).status, 400);
}

#[test]
fn a_body_that_is_too_large_is_answered() {
    let server = Server::spawn(&["--in-memory"]);
    let mut client = server.client();
    client.make_container(None);
    let item = format!(r#"{{"id":"1","pk":"a","x":"{}"}}"#, "x".repeat(5_000_000));
    assert_eq!(client.call("POST", "/dbs/d/colls/c/docs", &[PK], &item).status, 413);
    // The connection is still good, and nothing was written.
    assert_eq!(client.call("GET", "/dbs/d/colls/c/docs/1", &[PK], "").status, 404);
}

#[test]
fn half_sent_requests_do_not_keep_the_server_from_stopping() {
    let server = Server::spawn(&["--in-memory"]);
    let mut silent = TcpStream::connect(server.address).unwrap();
    let mut half = TcpStream::connect(server.address).unwrap();
    half.write_all(b"GET /dbs HTTP/1.1\r\nhost: loc").unwrap();
    let idle = server.client();
    assert!(server.terminate().success());
    // All of them are told.
    assert_eq!(silent.read(&mut [0; 16]).unwrap_or(0), 0);
    assert_ne!(half.read(&mut [0; 16]).ok(), Some(16));
    drop(idle);
}

#[test]
fn two_servers_never_share_a_directory() {
    let data = tempfile::tempdir().unwrap();
    let _server = Server::start(data.path(), &[]);
    let second = failed(&["--data", data.path().to_str().unwrap()]);
    assert!(second.contains("in use by another process"), "{second}");
    let check = failed(&["check", data.path().to_str().unwrap()]);
    assert!(check.contains("in use by another process"), "{check}");
}

#[test]
fn what_cannot_be_is_said() {
    let server = Server::spawn(&["--in-memory"]);
    let port = server.address.port().to_string();
    let taken = failed(&["--in-memory", "--port", &port]);
    assert!(taken.contains(&port) && taken.contains("--port"), "{taken}");

    let open = failed(&["--in-memory", "--listen", "0.0.0.0"]);
    assert!(open.contains("well-known key") && open.contains("--key"), "{open}");

    let elsewhere = failed(&["check", "/nowhere/at/all"]);
    assert!(elsewhere.contains("/nowhere/at/all"), "{elsewhere}");

    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("format"), "sidereal store, format 999\n").unwrap();
    let newer = failed(&["--data", data.path().to_str().unwrap()]);
    assert!(newer.contains("newer") && newer.contains("999"), "{newer}");

    let certificate =
        failed(&["--in-memory", "--tls-cert", "/nowhere.pem", "--tls-key", "/nowhere.pem"]);
    assert!(certificate.contains("/nowhere.pem"), "{certificate}");
}

/// Runs the binary, which must fail, and gives what it says.
fn failed(arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = command(arguments).output().unwrap();
    assert!(!status.success(), "{arguments:?} should fail");
    String::from_utf8(stderr).unwrap()
}

/// A connection that trusts what the server's owner was told to trust.
fn encrypted(
    address: SocketAddr,
    authority: &[u8],
    protocols: &[&str],
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
    let mut config =
        ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(connection, TcpStream::connect(address).unwrap())
}

/// Greets in HTTP/2, and expects the server's settings.
fn expect_http2(stream: &mut (impl Read + Write)) {
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    let mut frame = [0; 9];
    stream.read_exact(&mut frame).unwrap();
    assert_eq!(frame[3], 4, "a settings frame");
}
