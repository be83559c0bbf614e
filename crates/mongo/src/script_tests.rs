//! Scripts of commands and whole replies, in process: no sockets, a memory engine, a clock that only the script moves.
//!
//! ```text
//! run '{"find": "c"}'              a command on the database `d`, in extended JSON
//! run admin '{"listDatabases": 1}' the same on another database
//! more c 2 [100]                   the next batch of the last cursor that was opened [waiting so many milliseconds for it]
//! kill c                           closes that cursor
//! charge                           what `getLastRequestStatistics` tells, without the time that it took
//! resume c 2                       a new change stream on `c`, after the second event of the last batch
//! advance 50                       moves the clock; nothing is purged
//! purge                            removes what has expired
//! stored                           how many documents and index entries are really stored
//! anew                             begins anew
//! forget                           another server on the same database: what is in memory only is gone
//! store unreachable                the store fails from now on (see storage::testing::Fault)
//! strict                           the same, with --mongo-strict-cosmos
//! throttled                        the same, where request units are limited
//! ```

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf};
use db::Db;
use db::documents::Route;
use goldenscript::{Argument, Command, Context, Runner};
use md5::Digest as _;
use model::clock::{Clock, StoreClock, Timestamp, VirtualClock};
use serde_json::Value;
use storage::Engine;
use storage::memory::Memory;
use storage::testing::{Failing, Shared};
use tokio::sync::watch;

use crate::connection::Connection;
use crate::{FrontEnd, Options, layout};

/// When scripts begin.
const START: Timestamp = Timestamp(1_700_000_000);

#[test]
fn scripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts/commands");
    let mut scripts: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.sort();
    assert!(!scripts.is_empty());
    for script in scripts {
        println!("{}", script.display());
        goldenscript::run(&mut World::new(), &script).unwrap();
    }
}

/// Every command of the table stands in a script.
#[test]
fn every_command_has_a_script() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts/commands");
    let mut scripts = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        scripts.push_str(&std::fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    // Those that need keys, that have a verb of their own here, or whose answer is never the same.
    let elsewhere = [
        "saslStart",
        "saslContinue",
        "getnonce",
        "getMore",
        "getLastRequestStatistics",
        "buildInfo",
        "hostInfo",
        "serverStatus",
        "listCommands",
        "startSession",
    ];
    let source = include_str!("commands.rs");
    let table = source.split("async fn dispatch").nth(1).unwrap().split("fn need").next().unwrap();
    let tried =
        |name: &&str| elsewhere.contains(name) || scripts.contains(&format!("{{\"{name}\":"));
    let (mut count, mut missing, mut names) = (0, Vec::new(), Vec::new());
    // The names of an arm, with `|` between them and `=>` at the end; other texts have neither behind them.
    let mut pieces = table.split('"').skip(1);
    while let (Some(name), Some(rest)) = (pieces.next(), pieces.next()) {
        let rest = rest.trim_start();
        if rest.starts_with('|') || rest.starts_with("=>") {
            names.push(name);
        }
        if rest.starts_with("=>") {
            count += 1;
            if !names.iter().any(tried) {
                missing.push(std::mem::take(&mut names));
            }
            names.clear();
        }
    }
    assert!(count > 40, "only {count} commands were found: the test tests nothing");
    assert!(missing.is_empty(), "no script tries {missing:?}");
}

/// What a session's last write came to is not kept for ever: new sessions remove what old ones have left.
#[test]
fn old_memos_are_removed() {
    let mut world = World::new();
    let insert = |world: &mut World, session: i32| {
        let lsid = bson::doc! {"id": session};
        let command = bson::doc! {
            "insert": "c", "documents": [{"_id": session}], "lsid": lsid.clone(), "txnNumber": 1_i64,
        };
        world.ask("d", command).unwrap();
        let name = md5::Md5::digest(RawDocumentBuf::try_from(&lsid).unwrap().as_bytes());
        <[u8; 16]>::from(name)
    };
    let old: Vec<_> = (0..50).map(|session| insert(&mut world, session)).collect();
    let kept = |world: &World, names: &[[u8; 16]]| {
        let container = world.db.containers("d").unwrap().remove(0);
        let memo = |name: &&[u8; 16]| {
            world.runtime.block_on(world.db.memo(&container, name)).unwrap().is_some()
        };
        names.iter().filter(memo).count()
    };
    assert_eq!(kept(&world, &old), 50);
    world.clock.advance(3_601);
    let new: Vec<_> = (50..100).map(|session| insert(&mut world, session)).collect();
    assert!(kept(&world, &old) < 10, "{} of 50 are still there", kept(&world, &old));
    assert_eq!(kept(&world, &new), 50);
}

/// Whatever bytes come in a message, a connection answers them or says why it closes.
#[test]
fn broken_commands_are_answered_or_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testscripts/commands");
    let mut random = fastrand::Rng::with_seed(7);
    for entry in std::fs::read_dir(folder).unwrap() {
        let script = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let mut world = World::new();
        for line in script.lines().filter_map(|line| line.strip_prefix("run '")) {
            let Ok(json) = serde_json::from_str::<Value>(line.trim_end_matches('\'')) else {
                continue;
            };
            let Ok(Bson::Document(mut command)) = Bson::try_from(json) else { continue };
            command.insert("$db", "d");
            let good = RawDocumentBuf::try_from(&command).unwrap();
            drop(world.send(good.as_bytes()));
            for _ in 0..20 {
                let mut bad = good.as_bytes().to_vec();
                for _ in 0..random.usize(1..5) {
                    let at = random.usize(..bad.len());
                    bad[at] = random.u8(..);
                }
                drop(world.send(&bad));
            }
        }
        // It is all the same to the next client.
        assert!(world.ask("d", bson::doc! {"ping": 1}).is_ok());
    }
}

/// A server without sockets.
pub(crate) struct World {
    runtime: tokio::runtime::Runtime,
    pub clock: Arc<VirtualClock>,
    store: Arc<Failing>,
    db: Db,
    connection: Connection,
    _stopping: watch::Sender<bool>,
    requests: i32,
    cursor: i64,
    /// The resume tokens of the last batch.
    tokens: Vec<Bson>,
}

impl World {
    pub fn new() -> Self {
        Self::with(Options::default(), false)
    }

    fn with(options: Options, throttle: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clock = Arc::new(VirtualClock::frozen(START));
        let layouts = Some(layout::compile as db::documents::Layouts);
        let stored = db::Options { layouts, throttle, ..db::Options::default() };
        let store = Arc::new(Failing::new(Arc::new(Memory::new())));
        let open = Db::open(store.clone(), clock.clone(), stored);
        let db = runtime.block_on(open).unwrap();
        Self::serving(db, (runtime, clock, store), options)
    }

    /// One of several servers on a store, whose time is `clock`'s.
    pub fn sharing(engine: &Arc<dyn Engine>, clock: &Arc<VirtualClock>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let layouts = Some(layout::compile as db::documents::Layouts);
        let stored = db::Options { layouts, ..db::Options::default() };
        let time = clock.clone();
        let shared = Shared::new(engine.clone(), Arc::new(move || time.now().0));
        let open = Db::open(Arc::new(shared), Arc::new(StoreClock::new()), stored);
        let db = runtime.block_on(open).unwrap();
        let unused = Arc::new(Failing::new(engine.clone()));
        Self::serving(db, (runtime, clock.clone(), unused), Options::default())
    }

    fn serving(
        db: Db,
        (runtime, clock, store): (tokio::runtime::Runtime, Arc<VirtualClock>, Arc<Failing>),
        options: Options,
    ) -> Self {
        let front_end = FrontEnd::new(db.clone(), None, options);
        let (stopping, stopped) = watch::channel(false);
        let address = "127.0.0.1:10255".parse().unwrap();
        let connection = Connection::new(Arc::new(front_end), address, stopped);
        let tokens = Vec::new();
        Self {
            runtime,
            clock,
            store,
            db,
            connection,
            _stopping: stopping,
            requests: 0,
            cursor: 0,
            tokens,
        }
    }

    fn command(&mut self, database: &str, text: &str) -> Result<String, Box<dyn Error>> {
        let json: Value = serde_json::from_str(text)?;
        let Bson::Document(command) = Bson::try_from(json)? else {
            return Err("not a document".into());
        };
        let mut reply = self.ask(database, command)?;
        let cursor = reply.get_document("cursor").and_then(|cursor| cursor.get_i64("id"));
        self.cursor = cursor.ok().filter(|id| *id != 0).unwrap_or(self.cursor);
        let batch = reply.get_document("cursor").and_then(|found| found.get_array("nextBatch"));
        if let Ok(batch) = batch {
            let token = |event: &Bson| event.as_document()?.get("_id").cloned();
            self.tokens = batch.iter().filter_map(token).collect();
        }
        // Every reply has them.
        for name in ["operationTime", "$clusterTime"] {
            reply.remove(name);
        }
        Ok(shown(Bson::Document(reply).into_relaxed_extjson()))
    }

    /// Removes what has expired; how many documents went.
    pub fn purge(&mut self) -> u64 {
        self.runtime.block_on(self.db.purge_all()).unwrap().purged
    }

    /// A command as it is on the wire, and its reply.
    pub fn ask(
        &mut self,
        database: &str,
        mut command: Document,
    ) -> Result<Document, Box<dyn Error>> {
        command.insert("$db", database);
        let body = RawDocumentBuf::try_from(&command)?;
        let answer = self.send(body.as_bytes())?.ok_or("no answer")?;
        let reply = bson::RawDocument::from_bytes(&answer[21..])?;
        Ok(reply.try_into()?)
    }

    /// A message with this body, and the message that answers it.
    fn send(&mut self, body: &[u8]) -> Result<Option<Vec<u8>>, String> {
        self.requests += 1;
        let mut message = Vec::new();
        let length = 16 + 5 + body.len() as i32;
        for field in [length, self.requests, 0, 2013, 0] {
            message.extend_from_slice(&field.to_le_bytes());
        }
        message.push(0);
        message.extend_from_slice(body);
        self.runtime.block_on(self.connection.answer(message.into()))
    }
}

/// Compact JSON; what differs from run to run is left out.
pub(crate) fn shown(mut value: Value) -> String {
    fn clean(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(text)) = fields.get_mut("errmsg")
                    && let Some(rest) = text.strip_prefix("cursor id ")
                {
                    *text = format!("cursor id …{}", rest.trim_start_matches(char::is_numeric));
                }
                // Tokens say nothing to a reader.
                if fields.len() == 1 && fields.contains_key("_data") {
                    fields.insert("_data".into(), "…".into());
                }
                for name in ["uuid", "localTime", "id"] {
                    if fields
                        .get(name)
                        .is_some_and(|value| value.is_object() || value.is_i64() && *value != 0)
                    {
                        fields.insert(name.into(), "…".into());
                    }
                }
                fields.values_mut().for_each(clean);
            }
            Value::Array(values) => values.iter_mut().for_each(clean),
            _ => {}
        }
    }
    clean(&mut value);
    value.to_string()
}

impl Runner for World {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let arguments: Vec<&str> = command.args.iter().map(value).collect();
        match (command.name.as_str(), &arguments[..]) {
            ("run", [text]) => self.command("d", text),
            ("run", [database, text]) => self.command(database, text),
            ("more", [collection, size, rest @ ..]) => {
                let wait = rest.first().map(|millis| format!(r#", "maxTimeMS": {millis}"#));
                let text = format!(
                    r#"{{"getMore": {{"$numberLong": "{}"}}, "collection": "{collection}", "batchSize": {size}{}}}"#,
                    self.cursor,
                    wait.unwrap_or_default()
                );
                self.command("d", &text)
            }
            ("kill", [collection]) => {
                let cursors = vec![Bson::Int64(self.cursor)];
                let reply =
                    self.ask("d", bson::doc! {"killCursors": *collection, "cursors": cursors})?;
                Ok(format!("killed {}", reply.get_array("cursorsKilled")?.len()))
            }
            ("charge", []) => {
                let reply = self.ask("d", bson::doc! {"getLastRequestStatistics": 1})?;
                let charge = reply.get_f64("RequestCharge")?;
                Ok(format!("{}: {charge}", reply.get_str("CommandName")?))
            }
            ("resume", [collection, number]) => {
                let token = self.tokens.get(number.parse::<usize>()? - 1).ok_or("no such event")?;
                let command = bson::doc! {
                    "aggregate": *collection, "cursor": {},
                    "pipeline": [
                        {"$changeStream": {"resumeAfter": token}},
                        {"$project": {"operationType": 1, "documentKey": 1}},
                    ],
                };
                let text = Bson::Document(command).into_canonical_extjson().to_string();
                self.command("d", &text)
            }
            ("advance", [secs]) => {
                self.clock.advance(secs.parse()?);
                Ok(String::new())
            }
            ("purge", []) => Ok(format!("purged {}", self.purge())),
            ("stored", []) => {
                let mut lines = Vec::new();
                for container in self.db.containers("d")? {
                    let (items, _) = container.usage();
                    let ranges = vec![vec![0]..vec![0xFF; 8]];
                    let mut scan = self
                        .db
                        .scan_documents(&container, Route::Terms { ranges, backward: false });
                    while !self.runtime.block_on(scan.next(Timestamp(0)))?.is_empty() {}
                    lines.push(format!(
                        "{}: {items} documents, {} index entries",
                        container.id(),
                        scan.looked_at().1
                    ));
                }
                Ok(lines.join("\n"))
            }
            ("store", [fault]) => {
                self.store.fail(fault.parse()?);
                Ok(String::new())
            }
            ("anew", []) => {
                *self = Self::new();
                Ok(String::new())
            }
            ("forget", []) => {
                let front_end = FrontEnd::new(self.db.clone(), None, Options::default());
                let (stopping, stopped) = watch::channel(false);
                let address = "127.0.0.1:10255".parse()?;
                self.connection = Connection::new(Arc::new(front_end), address, stopped);
                self._stopping = stopping;
                Ok(String::new())
            }
            ("strict", []) => {
                *self = Self::with(Options { strict_cosmos: true }, false);
                Ok(String::new())
            }
            ("throttled", []) => {
                *self = Self::with(Options::default(), true);
                Ok(String::new())
            }
            (name, _) => Err(format!("unknown command {name}").into()),
        }
    }
}

fn value(argument: &Argument) -> &str {
    match argument {
        Argument::Positional(value) | Argument::KeyValue(_, value) => value,
        _ => unreachable!("there are no other arguments"),
    }
}
