//! Every route by every kind of token: the table says who may, and the whole front end is asked.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::auth::WELL_KNOWN_KEY;
use crate::testing::{Credential, READ_ONLY_KEY, Server};

/// Letters: does the holder get in? In the order of [`TOKENS`], then the account's key, its read-only key and a directory's token. A request that gets in may still fail for other reasons.
const TABLE: &str = "\
                                                      all read key-all key-read doc doc-read sproc other gone key read-key aad
GET                                                    +   +     +       +     +     +      +     +    .    +     +     +
GET    dbs                                             .   .     .       .     .     .      .     .    .    +     +     +
POST   dbs                                             .   .     .       .     .     .      .     .    .    +     .     .
POST   dbs query                                       .   .     .       .     .     .      .     .    .    +     +     +
POST   dbs plan                                        .   .     .       .     .     .      .     .    .    +     .     .
GET    dbs/d                                           .   .     .       .     .     .      .     .    .    +     +     +
DELETE dbs/d                                           .   .     .       .     .     .      .     .    .    +     .     .
GET    dbs/d/colls                                     .   .     .       .     .     .      .     .    .    +     +     +
POST   dbs/d/colls                                     .   .     .       .     .     .      .     .    .    +     .     .
POST   dbs/d/colls query                               .   .     .       .     .     .      .     .    .    +     +     +
GET    dbs/d/colls/c                                   +   +     +       +     +     +      +     .    .    +     +     +
HEAD   dbs/d/colls/c                                   +   +     +       +     +     +      +     .    .    +     +     +
PUT    dbs/d/colls/c                                   .   .     .       .     .     .      .     .    .    +     .     .
DELETE dbs/d/colls/c                                   .   .     .       .     .     .      .     .    .    +     .     .
GET    dbs/d/colls/c/pkranges                          +   +     +       +     +     +      +     .    .    +     +     +
POST   dbs/d/colls/c/pkranges query                    .   .     .       .     .     .      .     .    .    +     +     +
GET    dbs/d/colls/c/docs                              +   +     .       .     .     .      .     .    .    +     +     +
GET    dbs/d/colls/c/docs pk                           +   +     +       +     .     .      .     .    .    +     +     +
GET    dbs/d/colls/c/docs other-pk                     +   +     .       .     .     .      .     .    .    +     +     +
GET    dbs/d/colls/c/docs feed                         +   +     .       .     .     .      .     .    .    +     +     +
GET    dbs/d/colls/c/docs feed pk                      +   +     +       +     .     .      .     .    .    +     +     +
POST   dbs/d/colls/c/docs query                        +   +     .       .     .     .      .     .    .    +     +     +
POST   dbs/d/colls/c/docs query pk                     +   +     +       +     .     .      .     .    .    +     +     +
POST   dbs/d/colls/c/docs query other-pk               +   +     .       .     .     .      .     .    .    +     +     +
POST   dbs/d/colls/c/docs plan pk                      +   +     +       +     .     .      .     .    .    +     +     +
POST   dbs/d/colls/c/docs                              +   .     .       .     .     .      .     .    .    +     .     +
POST   dbs/d/colls/c/docs pk                           +   .     +       .     .     .      .     .    .    +     .     +
POST   dbs/d/colls/c/docs other-pk                     +   .     .       .     .     .      .     .    .    +     .     +
POST   dbs/d/colls/c/docs upsert pk                    +   .     +       .     .     .      .     .    .    +     .     +
POST   dbs/d/colls/c/docs batch pk                     +   .     +       .     .     .      .     .    .    +     .     +
POST   dbs/d/colls/c/docs foreign-batch pk             +   .     .       .     .     .      .     .    .    +     .     +
GET    dbs/d/colls/c/docs/1 pk                         +   +     +       +     +     +      .     .    .    +     +     +
GET    dbs/d/colls/c/docs/1 other-pk                   +   +     .       .     +     +      .     .    .    +     +     +
HEAD   dbs/d/colls/c/docs/1 pk                         +   +     +       +     +     +      .     .    .    +     +     +
GET    dbs/d/colls/c/docs/2 pk                         +   +     +       +     .     .      .     .    .    +     +     +
PUT    dbs/d/colls/c/docs/1 pk                         +   .     +       .     +     .      .     .    .    +     .     +
PUT    dbs/d/colls/c/docs/1 renamed pk                 +   .     +       .     .     .      .     .    .    +     .     +
PUT    dbs/d/colls/c/docs/1 trigger pk                 +   .     +       .     .     .      .     .    .    +     .     +
PATCH  dbs/d/colls/c/docs/1 pk                         +   .     +       .     +     .      .     .    .    +     .     +
PATCH  dbs/d/colls/c/docs/2 pk                         +   .     +       .     .     .      .     .    .    +     .     +
DELETE dbs/d/colls/c/docs/1 pk                         +   .     +       .     +     .      .     .    .    +     .     +
DELETE dbs/d/colls/c/docs/1 other-pk                   +   .     .       .     +     .      .     .    .    +     .     +
POST   dbs/d/colls/c/operations/partitionkeydelete pk  +   .     +       .     .     .      .     .    .    +     .     +
POST   dbs/d/colls/c/operations/partitionkeydelete other-pk  +   .     .       .     .     .      .     .    .    +     .     +
POST   dbs/d/colls/c/operations/partitionkeydelete query pk  +   .     +       .     .     .      .     .    .    +     .     +
GET    dbs/d/colls/c/conflicts pk                      +   +     +       +     .     .      .     .    .    +     +     +
POST   dbs/d/colls/c/conflicts query pk                +   +     +       +     .     .      .     .    .    +     +     +
GET    dbs/d/colls/c/conflicts/x pk                    +   +     +       +     .     .      .     .    .    +     +     +
DELETE dbs/d/colls/c/conflicts/x pk                    +   .     +       .     .     .      .     .    .    +     .     +
GET    dbs/d/colls/c/sprocs                            +   +     +       +     .     .      .     .    .    +     +     .
POST   dbs/d/colls/c/sprocs query                      +   +     +       +     .     .      .     .    .    +     +     .
POST   dbs/d/colls/c/sprocs                            +   .     .       .     .     .      .     .    .    +     .     .
GET    dbs/d/colls/c/sprocs/s                          +   +     +       +     .     .      +     .    .    +     +     .
PUT    dbs/d/colls/c/sprocs/s                          +   .     .       .     .     .      +     .    .    +     .     .
DELETE dbs/d/colls/c/sprocs/x                          +   .     .       .     .     .      .     .    .    +     .     .
POST   dbs/d/colls/c/sprocs/s pk                       +   .     +       .     .     .      +     .    .    +     .     +
POST   dbs/d/colls/c/sprocs/s other-pk                 +   .     .       .     .     .      +     .    .    +     .     +
POST   dbs/d/colls/c/sprocs/s query pk                 +   .     +       .     .     .      +     .    .    +     .     +
POST   dbs/d/colls/c/sprocs/x pk                       +   .     +       .     .     .      .     .    .    +     .     +
GET    dbs/d/colls/c/triggers                          +   +     +       +     .     .      .     .    .    +     +     .
POST   dbs/d/colls/c/triggers query                    +   +     +       +     .     .      .     .    .    +     +     .
GET    dbs/d/colls/c/triggers/t                        +   +     +       +     .     .      .     .    .    +     +     .
POST   dbs/d/colls/c/triggers                          +   .     .       .     .     .      .     .    .    +     .     .
PUT    dbs/d/colls/c/triggers/t                        +   .     .       .     .     .      .     .    .    +     .     .
DELETE dbs/d/colls/c/triggers/t                        +   .     .       .     .     .      .     .    .    +     .     .
GET    dbs/d/colls/c/udfs                              +   +     +       +     .     .      .     .    .    +     +     .
POST   dbs/d/colls/c/udfs query                        +   +     +       +     .     .      .     .    .    +     +     .
GET    dbs/d/colls/c/udfs/u                            +   +     +       +     .     .      .     .    .    +     +     .
PUT    dbs/d/colls/c/udfs/u                            +   .     .       .     .     .      .     .    .    +     .     .
POST   dbs/d/colls/c/udfs                              +   .     .       .     .     .      .     .    .    +     .     .
DELETE dbs/d/colls/c/udfs/u                            +   .     .       .     .     .      .     .    .    +     .     .
GET    dbs/d/users                                     .   .     .       .     .     .      .     .    .    +     +     .
POST   dbs/d/users query                               .   .     .       .     .     .      .     .    .    +     +     .
POST   dbs/d/users plan                                .   .     .       .     .     .      .     .    .    +     .     .
POST   dbs/d/users                                     .   .     .       .     .     .      .     .    .    +     .     .
GET    dbs/d/users/u                                   .   .     .       .     .     .      .     .    .    +     +     .
PUT    dbs/d/users/u                                   .   .     .       .     .     .      .     .    .    +     .     .
DELETE dbs/d/users/u                                   .   .     .       .     .     .      .     .    .    +     .     .
GET    dbs/d/users/u/permissions                       .   .     .       .     .     .      .     .    .    +     .     .
POST   dbs/d/users/u/permissions query                 .   .     .       .     .     .      .     .    .    +     .     .
POST   dbs/d/users/u/permissions                       .   .     .       .     .     .      .     .    .    +     .     .
GET    dbs/d/users/u/permissions/all                   .   .     .       .     .     .      .     .    .    +     .     .
PUT    dbs/d/users/u/permissions/all                   .   .     .       .     .     .      .     .    .    +     .     .
DELETE dbs/d/users/u/permissions/all                   .   .     .       .     .     .      .     .    .    +     .     .
GET    dbs/d/clientencryptionkeys                      .   .     .       .     .     .      .     .    .    +     +     +
POST   dbs/d/clientencryptionkeys                      .   .     .       .     .     .      .     .    .    +     .     .
GET    dbs/d/clientencryptionkeys/k                    .   .     .       .     .     .      .     .    .    +     +     +
PUT    dbs/d/clientencryptionkeys/k                    .   .     .       .     .     .      .     .    .    +     .     .
DELETE dbs/d/clientencryptionkeys/k                    .   .     .       .     .     .      .     .    .    +     .     .
GET    dbs/d/udts                                      .   .     .       .     .     .      .     .    .    +     +     .
POST   dbs/d/udts                                      .   .     .       .     .     .      .     .    .    +     .     .
GET    dbs/d/udts/x                                    .   .     .       .     .     .      .     .    .    +     +     .
POST   dbs/d/udts/x                                    .   .     .       .     .     .      .     .    .    +     .     .
PUT    dbs/d/udts/x                                    .   .     .       .     .     .      .     .    .    +     .     .
DELETE dbs/d/udts/x                                    .   .     .       .     .     .      .     .    .    +     .     .
GET    dbs/d/colls/c/schemas                           .   .     .       .     .     .      .     .    .    +     +     .
POST   dbs/d/colls/c/schemas                           .   .     .       .     .     .      .     .    .    +     .     .
GET    dbs/d/colls/c/schemas/x                         .   .     .       .     .     .      .     .    .    +     +     .
POST   dbs/d/colls/c/schemas/x                         .   .     .       .     .     .      .     .    .    +     .     .
PUT    dbs/d/colls/c/schemas/x                         .   .     .       .     .     .      .     .    .    +     .     .
DELETE dbs/d/colls/c/schemas/x                         .   .     .       .     .     .      .     .    .    +     .     .
GET    offers                                          .   .     .       .     .     .      .     .    .    +     +     .
POST   offers query                                    .   .     .       .     .     .      .     .    .    +     +     .
GET    offers/x                                        .   .     .       .     .     .      .     .    .    +     +     .
PUT    offers/x                                        .   .     .       .     .     .      .     .    .    +     .     .
GET    metrics                                         .   .     .       .     .     .      .     .    .    +     +     .
GET    _admin/clock                                    .   .     .       .     .     .      .     .    .    +     +     .
POST   _admin/clock                                    .   .     .       .     .     .      .     .    .    +     .     .
GET    _admin/ttl                                      .   .     .       .     .     .      .     .    .    +     +     .
POST   _admin/purge                                    .   .     .       .     .     .      .     .    .    +     .     .
POST   _admin/purge query                              .   .     .       .     .     .      .     .    .    +     .     .
POST   _admin/split                                    .   .     .       .     .     .      .     .    .    +     .     .
GET    _admin/status                                   .   .     .       .     .     .      .     .    .    +     +     .
GET    _admin/history                                  .   .     .       .     .     .      .     .    .    +     +     .
GET    _admin/ttl/dbs/d/colls/c                        .   .     .       .     .     .      .     .    .    +     +     .
GET    _admin/explain/dbs/d/colls/c/docs               .   .     .       .     .     .      .     .    .    +     +     .
GET    _admin/explain/dbs/d/colls/c/docs/1             .   .     .       .     .     .      .     .    .    +     +     .
POST   operations/dtc                                  .   .     .       .     .     .      .     .    .    +     .     .
GET    addresses                                       +   +     +       +     +     +      +     +    .    +     +     +
GET    dbs/d/colls/c/docs/1/attachments pk             .   .     .       .     .     .      .     .    .    +     +     +
GET    nonsense                                        .   .     .       .     .     .      .     .    .    +     +     .
";

const TOKENS: [(&str, &str, &str, Option<&str>); 9] = [
    ("all", "All", "dbs/d/colls/c", None),
    ("read", "Read", "dbs/d/colls/c", None),
    ("key-all", "All", "dbs/d/colls/c", Some(r#"["a"]"#)),
    ("key-read", "Read", "dbs/d/colls/c", Some(r#"["a"]"#)),
    ("doc", "All", "dbs/d/colls/c/docs/1", None),
    ("doc-read", "Read", "dbs/d/colls/c/docs/1", None),
    ("sproc", "All", "dbs/d/colls/c/sprocs/s", None),
    ("other", "All", "dbs/d/colls/other", None),
    ("gone", "All", "dbs/d/colls/c", Some(r#"["gone"]"#)),
];

/// Everything that the table speaks of, and the tokens.
fn fill(server: &Server) -> Vec<String> {
    server.create("dbs", &json!({"id": "d"}));
    for id in ["c", "other"] {
        let key = json!({"paths": ["/pk"], "version": 2});
        server.create("dbs/d/colls", &json!({"id": id, "partitionKey": key}));
    }
    for (id, key) in [("1", "a"), ("2", "a"), ("1", "b")] {
        server.create("dbs/d/colls/c/docs", &json!({"id": id, "pk": key}));
    }
    let body = "function() {}";
    server.create("dbs/d/colls/c/sprocs", &json!({"id": "s", "body": body}));
    server.create("dbs/d/colls/c/udfs", &json!({"id": "u", "body": body}));
    server.create("dbs/d/users", &json!({"id": "u"}));
    let tokens = TOKENS.iter().map(|(id, mode, resource, key)| {
        let key: Value = key.map_or(Value::Null, |key| serde_json::from_str(key).unwrap());
        // A user has one permission a resource, so each has a user of its own.
        server.create("dbs/d/users", &json!({"id": id}));
        let permission = json!({"id": id, "permissionMode": mode, "resource": resource, "resourcePartitionKey": key});
        let answer = server.create(&format!("dbs/d/users/{id}/permissions"), &permission);
        answer.body["_token"].as_str().unwrap().to_owned()
    });
    let tokens = tokens.collect();
    let gone = ("DELETE", "dbs/d/users/gone/permissions/gone");
    assert_eq!(server.send(gone, &[], &Value::Null, None).status, 204);
    tokens
}

/// A directory's token in the emulator's form: it carries the account's key.
fn directory_token() -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let claims = part(r#"{"nbf":1700000000,"exp":1700003600}"#);
    format!("type=aad&ver=1.0&sig={}.{claims}.{}", part("{}"), part(WELL_KNOWN_KEY))
}

/// The headers and body that the words after a path stand for.
fn meaning(words: &[&str]) -> (Vec<(&'static str, &'static str)>, Value) {
    let mut headers = Vec::new();
    let mut body = json!({"id": "1", "pk": "a"});
    for word in words {
        match *word {
            "pk" => headers.push(("x-ms-documentdb-partitionkey", r#"["a"]"#)),
            "other-pk" => {
                headers.push(("x-ms-documentdb-partitionkey", r#"["b"]"#));
                body["pk"] = "b".into();
            }
            "query" => {
                headers.push(("x-ms-documentdb-isquery", "true"));
                headers.push(("x-ms-documentdb-query-enablecrosspartition", "true"));
                body = json!({"query": "SELECT * FROM c"});
            }
            "plan" => {
                headers.push(("x-ms-cosmos-is-query-plan-request", "true"));
                body = json!({"query": "SELECT * FROM c"});
            }
            "feed" => headers.push(("a-im", "Incremental feed")),
            "upsert" => headers.push(("x-ms-documentdb-is-upsert", "true")),
            "batch" | "foreign-batch" => {
                headers.push(("x-ms-cosmos-is-batch-request", "true"));
                headers.push(("x-ms-cosmos-batch-atomic", "true"));
                body = json!([{"operationType": "Read", "id": "1"}]);
                if *word == "foreign-batch" {
                    body[0]["partitionKey"] = r#"["b"]"#.into();
                }
            }
            "renamed" => body["id"] = "3".into(),
            "trigger" => headers.push(("x-ms-documentdb-post-trigger-include", "t")),
            other => panic!("what is {other}?"),
        }
    }
    (headers, body)
}

#[test]
fn every_route_by_every_token() {
    let mut lines = TABLE.lines();
    let titles: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(titles[..TOKENS.len()], TOKENS.map(|(title, ..)| title));
    let mut wrong = Vec::new();
    for (column, title) in titles.iter().enumerate() {
        // A store of its own for each: writes that get in change it.
        let server = Server::new();
        let tokens = fill(&server);
        let credential = match *title {
            "key" => Credential::Key(WELL_KNOWN_KEY),
            "read-key" => Credential::Key(READ_ONLY_KEY),
            "aad" => Credential::Token(directory_token()),
            _ => Credential::Token(tokens[column].clone()),
        };
        for line in lines.clone() {
            let is_mark = |word: &&str| ["+", "."].contains(word);
            let words: Vec<&str> = line.split_whitespace().filter(|word| !is_mark(word)).collect();
            let marks: Vec<&str> = line.split_whitespace().filter(is_mark).collect();
            let (path, rest) = match words.get(1) {
                Some(path) => (*path, &words[2..]),
                None => ("", &[][..]),
            };
            let (headers, body) = meaning(rest);
            let body = if ["GET", "HEAD"].contains(&words[0]) { Value::Null } else { body };
            let sent = server.send_as(&credential, (words[0], path), &headers, &body);
            let mark = if matches!(sent.status, 401 | 403) { "." } else { "+" };
            if mark != marks[column] {
                wrong.push(format!("{title}: {}: {} {}", words.join(" "), sent.status, sent.body));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A new route has to be in the table: the arms of the route table are read from its source.
#[test]
fn no_route_is_missing() {
    let source = include_str!("routes.rs");
    let (_, source) = source.split_once("match (call.method").unwrap();
    let (source, _) = source.split_once("fn is_route").unwrap();
    let rows: Vec<(&str, Vec<&str>)> = TABLE
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(char::is_whitespace))
        .map(|(verb, rest)| (verb, rest.split_whitespace().next().unwrap_or("")))
        .map(|(verb, path)| (verb, path.split('/').filter(|part| *part != "+").collect()))
        .collect();
    let mut routes = 0;
    for arm in source.lines().filter_map(|line| line.trim().strip_prefix("(\"")) {
        let (verbs, path) = arm.split_once(", [").unwrap();
        let path = path.split_once("])").unwrap().0;
        let parts: Vec<&str> = path.split(", ").filter(|part| !part.is_empty()).collect();
        for verb in verbs.split(" | ").map(|verb| verb.trim_matches('"')) {
            let fits = |(row_verb, row): &(&str, Vec<&str>)| {
                let same = |(part, word): (&&str, &&str)| {
                    part.strip_prefix('"').is_none_or(|part| part.strip_suffix('"') == Some(*word))
                };
                *row_verb == verb && row.len() == parts.len() && parts.iter().zip(row).all(same)
            };
            assert!(rows.iter().any(fits), "{verb} {path} is not in the table");
            routes += 1;
        }
    }
    assert!(routes > 60, "only {routes} routes were found");
}

/// A permission reaches the container that it was written for, not the next one of that name; and its end is the end of its tokens.
#[test]
fn grants_end_with_what_they_are_about() {
    let server = Server::new();
    let tokens = fill(&server);
    let read =
        |token: &str| server.send(("GET", "dbs/d/colls/c"), &[], &Value::Null, Some(token)).status;
    assert_eq!(read(&tokens[0]), 200);

    // The permission becomes another: so does what its tokens can do.
    let weaker = json!({"id": "all", "permissionMode": "Read", "resource": "dbs/d/colls/other"});
    let sent = server.send(("PUT", "dbs/d/users/all/permissions/all"), &[], &weaker, None);
    assert_eq!((sent.status, read(&tokens[0])), (200, 403));

    // The token ends at its time.
    server.clock.advance(3_599);
    assert_eq!(read(&tokens[1]), 200);
    server.clock.advance(1);
    assert_eq!(read(&tokens[1]), 403);

    // A container that is made anew is another.
    let permission = |id: &str| {
        let path = format!("dbs/d/users/{id}/permissions/{id}");
        let sent = server.send(("GET", &path), &[], &Value::Null, None);
        (sent.status, sent.body["_token"].as_str().unwrap_or_default().to_owned())
    };
    let (_, fresh) = permission("read");
    assert_eq!(read(&fresh), 200);
    server.send(("DELETE", "dbs/d/colls/c"), &[], &Value::Null, None);
    server.create(
        "dbs/d/colls",
        &json!({"id": "c", "partitionKey": {"paths": ["/pk"], "version": 2}}),
    );
    assert_eq!(read(&fresh), 403);

    // Users take their permissions with them.
    server.send(("DELETE", "dbs/d/users/read"), &[], &Value::Null, None);
    assert_eq!(permission("read").0, 404);
}
