//! Scripts of commands and whole replies, in process: no sockets, a memory engine, a clock that only the script moves.
//!
//! ```text
//! run '{"find": "c"}'              a command on the database `d`, in extended JSON
//! run admin '{"listDatabases": 1}' the same on another database
//! more c 2                         the next batch of the last cursor that was opened
//! advance 50                       moves the clock; nothing is purged
//! purge                            removes what has expired
//! stored                           how many documents and index entries are really stored
//! strict                           begins anew, with --mongo-strict-cosmos
//! ```

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf};
use db::Db;
use db::documents::Route;
use goldenscript::{Argument, Command, Context, Runner};
use model::clock::{Timestamp, VirtualClock};
use serde_json::Value;
use storage::memory::Memory;
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
        goldenscript::run(&mut World::new(false), &script).unwrap();
    }
}

struct World {
    runtime: tokio::runtime::Runtime,
    clock: Arc<VirtualClock>,
    db: Db,
    connection: Connection,
    _stopping: watch::Sender<bool>,
    requests: i32,
    cursor: i64,
}

impl World {
    fn new(strict_cosmos: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let clock = Arc::new(VirtualClock::frozen(START));
        let options = db::Options { layouts: Some(layout::compile), ..db::Options::default() };
        let open = Db::open(Arc::new(Memory::new()), clock.clone(), options);
        let db = runtime.block_on(open).unwrap();
        let front_end = FrontEnd::new(db.clone(), None, Options { strict_cosmos });
        let (stopping, stopped) = watch::channel(false);
        let address = "127.0.0.1:10255".parse().unwrap();
        let connection = Connection::new(Arc::new(front_end), address, stopped);
        Self { runtime, clock, db, connection, _stopping: stopping, requests: 0, cursor: 0 }
    }

    fn command(&mut self, database: &str, text: &str) -> Result<String, Box<dyn Error>> {
        let json: Value = serde_json::from_str(text)?;
        let Bson::Document(mut command) = Bson::try_from(json)? else {
            return Err("not a document".into());
        };
        command.insert("$db", database);
        let body = RawDocumentBuf::try_from(&command)?;
        self.requests += 1;
        let mut message = Vec::new();
        let length = 16 + 5 + body.as_bytes().len() as i32;
        for field in [length, self.requests, 0, 2013, 0] {
            message.extend_from_slice(&field.to_le_bytes());
        }
        message.push(0);
        message.extend_from_slice(body.as_bytes());
        let answer = self.runtime.block_on(self.connection.answer(message.into()))?;
        let answer = answer.ok_or("no answer")?;
        let reply = bson::RawDocument::from_bytes(&answer[21..])?;
        let reply: Document = reply.try_into()?;
        let cursor = reply.get_document("cursor").and_then(|cursor| cursor.get_i64("id"));
        let mut reply = reply;
        // Every reply has them.
        for name in ["operationTime", "$clusterTime"] {
            reply.remove(name);
        }
        self.cursor = cursor.ok().filter(|id| *id != 0).unwrap_or(self.cursor);
        Ok(shown(Bson::Document(reply).into_relaxed_extjson()))
    }
}

/// Compact JSON; what differs from run to run is left out.
fn shown(mut value: Value) -> String {
    fn clean(value: &mut Value) {
        match value {
            Value::Object(fields) => {
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
            ("more", [collection, size]) => {
                let text = format!(
                    r#"{{"getMore": {{"$numberLong": "{}"}}, "collection": "{collection}", "batchSize": {size}}}"#,
                    self.cursor
                );
                self.command("d", &text)
            }
            ("advance", [secs]) => {
                self.clock.advance(secs.parse()?);
                Ok(String::new())
            }
            ("purge", []) => {
                let report = self.runtime.block_on(self.db.purge_all())?;
                Ok(format!("purged {}", report.purged))
            }
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
            ("strict", []) => {
                *self = Self::new(true);
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
