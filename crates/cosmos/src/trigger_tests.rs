//! Every operation with triggers of every kind: the table says which run, and each that runs leaves a note of what it saw.

use serde_json::{Value, json};

use crate::testing::Server;

/// Whether a trigger of the operation above runs with the request on the left; otherwise the request is refused.
const TABLE: &str = "\
         All Create Replace Update Delete
Create    +    +      .       .      .
Upsert    +    +      +       +      .
Replace   +    .      +       +      .
Patch     +    .      +       +      .
Delete    +    .      .       .      +
";

const NOTE: &str = r#"function () {
    var operation = getContext().getRequest().getOperationType();
    __.createDocument(__.getSelfLink(), {id: "note", pk: "a", operation: operation});
}"#;

#[test]
fn triggers_run_with_the_operations_that_they_are_for() {
    let server = Server::new();
    server.create("dbs", &json!({"id": "d"}));
    let key = json!({"paths": ["/pk"], "version": 2});
    server.create("dbs/d/colls", &json!({"id": "c", "partitionKey": key}));
    let mut lines = TABLE.lines();
    let operations: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    for (kind, operation) in ["Pre", "Post"]
        .iter()
        .flat_map(|kind| operations.iter().map(move |operation| (kind, operation)))
    {
        let trigger = json!({"id": format!("{kind}{operation}"), "body": NOTE, "triggerType": kind, "triggerOperation": operation});
        server.create("dbs/d/colls/c/triggers", &trigger);
    }
    let (item, note) = ("dbs/d/colls/c/docs/1", "dbs/d/colls/c/docs/note");
    let key = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
    for line in lines {
        let (request, marks) = line.split_once(char::is_whitespace).unwrap();
        for (operation, mark) in operations.iter().zip(marks.split_whitespace()) {
            for (kind, header) in [
                ("Pre", "x-ms-documentdb-pre-trigger-include"),
                ("Post", "x-ms-documentdb-post-trigger-include"),
            ] {
                let name = format!("{kind}{operation}");
                let what = format!("{request} with {name}");
                if request != "Create" {
                    server.create("dbs/d/colls/c/docs", &json!({"id": "1", "pk": "a"}));
                }
                let mut headers = vec![key, (header, &*name)];
                let body = json!({"id": "1", "pk": "a"});
                let (place, body) = match request {
                    "Create" => (("POST", "dbs/d/colls/c/docs"), body),
                    "Upsert" => {
                        headers.push(("x-ms-documentdb-is-upsert", "true"));
                        (("POST", "dbs/d/colls/c/docs"), body)
                    }
                    "Replace" => (("PUT", item), body),
                    "Patch" => (("PATCH", item), json!([{"op": "set", "path": "/n", "value": 1}])),
                    _ => (("DELETE", item), Value::Null),
                };
                let sent = server.send(place, &headers, &body, None);
                let left = server.send(("GET", note), &[key], &Value::Null, None);
                match mark {
                    "+" => {
                        assert!(sent.status < 300, "{what}: {} {}", sent.status, sent.body);
                        assert_eq!(left.body["operation"], request, "{what}");
                    }
                    _ => assert_eq!((sent.status, left.status), (400, 404), "{what}"),
                }
                for path in [item, note] {
                    server.send(("DELETE", path), &[key], &Value::Null, None);
                }
            }
        }
    }
}
