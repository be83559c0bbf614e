//! The command table: which function answers which command, and what all commands have in common.

mod aggregate;
mod changes;
mod collections;
mod cosmos;
mod explain;
mod find;
mod indexes;
mod reading;
mod server;
mod sources;
mod transactions;
mod write;

use std::sync::{Arc, LazyLock};

use bson::{RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use bytes::Bytes;
use db::traffic::Outcome;
use db::{Container, Db, RequestCharge};

use crate::FrontEnd;
use crate::auth::Access;
use crate::connection::{LastCharge, State};
use crate::error::{Refusal, Result};
use crate::language::collation::Collation;
use crate::language::vars::Vars;
use crate::options::{Fields, documents_of, missing};
use crate::sessions::Transaction;
use crate::wire::Request;

pub(crate) use aggregate::Running;
pub(crate) use changes::{Stream, Watched};
pub(crate) use indexes::resume;
pub(crate) use reading::{Bill, Search};
pub(crate) use write::Tally;

/// A command in the making.
pub(crate) struct Call<'a> {
    pub front_end: &'a FrontEnd,
    pub state: &'a mut State,
    /// Its name, as it was sent.
    pub name: &'a str,
    /// The value beside its name: most often a collection.
    pub target: RawBsonRef<'a>,
    pub database: &'a str,
    pub body: &'a RawDocument,
    pub sequences: &'a [(String, Vec<Bytes>)],
    pub charge: RequestCharge,
    /// What scans have cost, to be booked at the end: a write that has found its documents must not be refused for having looked for them.
    pub bills: Vec<Bill>,
    /// The transaction that it belongs to, taken out of its session meanwhile.
    pub transaction: Option<Transaction>,
    /// Of a write that its driver may send again: whose it is, and which.
    pub retry: Option<([u8; 16], i64)>,
    /// Of one that was sent again: the first statement that was not made, and what those before it came to.
    pub made: Option<(usize, Tally)>,
}

/// What a command needs from its client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// Nothing: it is how a client logs in.
    Nothing,
    /// Any key.
    Read,
    /// A key that may write.
    Write,
}

/// Answers a command, whatever it is.
pub(crate) async fn run(
    front_end: &FrontEnd,
    state: &mut State,
    request: &Request,
) -> RawDocumentBuf {
    let started = front_end.db.clock().stopwatch();
    let body = request.document();
    let traffic = &front_end.db.traffic().mongodb;
    let reply = match Call::new(front_end, state, request, body) {
        Err(refusal) => refusal.to_reply(),
        Ok(mut call) => {
            let result = call.run().await;
            for Bill { container, charge } in std::mem::take(&mut call.bills) {
                call.charge += charge;
                front_end.db.settle_scan(&container, charge);
            }
            let (name, charge) = (call.name, call.charge);
            let spent = front_end.db.clock().stopwatch().saturating_sub(started);
            traffic.count(operation(name), outcome(&result), spent);
            if !matches!(name, "getLastRequestStatistics" | "hello" | "ismaster") {
                let LastCharge { command, charge: last, millis } = &mut call.state.last_charge;
                command.clear();
                command.push_str(name);
                (*last, *millis) = (charge.0, spent.as_secs_f64() * 1_000.0);
            }
            result.unwrap_or_else(|refusal| refusal.to_reply())
        }
    };
    timed(front_end, reply)
}

/// The place of a command in [`db::traffic::MONGODB`].
fn operation(command: &str) -> usize {
    let known = db::traffic::MONGODB;
    let is = |name: &&str| name.strip_prefix("mongodb_") == Some(command);
    known.iter().position(is).unwrap_or(known.len() - 1)
}

/// How a command counts. Writes that were refused one by one are an answer like others.
fn outcome(result: &Result<RawDocumentBuf>) -> Outcome {
    let code = match result {
        Ok(reply) if matches!(reply.get_f64("ok"), Ok(0.0)) => reply.get_i32("code").unwrap_or(0),
        Ok(_) => return Outcome::Ok,
        Err(refusal) => refusal.code,
    };
    match code {
        16500 => Outcome::Throttled,
        // InternalError, and what storage says.
        1 => Outcome::Failed,
        _ => Outcome::Refused,
    }
}

impl<'a> Call<'a> {
    fn new(
        front_end: &'a FrontEnd,
        state: &'a mut State,
        request: &'a Request,
        body: &'a RawDocument,
    ) -> Result<Self> {
        let (name, target) = body
            .iter()
            .next()
            .transpose()?
            .ok_or_else(|| Refusal::new(59, "A command has at least its name."))?;
        let fields = Fields(body);
        let database = match (&request.namespace, fields.text("$db")?) {
            (_, Some(database)) => database,
            (Some(database), None) => database,
            (None, None) => return Err(missing("$db")),
        };
        check_database_name(database)?;
        Ok(Self {
            front_end,
            state,
            name: name.as_str(),
            target,
            database,
            body,
            sequences: &request.sequences,
            charge: RequestCharge::default(),
            bills: Vec::new(),
            transaction: None,
            retry: None,
            made: None,
        })
    }

    async fn run(&mut self) -> Result<RawDocumentBuf> {
        let need = self.need();
        match (need, self.state.access) {
            (Need::Nothing, _) | (_, Some(Access::Full)) => {}
            (Need::Read, Some(Access::ReadOnly)) => {}
            (_, Some(Access::ReadOnly)) => {
                return Err(Refusal::new(
                    13,
                    format!(
                        "not authorized on {} to execute command {}: the key is read-only",
                        self.database, self.name
                    ),
                ));
            }
            (_, None) => {
                return Err(Refusal::new(
                    13,
                    format!("Command {} requires authentication", self.name),
                ));
            }
        }
        if self.db().is_shared() && need != Need::Nothing {
            // What other servers have changed counts from this command on.
            self.db().refresh().await?;
        }
        self.check_api_version()?;
        self.check_read_concern()?;
        let retried = self.retryable_write()?;
        if let Some((session, number)) = &retried
            && let Some(reply) = self.front_end.sessions.answered(session, *number)
        {
            return Ok(reply);
        }
        self.retry =
            retried.as_ref().map(|(session, number)| (transactions::memo_name(session), *number));
        let mut made = match transactions::number(self)? {
            Some(number) => transactions::run(self, number).await,
            None => self.dispatch().await,
        };
        if made.as_ref().is_err_and(Refusal::is_repeated) {
            made = self.again().await;
        }
        let mut reply = match made {
            Ok(reply) => reply,
            // What was asked of the write concern is told of a write that has failed, too.
            Err(refusal) => {
                // Even one of which nobody knows what became may be sent again: if it was made, there is a memo of it.
                let refusal = match retried.is_some() && refusal.is_of_the_store() {
                    true => refusal.retryable(),
                    false => refusal,
                };
                let mut reply = refusal.to_reply();
                self.append_write_concern_error(&mut reply)?;
                return Ok(reply);
            }
        };
        self.append_write_concern_error(&mut reply)?;
        if let Some((session, number)) = retried {
            let now = self.db().clock().elapsed();
            self.front_end.sessions.remember(&session, number, &reply, now);
        }
        Ok(reply)
    }

    /// What became of a write that was made before this server began, or by another; what is left of it is made now.
    async fn again(&mut self) -> Result<RawDocumentBuf> {
        let container = self.find_container(self.collection_name()?)?;
        let (Some(container), Some((name, number))) = (container, self.retry) else {
            return Err(db::Error::Repeated.into());
        };
        let memo = self.db().memo(&container, &name).await?;
        let Some(memo) = memo.filter(|memo| memo.number == number) else {
            return Err(db::Error::Repeated.into());
        };
        let told = RawDocument::from_bytes(&memo.text)?;
        if let Ok(reply) = told.get_document("reply") {
            return Ok(reply.to_owned());
        }
        self.made = Some((memo.next as usize, Tally::recall(told)?));
        self.dispatch().await
    }

    /// The table.
    async fn dispatch(&mut self) -> Result<RawDocumentBuf> {
        match self.name {
            "hello" => server::hello(self, false),
            "isMaster" | "ismaster" => server::hello(self, true),
            "saslStart" => server::sasl_start(self),
            "saslContinue" => server::sasl_continue(self),
            "getnonce" => server::nonce(self),
            "authenticate" => server::authenticate(self),
            "logout" => server::logout(self),
            "ping" => Ok(ok()),
            "buildInfo" | "buildinfo" => server::build_info(),
            "whatsmyuri" => server::whatsmyuri(self),
            "hostInfo" => server::host_info(),
            "getCmdLineOpts" => server::command_line(),
            "getParameter" => server::parameters(self),
            "setParameter" => server::set_parameter(),
            "getLog" => server::log(self),
            "serverStatus" => server::status(self),
            "connectionStatus" => server::connection_status(self),
            "currentOp" => server::current_operations(),
            "listCommands" => server::list_commands(),
            "replSetGetStatus" => server::replica_set_status(self),
            "usersInfo" => Ok(rawdoc! {"users": [], "ok": 1.0}),
            "rolesInfo" => Ok(rawdoc! {"roles": [], "ok": 1.0}),
            "startSession" => server::start_session(),
            "endSessions" | "killSessions" => server::end_sessions(self),
            "refreshSessions"
            | "killAllSessions"
            | "killAllSessionsByPattern"
            | "fsync"
            | "getLastError"
            | "getlasterror" => Ok(ok()),

            "find" => find::find(self).await,
            "getMore" => find::get_more(self).await,
            "killCursors" => find::kill_cursors(self),
            "count" => find::count(self).await,
            "distinct" => find::distinct(self).await,
            "aggregate" => aggregate::aggregate(self).await,
            "explain" => explain::explain(self).await,

            "insert" => write::insert(self).await,
            "update" => write::update(self).await,
            "delete" => write::delete(self).await,
            "findAndModify" | "findandmodify" => write::find_and_modify(self).await,

            "commitTransaction" | "abortTransaction" => Err(Refusal::new(
                72,
                format!(
                    "{} needs a session with a transaction: lsid, txnNumber and autocommit",
                    self.name
                ),
            )),
            "create" => collections::create(self).await,
            "drop" => collections::drop_collection(self).await,
            "dropDatabase" => collections::drop_database(self).await,
            "collMod" => collections::modify(self).await,
            "renameCollection" => collections::rename(self).await,
            "listCollections" => collections::list(self),
            "listDatabases" => collections::list_databases(self),
            "collStats" | "collstats" => collections::statistics(self).await,
            "dbStats" | "dbstats" => collections::database_statistics(self).await,
            "dataSize" | "datasize" => collections::data_size(self).await,
            "validate" => collections::validate(self).await,

            "createIndexes" => indexes::create(self).await,
            "dropIndexes" | "deleteIndexes" => indexes::drop_indexes(self).await,
            "listIndexes" => indexes::list(self),
            "reIndex" => indexes::rebuild(self).await,
            "filemd5" => find::file_md5(self).await,

            "customAction" => cosmos::custom_action(self).await,
            "getLastRequestStatistics" => cosmos::statistics(self),
            "shardCollection" => cosmos::shard_collection(self).await,

            "eval"
            | "mapReduce"
            | "mapreduce"
            | "copydb"
            | "cloneCollectionAsCapped"
            | "convertToCapped"
            | "parallelCollectionScan"
            | "getPrevError"
            | "resetError"
            | "profile"
            | "top"
            | "connPoolStats"
            | "dbHash"
            | "killOp"
            | "features"
            | "group"
            | "geoNear"
            | "geoSearch" => Err(Refusal::new(115, format!("Command {} not supported", self.name))),
            _ => Err(Refusal::new(59, format!("no such command: '{}'", self.name))),
        }
    }

    fn need(&self) -> Need {
        match self.name {
            "hello" | "isMaster" | "ismaster" | "saslStart" | "saslContinue" | "logout"
            | "ping" | "buildInfo" | "buildinfo" | "whatsmyuri" | "getnonce" | "authenticate"
            | "connectionStatus" => Need::Nothing,
            "insert" | "update" | "delete" | "findAndModify" | "findandmodify" | "create"
            | "drop" | "dropDatabase" | "collMod" | "renameCollection" | "createIndexes"
            | "dropIndexes" | "deleteIndexes" | "reIndex" | "shardCollection" => Need::Write,
            "customAction" => match self.target.as_str() {
                Some(action) if action.starts_with("Get") => Need::Read,
                _ => Need::Write,
            },
            // `$out` and `$merge` ask for themselves.
            _ => Need::Read,
        }
    }

    fn check_read_concern(&self) -> Result<()> {
        let Some(concern) = self.fields().document("readConcern")? else { return Ok(()) };
        match Fields(concern).text("level")? {
            None | Some("local" | "available" | "majority" | "linearizable" | "snapshot") => Ok(()),
            Some(other) => Err(Refusal::parse(format!(
                "Enumeration value '{other}' for field 'level' is not a valid value: use local, majority, linearizable or snapshot."
            ))),
        }
    }

    /// Only version 1 of the stable API is known.
    fn check_api_version(&self) -> Result<()> {
        match self.fields().text("apiVersion")? {
            None | Some("1") => Ok(()),
            Some(other) => {
                Err(Refusal::new(322, format!("API version must be \"1\", not \"{other}\"")))
            }
        }
    }

    /// Every write is as durable as it can be: who asks for more servers than there are is told that there are none.
    fn append_write_concern_error(&self, reply: &mut RawDocumentBuf) -> Result<()> {
        let Some(concern) = self.fields().document("writeConcern")? else { return Ok(()) };
        let error = match Fields(concern).get("w") {
            Some(RawBsonRef::String(mode)) if mode != "majority" => rawdoc! {
                "code": 79, "codeName": "UnknownReplWriteConcern",
                "errmsg": format!("No write concern mode named '{mode}' found in replica set configuration"),
            },
            Some(value) if crate::options::whole(value).is_some_and(|servers| servers > 1) => {
                rawdoc! {
                    "code": 100, "codeName": "UnsatisfiableWriteConcern",
                    "errmsg": "Not enough data-bearing nodes",
                }
            }
            _ => return Ok(()),
        };
        reply.append(bson::cstr!("writeConcernError"), error);
        Ok(())
    }

    /// The session and number of a write that may be sent again.
    fn retryable_write(&self) -> Result<Option<(Vec<u8>, i64)>> {
        let writes = matches!(self.name, "insert" | "update" | "delete" | "findAndModify");
        let fields = self.fields();
        let number =
            fields.int("txnNumber")?.filter(|_| writes && fields.get("autocommit").is_none());
        let session = fields.document("lsid")?.map(|session| session.as_bytes().to_vec());
        Ok(session.zip(number))
    }

    pub fn fields(&self) -> Fields<'a> {
        Fields(self.body)
    }

    pub fn db(&self) -> &'a Db {
        &self.front_end.db
    }

    /// The collection that the command names.
    pub fn collection_name(&self) -> Result<&'a str> {
        let name = self.target.as_str().ok_or_else(|| {
            Refusal::new(
                73,
                format!("collection name has invalid type {:?}", self.target.element_type()),
            )
        })?;
        check_collection_name(self.database, name)?;
        Ok(name)
    }

    /// `database.collection`.
    pub fn namespace(&self, collection: &str) -> String {
        format!("{}.{collection}", self.database)
    }

    /// The container of a collection; `None` if there is none.
    pub fn find_container(&self, collection: &str) -> Result<Option<Arc<Container>>> {
        container(self.db(), self.database, collection)
    }

    /// What surrounds filters, updates and stages of this command.
    pub fn vars(&self) -> Result<Vars> {
        let fields = self.fields();
        let mut vars = Vars::new(self.now());
        if let Some(collation) = fields.document("collation")?.filter(|found| !found.is_empty()) {
            vars.collation = Collation::parse(collation)?;
        }
        if let Some(variables) = fields.document("let")? {
            vars.variables = aggregate::evaluate_let(variables, &vars)?;
        }
        Ok(vars)
    }

    /// The moment of this command.
    pub fn now(&self) -> bson::DateTime {
        let secs = self.db().clock().now().0;
        bson::DateTime::from_millis(secs.cast_signed().saturating_mul(1_000))
    }

    /// Documents that come beside the body or in it.
    pub fn documents(&self, name: &str) -> Result<Vec<Bytes>> {
        if let Some((_, documents)) = self.sequences.iter().find(|(found, _)| found == name) {
            return Ok(documents.clone());
        }
        let array = self.fields().array(name)?.ok_or_else(|| missing(name))?;
        documents_of(name, array)
    }
}

/// The container of a collection; `None` if there is none. One that holds JSON is refused.
pub(crate) fn container(
    db: &Db,
    database: &str,
    collection: &str,
) -> Result<Option<Arc<Container>>> {
    match db.container(database, collection) {
        Ok(container) if container.layout().is_some() => Ok(Some(container)),
        Ok(_) => Err(Refusal::new(
            166,
            format!(
                "{database}.{collection} is a container of the NoSQL API: use it through the NoSQL endpoint, or give the collection another name."
            ),
        )),
        Err(db::Error::NotFound | db::Error::OwnerNotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Adds what sessions go by: when this was.
fn timed(front_end: &FrontEnd, reply: RawDocumentBuf) -> RawDocumentBuf {
    // Every reply has it: the bytes are made once, and only the time is written into them.
    static ALWAYS: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let at = bson::Timestamp { time: TIME_MARK, increment: 1 };
        let nobody =
            bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![0; 20] };
        let signature = rawdoc! {"hash": nobody, "keyId": 0_i64};
        let cluster = rawdoc! {"clusterTime": at, "signature": signature};
        rawdoc! {"operationTime": at, "$clusterTime": cluster}.into_bytes()[4..].to_vec()
    });
    static PLACES: LazyLock<Vec<usize>> = LazyLock::new(|| {
        let mark = TIME_MARK.to_le_bytes();
        (0..ALWAYS.len() - 4).filter(|at| ALWAYS[*at..*at + 4] == mark).collect()
    });
    const TIME_MARK: u32 = 0xFEDC_BA98;
    let time = (front_end.db.now().0 as u32).to_le_bytes();
    let mut bytes = reply.into_bytes();
    bytes.pop();
    let start = bytes.len();
    bytes.extend_from_slice(&ALWAYS);
    for at in &*PLACES {
        bytes[start + at..start + at + 4].copy_from_slice(&time);
    }
    let length = (bytes.len() as i32).to_le_bytes();
    bytes[..4].copy_from_slice(&length);
    RawDocumentBuf::from_bytes(bytes).expect("a document and fields are a document")
}

/// `{ok: 1}`.
pub(crate) fn ok() -> RawDocumentBuf {
    rawdoc! {"ok": 1.0}
}

fn check_database_name(name: &str) -> Result<()> {
    let bad = |c: char| matches!(c, '/' | '\\' | '.' | ' ' | '"' | '$' | '\0' | '?' | '#');
    if name.is_empty() || name.len() > 63 || name.chars().any(bad) && name != "$external" {
        return Err(Refusal::new(73, format!("Invalid database name: '{name}'")));
    }
    Ok(())
}

fn check_collection_name(database: &str, name: &str) -> Result<()> {
    let bad = name.is_empty()
        || name.starts_with('.')
        || name.contains(['\0', '$', '/', '\\', '?', '#'])
        || name.len() + database.len() > 254;
    match bad && !name.starts_with("$cmd") {
        true => Err(Refusal::new(73, format!("Invalid namespace specified '{database}.{name}'"))),
        false => Ok(()),
    }
}
