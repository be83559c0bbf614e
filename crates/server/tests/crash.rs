//! `kill -9` under load, again and again: every acknowledged write is found again, and nothing is torn.
//!
//! Writers create items and replace a counter each, one request at a time, until the process is killed in the middle. After the next start
//! each acknowledged item must be there as it was written; a counter has its last acknowledged value or the one that was on its
//! way; and there is nothing that nobody wrote. A few rounds by default; `SIDEREAL_CRASH_ROUNDS` says how many.

#![expect(clippy::unwrap_used, reason = "a test that fails says where")]

mod client;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Sender, channel};

use client::{Client, Server, command};
use serde_json::{Value, json};

const WRITERS: usize = 8;
const DOCS: &str = "/dbs/d/colls/c/docs";
const PK: &str = "x-ms-documentdb-partitionkey";

/// What one writer has been told.
#[derive(Default)]
struct Told {
    /// Numbers of the items that were acknowledged.
    created: BTreeSet<u64>,
    /// The counter's last acknowledged value.
    counter: u64,
    /// What was sent last, and never answered.
    pending: Option<u64>,
}

#[test]
fn nothing_acknowledged_is_lost() {
    let rounds =
        std::env::var("SIDEREAL_CRASH_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let data = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(0xC0FFEE);
    let mut told: Vec<Told> = std::iter::repeat_with(Told::default).take(WRITERS).collect();
    let server = Server::start(data.path(), &[]);
    server.client().make_container(None);
    assert!(server.terminate().success());

    for round in 0..rounds {
        let server = Server::start(data.path(), &[]);
        check(&mut server.client(), &mut told, round);
        told = write_until_killed(server, told, random.usize(20..400));
    }
    let server = Server::start(data.path(), &[]);
    check(&mut server.client(), &mut told, rounds);
    assert!(server.terminate().success());
    let checked = command(&["check", data.path().to_str().unwrap()]).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

/// Lets all writers write, and kills the server after that many answers.
fn write_until_killed(server: Server, told: Vec<Told>, answers: usize) -> Vec<Told> {
    let (answered, answer) = channel();
    let writers: Vec<_> = told
        .into_iter()
        .enumerate()
        .map(|(writer, told)| {
            let (client, answered) = (server.client(), answered.clone());
            std::thread::spawn(move || write(client, writer, told, &answered))
        })
        .collect();
    drop(answered);
    for _ in 0..answers {
        answer.recv().expect("the server answers until it is killed");
    }
    server.kill();
    writers.into_iter().map(|writer| writer.join().unwrap()).collect()
}

/// Writes until the connection breaks.
fn write(mut client: Client, writer: usize, mut told: Told, answered: &Sender<()>) -> Told {
    let key = format!(r#"["w{writer}"]"#);
    for number in told.counter + 1.. {
        told.pending = Some(number);
        let Some(created) =
            client.send("POST", DOCS, &[(PK, &key)], &item(writer, number).to_string())
        else {
            return told;
        };
        assert_eq!(created.status, 201, "{}", created.json());
        told.created.insert(number);
        let counter = json!({"id": "counter", "pk": format!("w{writer}"), "n": number});
        let headers = [(PK, key.as_str()), ("x-ms-documentdb-is-upsert", "true")];
        let Some(counted) = client.send("POST", DOCS, &headers, &counter.to_string()) else {
            return told;
        };
        assert!(matches!(counted.status, 200 | 201), "{}", counted.json());
        told.counter = number;
        told.pending = None;
        if answered.send(()).is_err() {
            return told;
        }
    }
    unreachable!("numbers do not end")
}

/// Compares what is there with what was told. What was on its way may or may not be there; now it is decided.
fn check(client: &mut Client, told: &mut [Told], round: usize) {
    for (writer, told) in told.iter_mut().enumerate() {
        let items = items_of(client, writer);
        let mut created: BTreeSet<u64> = told.created.clone();
        let counter = items.get("counter").map_or(0, |item| item["n"].as_u64().unwrap());
        for (id, item) in items.iter().filter(|(id, _)| *id != "counter") {
            let number = item["n"].as_u64().unwrap();
            let expected = self::item(writer, number);
            let same =
                expected.as_object().unwrap().iter().all(|(name, value)| item[name] == *value);
            assert!(same, "round {round}, writer {writer}: {id} is torn: {item}");
            assert!(
                created.remove(&number) || told.pending == Some(number),
                "round {round}, writer {writer}: {id} was never written"
            );
        }
        assert!(
            created.is_empty(),
            "round {round}, writer {writer}: acknowledged and lost: {created:?}"
        );
        assert!(
            counter == told.counter || Some(counter) == told.pending,
            "round {round}, writer {writer}: the counter is {counter}, acknowledged {}",
            told.counter
        );
        if let Some(number) = told.pending.take() {
            if items.contains_key(&format!("i{number}")) {
                told.created.insert(number);
            }
            // The next round goes on behind it, whether it was written or not.
            told.counter = counter.max(number);
            let value = json!({"id": "counter", "pk": format!("w{writer}"), "n": told.counter});
            let key = format!(r#"["w{writer}"]"#);
            let headers = [(PK, key.as_str()), ("x-ms-documentdb-is-upsert", "true")];
            assert!(matches!(
                client.call("POST", DOCS, &headers, &value.to_string()).status,
                200 | 201
            ));
        }
    }
}

/// All items of a writer, by id.
fn items_of(client: &mut Client, writer: usize) -> BTreeMap<String, Value> {
    items_of_key(client, &format!("w{writer}"))
}

/// All items of a partition key, by id.
fn items_of_key(client: &mut Client, key: &str) -> BTreeMap<String, Value> {
    let key = format!(r#"["{key}"]"#);
    let mut items = BTreeMap::new();
    let mut continuation: Option<String> = None;
    loop {
        let mut headers = vec![(PK, key.as_str()), ("x-ms-max-item-count", "-1")];
        headers.extend(continuation.as_deref().map(|token| ("x-ms-continuation", token)));
        let page = client.call("GET", DOCS, &headers, "");
        assert_eq!(page.status, 200);
        for item in page.json()["Documents"].as_array().unwrap() {
            items.insert(item["id"].as_str().unwrap().to_owned(), item.clone());
        }
        continuation = page.header("x-ms-continuation").map(str::to_owned);
        if continuation.is_none() {
            return items;
        }
    }
}

/// The item that a writer makes under a number: its text follows from both, so that a torn one shows.
fn item(writer: usize, number: u64) -> Value {
    let text = format!("{writer}.{number} ").repeat(1 + (number as usize * 7) % 60);
    json!({"id": format!("i{number}"), "pk": format!("w{writer}"), "n": number, "text": text})
}

/// A stored procedure makes a thousand items or none, wherever the process is killed; and so does a transactional batch of a hundred.
#[test]
fn scripts_and_batches_are_whole_after_a_kill() {
    const ITEMS: usize = 1_000;
    const BATCH: usize = 100;
    let body = "function (run, n) { for (var i = 0; i < n; i++) __.createDocument(__.getSelfLink(), \
                {id: run + '-' + i, pk: 's', run: run}); }";
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let mut client = server.client();
    client.make_container(None);
    let procedure = json!({"id": "make", "body": body}).to_string();
    assert_eq!(client.call("POST", "/dbs/d/colls/c/sprocs", &[], &procedure).status, 201);
    assert!(server.terminate().success());

    let mut random = fastrand::Rng::with_seed(0xDECADE);
    let (mut runs, mut acknowledged) = (0, BTreeSet::new());
    for round in 0..3 {
        let server = Server::start(data.path(), &[]);
        let (answered, answer) = channel();
        let (mut client, mut batcher, first) = (server.client(), server.client(), runs);
        let writer = std::thread::spawn(move || {
            let mut told = BTreeSet::new();
            for run in first.. {
                let arguments = json!([run.to_string(), ITEMS]).to_string();
                let headers = [(PK, r#"["s"]"#)];
                let made = client.send("POST", "/dbs/d/colls/c/sprocs/make", &headers, &arguments);
                match made {
                    None => return (run, told),
                    Some(answer) => assert_eq!(answer.status, 200, "{}", answer.json()),
                }
                told.insert(run);
                if answered.send(()).is_err() {
                    return (run, told);
                }
            }
            unreachable!("numbers do not end")
        });
        // A batch at the same time, into another partition key.
        let operation = |i: usize| {
            let item =
                json!({"id": format!("b{round}-{i}"), "pk": "b", "run": format!("b{round}")});
            json!({"operationType": "Create", "resourceBody": item})
        };
        let batch: Vec<Value> = (0..BATCH).map(operation).collect();
        let headers = [
            (PK, r#"["b"]"#),
            ("x-ms-cosmos-is-batch-request", "true"),
            ("x-ms-cosmos-batch-atomic", "true"),
        ];
        for _ in 0..random.usize(1..4) {
            answer.recv().expect("the server answers until it is killed");
        }
        let batched = std::thread::spawn(move || {
            batcher.send("POST", DOCS, &headers, &Value::Array(batch).to_string()).map(|a| a.status)
        });
        std::thread::yield_now();
        server.kill();
        let (last, told) = writer.join().unwrap();
        let batched = batched.join().unwrap();
        acknowledged.extend(told);
        runs = last + 1;

        let server = Server::start(data.path(), &[]);
        let mut client = server.client();
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for key in ["s", "b"] {
            for item in items_of_key(&mut client, key).values() {
                *found.entry(item["run"].as_str().unwrap().to_owned()).or_default() += 1;
            }
        }
        for (run, count) in &found {
            let whole = if run.starts_with('b') { BATCH } else { ITEMS };
            assert_eq!(*count, whole, "round {round}: run {run} is torn");
        }
        for run in &acknowledged {
            assert!(found.contains_key(&run.to_string()), "round {round}: run {run} is lost");
        }
        if batched == Some(200) {
            assert!(found.contains_key(&format!("b{round}")), "round {round}: the batch is lost");
        }
        assert!(server.terminate().success());
    }
}
