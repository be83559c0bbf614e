//! Databases and collections: create, drop, list, change, measure.

use std::sync::Arc;

use bson::spec::BinarySubtype;
use bson::{
    Binary, Bson, Document, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, doc,
    rawdoc,
};
use bytes::Bytes;
use db::{Container, Throughput};
use model::ttl::DefaultTtl;
use serde_json::{Map, Value, json};

use super::{Call, changes, container, indexes, ok};
use crate::cursors;
use crate::error::{Refusal, Result};
use crate::language::filter::Filter;
use crate::language::vars::Vars;
use crate::layout::{self, Collection, to_json};
use crate::options::missing;

/// Options of `create` that describe the collection, and are shown again.
const OPTIONS: [&str; 12] = [
    "capped",
    "size",
    "max",
    "validator",
    "validationLevel",
    "validationAction",
    "collation",
    "storageEngine",
    "indexOptionDefaults",
    "clusteredIndex",
    "timeseries",
    "changeStreamPreAndPostImages",
];

/// Fields that every command may have.
const GENERIC: [&str; 17] = [
    "create",
    "$db",
    "lsid",
    "$clusterTime",
    "txnNumber",
    "autocommit",
    "startTransaction",
    "readConcern",
    "writeConcern",
    "$readPreference",
    "maxTimeMS",
    "comment",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "autoIndexId",
    "idIndex",
];

pub async fn create(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let name = call.collection_name()?;
    let mut options = Document::new();
    for element in call.body.iter() {
        let (field, value) = element?;
        match field.as_str() {
            field if OPTIONS.contains(&field) => {
                options.insert(field, Bson::try_from(value)?);
            }
            field if GENERIC.contains(&field) => {}
            "viewOn" | "pipeline" => {
                return Err(Refusal::new(
                    115,
                    "Views are not supported: run the pipeline with aggregate instead.",
                ));
            }
            "flags" | "temp" | "recordPreImages" | "expireAfterSeconds" | "encryptedFields"
            | "writeLock" => {}
            other => {
                return Err(Refusal::new(
                    40415,
                    format!("BSON field 'create.{other}' is an unknown field."),
                ));
            }
        }
    }
    if let Ok(clustered) = options.get_document_mut("clusteredIndex") {
        let by_id = clustered.get_document("key").is_ok_and(|key| key.keys().eq(["_id"]));
        if !by_id || !clustered.get_bool("unique").unwrap_or(false) {
            return Err(Refusal::new(
                67,
                "The clusteredIndex option is only supported for key: {_id: 1} and unique: true",
            ));
        }
        clustered.entry("v".to_owned()).or_insert(Bson::Int32(2));
        clustered.entry("name".to_owned()).or_insert("_id_".into());
    }
    if let Ok(validator) = options.get_document("validator") {
        let raw = RawDocumentBuf::try_from(validator)?;
        Filter::parse(&raw, &Vars::new(call.now()))?;
    }
    if options.get_bool("capped").unwrap_or(false)
        && layout::number_of(options.get("size").unwrap_or(&Bson::Null)).is_none()
    {
        return Err(Refusal::new(72, "the 'size' field is required when 'capped' is true"));
    }
    if call.find_container(name)?.is_some() {
        let same = layout::of(&*call.find_container(name)?.ok_or_else(|| missing("create"))?)
            .is_some_and(|collection| collection.options == options);
        return match same {
            true => Ok(ok()),
            false => Err(Refusal::new(
                48,
                format!("Collection {} already exists.", call.namespace(name)),
            )),
        };
    }
    make(call, name, &options, Sharding::default()).await?;
    Ok(ok())
}

/// What the service's own commands say about a new collection.
#[derive(Default)]
pub(super) struct Sharding {
    pub key: Option<String>,
    pub throughput: Option<Throughput>,
}

/// Makes a collection, and its database if need be.
pub(super) async fn make(
    call: &Call<'_>,
    name: &str,
    options: &Document,
    sharding: Sharding,
) -> Result<Arc<Container>> {
    make_in(call, call.database, name, options, sharding).await
}

async fn make_in(
    call: &Call<'_>,
    database: &str,
    name: &str,
    options: &Document,
    sharding: Sharding,
) -> Result<Arc<Container>> {
    let db = call.db();
    match db.create_database(&json!({"id": database}), None).await {
        Ok(_) | Err(db::Error::Exists) => {}
        Err(error) => return Err(error.into()),
    }
    let path = sharding.key.unwrap_or_else(|| "_id".to_owned());
    let uuid: String = (0..16).map(|_| format!("{:02x}", fastrand::u8(..))).collect();
    let mut body = json!({
        "id": name,
        "partitionKey": {"paths": [format!("/{}", path.replace('.', "/"))], "kind": "Hash", "version": 2},
        "documents": {"indexes": [], "nextNumber": 1, "options": to_json(options), "uuid": uuid},
    });
    if call.front_end.watched.contains(database) || keeps_images(options) {
        body["changeFeedPolicy"] = changes::log_policy();
    }
    match db.create_collection(database, &body, sharding.throughput).await {
        Ok(container) => Ok(container),
        Err(db::Error::Exists) => container(db, database, name)?.ok_or_else(|| {
            Refusal::new(48, format!("Collection {database}.{name} already exists."))
        }),
        Err(error) => Err(error.into()),
    }
}

/// Whether options ask for what documents were before and after each change: a log of changes.
fn keeps_images(options: &Document) -> bool {
    let images = options.get_document("changeStreamPreAndPostImages");
    images.is_ok_and(|images| images.get_bool("enabled").unwrap_or(false))
}

/// The container of a collection, which is made if there is none.
pub(super) async fn ensure(call: &Call<'_>, name: &str) -> Result<Arc<Container>> {
    ensure_in(call, call.database, name).await
}

pub(super) async fn ensure_in(
    call: &Call<'_>,
    database: &str,
    name: &str,
) -> Result<Arc<Container>> {
    match container(call.db(), database, name)? {
        Some(container) => Ok(container),
        None => {
            if database == "admin" && name.starts_with("system.") {
                return Err(Refusal::new(73, format!("cannot write to '{database}.{name}'")));
            }
            make_in(call, database, name, &Document::new(), Sharding::default()).await
        }
    }
}

pub async fn drop_collection(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let name = call.collection_name()?;
    let namespace = call.namespace(name);
    let Some(container) = call.find_container(name)? else {
        // Newer servers do not mind.
        return Ok(ok());
    };
    let count = indexes::shown(&container).len() as i32;
    match call.db().delete_container(call.database, name, None).await {
        Ok(()) | Err(db::Error::NotFound | db::Error::OwnerNotFound) => {
            Ok(rawdoc! {"nIndexesWas": count, "ns": namespace, "ok": 1.0})
        }
        Err(error) => Err(error.into()),
    }
}

pub async fn drop_database(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let db = call.db();
    let Ok(containers) = db.containers(call.database) else { return Ok(ok()) };
    let ours = containers.iter().filter(|container| container.layout().is_some()).count();
    let dropped = match ours == containers.len() {
        true => db.delete_database(call.database, None).await,
        // The NoSQL API has containers there, too: those stay.
        false => {
            for container in containers.iter().filter(|container| container.layout().is_some()) {
                db.delete_container(call.database, container.id(), None).await?;
            }
            Ok(())
        }
    };
    match dropped {
        Ok(()) => Ok(rawdoc! {"dropped": call.database, "ok": 1.0}),
        Err(db::Error::NotFound) => Ok(ok()),
        Err(error) => Err(error.into()),
    }
}

pub async fn rename(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let split = |namespace: &str| {
        namespace.split_once('.').map(|(database, name)| (database.to_owned(), name.to_owned()))
    };
    let invalid =
        |namespace: &str| Refusal::new(73, format!("Invalid namespace specified '{namespace}'"));
    let from = call.target.as_str().ok_or_else(|| missing("renameCollection"))?;
    let to = call.fields().required_text("to")?;
    let (from_database, from_name) = split(from).ok_or_else(|| invalid(from))?;
    let (to_database, to_name) = split(to).ok_or_else(|| invalid(to))?;
    super::check_collection_name(&to_database, &to_name)?;
    if from == to {
        return Err(Refusal::new(20, "Can't rename a collection to itself"));
    }
    let db = call.db();
    if container(db, &from_database, &from_name)?.is_none() {
        return Err(Refusal::new(26, format!("Source collection {from} does not exist")));
    }
    if from_database != to_database {
        return Err(Refusal::new(
            115,
            "A collection can only be renamed within its database: copy it with $out instead.",
        ));
    }
    if container(db, &to_database, &to_name)?.is_some() {
        if !call.fields().flag("dropTarget")? {
            return Err(Refusal::new(48, "target namespace exists"));
        }
        db.delete_container(&to_database, &to_name, None).await?;
    }
    db.rename_collection(&from_database, &from_name, &to_name).await?;
    Ok(ok())
}

pub async fn modify(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let name = call.collection_name()?;
    let fields = call.fields();
    let container = call
        .find_container(name)?
        .ok_or_else(|| Refusal::new(26, format!("ns does not exist: {}", call.namespace(name))))?;
    let mut reply = RawDocumentBuf::new();
    if let Some(index) = fields.document("index")? {
        indexes::modify(call, &container, index, &mut reply).await?;
    }
    let mut changed = Document::new();
    for option in
        ["validator", "validationLevel", "validationAction", "changeStreamPreAndPostImages"]
    {
        if let Some(value) = fields.get(option) {
            changed.insert(option, Bson::try_from(value)?);
        }
    }
    if let Ok(validator) = changed.get_document("validator") {
        Filter::parse(&RawDocumentBuf::try_from(validator)?, &Vars::new(call.now()))?;
    }
    if !changed.is_empty() {
        let edit = |json: &mut Map<String, Value>| {
            let options = &mut json["documents"]["options"];
            if !options.is_object() {
                *options = json!({});
            }
            for (option, value) in &changed {
                options[option] = value.clone().into_canonical_extjson();
            }
            if keeps_images(&changed) {
                json.entry("changeFeedPolicy").or_insert_with(changes::log_policy);
            } else if changed.contains_key("changeStreamPreAndPostImages") {
                json.remove("changeFeedPolicy");
            }
        };
        call.db().replace_collection(call.database, name, edit).await?;
    }
    reply.append(bson::cstr!("ok"), 1.0);
    Ok(reply)
}

pub fn list(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let fields = call.fields();
    let name_only = fields.flag("nameOnly")?;
    let empty = RawDocumentBuf::new();
    let filter = fields.document("filter")?.unwrap_or(&empty);
    let filter = Filter::parse(filter, &Vars::new(call.now()))?;
    let mut rows: Vec<Bytes> = Vec::new();
    let mut containers = call.db().containers(call.database).unwrap_or_default();
    containers.sort_by(|a, b| a.id().cmp(b.id()));
    for container in &containers {
        let Some(collection) = layout::of(container) else { continue };
        let mut row = rawdoc! {"name": container.id(), "type": "collection"};
        if !name_only {
            row.append(bson::cstr!("options"), RawDocumentBuf::try_from(&collection.options)?);
            let mut info = rawdoc! {"readOnly": false};
            if let Some(uuid) = uuid(container) {
                info.append(bson::cstr!("uuid"), uuid);
            }
            row.append(bson::cstr!("info"), info);
            // Documents are kept by `_id` anyway: a clustered collection is one that says so.
            if !collection.options.contains_key("clusteredIndex") {
                let index = rawdoc! {"v": 2, "key": {"_id": 1}, "name": "_id_"};
                row.append(bson::cstr!("idIndex"), index);
            }
        }
        if filter.matches(&row)? {
            rows.push(row.into_bytes().into());
        }
    }
    cursor_of(call, "$cmd.listCollections", rows)
}

/// The number that tells a collection from another of the same name.
fn uuid(container: &Container) -> Option<Binary> {
    let text = container.settings.json["documents"]["uuid"].as_str()?;
    let byte = |at: usize| u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok();
    let mut bytes = (0..16).map(byte).collect::<Option<Vec<u8>>>()?;
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    Some(Binary { subtype: BinarySubtype::Uuid, bytes })
}

/// Rows as a cursor, in batches as the client wants them.
pub(super) fn cursor_of(
    call: &mut Call<'_>,
    name: &str,
    rows: Vec<Bytes>,
) -> Result<RawDocumentBuf> {
    let options = call.fields().document("cursor")?;
    let size = options
        .map(|options| crate::options::Fields(options).count("batchSize"))
        .transpose()?
        .flatten();
    let namespace = call.namespace(name);
    let size = size.unwrap_or(usize::MAX);
    if rows.len() <= size {
        return Ok(cursors::reply(0, &namespace, true, &rows));
    }
    let rest = rows[size..].to_vec().into();
    let source = cursors::Source::Rows(rest);
    let session = call.fields().document("lsid")?.map(|session| session.as_bytes().to_vec());
    let cursor = cursors::Cursor { namespace: namespace.clone(), source, session, patient: false };
    let number = call.front_end.cursors.open_new(cursor, call.db().clock().elapsed())?;
    Ok(cursors::reply(number, &namespace, true, &rows[..size]))
}

pub fn list_databases(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let fields = call.fields();
    let name_only = fields.flag("nameOnly")?;
    let empty = RawDocumentBuf::new();
    let filter = fields.document("filter")?.unwrap_or(&empty);
    let filter = Filter::parse(filter, &Vars::new(call.now()))?;
    let (mut list, mut total) = (RawArrayBuf::new(), 0);
    let mut databases = call.db().databases();
    databases.sort_by(|a, b| a.id.cmp(&b.id));
    for database in databases {
        let containers = call.db().containers(&database.id).unwrap_or_default();
        let ours: Vec<_> =
            containers.iter().filter(|container| container.layout().is_some()).collect();
        if ours.is_empty() {
            continue;
        }
        let bytes: u64 = ours.iter().map(|container| container.usage().1).sum();
        let items: u64 = ours.iter().map(|container| container.usage().0).sum();
        let mut row = rawdoc! {"name": database.id.as_str()};
        if !name_only {
            row.append(bson::cstr!("sizeOnDisk"), bytes as i64);
            row.append(bson::cstr!("empty"), items == 0);
        }
        if filter.matches(&row)? {
            total += bytes;
            list.push(row);
        }
    }
    let mut reply = rawdoc! {"databases": list};
    if !name_only {
        reply.append(bson::cstr!("totalSize"), total as i64);
        reply.append(bson::cstr!("totalSizeMb"), (total >> 20) as i64);
    }
    reply.append(bson::cstr!("ok"), 1.0);
    Ok(reply)
}

/// The figures of a collection; expired documents count until they are purged.
/// The documents that there are for clients (R08), the bytes that are stored, and how many bytes a document has.
async fn figures(call: &Call<'_>, container: &Container) -> Result<(i64, i64, i64)> {
    let living = call.db().count_documents(container).await.result?;
    let (items, bytes) = container.usage();
    Ok((living as i64, bytes as i64, (bytes / items.max(1)) as i64))
}

pub async fn statistics(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let name = call.collection_name()?;
    let scale = call.fields().int("scale")?.filter(|scale| *scale > 0).unwrap_or(1);
    statistics_of(call, name, scale).await
}

pub(super) async fn statistics_of(
    call: &Call<'_>,
    name: &str,
    scale: i64,
) -> Result<RawDocumentBuf> {
    let namespace = call.namespace(name);
    let Some(container) = call.find_container(name)? else {
        return Ok(rawdoc! {
            "ns": namespace, "size": 0, "count": 0, "storageSize": 0, "totalSize": 0, "nindexes": 0,
            "totalIndexSize": 0, "indexDetails": {}, "indexSizes": {}, "scaleFactor": scale as i32, "ok": 1.0,
        });
    };
    let (items, bytes, average) = figures(call, &container).await?;
    let capped = layout::of(&container)
        .is_some_and(|found| found.options.get_bool("capped").unwrap_or(false));
    let mut sizes = RawDocumentBuf::new();
    let shown = indexes::shown(&container);
    for index in &shown {
        if let Ok(name) = index.get_str("name").map(str::to_owned)
            && let Ok(name) = bson::raw::CString::try_from(name)
        {
            sizes.append(name, 0);
        }
    }
    Ok(rawdoc! {
        "ns": namespace, "size": bytes / scale, "count": items, "avgObjSize": average,
        "storageSize": bytes / scale, "totalSize": bytes / scale, "freeStorageSize": 0, "capped": capped,
        "nindexes": shown.len() as i32, "indexDetails": {}, "indexBuilds": [], "totalIndexSize": 0,
        "indexSizes": sizes, "scaleFactor": scale as i32, "ok": 1.0,
    })
}

pub async fn database_statistics(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let scale = call.fields().int("scale")?.filter(|scale| *scale > 0).unwrap_or(1);
    let containers = call.db().containers(call.database).unwrap_or_default();
    let ours = containers.iter().filter(|container| container.layout().is_some());
    let (mut collections, mut objects, mut bytes, mut indexes) = (0, 0, 0, 0);
    for container in ours {
        let (items, size, _) = figures(call, container).await?;
        collections += 1;
        objects += items;
        bytes += size;
        indexes += indexes::shown(container).len() as i64;
    }
    Ok(rawdoc! {
        "db": call.database, "collections": collections, "views": 0, "objects": objects,
        "avgObjSize": bytes as f64 / objects.max(1) as f64, "dataSize": bytes / scale,
        "storageSize": bytes / scale, "indexes": indexes, "indexSize": 0, "totalSize": bytes / scale,
        "scaleFactor": scale as i32, "fsUsedSize": 0, "fsTotalSize": 0, "ok": 1.0,
    })
}

pub async fn data_size(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let namespace = call.target.as_str().ok_or_else(|| missing("dataSize"))?;
    let (database, name) = namespace
        .split_once('.')
        .ok_or_else(|| Refusal::new(73, format!("Invalid namespace specified '{namespace}'")))?;
    let found = container(call.db(), database, name)?;
    let (items, bytes, _) = match &found {
        Some(found) => figures(call, found).await?,
        None => (0, 0, 0),
    };
    Ok(rawdoc! {"size": bytes, "numObjects": items, "millis": 0, "ok": 1.0})
}

/// Reads every document and asks the layout about it.
pub async fn validate(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let name = call.collection_name()?;
    let container = call.find_container(name)?.ok_or_else(|| {
        Refusal::new(
            26,
            format!("Collection '{}' does not exist to validate.", call.namespace(name)),
        )
    })?;
    let fields = call.fields();
    if fields.flag("background")? && fields.flag("full")? {
        return Err(Refusal::new(
            72,
            "Running the validate command with both { background: true } and { full: true } is not supported.",
        ));
    }
    let layout = container.layout().ok_or_else(|| Refusal::new(26, "ns not found"))?;
    let mut scan = call.db().scan_documents(&container, db::documents::Route::All);
    let (mut records, mut invalid) = (0_i64, 0_i64);
    loop {
        let found = scan.next(call.db().now()).await?;
        if found.is_empty() {
            break;
        }
        records += found.len() as i64;
        let bad = found.iter().filter(|found| layout.describe(&found.body).is_err());
        invalid += bad.count() as i64;
    }
    let mut keys = RawDocumentBuf::new();
    keys.append(bson::cstr!("_id_"), records);
    Ok(rawdoc! {
        "ns": call.namespace(name), "nInvalidDocuments": invalid, "nNonCompliantDocuments": 0, "nrecords": records,
        "nIndexes": indexes::shown(&container).len() as i32, "keysPerIndex": keys, "indexDetails": {},
        "valid": invalid == 0, "repaired": false, "warnings": [], "errors": [], "extraIndexEntries": [],
        "missingIndexEntries": [], "corruptRecords": [], "ok": 1.0,
    })
}

/// The rule of expiry as an index shows it, where it is one on `_ts`.
pub(super) fn ts_index(container: &Container, _collection: &Collection) -> Option<Document> {
    let secs = match container.settings.default_ttl {
        DefaultTtl::Off | DefaultTtl::AfterDate(_) => return None,
        DefaultTtl::NoDefault => -1,
        DefaultTtl::Secs(secs) => secs.cast_signed(),
    };
    let name = container.settings.json["documents"]["ttlName"].as_str().unwrap_or("_ts_1");
    Some(doc! {"v": 2, "key": {"_ts": 1}, "name": name, "expireAfterSeconds": secs})
}

/// The value of a field that must be a document with one field.
pub(super) fn only_field(document: &RawDocument) -> Option<(String, RawBson)> {
    let mut all = document.iter().flatten();
    let (name, value): (_, RawBsonRef<'_>) = all.next()?;
    all.next().is_none().then(|| (name.as_str().to_owned(), bson::RawBson::from(value)))
}
