//! What each operation costs, beside what the service's documents say of it: one table, and the whole front end is asked.
//!
//! Sizes are of the stored item. Where the documents name a figure for an item with hardly any index, ours may add what its terms cost.

use serde_json::{Value, json};

use crate::testing::{Sent, Server};

/// An operation, what is published of it, and the least and the most that it may cost here.
const TABLE: &str = "\
operation              published                                         from     to
read 1 KB              1                                                 1        1
read 2 KB              1.04                                              1.04     1.04
read 16 KB             1.67                                              1.67     1.67
read 64 KB             4.76                                              4.76     4.76
read 100 KB            10, elsewhere 9.95 at 128 KB                      7        10
read 512 KB            40.95                                             40.95    40.95
read 1024 KB           145.9                                             145.9    145.9
read missing           1                                                 1        1
read unchanged         1: a 304 was looked up too                        1        1
create 1 KB            4.95, and 5 to 7 with default indexing            5        7
create unindexed       about 5.5                                         4.9      5.6
create 100 KB          50, elsewhere 48.19 at 128 KB                     35       51
create 512 KB          184.57                                            184.5    187
create wide            more than a narrow one, by its properties         7        15
create taken           charged though refused                            1        7
replace 1 KB           twice an insert                                   9.9      14
upsert new             as an insert                                      5        7
upsert old             as a replace                                      9.9      14
patch 1 KB             as a replace                                      9.9      14
delete 1 KB            about an insert                                   4.9      7
batch of 10            as ten inserts                                    50       70
query by id            2.3 and a little, more than a point read          2.3      3.5
query nothing          2.3                                               2.3      2.5
query 100 of 1 KB      far less than a hundred reads                     4        20
query first 10         a tenth of what all cost, and the start         2.3      4
query scanned          by what is read, though nothing comes of it       4        20
query sorted           as the same items unsorted, or a little more      4        25
query joined           as the items that it is made of                   4        25
sum 100                as reading them                                   4        20
count 100              less than reading them                            2.3      5
list 100 of 1 KB       as a query of them                                4        20
feed 100 of 1 KB       less than a query of them                         2        7
procedure of 10        what its ten inserts cost                         50       75
read container         1                                                 1        1
";

const DOCS: &str = "dbs/d/colls/c/docs";
const PK: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
const UPSERT: (&str, &str) = ("x-ms-documentdb-is-upsert", "true");
const NOTHING: Value = Value::Null;

/// The charge of what an operation's words say, on a store of its own.
fn charge_of(operation: &str) -> f64 {
    let server = Server::new();
    server.create("dbs", &json!({"id": "d"}));
    let key = json!({"paths": ["/pk"], "version": 2});
    let plain = json!({"indexingMode": "none"});
    server.create("dbs/d/colls", &json!({"id": "c", "partitionKey": key}));
    let plain = json!({"id": "plain", "partitionKey": key, "indexingPolicy": plain});
    server.create("dbs/d/colls", &plain);

    let one = format!("{DOCS}/1");
    let send = |route: (&str, &str), headers: &[(&str, &str)], body: &Value| {
        server.send(route, headers, body, None)
    };
    let there = |kilobytes: usize| server.create(DOCS, &item("1", kilobytes));
    let hundred = || (0..100).for_each(|n| drop(server.create(DOCS, &item(&n.to_string(), 1))));
    let query = |text: &str| {
        hundred();
        let headers = [
            ("x-ms-documentdb-isquery", "true"),
            ("x-ms-documentdb-query-enablecrosspartition", "true"),
        ];
        send(("POST", DOCS), &headers, &json!({"query": text}))
    };

    let words: Vec<&str> = operation.split(' ').collect();
    let kilobytes = words[1].parse().unwrap_or(1);
    let (status, sent): (u16, Sent) = match words[..] {
        ["read", "missing"] => (404, send(("GET", &one), &[PK], &NOTHING)),
        ["read", "container"] => (200, send(("GET", "dbs/d/colls/c"), &[], &NOTHING)),
        ["read", "unchanged"] => {
            let made = there(1);
            let headers = [PK, ("if-none-match", made.header("etag"))];
            (304, send(("GET", &one), &headers, &NOTHING))
        }
        ["read", ..] => {
            there(kilobytes);
            (200, send(("GET", &one), &[PK], &NOTHING))
        }
        ["create", "unindexed"] => (201, server.create("dbs/d/colls/plain/docs", &item("1", 1))),
        ["create", "wide"] => {
            let mut wide = json!({"id": "1", "pk": "a"});
            (0..50).for_each(|number| wide[format!("p{number}")] = number.into());
            (201, server.create(DOCS, &wide))
        }
        ["create", "taken"] => {
            there(1);
            (409, send(("POST", DOCS), &[PK], &item("1", 1)))
        }
        ["create", ..] => (201, there(kilobytes)),
        ["upsert", "new"] => (201, send(("POST", DOCS), &[PK, UPSERT], &item("1", 1))),
        ["upsert", "old"] => {
            there(1);
            (200, send(("POST", DOCS), &[PK, UPSERT], &item("1", 1)))
        }
        ["replace", ..] => {
            there(1);
            (200, send(("PUT", &one), &[PK], &item("1", 1)))
        }
        ["patch", ..] => {
            there(1);
            let change = json!({"operations": [{"op": "set", "path": "/n", "value": 2}]});
            (200, send(("PATCH", &one), &[PK], &change))
        }
        ["delete", ..] => {
            there(1);
            (204, send(("DELETE", &one), &[PK], &NOTHING))
        }
        ["batch", ..] => {
            let create = |number: usize| json!({"operationType": "Create", "resourceBody": item(&number.to_string(), 1)});
            let batch: Vec<Value> = (0..10).map(create).collect();
            let batch_of = ("x-ms-cosmos-is-batch-request", "true");
            let headers = [PK, batch_of, ("x-ms-cosmos-batch-atomic", "true")];
            (200, send(("POST", DOCS), &headers, &batch.into()))
        }
        ["query", "by", "id"] => (200, query("SELECT * FROM c WHERE c.id = '7'")),
        ["query", "nothing"] => (200, query("SELECT * FROM c WHERE c.id = 'nobody'")),
        ["query", "first", _] => (200, query("SELECT TOP 10 * FROM c")),
        ["query", "scanned"] => (200, query("SELECT * FROM c WHERE LENGTH(c.text) < 0")),
        ["query", "sorted"] => (200, query("SELECT * FROM c ORDER BY c.n DESC")),
        ["query", "joined"] => {
            (200, query("SELECT t FROM c JOIN t IN (SELECT VALUE [c.id, c.n, c.pk])"))
        }
        ["sum", ..] => (200, query("SELECT VALUE SUM(c.n) FROM c")),
        ["query", ..] => (200, query("SELECT * FROM c")),
        ["count", ..] => (200, query("SELECT VALUE COUNT(1) FROM c")),
        ["list", ..] => {
            hundred();
            (200, send(("GET", DOCS), &[], &NOTHING))
        }
        ["feed", ..] => {
            hundred();
            (200, send(("GET", DOCS), &[("a-im", "Incremental feed")], &NOTHING))
        }
        ["procedure", ..] => {
            let body = "function (item) { for (var i = 0; i < 10; i++) { item.id = '' + i; \
                        __.createDocument(__.getSelfLink(), item); } }";
            server.create("dbs/d/colls/c/sprocs", &json!({"id": "s", "body": body}));
            let arguments = json!([item("1", 1)]);
            (200, send(("POST", "dbs/d/colls/c/sprocs/s"), &[PK], &arguments))
        }
        _ => panic!("what is {operation}?"),
    };
    assert_eq!(sent.status, status, "{operation}: {}", sent.body);
    sent.header("x-ms-request-charge").parse().unwrap()
}

/// What the system properties add to an item.
const SYSTEM_BYTES: usize = 210;

/// An item that takes so many kilobytes when it is stored, within a percent.
fn item(id: &str, kilobytes: usize) -> Value {
    let mut item = json!({"id": id, "pk": "a", "n": 1, "text": ""});
    let taken = item.to_string().len() + SYSTEM_BYTES;
    item["text"] = "x".repeat(kilobytes * 1024 - taken).into();
    item
}

/// The more of the items a query must read, the more it costs, whatever comes of it.
#[test]
fn charges_of_queries_grow_with_their_work() {
    let operations = [
        "query nothing",
        "query by id",
        "query first 10",
        "count 100",
        "query scanned",
        "query 100 of 1 KB",
    ];
    let charges: Vec<f64> = operations.iter().map(|operation| charge_of(operation)).collect();
    let [nothing, by_id, first, count, scanned, all] = charges[..] else { panic!("six") };
    assert!(nothing < by_id && by_id < first && first < scanned, "{charges:?}");
    assert!(count < scanned && scanned <= all, "{charges:?}");
}

/// What was read and what came of it is told to whoever asks.
#[test]
fn query_metrics_say_what_was_read() {
    let server = Server::new();
    server.create("dbs", &json!({"id": "d"}));
    let key = json!({"paths": ["/pk"], "version": 2});
    server.create("dbs/d/colls", &json!({"id": "c", "partitionKey": key}));
    (0..20).for_each(|n| drop(server.create(DOCS, &item(&n.to_string(), 1))));
    let metrics = |text: &str, asked: &str| {
        let headers = [
            PK,
            ("x-ms-documentdb-isquery", "true"),
            ("x-ms-documentdb-populatequerymetrics", asked),
        ];
        let sent = server.send(("POST", DOCS), &headers, &json!({"query": text}), None);
        assert_eq!(sent.status, 200, "{}", sent.body);
        sent.header("x-ms-documentdb-query-metrics").to_owned()
    };
    let number = |metrics: &str, name: &str| -> f64 {
        let mut parts = metrics.split(';').filter_map(|part| part.split_once('='));
        parts.find(|(known, _)| *known == name).unwrap().1.parse().unwrap()
    };
    let names = ["retrievedDocumentCount", "outputDocumentCount", "indexUtilizationRatio"];
    for (text, expected) in [
        ("SELECT * FROM c", [20.0, 20.0, 1.0]),
        ("SELECT VALUE c.id FROM c WHERE c.id = '7'", [1.0, 1.0, 1.0]),
        ("SELECT * FROM c WHERE RIGHT(c.id, 1) = '7'", [20.0, 2.0, 0.1]),
        ("SELECT VALUE COUNT(1) FROM c", [0.0, 1.0, 1.0]),
    ] {
        let metrics = metrics(text, "True");
        assert_eq!(names.map(|name| number(&metrics, name)), expected, "{text}: {metrics}");
        assert!(
            number(&metrics, "totalExecutionTimeInMs") >= number(&metrics, "VMExecutionTimeInMs")
        );
        let (read, given) =
            (number(&metrics, "retrievedDocumentSize"), number(&metrics, "outputDocumentSize"));
        assert!(expected[0] == 0.0 || read >= 1_000.0 * expected[0], "{text}: {metrics}");
        assert!(given > 0.0 && given <= read.max(2.0), "{text}: {metrics}");
    }
    assert_eq!(metrics("SELECT * FROM c", "False"), "");
}

#[test]
fn charges_agree_with_published_figures() {
    let mut wrong = Vec::new();
    for line in TABLE.lines().skip(1) {
        let (operation, rest) = line.split_once("  ").unwrap();
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [.., from, to] = words[..] else { panic!("{line}") };
        let (from, to): (f64, f64) = (from.parse().unwrap(), to.parse().unwrap());
        let charge = charge_of(operation);
        // Sizes are met within a percent, and so are charges.
        if !(from * 0.99..=to * 1.01).contains(&charge) {
            wrong.push(format!("{operation}: {charge}, not {from} to {to}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
