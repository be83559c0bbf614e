//! Commands about the server and the connection: what drivers and tools ask before and beside their work.

use std::sync::atomic::Ordering;

use bson::spec::BinarySubtype;
use bson::{Binary, RawArrayBuf, RawDocumentBuf, Timestamp, rawdoc};

use super::{Call, ok};
use crate::auth::{Access, Mechanism};
use crate::error::{Refusal, Result};
use crate::options::{Fields, missing};
use crate::sessions::LIFE_MINUTES;
use crate::wire::{Compressor, DOCUMENT_BYTES_MAX, MESSAGE_BYTES_MAX};

/// The version that we say we are: the newest of the service.
const VERSION: &str = "7.0.0";
const VERSION_ARRAY: [i32; 4] = [7, 0, 0, 0];

/// What goes with it.
const WIRE_VERSION: i32 = 21;

/// The most statements in one write command.
pub(crate) const BATCH_MAX: usize = 100_000;

/// The name of the replica set in the service's connection strings.
const SET_NAME: &str = "globaldb";

/// Who and what we are. The first thing that any client asks.
pub fn hello(call: &mut Call<'_>, legacy: bool) -> Result<RawDocumentBuf> {
    let fields = call.fields();
    let me = address(call);
    let mut hosts = RawArrayBuf::new();
    hosts.push(me.as_str());
    let mut reply = RawDocumentBuf::new();
    reply.append(
        if legacy { bson::cstr!("ismaster") } else { bson::cstr!("isWritablePrimary") },
        true,
    );
    if fields.flag("helloOk")? {
        reply.append(bson::cstr!("helloOk"), true);
    }
    reply.append(bson::cstr!("secondary"), false);
    reply.append(bson::cstr!("setName"), SET_NAME);
    reply.append(bson::cstr!("setVersion"), 1);
    reply.append(bson::cstr!("hosts"), hosts);
    reply.append(bson::cstr!("primary"), me.as_str());
    reply.append(bson::cstr!("me"), me.as_str());
    reply.append(bson::cstr!("maxBsonObjectSize"), DOCUMENT_BYTES_MAX as i32);
    reply.append(bson::cstr!("maxMessageSizeBytes"), MESSAGE_BYTES_MAX as i32);
    reply.append(bson::cstr!("maxWriteBatchSize"), BATCH_MAX as i32);
    reply.append(bson::cstr!("localTime"), call.now());
    reply.append(bson::cstr!("logicalSessionTimeoutMinutes"), LIFE_MINUTES);
    reply.append(bson::cstr!("connectionId"), call.state.number);
    reply.append(bson::cstr!("minWireVersion"), 0);
    reply.append(bson::cstr!("maxWireVersion"), WIRE_VERSION);
    reply.append(bson::cstr!("readOnly"), call.state.access == Some(Access::ReadOnly));
    if let Some(offered) = fields.array("compression")? {
        let mut taken = RawArrayBuf::new();
        for name in offered.into_iter().flatten() {
            if let Some(known) = name.as_str().and_then(Compressor::named) {
                taken.push(known.name());
            }
        }
        reply.append(bson::cstr!("compression"), taken);
    }
    if fields.text("saslSupportedMechs")?.is_some() {
        let mut mechanisms = RawArrayBuf::new();
        ["SCRAM-SHA-256", "SCRAM-SHA-1"].into_iter().for_each(|name| mechanisms.push(name));
        reply.append(bson::cstr!("saslSupportedMechs"), mechanisms);
    }
    if let Some(first) = fields.document("speculativeAuthenticate")?
        && let Ok(begun) = begin(call, Fields(first))
    {
        reply.append(bson::cstr!("speculativeAuthenticate"), begun);
    }
    reply.append(bson::cstr!("ok"), 1.0);
    Ok(reply)
}

/// Where the client has reached us, as it should call us again.
fn address(call: &Call<'_>) -> String {
    let local = call.state.local;
    match local.ip().to_canonical().is_loopback() {
        true => format!("localhost:{}", local.port()),
        false => local.to_string(),
    }
}

pub fn sasl_start(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let fields = call.fields();
    let mut reply = begin(call, fields)?;
    reply.append(bson::cstr!("ok"), 1.0);
    Ok(reply)
}

fn begin(call: &mut Call<'_>, fields: Fields<'_>) -> Result<RawDocumentBuf> {
    let name = fields.required_text("mechanism")?;
    let mechanism = Mechanism::named(name).ok_or_else(|| unknown_mechanism(name))?;
    let payload = payload(fields)?;
    // Without keys everybody is let in, and whoever wants to prove something can.
    let Some(keys) = &call.front_end.keys else { return Err(everybody()) };
    let (said, conversation) = keys.begin(mechanism, payload)?;
    call.state.conversation = Some(conversation);
    Ok(step(&said, false))
}

pub fn sasl_continue(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let payload = payload(call.fields())?;
    let no_session = || Refusal::new(17, "No SASL session state found");
    let keys = call.front_end.keys.as_ref().ok_or_else(no_session)?;
    let Some(conversation) = call.state.conversation.take() else {
        // The client has seen our proof and says so.
        return match call.state.access {
            Some(_) => Ok(step_ok("", true)),
            None => Err(no_session()),
        };
    };
    let (said, access) = keys.finish(&conversation, payload)?;
    call.state.access = Some(access);
    call.state.user = Some(conversation.into_user());
    Ok(step_ok(&said, true))
}

fn payload(fields: Fields<'_>) -> Result<&[u8]> {
    match fields.get("payload") {
        Some(bson::RawBsonRef::Binary(binary)) => Ok(binary.bytes),
        Some(bson::RawBsonRef::String(text)) => Ok(text.as_bytes()),
        _ => Err(missing("payload")),
    }
}

fn step(said: &str, done: bool) -> RawDocumentBuf {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: said.as_bytes().to_vec() };
    rawdoc! {"conversationId": 1, "done": done, "payload": payload}
}

fn step_ok(said: &str, done: bool) -> RawDocumentBuf {
    let mut reply = step(said, done);
    reply.append(bson::cstr!("ok"), 1.0);
    reply
}

/// The oldest way to log in, which tools of former days still begin with: a number that is used once.
pub fn nonce(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let nonce = crate::auth::nonce();
    call.state.nonce = Some(nonce.clone());
    Ok(rawdoc! {"nonce": nonce, "ok": 1.0})
}

pub fn authenticate(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let fields = call.fields();
    if let Some(other) = fields.text("mechanism")?.filter(|name| *name != "MONGODB-CR") {
        return Err(unknown_mechanism(other));
    }
    let (user, key) = (fields.required_text("user")?, fields.required_text("key")?);
    let given = call.state.nonce.take();
    let given = given.filter(|given| fields.text("nonce").ok().flatten() == Some(given));
    let given = given.ok_or_else(|| {
        Refusal::new(18, "Authentication failed: ask for a nonce with getnonce first.")
    })?;
    let Some(keys) = &call.front_end.keys else { return Err(everybody()) };
    call.state.access = Some(keys.check_digest(user, &given, key)?);
    call.state.user = Some(user.to_owned());
    Ok(ok())
}

fn unknown_mechanism(name: &str) -> Refusal {
    Refusal::new(
        18,
        format!(
            "Authentication mechanism {name} is not supported: use SCRAM-SHA-256 or SCRAM-SHA-1."
        ),
    )
}

fn everybody() -> Refusal {
    Refusal::new(18, "This server was started with --no-auth: connect without a user name.")
}

pub fn logout(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    if call.front_end.keys.is_some() {
        call.state.access = None;
        call.state.user = None;
    }
    Ok(ok())
}

pub fn build_info() -> Result<RawDocumentBuf> {
    let mut version = RawArrayBuf::new();
    VERSION_ARRAY.into_iter().for_each(|part| version.push(part));
    Ok(rawdoc! {
        "version": VERSION, "gitVersion": env!("CARGO_PKG_VERSION"), "modules": [], "allocator": "mimalloc",
        "javascriptEngine": "none", "sysInfo": "deprecated", "versionArray": version,
        "openssl": {"running": "rustls", "compiled": "rustls"}, "bits": 64, "debug": false,
        "maxBsonObjectSize": DOCUMENT_BYTES_MAX as i32, "storageEngines": ["sidereal"],
        "sidereal": env!("CARGO_PKG_VERSION"), "ok": 1.0,
    })
}

pub fn whatsmyuri(call: &Call<'_>) -> Result<RawDocumentBuf> {
    Ok(rawdoc! {"you": call.state.local.to_string(), "ok": 1.0})
}

pub fn host_info() -> Result<RawDocumentBuf> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(rawdoc! {
        "system": {"hostname": "localhost", "cpuAddrSize": 64, "numCores": cores as i32, "cpuArch": std::env::consts::ARCH},
        "os": {"type": std::env::consts::OS, "name": std::env::consts::OS, "version": ""},
        "extra": {}, "ok": 1.0,
    })
}

pub fn command_line() -> Result<RawDocumentBuf> {
    Ok(rawdoc! {"argv": ["sidereal"], "parsed": {}, "ok": 1.0})
}

pub fn parameters(call: &Call<'_>) -> Result<RawDocumentBuf> {
    let mut reply = RawDocumentBuf::new();
    let all = call.target.as_str() == Some("*") || call.target.as_document().is_some();
    let fields = call.fields();
    if all || fields.flag("featureCompatibilityVersion")? {
        reply.append(bson::cstr!("featureCompatibilityVersion"), rawdoc! {"version": "7.0"});
    }
    if all || fields.flag("authenticationMechanisms")? {
        reply.append(
            bson::cstr!("authenticationMechanisms"),
            rawdoc! {"list": ["SCRAM-SHA-256", "SCRAM-SHA-1"]}.get_array("list")?.to_owned(),
        );
    }
    if all || fields.flag("enableTestCommands")? {
        reply.append(bson::cstr!("enableTestCommands"), false);
    }
    if all || fields.flag("requireApiVersion")? {
        reply.append(bson::cstr!("requireApiVersion"), false);
    }
    reply.append(bson::cstr!("ok"), 1.0);
    Ok(reply)
}

pub fn set_parameter() -> Result<RawDocumentBuf> {
    Err(Refusal::new(72, "Parameters are set by flags of the server: see sidereal --help."))
}

pub fn log(call: &Call<'_>) -> Result<RawDocumentBuf> {
    match call.target.as_str() {
        Some("*") => Ok(rawdoc! {"names": ["global", "startupWarnings"], "ok": 1.0}),
        Some("global" | "startupWarnings") => {
            Ok(rawdoc! {"totalLinesWritten": 0, "log": [], "ok": 1.0})
        }
        _ => Err(Refusal::new(96, "no log of that name: the server writes to standard error")),
    }
}

pub fn status(call: &Call<'_>) -> Result<RawDocumentBuf> {
    let clock = call.db().clock();
    let uptime = clock.stopwatch();
    let open = call.db().traffic().mongodb.connections.load(Ordering::Relaxed) as i64;
    Ok(rawdoc! {
        "host": address(call), "version": VERSION, "process": "sidereal",
        "pid": i64::from(std::process::id()),
        "uptime": uptime.as_secs_f64(), "uptimeMillis": uptime.as_millis() as i64,
        "uptimeEstimate": uptime.as_secs() as i64, "localTime": call.now(),
        "asserts": {"regular": 0, "warning": 0, "msg": 0, "user": 0, "rollovers": 0},
        "connections": {"current": open, "available": 10_000 - open, "totalCreated": call.state.number},
        "storageEngine": {"name": "sidereal", "supportsCommittedReads": true, "persistent": true},
        "repl": {"setName": SET_NAME, "ismaster": true, "secondary": false},
        "metrics": {"cursor": {"open": {"total": call.front_end.cursors.open() as i64}}},
        "ok": 1.0,
    })
}

pub fn connection_status(call: &Call<'_>) -> Result<RawDocumentBuf> {
    let mut users = RawArrayBuf::new();
    if let Some(user) = &call.state.user {
        users.push(rawdoc! {"user": user.as_str(), "db": "admin"});
    }
    Ok(rawdoc! {
        "authInfo": {"authenticatedUsers": users, "authenticatedUserRoles": []}, "ok": 1.0,
    })
}

pub fn current_operations() -> Result<RawDocumentBuf> {
    Ok(rawdoc! {"inprog": [], "ok": 1.0})
}

pub fn list_commands() -> Result<RawDocumentBuf> {
    let mut commands = RawDocumentBuf::new();
    for name in [
        bson::cstr!("aggregate"),
        bson::cstr!("authenticate"),
        bson::cstr!("buildInfo"),
        bson::cstr!("collMod"),
        bson::cstr!("collStats"),
        bson::cstr!("connectionStatus"),
        bson::cstr!("count"),
        bson::cstr!("create"),
        bson::cstr!("createIndexes"),
        bson::cstr!("currentOp"),
        bson::cstr!("customAction"),
        bson::cstr!("dataSize"),
        bson::cstr!("dbStats"),
        bson::cstr!("delete"),
        bson::cstr!("distinct"),
        bson::cstr!("drop"),
        bson::cstr!("dropDatabase"),
        bson::cstr!("dropIndexes"),
        bson::cstr!("endSessions"),
        bson::cstr!("explain"),
        bson::cstr!("filemd5"),
        bson::cstr!("find"),
        bson::cstr!("findAndModify"),
        bson::cstr!("getCmdLineOpts"),
        bson::cstr!("getLastRequestStatistics"),
        bson::cstr!("getLog"),
        bson::cstr!("getMore"),
        bson::cstr!("getnonce"),
        bson::cstr!("getParameter"),
        bson::cstr!("hello"),
        bson::cstr!("hostInfo"),
        bson::cstr!("insert"),
        bson::cstr!("isMaster"),
        bson::cstr!("killCursors"),
        bson::cstr!("listCollections"),
        bson::cstr!("listCommands"),
        bson::cstr!("listDatabases"),
        bson::cstr!("listIndexes"),
        bson::cstr!("logout"),
        bson::cstr!("ping"),
        bson::cstr!("reIndex"),
        bson::cstr!("renameCollection"),
        bson::cstr!("replSetGetStatus"),
        bson::cstr!("saslContinue"),
        bson::cstr!("saslStart"),
        bson::cstr!("serverStatus"),
        bson::cstr!("shardCollection"),
        bson::cstr!("startSession"),
        bson::cstr!("update"),
        bson::cstr!("validate"),
        bson::cstr!("whatsmyuri"),
    ] {
        commands.append(name, rawdoc! {"help": "", "requiresAuth": true, "secondaryOk": true});
    }
    Ok(rawdoc! {"commands": commands, "ok": 1.0})
}

pub fn replica_set_status(call: &Call<'_>) -> Result<RawDocumentBuf> {
    let me = address(call);
    let now = call.now();
    let optime = Timestamp { time: (now.timestamp_millis() / 1_000) as u32, increment: 1 };
    Ok(rawdoc! {
        "set": SET_NAME, "date": now, "myState": 1, "term": 1_i64,
        "members": [{
            "_id": 0, "name": me, "health": 1.0, "state": 1, "stateStr": "PRIMARY", "self": true,
            "optime": {"ts": optime, "t": 1_i64}, "optimeDate": now,
        }],
        "ok": 1.0,
    })
}

pub fn start_session() -> Result<RawDocumentBuf> {
    let mut id: [u8; 16] = std::array::from_fn(|_| fastrand::u8(..));
    id[6] = id[6] & 0x0F | 0x40;
    id[8] = id[8] & 0x3F | 0x80;
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: id.to_vec() };
    Ok(rawdoc! {"id": {"id": id}, "timeoutMinutes": LIFE_MINUTES, "ok": 1.0})
}

pub fn end_sessions(call: &Call<'_>) -> Result<RawDocumentBuf> {
    for session in call.target.as_array().into_iter().flatten().flatten() {
        if let Some(session) = session.as_document() {
            call.front_end.sessions.end(session.as_bytes());
        }
    }
    Ok(ok())
}
