//! Connections as clients have them: bytes over a pipe, to a server with keys.

use std::sync::Arc;

use bson::spec::BinarySubtype;
use bson::{Binary, Document, RawDocument, RawDocumentBuf, doc};
use db::Db;
use model::clock::{Timestamp, VirtualClock};
use storage::memory::Memory;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::auth::{Access, Client, Keys, Mechanism};
use crate::wire::{self, Compressor};
use crate::{FrontEnd, Options, layout};

const KEY: &str = "the account's key";
const READ_ONLY_KEY: &str = "only for reading";
const OP_MSG: i32 = 2013;
const OP_QUERY: i32 = 2004;
const OP_COMPRESSED: i32 = 2012;

/// A client's end, and what the server says about the connection when it is over.
struct Wire {
    stream: DuplexStream,
    served: JoinHandle<Result<(), String>>,
    _stopping: watch::Sender<bool>,
}

async fn front_end() -> Arc<FrontEnd> {
    let clock = Arc::new(VirtualClock::frozen(Timestamp(1_700_000_000)));
    let options = db::Options { layouts: Some(layout::compile), ..db::Options::default() };
    let db = Db::open(Arc::new(Memory::new()), clock, options).await.unwrap();
    let keys = vec![(KEY.into(), Access::Full), (READ_ONLY_KEY.into(), Access::ReadOnly)];
    Arc::new(FrontEnd::new(db, Some(Keys::new(keys)), Options::default()))
}

impl Wire {
    fn connect(front_end: &Arc<FrontEnd>) -> Self {
        let (stream, theirs) = tokio::io::duplex(64 * 1024);
        let (stopping, stopped) = watch::channel(false);
        let address = "127.0.0.1:10255".parse().unwrap();
        let served = tokio::spawn(front_end.clone().serve(theirs, address, stopped));
        Self { stream, served, _stopping: stopping }
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// The next message: what it answers, its opcode, and what follows its head.
    async fn read(&mut self) -> (i32, i32, Vec<u8>) {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head).await.unwrap();
        let int = |at: usize| i32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let mut body = vec![0; int(0) as usize - 16];
        self.stream.read_exact(&mut body).await.unwrap();
        (int(8), int(12), body)
    }

    async fn ask(&mut self, command: Document) -> Document {
        self.write(&op_msg(7, 0, &command)).await;
        let (to, opcode, body) = self.read().await;
        assert_eq!((to, opcode, &body[..5]), (7, OP_MSG, &[0; 5][..]));
        document(&body[5..])
    }

    async fn ping(&mut self) {
        assert_eq!(self.ask(doc! {"ping": 1, "$db": "admin"}).await.get_f64("ok").unwrap(), 1.0);
    }

    /// The client's last messages of a login; what comes back.
    async fn prove(&mut self, client: &Client<'_>, begun: &Document) -> Document {
        let (last, wanted) = client.last(&payload(begun));
        let finish =
            doc! {"saslContinue": 1, "conversationId": 1, "payload": binary(&last), "$db": "admin"};
        let reply = self.ask(finish).await;
        if reply.get_f64("ok").unwrap() == 1.0 {
            assert_eq!(payload(&reply), wanted);
            assert!(reply.get_bool("done").unwrap());
        }
        reply
    }

    async fn log_in(&mut self, password: &str) -> Document {
        let client = Client { mechanism: Mechanism::Sha256, user: "me", password };
        let begun = self.ask(start(&client, "SCRAM-SHA-256")).await;
        self.prove(&client, &begun).await
    }

    /// What the server says when it has hung up; nothing more has come.
    async fn end(mut self) -> Result<(), String> {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty(), "{} bytes before the end", rest.len());
        self.served.await.unwrap()
    }
}

fn start(client: &Client<'_>, mechanism: &str) -> Document {
    doc! {"saslStart": 1, "mechanism": mechanism, "payload": binary(&client.first()), "$db": "admin"}
}

fn binary(text: &str) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: text.as_bytes().to_vec() }
}

fn payload(reply: &Document) -> String {
    String::from_utf8(reply.get_binary_generic("payload").unwrap().clone()).unwrap()
}

fn document(bytes: &[u8]) -> Document {
    RawDocument::from_bytes(bytes).unwrap().try_into().unwrap()
}

fn message(id: i32, opcode: i32, parts: &[&[u8]]) -> Vec<u8> {
    let length = 16 + parts.iter().map(|part| part.len()).sum::<usize>() as i32;
    let mut bytes: Vec<u8> =
        [length, id, 0, opcode].into_iter().flat_map(i32::to_le_bytes).collect();
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

fn op_msg(id: i32, flags: u32, command: &Document) -> Vec<u8> {
    let body = RawDocumentBuf::try_from(command).unwrap();
    message(id, OP_MSG, &[&flags.to_le_bytes(), &[0], body.as_bytes()])
}

#[tokio::test]
async fn nobody_gets_further_than_the_handshake_without_a_key() {
    let mut wire = Wire::connect(&front_end().await);
    wire.ping().await;
    for command in
        [doc! {"find": "c"}, doc! {"insert": "c", "documents": [{}]}, doc! {"listDatabases": 1}]
    {
        let mut command = command;
        command.insert("$db", "d");
        assert_eq!(wire.ask(command).await.get_i32("code").unwrap(), 13);
    }
    assert_eq!(wire.log_in("wrong").await.get_i32("code").unwrap(), 18);
    assert_eq!(wire.ask(doc! {"find": "c", "$db": "d"}).await.get_i32("code").unwrap(), 13);
    assert_eq!(wire.log_in(KEY).await.get_f64("ok").unwrap(), 1.0);
    assert_eq!(wire.ask(doc! {"find": "c", "$db": "d"}).await.get_f64("ok").unwrap(), 1.0);
    assert_eq!(wire.ask(doc! {"logout": 1, "$db": "d"}).await.get_f64("ok").unwrap(), 1.0);
    assert_eq!(wire.ask(doc! {"find": "c", "$db": "d"}).await.get_i32("code").unwrap(), 13);
}

#[tokio::test]
async fn both_mechanisms_open_spelled_out_and_speculatively() {
    let front_end = front_end().await;
    for (mechanism, name) in
        [(Mechanism::Sha1, "SCRAM-SHA-1"), (Mechanism::Sha256, "SCRAM-SHA-256")]
    {
        let client = Client { mechanism, user: "account", password: KEY };
        let mut wire = Wire::connect(&front_end);
        let begun = wire.ask(start(&client, name)).await;
        assert_eq!(wire.prove(&client, &begun).await.get_f64("ok").unwrap(), 1.0);

        let mut wire = Wire::connect(&front_end);
        let hello = doc! {
            "hello": 1, "$db": "admin", "saslSupportedMechs": "admin.account",
            "speculativeAuthenticate": start(&client, name),
        };
        let greeted = wire.ask(hello).await;
        assert_eq!(
            greeted.get_array("saslSupportedMechs").unwrap()[..],
            ["SCRAM-SHA-256".into(), "SCRAM-SHA-1".into()]
        );
        let begun = greeted.get_document("speculativeAuthenticate").unwrap();
        assert_eq!(wire.prove(&client, begun).await.get_f64("ok").unwrap(), 1.0);
        let status = wire.ask(doc! {"connectionStatus": 1, "$db": "admin"}).await;
        let users = status.get_document("authInfo").unwrap().get_array("authenticatedUsers");
        assert_eq!(users.unwrap()[..], [doc! {"user": "account", "db": "admin"}.into()]);
    }
    // One that is not known is no reason to hang up.
    let mut wire = Wire::connect(&front_end);
    let speculative = doc! {"saslStart": 1, "mechanism": "PLAIN", "payload": binary("x")};
    let hello = doc! {"hello": 1, "$db": "admin", "speculativeAuthenticate": speculative};
    assert!(!wire.ask(hello).await.contains_key("speculativeAuthenticate"));
}

#[tokio::test]
async fn a_nonce_opens_once() {
    let mut wire = Wire::connect(&front_end().await);
    let digest = |text: String| crate::auth::hex(&<md5::Md5 as md5::Digest>::digest(text));
    let nonce = wire.ask(doc! {"getnonce": 1, "$db": "admin"}).await;
    let nonce = nonce.get_str("nonce").unwrap().to_owned();
    let key = digest(format!("{nonce}u{}", digest(format!("u:mongo:{KEY}"))));
    let log_in = doc! {"authenticate": 1, "user": "u", "nonce": &nonce, "key": key, "$db": "admin"};
    assert_eq!(wire.ask(log_in.clone()).await.get_f64("ok").unwrap(), 1.0);
    assert_eq!(wire.ask(doc! {"find": "c", "$db": "d"}).await.get_f64("ok").unwrap(), 1.0);
    assert_eq!(wire.ask(log_in).await.get_i32("code").unwrap(), 18);
}

#[tokio::test]
async fn a_key_for_reading_writes_nothing() {
    let mut wire = Wire::connect(&front_end().await);
    wire.log_in(READ_ONLY_KEY).await;
    let refused = [
        doc! {"insert": "c", "documents": [{}]},
        doc! {"update": "c", "updates": [{"q": {}, "u": {"$set": {"a": 1}}}]},
        doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}]},
        doc! {"findAndModify": "c", "remove": true},
        doc! {"create": "c"},
        doc! {"drop": "c"},
        doc! {"createIndexes": "c", "indexes": []},
        doc! {"customAction": "CreateDatabase"},
        doc! {"aggregate": 1, "pipeline": [{"$documents": [{"a": 1}]}, {"$out": "c"}], "cursor": {}},
    ];
    for mut command in refused {
        command.insert("$db", "d");
        let reply = wire.ask(command.clone()).await;
        assert_eq!(reply.get_i32("code").unwrap(), 13, "{command}: {reply}");
    }
    assert_eq!(wire.ask(doc! {"find": "c", "$db": "d"}).await.get_f64("ok").unwrap(), 1.0);
}

#[tokio::test]
async fn the_first_hello_may_be_an_op_query() {
    let mut wire = Wire::connect(&front_end().await);
    let hello = RawDocumentBuf::try_from(&doc! {"isMaster": 1, "helloOk": true}).unwrap();
    let query = [&[0; 4][..], b"admin.$cmd\0", &[0; 4], &(-1_i32).to_le_bytes(), hello.as_bytes()];
    wire.write(&message(3, OP_QUERY, &query)).await;
    let (to, opcode, body) = wire.read().await;
    assert_eq!((to, opcode), (3, 1));
    assert_eq!(i32::from_le_bytes(body[16..20].try_into().unwrap()), 1, "one document");
    let greeted = document(&body[20..]);
    assert!(greeted.get_bool("ismaster").unwrap() && greeted.get_bool("helloOk").unwrap());
    // A question of another kind in this form has no place here.
    let find = [&[0; 4][..], b"d.c\0", &[0; 8], hello.as_bytes()];
    wire.write(&message(4, OP_QUERY, &find)).await;
    assert!(wire.end().await.unwrap_err().contains("d.c"));
}

#[tokio::test]
async fn who_wants_no_answer_gets_none_and_exhaust_is_not_offered() {
    let mut wire = Wire::connect(&front_end().await);
    wire.log_in(KEY).await;
    // More to come: it is done, and nothing is said.
    let insert = doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "d"};
    wire.write(&op_msg(8, 2, &insert)).await;
    let ended = doc! {"endSessions": [], "$db": "admin"};
    wire.write(&op_msg(9, 2, &ended)).await;
    assert_eq!(wire.ask(doc! {"count": "c", "$db": "d"}).await.get_i32("n").unwrap(), 1);
    // Exhaust allowed: one answer all the same, with no more to come.
    wire.write(&op_msg(10, 1 << 16, &doc! {"ping": 1, "$db": "admin"})).await;
    let (to, _, body) = wire.read().await;
    assert_eq!((to, &body[..4]), (10, &[0; 4][..]));
    wire.ping().await;
}

#[tokio::test]
async fn checksums_are_checked_and_a_wrong_one_is_the_end() {
    let mut wire = Wire::connect(&front_end().await);
    let ping = RawDocumentBuf::try_from(&doc! {"ping": 1, "$db": "admin"}).unwrap();
    let mut summed = message(5, OP_MSG, &[&1_u32.to_le_bytes(), &[0], ping.as_bytes(), &[0; 4]]);
    let at = summed.len() - 4;
    let sum = crc32c::crc32c(&summed[..at]);
    summed[at..].copy_from_slice(&sum.to_le_bytes());
    wire.write(&summed).await;
    assert_eq!(wire.read().await.0, 5);
    summed[at] ^= 1;
    wire.write(&summed).await;
    assert_eq!(wire.end().await.unwrap_err(), "the checksum is wrong");
}

#[tokio::test]
async fn compression_is_agreed_on_and_answers_come_as_questions() {
    let front_end = front_end().await;
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let mut wire = Wire::connect(&front_end);
        let offered = doc! {"hello": 1, "$db": "admin", "compression": ["lzma", compressor.name()]};
        let taken = wire.ask(offered).await;
        assert_eq!(taken.get_array("compression").unwrap()[..], [compressor.name().into()]);
        let ping = op_msg(6, 0, &doc! {"ping": 1, "$db": "admin", "filler": "x".repeat(900)});
        let small = compressor.compress(&ping[16..]).unwrap();
        let length = (ping.len() as i32 - 16).to_le_bytes();
        let parts = [&OP_MSG.to_le_bytes()[..], &length, &[compressor as u8], &small];
        wire.write(&message(6, OP_COMPRESSED, &parts)).await;
        let (to, opcode, body) = wire.read().await;
        assert_eq!((to, opcode, body[8]), (6, OP_COMPRESSED, compressor as u8));
        let length = i32::from_le_bytes(body[4..8].try_into().unwrap()) as usize;
        let plain = compressor.decompress(&body[9..], length).unwrap();
        assert_eq!(document(&plain[5..]).get_f64("ok").unwrap(), 1.0);
        // And plain where the question was.
        wire.ping().await;
    }
}

#[tokio::test]
async fn connections_and_commands_are_counted() {
    let front_end = front_end().await;
    let counters = || &front_end.db.traffic().mongodb;
    let open = || counters().connections.load(std::sync::atomic::Ordering::Relaxed);
    let mut wire = Wire::connect(&front_end);
    wire.log_in(KEY).await;
    assert_eq!(open(), 1);
    wire.ask(doc! {"find": "c", "$db": "d"}).await;
    wire.ask(doc! {"find": 1, "$db": "d"}).await;
    wire.ask(doc! {"find": "c", "filter": {"$nonsense": 1}, "$db": "d"}).await;
    let find = &counters().operations()[0];
    assert_eq!((find.name, find.outcomes()), ("mongodb_find", [1, 0, 2, 0, 0]));
    assert_eq!(find.buckets().iter().sum::<u64>(), 3);
    let other = counters().operations().last().unwrap();
    assert_eq!((other.name, other.outcomes()), ("mongodb_other", [2, 0, 0, 0, 0]));
    let status = wire.ask(doc! {"serverStatus": 1, "$db": "admin"}).await;
    assert_eq!(status.get_document("connections").unwrap().get_i64("current").unwrap(), 1);
    wire.stream.shutdown().await.unwrap();
    wire.end().await.unwrap();
    assert_eq!(open(), 0);
}

#[tokio::test]
async fn what_is_too_large_is_refused() {
    let mut wire = Wire::connect(&front_end().await);
    wire.log_in(KEY).await;
    // A document within the message's limit, but not within its own.
    let large = "x".repeat(wire::DOCUMENT_BYTES_MAX);
    let document = RawDocumentBuf::try_from(&doc! {"_id": 1, "x": large}).unwrap();
    let insert = RawDocumentBuf::try_from(&doc! {"insert": "c", "$db": "d"}).unwrap();
    let rest = [b"documents\0", document.as_bytes()].concat();
    let length = (rest.len() as i32 + 4).to_le_bytes();
    let parts = [&[0; 5][..], insert.as_bytes(), &[1], &length, &rest];
    wire.write(&message(2, OP_MSG, &parts)).await;
    let (_, _, body) = wire.read().await;
    let reply = self::document(&body[5..]);
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap().clone();
    assert_eq!(error.get_i32("code").unwrap(), 10334);
    // A message that says that it is longer than any may be is not waited for.
    wire.write(&(wire::MESSAGE_BYTES_MAX as i32 + 1).to_le_bytes()).await;
    wire.write(&[0; 12]).await;
    assert!(wire.end().await.unwrap_err().contains("48000001 bytes"));
}

/// A message that is whole, with a document that is none, is answered; the connection stays.
#[tokio::test]
async fn broken_documents_are_refused() {
    let mut wire = Wire::connect(&front_end().await);
    wire.log_in(KEY).await;
    let insert = RawDocumentBuf::try_from(&doc! {"insert": "c", "$db": "d"}).unwrap();
    let mut nested = doc! {};
    for _ in 0..=wire::NESTING_MAX {
        nested = doc! {"a": nested};
    }
    let nested = RawDocumentBuf::try_from(&nested).unwrap();
    let cases: [(&str, &[u8], i32); 4] = [
        ("a type that there is not", &[9, 0, 0, 0, 0x77, 0x61, 0, 1, 0], 22),
        ("a string that is not UTF-8", &[14, 0, 0, 0, 2, b'a', 0, 2, 0, 0, 0, 0xE9, 0, 0], 22),
        ("a string that is too long", &[14, 0, 0, 0, 2, b'a', 0, 99, 0, 0, 0, b'x', 0, 0], 22),
        ("too deep", nested.as_bytes(), 15),
    ];
    for (why, document, code) in cases {
        let length = (document.len() as i32 + 14).to_le_bytes();
        let parts: [&[u8]; 6] =
            [&[0; 5], insert.as_bytes(), &[1], &length, b"documents\0", document];
        wire.write(&message(2, OP_MSG, &parts)).await;
        let (_, _, body) = wire.read().await;
        let reply = self::document(&body[5..]);
        assert_eq!(reply.get_i32("code").ok(), Some(code), "{why}: {reply}");
        wire.ping().await;
    }
}

#[tokio::test]
async fn what_cannot_be_read_closes_the_connection_and_nothing_else() {
    let front_end = front_end().await;
    let mut other = Wire::connect(&front_end);
    other.log_in(KEY).await;
    let ping = RawDocumentBuf::try_from(&doc! {"ping": 1, "$db": "admin"}).unwrap();
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "bytes"),
        (vec![0xFF; 16], "-1 bytes"),
        (message(1, 2001, &[ping.as_bytes()]), "opcode 2001"),
        (message(1, OP_MSG, &[&[0; 4]]), "without a body"),
        (message(1, OP_MSG, &[&[4, 0, 0, 0, 0], ping.as_bytes()]), "flags 0x4"),
        (message(1, OP_MSG, &[&[0, 0, 0, 0, 9], ping.as_bytes()]), "kind 9"),
        (message(1, OP_MSG, &[&[0; 5], ping.as_bytes(), &[0], ping.as_bytes()]), "two bodies"),
        (message(1, OP_MSG, &[&[0; 5], &[0xFF; 8]]), "length does not add up"),
        (message(1, OP_COMPRESSED, &[&OP_MSG.to_le_bytes(), &[9, 0, 0, 0, 7]]), "compressor 7"),
        (
            message(1, OP_COMPRESSED, &[&OP_MSG.to_le_bytes(), &[0xFF, 0xFF, 0xFF, 0x7F, 1, 1]]),
            "to decompress",
        ),
        (
            message(1, OP_COMPRESSED, &[&OP_MSG.to_le_bytes(), &[9, 0, 0, 0, 3, 1, 2]]),
            "zstd cannot read",
        ),
    ];
    for (bytes, why) in cases {
        let mut wire = Wire::connect(&front_end);
        wire.write(&bytes).await;
        let said = wire.end().await.unwrap_err();
        assert!(said.contains(why), "{why}: {said}");
        other.ping().await;
    }
    // Nor does a client that goes in the middle of its message.
    let mut wire = Wire::connect(&front_end);
    wire.write(&op_msg(1, 0, &doc! {"ping": 1})[..20]).await;
    wire.stream.shutdown().await.unwrap();
    assert!(wire.end().await.unwrap_err().contains("in the middle"));
    assert_eq!(other.ask(doc! {"find": "c", "$db": "d"}).await.get_f64("ok").unwrap(), 1.0);
}

/// Messages that are nearly right, of every kind, against the reader of messages: it answers, whatever comes.
#[test]
fn whatever_bytes_come_are_read_or_refused() {
    let body = RawDocumentBuf::try_from(&doc! {
        "insert": "c", "$db": "d", "list": [1, {"a": [true, null]}], "text": "é", "long": 5_i64,
        "code": bson::JavaScriptCodeWithScope { code: "1".into(), scope: doc! {"a": 1} },
        "binary": binary("bytes"), "date": bson::DateTime::from_millis(1),
    })
    .unwrap();
    let plain = [&[0; 5][..], body.as_bytes()].concat();
    let listed = [b"documents\0", body.as_bytes(), body.as_bytes()].concat();
    let length = (listed.len() as i32 + 4).to_le_bytes();
    let sequence = [&plain[..], &[1], &length, &listed].concat();
    let query = [&[0; 4][..], b"admin.$cmd\0", &[0; 8], body.as_bytes()].concat();
    let mut kinds = vec![
        message(1, OP_MSG, &[&plain]),
        message(1, OP_MSG, &[&sequence]),
        message(1, OP_QUERY, &[&query]),
    ];
    for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
        let small = compressor.compress(&sequence).unwrap();
        let length = (sequence.len() as i32).to_le_bytes();
        let parts = [&OP_MSG.to_le_bytes()[..], &length, &[compressor as u8], &small];
        kinds.push(message(1, OP_COMPRESSED, &parts));
    }
    let seed = 11;
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut read, mut refused) = (0, 0);
    for kind in &kinds {
        assert!(wire::read(kind.clone().into()).is_ok());
        for _ in 0..5_000 {
            let mut bytes = kind.clone();
            match random.u8(..4) {
                0 => bytes.truncate(random.usize(16..bytes.len())),
                1 => bytes.extend((0..random.usize(1..20)).map(|_| random.u8(..))),
                _ => {}
            }
            for _ in 0..random.usize(0..4) {
                let at = random.usize(4..bytes.len());
                // Lengths are where readers go wrong: small, and as large as can be.
                let any = random.u8(..);
                bytes[at] = [0, 1, 0x7F, 0x80, 0xFF, any][random.usize(..6)];
            }
            match wire::read(bytes.into()) {
                Ok(request) => {
                    // What was read is sound through and through.
                    bson::Document::try_from(request.document()).ok();
                    read += 1;
                }
                Err(_) => refused += 1,
            }
        }
        for _ in 0..500 {
            let bytes: Vec<u8> = (0..random.usize(16..200)).map(|_| random.u8(..)).collect();
            drop(wire::read(bytes.into()));
        }
    }
    assert!(read > 1_000 && refused > 1_000, "seed {seed}: {read} read, {refused} refused");
}
