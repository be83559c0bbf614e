//! The commands that are clients of a running server: what a person at a terminal types, and sees.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod client;

use std::process::Command;

use client::Server;

fn run(server: &Server, arguments: &[&str]) -> (bool, String) {
    let endpoint = format!("http://{}", server.address);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidereal"));
    command.args(arguments).args(["--endpoint", &endpoint]).env_remove("SIDEREAL_KEY");
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
    let item = |number: usize| format!(r#"{{"id":"{number:05}","pk":"p","n":{number}.5}}"#);
    let text: Vec<String> = (0..4_500).map(item).collect();
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
