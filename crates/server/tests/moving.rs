//! A database is moved from a directory to PostgreSQL and back, killed in the middle each time, and read all the while.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod client;

use std::io::{BufRead, BufReader};
use std::panic::catch_unwind;
use std::process::Stdio;

use client::{Client, Server, command};

const DOCS: &str = "/dbs/d/colls/c/docs";
const PK: &str = "x-ms-documentdb-partitionkey";
const ITEMS: usize = 300;

#[test]
fn reads_go_on_and_nothing_changes_while_a_database_is_moved_there_and_back() {
    let Some(url) = storage::testing::postgres::database() else { return };
    let (here, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let back = back.path().join("data");
    let server = Server::start(here.path(), &[]);
    let mut client = server.client();
    client.make_container(Some(100_000));
    for number in 0..ITEMS {
        assert_eq!(create(&mut client, number), 201);
    }
    let before = state(&mut client);
    assert!(server.terminate().success());

    // There: the server of the directory copies, and answers reads.
    let moving = ["--copy-to", url.as_str()];
    let server = Server::start(here.path(), &moving);
    let begun = "SELECT 1 / count(*) FROM sidereal_kv";
    while catch_unwind(|| storage::testing::postgres::sql(&url, begun)).is_err() {}
    server.kill();
    let early = catch_unwind(|| Server::spawn(&["--store", &url]));
    assert!(early.is_err(), "a part of a database was opened");
    let server = Server::start(here.path(), &moving);
    only_reads(&mut server.client(), &before);
    let there = opened(&url);
    assert_eq!(state(&mut there.client()), before);
    only_reads(&mut server.client(), &before);
    assert!(server.terminate().success());

    // Back: all servers on the cluster refuse writes from the moment at which the copy begins.
    let copy = ["copy", "--from", &url, "--to", back.to_str().unwrap()];
    let mut killed = command(&copy).stderr(Stdio::piped()).spawn().unwrap();
    let mut client = there.client();
    let written = (ITEMS..).take_while(|number| create(&mut client, *number) == 201).count();
    let mut progress = String::new();
    BufReader::new(killed.stderr.take().unwrap()).read_line(&mut progress).unwrap();
    assert!(progress.contains("% of about"), "{progress}");
    killed.kill().unwrap();
    assert!(!killed.wait().unwrap().success(), "it was not killed in the middle");
    let before = state(&mut client);
    only_reads(&mut client, &before);
    let copied = command(&copy).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
    only_reads(&mut client, &before);
    let server = Server::start(&back, &[]);
    assert_eq!(state(&mut server.client()), before);
    assert_eq!(create(&mut server.client(), ITEMS + written), 201);
    assert!(server.terminate().success());

    // Whoever wants the cluster after all has it released.
    let released = command(&["copy", "--release", "--from", &url]).output().unwrap();
    assert!(released.status.success(), "{released:?}");
    assert_eq!(create(&mut there.client(), ITEMS + written), 201);
    assert!(there.terminate().success());
}

/// Creates an item; every tenth has a ttl of its own.
fn create(client: &mut Client, number: usize) -> u16 {
    let ttl = if number.is_multiple_of(10) { r#","ttl":50000"# } else { "" };
    let terms: Vec<usize> = (0..60).map(|term| number * 60 + term).collect();
    let body = format!(r#"{{"id":"i{number}","pk":"p","n":{number},"terms":{terms:?}{ttl}}}"#);
    let answer = client.call("POST", DOCS, &[(PK, r#"["p"]"#)], &body);
    if answer.status == 503 {
        assert!(answer.header("x-ms-retry-after-ms").is_some(), "{answer:?}");
        assert!(String::from_utf8_lossy(&answer.body).contains("takes no writes"), "{answer:?}");
    }
    answer.status
}

/// Reads are answered as ever, and writes are not.
fn only_reads(client: &mut Client, before: &[String]) {
    assert_eq!(create(client, 1_000_000), 503);
    assert_eq!(state(client), before);
}

/// All that a client can see: the container, its items and changes, an item's version and session.
fn state(client: &mut Client) -> Vec<String> {
    let mut state = Vec::new();
    let text = |body: &[u8]| String::from_utf8(body.to_vec()).unwrap();
    state.push(text(&client.call("GET", "/dbs/d/colls/c", &[], "").body));
    let item = client.call("GET", &format!("{DOCS}/i7"), &[(PK, r#"["p"]"#)], "");
    state.push(format!("{:?} {:?}", item.header("etag"), item.header("x-ms-session-token")));
    let pages = [("x-ms-max-item-count", "1000")];
    state.push(text(&client.call("GET", DOCS, &pages, "").body));
    let changes = [pages[0], ("a-im", "Incremental feed")];
    state.push(text(&client.call("GET", DOCS, &changes, "").body));
    state
}

/// A server on a store that is being copied to, as soon as that is finished.
fn opened(url: &str) -> Server {
    for _ in 0..200 {
        let started = catch_unwind(|| Server::spawn(&["--store", url]));
        if let Ok(server) = started {
            return server;
        }
    }
    panic!("the copy does not end");
}
