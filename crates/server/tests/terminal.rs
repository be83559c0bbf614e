//! The commands that are clients of a running server: what a person at a terminal types, and sees.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod client;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use client::Server;

fn run(server: &Server, arguments: &[&str]) -> (bool, String) {
    run_at(&format!("http://{}", server.address), arguments)
}

fn run_at(endpoint: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidereal"));
    command.args(arguments).args(["--endpoint", endpoint]);
    for name in ["SIDEREAL_KEY", "SIDEREAL_CA", "SIDEREAL_ENDPOINT"] {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn ttl_explain_and_top() {
    let server = Server::spawn(&["--in-memory", "--clock", "virtual"]);
    let mut client = server.client();
    client.make_container(Some(600));
    for (id, ttl) in [("1", ""), ("2", r#","ttl":30"#), ("3", r#","ttl":-1"#)] {
        let body = format!(r#"{{"id":"{id}","pk":"ä"{ttl}}}"#);
        assert_eq!(client.call("POST", "/dbs/d/colls/c/docs", &[], &body).status, 201);
    }

    let (ok, text) = run(&server, &["ttl", "d/c", "--default", "-1"]);
    assert!(ok, "{text}");
    for part in [
        "d/c   default 600 s (10 min)   3 items",
        "next hour: 1 by the default, 1 by their own ttl",
        "never 1",
        "dry run, time to live on, no default:",
        "within an hour 1 items",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let (ok, text) = run(&server, &["ttl", "d/c", "--default", "0"]);
    assert!(!ok && text.contains("defaultTtl '0' is invalid"), "{text}");
    let (ok, text) = run(&server, &["ttl", "d/none"]);
    assert!(!ok && text.contains("404"), "{text}");

    let (ok, text) = run(&server, &["explain", "d/c/2", "--partition-key", "ä"]);
    assert!(ok && text.contains("The item's own ttl of 30 s"), "{text}");
    let (ok, text) = run(&server, &["explain", "d/c/2"]);
    assert!(!ok && text.contains("see --partition-key"), "{text}");

    let (ok, text) = run(&server, &["top", "--once"]);
    assert!(ok && text.contains("CONTAINER") && text.contains("d/c"), "{text}");
    let (ok, text) =
        run(&server, &["top", "--once", "--key", "bm90IHRoZSBrZXkgb2YgdGhpcyBzZXJ2ZXI="]);
    assert!(!ok && text.contains("does not take this key"), "{text}");
}

#[test]
fn import_and_export() {
    let server = Server::spawn(&["--in-memory"]);
    server.client().make_container(None);
    let folder = tempfile::tempdir().unwrap();
    let (lines, back) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    let text = some_items();
    std::fs::write(&lines, text.join("\n") + "\n\nnot json\n").unwrap();

    let (ok, said) = run(&server, &["import", "d/c", lines.to_str().unwrap()]);
    assert!(!ok && said.contains("line 4502: 400") && said.contains("1 refused"), "{said}");
    let (ok, said) = run(&server, &["export", "d/c", back.to_str().unwrap()]);
    assert!(ok && said.contains("4,500 items"), "{said}");
    let mut exported: Vec<String> =
        std::fs::read_to_string(&back).unwrap().lines().map(str::to_owned).collect();
    exported.sort();
    assert!(exported == text, "what comes out is what went in");
    assert!(!run(&server, &["export", "d/c", back.to_str().unwrap()]).0, "nothing is overwritten");

    // Stopped after 3,000 lines: the rest is written, and no more.
    let half: usize = text[..3_000].iter().map(|line| line.len() + 1).sum();
    let progress = folder.path().join("in.jsonl.progress");
    std::fs::write(&progress, format!(r#"{{"of":"d/e","bytes":{half},"lines":3000}}"#)).unwrap();
    assert!(!run(&server, &["import", "d/c", lines.to_str().unwrap()]).0, "another's progress");
    let definition = r#"{"id":"e","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    assert_eq!(server.client().call("POST", "/dbs/d/colls", &[], definition).status, 201);
    let (_, said) = run(&server, &["import", "d/e", lines.to_str().unwrap()]);
    assert!(said.contains("going on where it was stopped"), "{said}");
    assert!(!progress.exists());
    let again = folder.path().join("again.jsonl");
    let (ok, said) = run(&server, &["export", "d/e", again.to_str().unwrap()]);
    assert!(ok && said.contains("1,500 items"), "{said}");
}

/// Every command, by HTTPS, with the certificate that the server has made for itself.
#[test]
fn by_https() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&folder.path().join("data"), &[]);
    server.client().make_container(Some(600));
    let ca = folder.path().join("data/tls/ca.pem");
    let (lines, back) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    std::fs::write(&lines, "{\"id\":\"1\",\"pk\":\"p\"}\n").unwrap();
    let [lines, back, ca] = [&lines, &back, &ca].map(|path| path.to_str().unwrap());
    let endpoint = format!("https://localhost:{}", server.address.port());
    for (arguments, said) in [
        (&["import", "d/c", lines][..], "1 lines, 0 refused"),
        (&["export", "d/c", back], "1 items in"),
        (&["ttl", "d/c"], "next hour: 1 by the default"),
        (&["explain", "d/c/1", "--partition-key", "p"], "The container's default of 600 s"),
        (&["top", "--once"], "d/c"),
    ] {
        let (ok, text) = run_at(&endpoint, &[arguments, &["--ca", ca]].concat());
        assert!(ok && text.contains(said), "{arguments:?}: {text}");
    }
    let (ok, text) = run_at(&endpoint, &["top", "--once"]);
    assert!(!ok && text.contains("--ca FILE"), "nothing is trusted unasked: {text}");
    let (ok, text) = run_at(&endpoint, &["top", "--once", "--ca", lines]);
    assert!(!ok && text.contains("certificate"), "{text}");
}

/// A connection that breaks in the middle: run again, the export goes on, and the file is as if nothing had happened.
#[test]
fn a_broken_export_goes_on() {
    let server = Server::spawn(&["--in-memory"]);
    server.client().make_container(None);
    let folder = tempfile::tempdir().unwrap();
    let (lines, back) = (folder.path().join("in.jsonl"), folder.path().join("out.jsonl"));
    let text = some_items();
    std::fs::write(&lines, text.join("\n")).unwrap();
    let [lines, out] = [&lines, &back].map(|path| path.to_str().unwrap());
    let (ok, said) = run(&server, &["import", "d/c", lines]);
    assert!(ok && said.contains("4,500 lines, 0 refused"), "{said}");

    let cut = cut_after(server.address, 800_000);
    let (ok, said) = run_at(&format!("http://{cut}"), &["export", "d/c", out]);
    assert!(!ok && said.contains("the connection is lost"), "{said}");
    let progress = folder.path().join("out.jsonl.progress");
    let kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&progress).unwrap()).unwrap();
    let items = kept["items"].as_u64().unwrap();
    assert!((1_000..4_500).contains(&items), "{kept}");
    // What stands behind the last page that was kept is not of it.
    std::fs::OpenOptions::new().append(true).open(&back).unwrap().write_all(b"{\"half").unwrap();

    let (ok, said) = run(&server, &["export", "d/c", out]);
    assert!(ok && said.contains("going on where it was stopped"), "{said}");
    assert!(said.contains("4,500 items in"), "{said}");
    assert!(!progress.exists());
    let exported = std::fs::read_to_string(&back).unwrap();
    let mut exported: Vec<&str> = exported.lines().collect();
    exported.sort_unstable();
    assert!(exported == text, "each item once");
}

/// Items, a line each: more than fit a page or a batch.
fn some_items() -> Vec<String> {
    let item = |number: usize| format!(r#"{{"id":"{number:05}","pk":"p","n":{number}.5}}"#);
    (0..4_500).map(item).collect()
}

/// A way to the server that breaks when so many bytes have come from it.
fn cut_after(server: SocketAddr, bytes: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(server).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        std::io::copy(&mut server.try_clone().unwrap().take(bytes as u64), &mut &client).unwrap();
        for side in [&client, &server] {
            side.shutdown(Shutdown::Both).unwrap();
        }
    });
    address
}
