//! Every route by every kind of token: the table says who may, and the whole front end is asked.

use std::sync::Arc;

use bytes::Bytes;
use db::Db;
use http::{HeaderValue, Request};
use http_body_util::{BodyExt, Full};
use model::clock::{Clock, Timestamp, VirtualClock};
use serde_json::{Value, json};
use storage::memory::Memory;

use crate::auth::{Keys, WELL_KNOWN_KEY};
use crate::date::HttpDate;
use crate::script_tests::signature;
use crate::{FrontEnd, Options, Peer};

/// Letters: does the token's holder get in? In the order of [`TOKENS`]. A request that gets in may still fail for other reasons.
const TABLE: &str = "\
                                                      all read key-all key-read doc doc-read sproc other gone
GET                                                    +   +     +       +     +     +      +     +    .
GET    dbs                                             .   .     .       .     .     .      .     .    .
POST   dbs                                             .   .     .       .     .     .      .     .    .
POST   dbs query                                       .   .     .       .     .     .      .     .    .
GET    dbs/d                                           .   .     .       .     .     .      .     .    .
DELETE dbs/d                                           .   .     .       .     .     .      .     .    .
GET    dbs/d/colls                                     .   .     .       .     .     .      .     .    .
POST   dbs/d/colls                                     .   .     .       .     .     .      .     .    .
POST   dbs/d/colls query                               .   .     .       .     .     .      .     .    .
GET    dbs/d/colls/c                                   +   +     +       +     +     +      +     .    .
HEAD   dbs/d/colls/c                                   +   +     +       +     +     +      +     .    .
PUT    dbs/d/colls/c                                   .   .     .       .     .     .      .     .    .
DELETE dbs/d/colls/c                                   .   .     .       .     .     .      .     .    .
GET    dbs/d/colls/c/pkranges                          +   +     +       +     +     +      +     .    .
POST   dbs/d/colls/c/pkranges query                    .   .     .       .     .     .      .     .    .
GET    dbs/d/colls/c/docs                              +   +     .       .     .     .      .     .    .
GET    dbs/d/colls/c/docs pk                           +   +     +       +     .     .      .     .    .
GET    dbs/d/colls/c/docs other-pk                     +   +     .       .     .     .      .     .    .
GET    dbs/d/colls/c/docs feed                         +   +     .       .     .     .      .     .    .
GET    dbs/d/colls/c/docs feed pk                      +   +     +       +     .     .      .     .    .
POST   dbs/d/colls/c/docs query                        +   +     .       .     .     .      .     .    .
POST   dbs/d/colls/c/docs query pk                     +   +     +       +     .     .      .     .    .
POST   dbs/d/colls/c/docs query other-pk               +   +     .       .     .     .      .     .    .
POST   dbs/d/colls/c/docs plan pk                      +   +     +       +     .     .      .     .    .
POST   dbs/d/colls/c/docs                              +   .     .       .     .     .      .     .    .
POST   dbs/d/colls/c/docs pk                           +   .     +       .     .     .      .     .    .
POST   dbs/d/colls/c/docs other-pk                     +   .     .       .     .     .      .     .    .
POST   dbs/d/colls/c/docs upsert pk                    +   .     +       .     .     .      .     .    .
POST   dbs/d/colls/c/docs batch pk                     +   .     +       .     .     .      .     .    .
POST   dbs/d/colls/c/docs foreign-batch pk             +   .     .       .     .     .      .     .    .
GET    dbs/d/colls/c/docs/1 pk                         +   +     +       +     +     +      .     .    .
GET    dbs/d/colls/c/docs/1 other-pk                   +   +     .       .     +     +      .     .    .
HEAD   dbs/d/colls/c/docs/1 pk                         +   +     +       +     +     +      .     .    .
GET    dbs/d/colls/c/docs/2 pk                         +   +     +       +     .     .      .     .    .
PUT    dbs/d/colls/c/docs/1 pk                         +   .     +       .     +     .      .     .    .
PUT    dbs/d/colls/c/docs/1 renamed pk                 +   .     +       .     .     .      .     .    .
PUT    dbs/d/colls/c/docs/1 trigger pk                 +   .     +       .     .     .      .     .    .
PATCH  dbs/d/colls/c/docs/1 pk                         +   .     +       .     +     .      .     .    .
PATCH  dbs/d/colls/c/docs/2 pk                         +   .     +       .     .     .      .     .    .
DELETE dbs/d/colls/c/docs/1 pk                         +   .     +       .     +     .      .     .    .
DELETE dbs/d/colls/c/docs/1 other-pk                   +   .     .       .     +     .      .     .    .
POST   dbs/d/colls/c/operations/partitionkeydelete pk  +   .     +       .     .     .      .     .    .
POST   dbs/d/colls/c/operations/partitionkeydelete other-pk  +   .     .       .     .     .      .     .    .
GET    dbs/d/colls/c/conflicts pk                      +   +     +       +     .     .      .     .    .
DELETE dbs/d/colls/c/conflicts/x pk                    +   .     +       .     .     .      .     .    .
GET    dbs/d/colls/c/sprocs                            +   +     +       +     .     .      .     .    .
POST   dbs/d/colls/c/sprocs query                      +   +     +       +     .     .      .     .    .
POST   dbs/d/colls/c/sprocs                            +   .     .       .     .     .      .     .    .
GET    dbs/d/colls/c/sprocs/s                          +   +     +       +     .     .      +     .    .
PUT    dbs/d/colls/c/sprocs/s                          +   .     .       .     .     .      +     .    .
DELETE dbs/d/colls/c/sprocs/x                          +   .     .       .     .     .      .     .    .
POST   dbs/d/colls/c/sprocs/s pk                       +   .     +       .     .     .      +     .    .
POST   dbs/d/colls/c/sprocs/s other-pk                 +   .     .       .     .     .      +     .    .
POST   dbs/d/colls/c/sprocs/x pk                       +   .     +       .     .     .      .     .    .
GET    dbs/d/colls/c/triggers                          +   +     +       +     .     .      .     .    .
POST   dbs/d/colls/c/triggers                          +   .     .       .     .     .      .     .    .
PUT    dbs/d/colls/c/triggers/t                        +   .     .       .     .     .      .     .    .
DELETE dbs/d/colls/c/triggers/t                        +   .     .       .     .     .      .     .    .
GET    dbs/d/colls/c/udfs/u                            +   +     +       +     .     .      .     .    .
POST   dbs/d/colls/c/udfs                              +   .     .       .     .     .      .     .    .
DELETE dbs/d/colls/c/udfs/u                            +   .     .       .     .     .      .     .    .
GET    dbs/d/users                                     .   .     .       .     .     .      .     .    .
POST   dbs/d/users                                     .   .     .       .     .     .      .     .    .
GET    dbs/d/users/u                                   .   .     .       .     .     .      .     .    .
PUT    dbs/d/users/u                                   .   .     .       .     .     .      .     .    .
DELETE dbs/d/users/u                                   .   .     .       .     .     .      .     .    .
GET    dbs/d/users/u/permissions                       .   .     .       .     .     .      .     .    .
POST   dbs/d/users/u/permissions                       .   .     .       .     .     .      .     .    .
GET    dbs/d/users/u/permissions/all                   .   .     .       .     .     .      .     .    .
PUT    dbs/d/users/u/permissions/all                   .   .     .       .     .     .      .     .    .
DELETE dbs/d/users/u/permissions/all                   .   .     .       .     .     .      .     .    .
GET    dbs/d/clientencryptionkeys                      .   .     .       .     .     .      .     .    .
POST   dbs/d/clientencryptionkeys                      .   .     .       .     .     .      .     .    .
GET    dbs/d/clientencryptionkeys/k                    .   .     .       .     .     .      .     .    .
GET    offers                                          .   .     .       .     .     .      .     .    .
POST   offers query                                    .   .     .       .     .     .      .     .    .
PUT    offers/x                                        .   .     .       .     .     .      .     .    .
GET    metrics                                         .   .     .       .     .     .      .     .    .
GET    _admin/clock                                    .   .     .       .     .     .      .     .    .
POST   _admin/clock                                    .   .     .       .     .     .      .     .    .
GET    _admin/ttl                                      .   .     .       .     .     .      .     .    .
POST   _admin/purge                                    .   .     .       .     .     .      .     .    .
GET    dbs/d/colls/c/docs/1/attachments pk             .   .     .       .     .     .      .     .    .
GET    nonsense                                        .   .     .       .     .     .      .     .    .
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

struct Server {
    runtime: tokio::runtime::Runtime,
    clock: Arc<VirtualClock>,
    front_end: FrontEnd,
}

impl Server {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clock = Arc::new(VirtualClock::frozen(Timestamp(1_700_000_000)));
        let open = Db::open(Arc::new(Memory::new()), clock.clone(), db::Options::default());
        let db = runtime.block_on(open).unwrap();
        let keys = Keys::new(WELL_KNOWN_KEY).unwrap();
        let front_end = FrontEnd::new(db, keys, clock.clone(), Options::default());
        Self { runtime, clock, front_end }
    }

    /// Status and body; signed with the account's key unless there is a token.
    fn send(
        &self,
        (method, path): (&str, &str),
        headers: &[(&'static str, &str)],
        body: Value,
        token: Option<&str>,
    ) -> (u16, Value) {
        let date = HttpDate(self.clock.now()).to_string();
        let authorization = match token {
            Some(token) => token.to_owned(),
            None => signature(WELL_KNOWN_KEY, method, path, &date),
        };
        let mut request = Request::builder().method(method).uri(format!("/{path}"));
        let fixed = [
            ("x-ms-date", &*date),
            ("x-ms-version", "2020-07-15"),
            ("authorization", &authorization),
        ];
        for (name, value) in fixed.iter().chain(headers) {
            request = request.header(*name, HeaderValue::from_str(value).unwrap());
        }
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let request = request.body(Full::new(body)).unwrap();
        let peer = Peer { secure: true, local: false };
        self.runtime.block_on(async {
            let (head, body) = self.front_end.answer(request, peer).await.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            (head.status.as_u16(), serde_json::from_slice(&body).unwrap_or_default())
        })
    }

    fn create(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.send(("POST", path), &[], body, None);
        assert_eq!(status, 201, "{path}: {answer}");
        answer
    }

    /// Everything that the table speaks of, and the tokens.
    fn fill(&self) -> Vec<String> {
        self.create("dbs", json!({"id": "d"}));
        for id in ["c", "other"] {
            let key = json!({"paths": ["/pk"], "version": 2});
            self.create("dbs/d/colls", json!({"id": id, "partitionKey": key}));
        }
        for (id, key) in [("1", "a"), ("2", "a"), ("1", "b")] {
            self.create("dbs/d/colls/c/docs", json!({"id": id, "pk": key}));
        }
        let body = "function() {}";
        self.create("dbs/d/colls/c/sprocs", json!({"id": "s", "body": body}));
        self.create("dbs/d/colls/c/udfs", json!({"id": "u", "body": body}));
        self.create("dbs/d/users", json!({"id": "u"}));
        let tokens = TOKENS.iter().map(|(id, mode, resource, key)| {
            let key: Value = key.map_or(Value::Null, |key| serde_json::from_str(key).unwrap());
            // A user has one permission a resource, so each has a user of its own.
            self.create("dbs/d/users", json!({"id": id}));
            let permission = json!({"id": id, "permissionMode": mode, "resource": resource, "resourcePartitionKey": key});
            let answer = self.create(&format!("dbs/d/users/{id}/permissions"), permission);
            answer["_token"].as_str().unwrap().to_owned()
        });
        let tokens = tokens.collect();
        let gone = ("DELETE", "dbs/d/users/gone/permissions/gone");
        assert_eq!(self.send(gone, &[], Value::Null, None).0, 204);
        tokens
    }
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
    assert_eq!(titles, TOKENS.map(|(title, ..)| title));
    let mut wrong = Vec::new();
    for (column, title) in titles.iter().enumerate() {
        // A store of its own for each: writes that get in change it.
        let server = Server::new();
        let tokens = server.fill();
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
            let (status, answer) =
                server.send((words[0], path), &headers, body, Some(&tokens[column]));
            let mark = if matches!(status, 401 | 403) { "." } else { "+" };
            if mark != marks[column] {
                wrong.push(format!("{title}: {}: {status} {answer}", words.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A permission reaches the container that it was written for, not the next one of that name; and its end is the end of its tokens.
#[test]
fn grants_end_with_what_they_are_about() {
    let server = Server::new();
    let tokens = server.fill();
    let read = |token: &str| server.send(("GET", "dbs/d/colls/c"), &[], Value::Null, Some(token)).0;
    assert_eq!(read(&tokens[0]), 200);

    // The permission becomes another: so does what its tokens can do.
    let weaker = json!({"id": "all", "permissionMode": "Read", "resource": "dbs/d/colls/other"});
    let (status, _) = server.send(("PUT", "dbs/d/users/all/permissions/all"), &[], weaker, None);
    assert_eq!((status, read(&tokens[0])), (200, 403));

    // The token ends at its time.
    server.clock.advance(3_599);
    assert_eq!(read(&tokens[1]), 200);
    server.clock.advance(1);
    assert_eq!(read(&tokens[1]), 403);

    // A container that is made anew is another.
    let permission = |id: &str| {
        let path = format!("dbs/d/users/{id}/permissions/{id}");
        let (status, answer) = server.send(("GET", &path), &[], Value::Null, None);
        (status, answer["_token"].as_str().unwrap_or_default().to_owned())
    };
    let (_, fresh) = permission("read");
    assert_eq!(read(&fresh), 200);
    server.send(("DELETE", "dbs/d/colls/c"), &[], Value::Null, None);
    server.create(
        "dbs/d/colls",
        json!({"id": "c", "partitionKey": {"paths": ["/pk"], "version": 2}}),
    );
    assert_eq!(read(&fresh), 403);

    // Users take their permissions with them.
    server.send(("DELETE", "dbs/d/users/read"), &[], Value::Null, None);
    assert_eq!(permission("read").0, 404);
}
