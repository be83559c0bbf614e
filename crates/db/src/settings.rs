//! What a container's owner can set: its definition, read from and shown as the wire's JSON.
//!
//! [`Settings::parse`] validates a definition and completes it with the service's defaults; [`Settings::replaced_by`]
//! guards what cannot change. The JSON is also what the catalog stores.

use std::sync::Arc;

use model::clock::Timestamp;
use model::partition_key::{Kind, PartitionKeyDefinition};
use model::path::Path;
use model::ttl::DefaultTtl;
use serde_json::{Map, Value, json};
use storage::keycode::Writer;

use crate::documents::{Description, Layout, Layouts};
use crate::history::HistoryPolicy;
use crate::index::{Composite, CompositePath, IndexingPolicy, Spatial, push_value};
use crate::keys::encode_partition_key;
use crate::record::Record;
use crate::writer::parse_stored;
use crate::{Error, Result, policies};

/// A container's definition, validated and completed with the service's defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The container's name.
    pub id: String,
    /// How items are spread.
    pub partition_key: PartitionKeyDefinition,
    /// The TTL rule.
    pub default_ttl: DefaultTtl,
    /// Where items hold the time that their ttl counts from, if that is not their last write (R30).
    pub(crate) ttl_path: Option<Path>,
    /// The paths of each unique key; their values are unique within a partition key.
    pub unique_keys: Vec<Vec<Path>>,
    /// What is indexed.
    pub(crate) indexing: IndexingPolicy,
    /// Former policies, while the index is rebuilt: items may have their terms, and may lack those of the policy in force.
    pub(crate) indexing_before: Vec<IndexingPolicy>,
    /// The same as the wire shows them, for the catalog.
    pub(crate) indexing_before_json: Vec<Value>,
    /// The change of the catalog that set the policy in force; 0 if it was never changed.
    pub(crate) indexing_epoch: u64,
    /// Whether all versions of its items are remembered, and for how long.
    pub history: Option<HistoryPolicy>,
    /// How documents are read, where items are not JSON.
    pub(crate) layout: Option<Arc<dyn Layout>>,
    /// The definition as the wire shows it, without system properties.
    pub json: Map<String, Value>,
}

/// What is stored beside an item.
pub(crate) struct Beside {
    /// Its partition key, where items are found by it.
    pub key: Option<Vec<u8>>,
    /// All index terms that it may have, sorted.
    pub terms: Vec<Vec<u8>>,
    /// Its unique entries.
    pub unique: Vec<Vec<u8>>,
}

/// Properties that are kept and shown as they were given.
const ECHOED: [&str; 8] = [
    "analyticalStorageTtl",
    "changeFeedPolicy",
    "computedProperties",
    "clientEncryptionPolicy",
    "vectorEmbeddingPolicy",
    "fullTextPolicy",
    "ttlPropertyPath",
    "conflictResolutionPolicy",
];

const UNIQUE_KEYS_MAX: usize = 10;
const UNIQUE_KEY_PATHS_MAX: usize = 16;
const UNIQUE_ENTRY_BYTES_MAX: usize = 16_384;
const INDEX_PATHS_MAX: usize = 1_500;

/// The version of the terms that items are kept under. A container with a spatial index from before it is indexed anew.
const TERMS: u64 = 2;

impl Settings {
    /// Reads a definition as a client sends it.
    pub fn parse(body: &Value) -> Result<Self> {
        let settings = Self::load(body)?;
        policies::check(body.as_object().unwrap_or(&settings.json))?;
        Ok(settings)
    }

    /// Reads a definition as [`Settings::json`] shows it. Policies that were accepted once are not checked again, so that every
    /// container that was ever made can be opened.
    pub(crate) fn load(body: &Value) -> Result<Self> {
        let body = body
            .as_object()
            .ok_or_else(|| invalid("The container's definition must be a JSON object."))?;
        let id = resource_id(body)?;
        let (partition_key, partition_key_json) = partition_key(body)?;
        let default_ttl = body.get("defaultTtl");
        let ttl_path = given(body, "ttlPropertyPath").and_then(Value::as_str);
        let ttl_path = ttl_path.filter(|path| *path != "/_ts");
        let ttl_path = ttl_path.and_then(|path| Path::parse(path).ok());
        let default_ttl = read_default(default_ttl, ttl_path.is_some())?;
        let (indexing, indexing_json) = indexing_policy(body.get("indexingPolicy"), default_ttl)?;
        let unique_keys = unique_keys(body.get("uniqueKeyPolicy"))?;
        let history = HistoryPolicy::parse(body.get("changeFeedPolicy"))?;

        let mut json = Map::new();
        json.insert("id".into(), id.clone().into());
        json.insert("indexingPolicy".into(), indexing_json);
        json.insert("partitionKey".into(), partition_key_json);
        json.insert("conflictResolutionPolicy".into(), default_conflict_resolution());
        json.insert("geospatialConfig".into(), geospatial(body)?);
        if let Some(policy) = given(body, "uniqueKeyPolicy") {
            json.insert("uniqueKeyPolicy".into(), policy.clone());
        }
        if let Some(ttl) = default_ttl.to_json() {
            json.insert("defaultTtl".into(), ttl);
        }
        for name in ECHOED {
            if let Some(value) = given(body, name) {
                json.insert(name.into(), value.clone());
            }
        }
        complete_conflict_resolution(&mut json);
        Ok(Self {
            id,
            partition_key,
            default_ttl,
            ttl_path,
            unique_keys,
            indexing,
            indexing_before: Vec::new(),
            indexing_before_json: Vec::new(),
            indexing_epoch: 0,
            history,
            layout: None,
            json,
        })
    }

    /// Reads the definition of a container of documents: its part `documents` says what `layouts` makes of it. With `ttlPath` in that part
    /// items expire `ttlSecs` after the date that they carry there.
    pub fn of_documents(body: &Value, layouts: Layouts) -> Result<Self> {
        let documents = body["documents"].clone();
        let mut body = body.clone();
        let by_date = documents["ttlPath"].as_str().zip(documents["ttlSecs"].as_u64());
        if let (Some(_), Some(object)) = (by_date, body.as_object_mut()) {
            object.remove("defaultTtl");
        }
        let mut settings = Self::load(&body)?;
        settings.layout = Some(layouts(&documents).map_err(Error::Invalid)?);
        settings.indexing = IndexingPolicy::none();
        if let Some((path, secs)) = by_date {
            settings.default_ttl = DefaultTtl::AfterDate(secs as u32);
            settings.json.insert("defaultTtl".into(), secs.into());
            settings.json.insert("ttlPropertyPath".into(), format!("/{path}").into());
        }
        settings.json.insert("documents".into(), documents);
        Ok(settings)
    }

    /// Reads a definition as [`Settings::json`] has it.
    pub(crate) fn stored(json: &Value, layouts: Option<Layouts>) -> Result<Self> {
        match (json.get("documents"), layouts) {
            (None, _) => Self::load(json),
            (Some(_), Some(layouts)) => Self::of_documents(json, layouts),
            (Some(_), None) => Err(invalid("The container's documents cannot be read here.")),
        }
    }

    /// The settings that a replace by `body` gives, or why it is refused. `epoch` is the change of the catalog that does it.
    pub fn replaced_by(&self, body: &Value, layouts: Option<Layouts>, epoch: u64) -> Result<Self> {
        let mut body = body.clone();
        // What documents are is their own front end's to say.
        if let (Some(object), Some(documents)) = (body.as_object_mut(), self.json.get("documents"))
        {
            object.insert("documents".into(), documents.clone());
        }
        self.replaced_as(body, layouts, epoch)
    }

    /// The same where the layout of documents may change.
    pub(crate) fn replaced_as(
        &self,
        mut body: Value,
        layouts: Option<Layouts>,
        epoch: u64,
    ) -> Result<Self> {
        if let Some(object) = body.as_object_mut() {
            // Old clients leave out what cannot change.
            let kept = ["partitionKey", "uniqueKeyPolicy", "ttlPropertyPath"];
            // The time of documents is their own front end's to say.
            let kept = if self.layout.is_some() { &kept[..2] } else { &kept[..] };
            for &name in kept {
                if let (false, Some(old)) = (object.contains_key(name), self.json.get(name)) {
                    object.insert(name.into(), old.clone());
                }
            }
        }
        let new = match self.layout {
            None => Self::parse(&body)?,
            Some(_) => Self::stored(&body, layouts)?,
        };
        if new.id != self.id {
            return Err(invalid("The id of a container cannot be changed by a replace."));
        }
        if new.partition_key != self.partition_key {
            return Err(invalid(
                "Document collection partition key cannot be changed. To change it, create a new container.",
            ));
        }
        if new.unique_keys != self.unique_keys {
            return Err(invalid(
                "The unique index cannot be modified. To change the unique index, remove the collection and \
                 re-create a new one.",
            ));
        }
        if new.json.get("clientEncryptionPolicy") != self.json.get("clientEncryptionPolicy") {
            return Err(invalid(
                "'clientEncryptionPolicy' cannot be changed as part of collection replace operation.",
            ));
        }
        if new.layout.is_none() && new.ttl_path != self.ttl_path {
            return Err(invalid(
                "The 'ttlPropertyPath' cannot be changed. To change it, create a new container.",
            ));
        }
        policies::check_replace(&self.json, &new.json)?;
        let mut new = Self {
            indexing_before: self.indexing_before.clone(),
            indexing_before_json: self.indexing_before_json.clone(),
            indexing_epoch: self.indexing_epoch,
            ..new
        };
        if new.layout.is_none() && new.json.get("indexingPolicy") != self.json.get("indexingPolicy")
        {
            new.indexing_epoch = epoch;
            new.indexing_before.push(self.indexing.clone());
            new.indexing_before_json.extend(self.json.get("indexingPolicy").cloned());
        }
        Ok(new)
    }

    /// What a `defaultTtl` would be in this container: where time counts from a property of the items, it counts from there (R30).
    pub fn default_of(&self, default_ttl: &Value) -> Result<DefaultTtl> {
        let by_date = matches!(self.default_ttl, DefaultTtl::AfterDate(_));
        read_default(Some(default_ttl), self.ttl_path.is_some() || by_date)
    }

    /// What the catalog stores about the rebuild of the index.
    pub(crate) fn rebuild_json(&self) -> Value {
        json!({"epoch": self.indexing_epoch, "before": self.indexing_before_json, "terms": TERMS})
    }

    /// Takes up what [`Settings::rebuild_json`] gave. Items of older stores lack terms, of shapes for one: their index is rebuilt.
    pub(crate) fn resume_rebuild(&mut self, stored: &Value) -> Result<()> {
        if self.layout.is_some() {
            return Ok(());
        }
        self.indexing_epoch = stored["epoch"].as_u64().unwrap_or_default();
        let everything = || vec![json!({"indexingMode": "consistent"})];
        self.indexing_before_json = stored["before"].as_array().cloned().unwrap_or_else(everything);
        if stored["terms"].as_u64() < Some(TERMS) && !self.indexing.spatial.is_empty() {
            // Its items have the terms that an index without a bounding box has, or none.
            let mut before = self.json.get("indexingPolicy").cloned().unwrap_or_default();
            for index in before["spatialIndexes"].as_array_mut().into_iter().flatten() {
                index.as_object_mut().and_then(|index| index.remove("boundingBox"));
            }
            self.indexing_before_json.push(before);
            self.indexing_epoch = self.indexing_epoch.wrapping_add(1 << 48);
        }
        let policy = |json: &Value| Ok(indexing_policy(Some(json), DefaultTtl::Off)?.0);
        self.indexing_before =
            self.indexing_before_json.iter().map(policy).collect::<Result<_>>()?;
        Ok(())
    }

    /// These settings once the index is rebuilt.
    pub(crate) fn rebuilt(&self) -> Self {
        Self { indexing_before: Vec::new(), indexing_before_json: Vec::new(), ..self.clone() }
    }

    /// Whether every item has all terms of the policy, and no others.
    pub(crate) fn is_indexed(&self) -> bool {
        self.indexing_before.is_empty()
    }

    /// The terms that an item ought to have, sorted. `_ts` is the item's, which its text may not hold yet.
    pub(crate) fn terms(&self, item: &Value, ts: Timestamp) -> Vec<Vec<u8>> {
        terms_of(std::iter::once(&self.indexing), item, ts)
    }

    /// All terms that an item may have, sorted: what a removal has to remove.
    pub(crate) fn terms_ever(&self, item: &Value, ts: Timestamp) -> Vec<Vec<u8>> {
        terms_of(self.indexing_before.iter().chain([&self.indexing]), item, ts)
    }

    /// What is stored beside a stored item.
    pub(crate) fn beside(&self, record: &Record) -> Result<Beside> {
        if let Some(layout) = &self.layout {
            let Description { mut terms, unique, .. } = layout.describe(&record.body)?;
            terms.sort_unstable();
            return Ok(Beside { key: None, terms, unique });
        }
        let value = parse_stored(record)?;
        let terms = self.terms_ever(&value, record.ts);
        let unique = self.unique_entries(&value)?;
        Ok(Beside { key: Some(self.key_bytes(&value)), terms, unique })
    }

    /// The stored form of an item's partition key.
    pub(crate) fn key_bytes(&self, item: &Value) -> Vec<u8> {
        encode_partition_key(&self.partition_key.extract(item))
    }

    /// The unique key entries of an item, without the partition they live in. A missing value takes part as null.
    pub(crate) fn unique_entries(&self, item: &Value) -> Result<Vec<Vec<u8>>> {
        if self.unique_keys.is_empty() {
            return Ok(Vec::new());
        }
        let key = self.key_bytes(item);
        let entry = |(number, paths): (usize, &Vec<Path>)| {
            let mut writer = Writer::append_to(Vec::new());
            writer.u8(number as u8).bytes(&key);
            for path in paths {
                let value = path.find(item).unwrap_or(&Value::Null);
                match value {
                    // Terms cut long strings; here every byte counts.
                    Value::String(text) => {
                        writer.u8(0x40).bytes(text.as_bytes());
                    }
                    Value::Array(_) | Value::Object(_) => {
                        writer.u8(0x50).bytes(value.to_string().as_bytes());
                    }
                    scalar => push_value(&mut writer, scalar),
                }
            }
            let entry = writer.into_inner();
            match entry.len() {
                0..=UNIQUE_ENTRY_BYTES_MAX => Ok(entry),
                _ => Err(invalid(format!(
                    "The values of a unique key are too long: the most is {UNIQUE_ENTRY_BYTES_MAX} bytes."
                ))),
            }
        };
        self.unique_keys.iter().enumerate().map(entry).collect()
    }
}

fn read_default(default_ttl: Option<&Value>, by_date: bool) -> Result<DefaultTtl> {
    let default_ttl = DefaultTtl::from_json(default_ttl).map_err(Error::Invalid)?;
    Ok(match default_ttl {
        DefaultTtl::Secs(secs) if by_date => DefaultTtl::AfterDate(secs),
        default_ttl => default_ttl,
    })
}

fn terms_of<'a>(
    policies: impl Iterator<Item = &'a IndexingPolicy>,
    item: &Value,
    ts: Timestamp,
) -> Vec<Vec<u8>> {
    let mut terms = Vec::new();
    for policy in policies {
        terms.extend(policy.terms(item));
        terms.extend(policy.ts_term(ts));
    }
    terms.sort_unstable();
    terms.dedup();
    terms
}

/// The `id` of a database or container, validated.
pub(crate) fn resource_id(body: &Map<String, Value>) -> Result<String> {
    let id = match body.get("id") {
        None => {
            return Err(invalid(
                "The input content is invalid because the required properties - 'id; ' - are missing",
            ));
        }
        Some(Value::String(id)) => id,
        Some(_) => {
            return Err(invalid("One of the specified inputs is invalid: 'id' must be a string."));
        }
    };
    if id.is_empty() {
        return Err(invalid("Resource id cannot be empty."));
    }
    if let Some(bad) = id.chars().find(|c| matches!(c, '/' | '\\' | '?' | '#') || c.is_control()) {
        return Err(invalid(format!(
            "The resource name presented contains invalid character '{bad}'."
        )));
    }
    if id.ends_with(' ') {
        return Err(invalid("The resource name can't end with space."));
    }
    if id.chars().count() > 255 {
        return Err(invalid(
            "The resource name presented is too long. Ensure to provide a unique non-empty string less than '255' \
             characters.",
        ));
    }
    Ok(id.clone())
}

/// The refusal of a partition key path, and why.
pub(crate) fn bad_key_path(path: &str, why: &str) -> Error {
    invalid(format!(
        "The partition key component definition path '{path}' could not be accepted. Partition key paths must contain only \
         valid characters and not contain a trailing slash or wildcard character. {why}"
    ))
}

fn partition_key(body: &Map<String, Value>) -> Result<(PartitionKeyDefinition, Value)> {
    let definition = given(body, "partitionKey")
        .ok_or_else(|| {
            invalid(
                "The partition key definition is missing: give 'partitionKey' with 'paths', for example \
                 {\"paths\":[\"/id\"],\"kind\":\"Hash\",\"version\":2}.",
            )
        })?
        .as_object()
        .ok_or_else(|| invalid("The partition key definition must be a JSON object with 'paths'."))?;
    let paths = texts(definition.get("paths"), "partitionKey.paths")?;
    if paths.is_empty() {
        return Err(invalid("The partition key definition needs at least one path."));
    }
    let version = match definition.get("version") {
        None | Some(Value::Null) => None,
        Some(version) => {
            Some(version.as_u64().filter(|version| matches!(version, 1 | 2)).ok_or_else(|| {
                invalid(format!(
                    "The partition key version '{version}' is invalid: it must be 1 or 2."
                ))
            })?)
        }
    };
    let kind_name = definition.get("kind").and_then(Value::as_str).unwrap_or("Hash");
    let kind = match kind_name {
        "Hash" | "Range" if paths.len() > 1 => {
            return Err(invalid(
                "Too many partition key paths specified. A 'Hash' partition key has one path; use 'MultiHash' \
                 for up to 3.",
            ));
        }
        "Hash" | "Range" if version == Some(2) => Kind::V2,
        "Hash" | "Range" => Kind::V1,
        "MultiHash" if version != Some(2) => {
            return Err(invalid("Subpartitioning is only supported for Hash V2."));
        }
        "MultiHash" if paths.len() > 3 => {
            return Err(invalid(
                "Too many partition key paths specified. Subpartitioning is only supported for atmost 3 partition paths.",
            ));
        }
        "MultiHash" => Kind::MultiHash,
        other => return Err(invalid(format!("The partition key kind '{other}' is unknown."))),
    };
    let parse = |path: &String| Path::parse(path).map_err(|why| bad_key_path(path, &why));
    let parsed = paths.iter().map(parse).collect::<Result<Vec<_>>>()?;
    let mut json = json!({"paths": paths, "kind": kind_name});
    if let Some(version) = version {
        json["version"] = version.into();
    }
    if let Some(system) = given(definition, "systemKey") {
        json["systemKey"] = system.clone();
    }
    Ok((PartitionKeyDefinition { paths: parsed, kind }, json))
}

fn indexing_policy(
    policy: Option<&Value>,
    default_ttl: DefaultTtl,
) -> Result<(IndexingPolicy, Value)> {
    let mut json = match policy {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(policy)) => policy.clone(),
        Some(_) => return Err(invalid("The indexing policy must be a JSON object.")),
    };
    let mode = match json.get("indexingMode") {
        None | Some(Value::Null) => "consistent".to_owned(),
        Some(mode) => mode.as_str().unwrap_or_default().to_lowercase(),
    };
    if !matches!(mode.as_str(), "consistent" | "lazy" | "none") {
        return Err(invalid(format!(
            "The indexing mode {} is invalid: it must be 'consistent', 'lazy' or 'none'.",
            json["indexingMode"]
        )));
    }
    if mode == "none" && default_ttl.is_on() {
        // R06: TTL needs an index.
        return Err(invalid(
            "Indexing mode value cannot be 'none' when 'defaultTtl' is specified in the collection",
        ));
    }
    let mut included = index_paths(json.get("includedPaths"), "includedPaths")?;
    let mut excluded = index_paths(json.get("excludedPaths"), "excludedPaths")?;
    if mode != "none" {
        if included.is_empty() && excluded.is_empty() {
            included.push("/*".into());
            json.insert("includedPaths".into(), json!([{"path": "/*"}]));
        }
        if !included.iter().chain(&excluded).any(|path| path == "/*" || path == "/") {
            return Err(invalid(
                "The special mandatory indexing path \"/\" is not provided in any of the path type sets. Please \
                 provide this path in one of the sets.",
            ));
        }
        if !excluded.iter().any(|path| path.contains("_etag")) {
            excluded.push("/\"_etag\"/?".into());
            let list = json.entry("excludedPaths").or_insert_with(|| json!([]));
            if let Value::Array(list) = list {
                list.push(json!({"path": "/\"_etag\"/?"}));
            }
        }
    }
    check_composite_indexes(json.get("compositeIndexes"))?;
    let composites = composite_indexes(json.get("compositeIndexes"));
    check_spatial_indexes(json.get("spatialIndexes"))?;

    let automatic = json.get("automatic").and_then(Value::as_bool).unwrap_or(mode != "none");
    let mut ordered = Map::new();
    ordered.insert("indexingMode".into(), mode.clone().into());
    ordered.insert("automatic".into(), automatic.into());
    for name in ["includedPaths", "excludedPaths"] {
        // Old clients name kinds and precisions of index for each path, which the service has long ceased to keep.
        for path in json.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten() {
            path.as_object_mut().and_then(|path| path.remove("indexes"));
        }
        ordered.insert(
            name.into(),
            json.remove(name).filter(Value::is_array).unwrap_or_else(|| json!([])),
        );
    }
    for (name, value) in json {
        ordered.entry(name).or_insert(value);
    }
    let mut compiled = if mode == "none" {
        IndexingPolicy::none()
    } else {
        let paths = |list: &[String]| {
            list.iter()
                .map(|path| if path == "/" { "/*" } else { path }.to_owned())
                .collect::<Vec<_>>()
        };
        let (included, excluded) = (paths(&included), paths(&excluded));
        IndexingPolicy::new(
            included.iter().map(String::as_str),
            excluded.iter().map(String::as_str),
        )
        .map_err(|why| invalid(format!("The indexing policy is invalid. {why}")))?
    };
    compiled.composites = composites;
    if mode != "none" {
        compiled.spatial = spatial_indexes(ordered.get("spatialIndexes"));
    }
    Ok((compiled, Value::Object(ordered)))
}

fn index_paths(list: Option<&Value>, name: &str) -> Result<Vec<String>> {
    let entries = match list {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(entries)) => entries,
        Some(_) => {
            return Err(invalid(format!("The indexing policy's '{name}' must be an array.")));
        }
    };
    if entries.len() > INDEX_PATHS_MAX {
        return Err(invalid(format!(
            "The indexing policy's '{name}' has more than {INDEX_PATHS_MAX} paths."
        )));
    }
    let path = |entry: &Value| {
        entry.get("path").and_then(Value::as_str).map(str::to_owned).ok_or_else(|| {
            invalid(format!(
                "The indexing policy's '{name}' has an entry without a 'path': {entry}."
            ))
        })
    };
    entries.iter().map(path).collect()
}

fn check_composite_indexes(indexes: Option<&Value>) -> Result<()> {
    for index in indexes.and_then(Value::as_array).into_iter().flatten() {
        let paths = index.as_array().map_or(0, Vec::len);
        if !(2..=8).contains(&paths) {
            return Err(invalid("A composite index must have 2 to 8 paths."));
        }
    }
    Ok(())
}

/// The composite indexes of a policy. Whether they are well-formed is asked where a client sends them.
fn composite_indexes(indexes: Option<&Value>) -> Vec<Composite> {
    let mut composites = Vec::new();
    for index in indexes.and_then(Value::as_array).into_iter().flatten() {
        let path = |entry: &Value| {
            let text = entry.get("path")?.as_str()?;
            let path = Path::parse(text.strip_suffix("/?").unwrap_or(text)).ok()?;
            let order = entry.get("order").and_then(Value::as_str).unwrap_or_default();
            Some(CompositePath { path, descending: order.eq_ignore_ascii_case("descending") })
        };
        let paths: Option<Vec<_>> = index.as_array().into_iter().flatten().map(path).collect();
        let composite = paths.map(Composite::new);
        composites.extend(composite.filter(|new| !composites.contains(new)));
    }
    composites
}

fn check_spatial_indexes(indexes: Option<&Value>) -> Result<()> {
    for index in indexes.and_then(Value::as_array).into_iter().flatten() {
        if index.get("types").and_then(Value::as_array).is_some_and(Vec::is_empty) {
            return Err(invalid(
                "The spatial data types array cannot be empty. Assign at least one spatial type for the 'types' \
                 array for the path",
            ));
        }
    }
    Ok(())
}

/// Whether a spatial index is for shapes on a plane: these have a bounding box, and others must not have one.
fn is_flat(index: &Value) -> bool {
    index.get("boundingBox").is_some_and(|bounds| !bounds.is_null())
}

/// The spatial indexes of a policy. Whatever kinds of shape they name, all are kept.
fn spatial_indexes(indexes: Option<&Value>) -> Vec<Spatial> {
    let mut all = Vec::new();
    for index in indexes.and_then(Value::as_array).into_iter().flatten() {
        let text = index.get("path").and_then(Value::as_str).unwrap_or_default();
        let text = text.strip_suffix("/*").or(text.strip_suffix("/?")).unwrap_or(text);
        let spatial = Path::parse(text).ok().and_then(|path| Spatial::new(path, is_flat(index)));
        all.extend(spatial.filter(|new| !all.contains(new)));
    }
    all
}

fn unique_keys(policy: Option<&Value>) -> Result<Vec<Vec<Path>>> {
    let keys = policy.and_then(|policy| policy.get("uniqueKeys")).and_then(Value::as_array);
    let Some(keys) = keys else { return Ok(Vec::new()) };
    if keys.len() > UNIQUE_KEYS_MAX {
        return Err(invalid(format!("A container has at most {UNIQUE_KEYS_MAX} unique keys.")));
    }
    keys.iter()
        .map(|key| {
            let paths = texts(key.get("paths"), "uniqueKeys.paths")?;
            if paths.is_empty() || paths.len() > UNIQUE_KEY_PATHS_MAX {
                return Err(invalid(format!(
                    "A unique key has 1 to {UNIQUE_KEY_PATHS_MAX} paths."
                )));
            }
            let parse = |path: &String| Path::parse(path).map_err(Error::Invalid);
            paths.iter().map(parse).collect()
        })
        .collect()
}

fn geospatial(body: &Map<String, Value>) -> Result<Value> {
    match given(body, "geospatialConfig") {
        None => Ok(json!({"type": "Geography"})),
        Some(config) => match config.get("type").and_then(Value::as_str) {
            Some("Geography" | "Geometry") => Ok(config.clone()),
            _ => Err(invalid("The type of 'geospatialConfig' must be 'Geography' or 'Geometry'.")),
        },
    }
}

fn default_conflict_resolution() -> Value {
    json!({"mode": "LastWriterWins", "conflictResolutionPath": "/_ts", "conflictResolutionProcedure": ""})
}

/// Fills in what a given conflict resolution policy leaves out.
fn complete_conflict_resolution(json: &mut Map<String, Value>) {
    if let Some(Value::Object(policy)) = json.get_mut("conflictResolutionPolicy") {
        let custom = policy.get("mode").and_then(Value::as_str) == Some("Custom");
        policy.entry("mode").or_insert_with(|| "LastWriterWins".into());
        policy
            .entry("conflictResolutionPath")
            .or_insert_with(|| if custom { "" } else { "/_ts" }.into());
        policy.entry("conflictResolutionProcedure").or_insert_with(|| "".into());
    }
}

fn given<'a>(object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}

fn texts(list: Option<&Value>, name: &str) -> Result<Vec<String>> {
    let list = list.and_then(Value::as_array);
    let texts =
        list.and_then(|list| list.iter().map(|text| text.as_str().map(str::to_owned)).collect());
    texts.ok_or_else(|| invalid(format!("'{name}' must be an array of paths.")))
}

fn invalid(text: impl Into<String>) -> Error {
    Error::Invalid(text.into())
}
