//! createIndexes, dropIndexes, listIndexes, reIndex.
//!
//! A new index is first put into the collection's definition, so that every write from then on has its entries; then the documents that are
//! there get theirs; then it may be used. A TTL index on `_ts` has no entries: it is the container's default (R25). One on a date
//! is an index like others, and the container's rule (R29).

use std::sync::Arc;

use bson::{Bson, Document, RawArrayBuf, RawDocument, RawDocumentBuf, doc, rawdoc};
use bytes::Bytes;
use db::Container;
use model::ttl::TTL_SECS_MAX;
use serde_json::{Map, Value, json};

use super::reading::same_key;
use super::{Call, collections};
use crate::error::{Refusal, Result};
use crate::layout::{self, Index, number_of, to_json};
use crate::options::{Fields, documents_of, missing};

/// The most indexes of a collection.
const INDEXES_MAX: usize = 500;

/// The most fields of an index.
const FIELDS_MAX: usize = 32;

/// All indexes of a collection, as clients see them.
pub(super) fn shown(container: &Container) -> Vec<Document> {
    let mut all = vec![doc! {"v": 2, "key": {"_id": 1}, "name": "_id_"}];
    if let Some(collection) = layout::of(container) {
        if let Ok(clustered) = collection.options.get_document("clusteredIndex") {
            all[0] = clustered.clone();
            all[0].insert("clustered", true);
        }
        all.extend(collection.indexes.iter().map(|index| index.spec.clone()));
        all.extend(collections::ts_index(container, collection));
    }
    all
}

pub fn list(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let name = call.collection_name()?;
    let container = call
        .find_container(name)?
        .ok_or_else(|| Refusal::new(26, format!("ns does not exist: {}", call.namespace(name))))?;
    let mut rows: Vec<Bytes> = Vec::new();
    for index in shown(&container) {
        rows.push(RawDocumentBuf::try_from(&index)?.into_bytes().into());
    }
    collections::cursor_of(call, name, rows)
}

pub async fn create(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let name = call.collection_name()?;
    let specs = match call.fields().array("indexes")? {
        Some(array) => documents_of("indexes", array)?,
        None => return Err(missing("indexes")),
    };
    if specs.is_empty() {
        return Err(Refusal::bad_value("Must specify at least one index to create"));
    }
    let mut parsed = Vec::with_capacity(specs.len());
    for spec in &specs {
        parsed.push(read_spec(call, RawDocument::from_bytes(spec)?)?);
    }
    let created = call.find_container(name)?.is_none();
    let container = collections::ensure(call, name).await?;
    let before = shown(&container);
    let mut wanted = Vec::new();
    for spec in parsed {
        if !is_there(&before, &spec)? {
            wanted.push(spec);
        }
    }
    if before.len() + wanted.len() > INDEXES_MAX {
        return Err(Refusal::new(
            67,
            format!("add index fails, too many indexes: the most is {INDEXES_MAX}"),
        ));
    }
    let none = wanted.is_empty();
    for spec in wanted {
        make(call, name, spec).await?;
    }
    let after = call.find_container(name)?.map_or(0, |container| shown(&container).len());
    let mut reply = rawdoc! {
        "numIndexesBefore": if created { 1 } else { before.len() as i32 },
        "numIndexesAfter": after as i32,
        "createdCollectionAutomatically": created,
    };
    if none {
        reply.append(bson::cstr!("note"), "all indexes already exist");
    }
    reply.append(bson::cstr!("ok"), 1.0);
    Ok(reply)
}

/// Checks and completes a specification.
fn read_spec(call: &Call<'_>, spec: &RawDocument) -> Result<Document> {
    let fields = Fields(spec);
    let key = fields.document("key")?.ok_or_else(|| {
        Refusal::parse("Error in specification: The 'key' field is a required property of an index specification")
    })?;
    let key: Document = key.try_into()?;
    let name = fields.text("name")?.ok_or_else(|| {
        Refusal::parse("Error in specification: The 'name' field is a required property of an index specification")
    })?;
    if key.is_empty() {
        return Err(Refusal::new(67, "Index keys cannot be an empty object"));
    }
    if key.len() > FIELDS_MAX {
        return Err(Refusal::new(
            67,
            format!("Index key pattern too large: the most is {FIELDS_MAX} fields"),
        ));
    }
    for (path, direction) in &key {
        let fine = match direction {
            Bson::String(kind) => matches!(kind.as_str(), "hashed" | "text" | "2dsphere" | "2d"),
            number => number_of(number).is_some_and(|number| number != 0.0 && !number.is_nan()),
        };
        if !fine {
            return Err(Refusal::new(
                67,
                format!(
                    "Values in v:2 index key pattern cannot be of this kind or zero: {path}: {direction}. Use 1, -1, or the name of a kind of index."
                ),
            ));
        }
        if path.is_empty() || path.split('.').any(str::is_empty) {
            return Err(Refusal::new(67, "Index keys cannot contain an empty field."));
        }
    }
    let mut complete = doc! {"v": 2, "key": key.clone(), "name": name};
    for element in spec.iter() {
        let (option, value) = element?;
        let option = option.as_str();
        match option {
            "v" | "key" | "name" | "ns" => {}
            "dropDups" => {}
            // What says nothing is not kept.
            "background" => drop(complete.insert(option, Bson::try_from(value)?)),
            "unique" | "sparse" | "hidden" => {
                if fields.flag(option)? {
                    complete.insert(option, true);
                }
            }
            "partialFilterExpression" if value.as_document().is_none() => {
                return Err(Refusal::new(
                    67,
                    "'partialFilterExpression' for an index has to be a document",
                ));
            }
            "expireAfterSeconds"
            | "partialFilterExpression"
            | "collation"
            | "2dsphereIndexVersion"
            | "bits"
            | "min"
            | "max"
            | "bucketSize"
            | "storageEngine"
            | "wildcardProjection"
            | "prepareUnique"
            | "clustered" => {
                complete.insert(option, Bson::try_from(value)?);
            }
            other => {
                return Err(Refusal::new(
                    197,
                    format!(
                        "Error in specification {complete} :: caused by :: The field '{other}' is not valid for an index specification."
                    ),
                ));
            }
        }
    }
    if key.values().any(|kind| kind.as_str() == Some("text")) {
        return Err(Refusal::new(
            67,
            "Text indexes are not supported: search with $regex, which an index on the field helps where the pattern begins with ^.",
        ));
    }
    if key.values().any(|kind| kind.as_str() == Some("2dsphere")) {
        complete.entry("2dsphereIndexVersion".to_owned()).or_insert(Bson::Int32(3));
    }
    if let Some(secs) = complete.get("expireAfterSeconds") {
        let secs = number_of(secs);
        let on_ts = key.keys().eq(["_ts"]);
        let least = if on_ts { -1.0 } else { 0.0 };
        let fine = secs.is_some_and(|secs| {
            secs.fract() == 0.0
                && secs >= least
                && secs <= f64::from(TTL_SECS_MAX)
                && !(on_ts && secs == 0.0)
        });
        if !fine {
            return Err(Refusal::new(
                67,
                format!(
                    "TTL index 'expireAfterSeconds' option must be a whole number within an acceptable range: on _ts -1 or 1 to {TTL_SECS_MAX}, on a date 0 to {TTL_SECS_MAX}"
                ),
            ));
        }
        if key.len() > 1 {
            return Err(Refusal::new(
                67,
                "TTL indexes are single-field indexes, compound indexes do not support TTL",
            ));
        }
        if key.keys().eq(["_id"]) {
            return Err(Refusal::new(
                197,
                "The field 'expireAfterSeconds' is not valid for an _id index specification.",
            ));
        }
        if !on_ts && call.front_end.options.strict_cosmos {
            // R29
            return Err(Refusal::bad_value(
                "The 'expireAfterSeconds' option is supported on '_ts' field only.",
            ));
        }
        if let Some(secs) = secs {
            complete.insert("expireAfterSeconds", secs as i32);
        }
    }
    // What cannot be made is found out before anything is changed.
    Index::new(0, complete.clone(), false).map_err(|why| Refusal::new(67, why))?;
    Ok(complete)
}

/// Whether an index is there already; an error if one with the same name or key is another.
fn is_there(all: &[Document], spec: &Document) -> Result<bool> {
    let empty = Document::new();
    let key = |document: &Document| document.get_document("key").unwrap_or(&empty).clone();
    let bare = |document: &Document| {
        let mut rest = document.clone();
        for name in ["v", "name", "key"] {
            rest.remove(name);
        }
        rest
    };
    let (name, wanted) = (spec.get_str("name").unwrap_or_default(), key(spec));
    for there in all {
        let same_name = there.get_str("name").is_ok_and(|found| found == name);
        let is_same_key = same_key(&key(there), &wanted);
        if is_same_key && wanted.keys().eq(["_id"]) {
            return Ok(true);
        }
        let same_partial = there.get("partialFilterExpression")
            == spec.get("partialFilterExpression")
            && there.get("collation") == spec.get("collation");
        match (same_name, is_same_key && same_partial) {
            (true, true) if bare(there) == bare(spec) => return Ok(true),
            (true, true) => {
                return Err(Refusal::new(
                    85,
                    format!(
                        "An equivalent index already exists with the same name but different options. Requested index: {spec}, existing index: {there}"
                    ),
                ));
            }
            (true, false) => {
                return Err(Refusal::new(
                    86,
                    format!(
                        "An existing index has the same name as the requested index. When index names are not specified, they are auto generated and can cause conflicts. Please refer to our documentation. Requested index: {spec}, existing index: {there}"
                    ),
                ));
            }
            (false, true) => {
                return Err(Refusal::new(
                    85,
                    format!(
                        "Index already exists with a different name: {}",
                        there.get_str("name").unwrap_or_default()
                    ),
                ));
            }
            (false, false) => {}
        }
    }
    Ok(false)
}

/// Makes one index.
async fn make(call: &Call<'_>, name: &str, spec: Document) -> Result<()> {
    let (db, database) = (call.db(), call.database);
    let key = spec.get_document("key").cloned().unwrap_or_default();
    let secs = spec.get_i32("expireAfterSeconds").ok();
    let index_name = spec.get_str("name").unwrap_or_default().to_owned();
    if let Some(secs) = secs {
        let container =
            call.find_container(name)?.ok_or_else(|| Refusal::new(26, "ns not found"))?;
        if container.settings.default_ttl.is_on() {
            return Err(Refusal::new(
                67,
                "The collection already has a TTL index: drop it first, or change it with collMod.",
            ));
        }
        if key.keys().eq(["_ts"]) {
            // R25, and in no time whatever the number of documents (R15).
            db.replace_collection(database, name, |json| {
                json.insert("defaultTtl".into(), secs.into());
                json["documents"]["ttlName"] = index_name.clone().into();
            })
            .await?;
            return Ok(());
        }
        // Dates are another kind of ttl: what former rules have expired goes first, so that their marks can go.
        db.forget_marks(&container).await?;
    }
    let path = key.keys().next().cloned().unwrap_or_default();
    let container = db
        .replace_collection(database, name, |json| {
            let documents = &mut json["documents"];
            let number = documents["nextNumber"].as_u64().unwrap_or(1);
            documents["nextNumber"] = (number + 1).into();
            let index =
                json!({"number": number, "spec": to_json(&spec), "ready": false, "sections": true, "cells": true});
            push(&mut documents["indexes"], index);
            if secs.is_some() {
                documents["ttlPath"] = path.clone().into();
            }
        })
        .await?;
    if let Err(error) = db.describe_again(&container).await {
        let refusal = match &error {
            db::Error::UniqueKeyViolation { .. } => Refusal::new(
                11000,
                format!(
                    "E11000 duplicate key error collection: {database}.{name} index: {index_name}: two documents have the same key"
                ),
            ),
            db::Error::Invalid(text) if text.starts_with("cannot index parallel") => {
                Refusal::new(171, text.clone())
            }
            _ => error.into(),
        };
        remove(call, name, std::slice::from_ref(&index_name)).await?;
        return Err(refusal);
    }
    db.replace_collection(database, name, |json| {
        let documents = &mut json["documents"];
        for index in documents["indexes"].as_array_mut().into_iter().flatten() {
            if index["spec"]["name"] == index_name.as_str() {
                index["ready"] = true.into();
            }
        }
        if let Some(secs) = secs {
            documents["ttlSecs"] = secs.into();
        }
    })
    .await?;
    Ok(())
}

fn push(list: &mut Value, value: Value) {
    match list {
        Value::Array(list) => list.push(value),
        other => *other = json!([value]),
    }
}

pub async fn drop_indexes(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let name = call.collection_name()?;
    let container = call
        .find_container(name)?
        .ok_or_else(|| Refusal::new(26, format!("ns not found {}", call.namespace(name))))?;
    let all = shown(&container);
    let which = call.fields().get("index").ok_or_else(|| missing("index"))?;
    let known = |name: &str| -> Result<String> {
        if name == "_id_" {
            return Err(Refusal::new(72, "cannot drop _id index"));
        }
        let found = all.iter().any(|index| index.get_str("name").is_ok_and(|found| found == name));
        found
            .then(|| name.to_owned())
            .ok_or_else(|| Refusal::new(27, format!("index not found with name [{name}]")))
    };
    let names: Vec<String> = match which {
        bson::RawBsonRef::String("*") => {
            let names = all.iter().filter_map(|index| index.get_str("name").ok());
            names.filter(|name| *name != "_id_").map(str::to_owned).collect()
        }
        bson::RawBsonRef::String(name) => vec![known(name)?],
        bson::RawBsonRef::Document(key) => {
            let key: Document = key.try_into()?;
            let same = |index: &&Document| {
                index.get_document("key").is_ok_and(|found| same_key(found, &key))
            };
            let found = all.iter().find(same).and_then(|index| index.get_str("name").ok());
            let found = found
                .ok_or_else(|| Refusal::new(27, format!("can't find index with key: {key}")))?;
            vec![known(found)?]
        }
        bson::RawBsonRef::Array(list) => {
            let mut names = Vec::new();
            for name in list {
                let name = name?
                    .as_str()
                    .ok_or_else(|| Refusal::type_mismatch("index names must be strings"))?;
                names.push(known(name)?);
            }
            names
        }
        _ => {
            return Err(Refusal::type_mismatch(
                "dropIndexes: index must be a name, names, or a key",
            ));
        }
    };
    remove(call, name, &names).await?;
    Ok(rawdoc! {"nIndexesWas": all.len() as i32, "ok": 1.0})
}

/// Takes indexes out of the definition, then removes what they have stored.
async fn remove(call: &Call<'_>, name: &str, names: &[String]) -> Result<()> {
    let (db, database) = (call.db(), call.database);
    let container = call.find_container(name)?.ok_or_else(|| Refusal::new(26, "ns not found"))?;
    let named = |wanted: &str| names.iter().any(|name| name == wanted);
    let collection = layout::of(&container).ok_or_else(|| Refusal::new(26, "ns not found"))?;
    let ts = collections::ts_index(&container, collection);
    if ts.is_some_and(|ts| ts.get_str("name").is_ok_and(named)) {
        db.replace_collection(database, name, |json| {
            json.remove("defaultTtl");
            if let Some(documents) = json["documents"].as_object_mut() {
                documents.remove("ttlName");
            }
        })
        .await?;
    }
    let going: Vec<&Index> = collection.indexes.iter().filter(|index| named(&index.name)).collect();
    if going.is_empty() {
        return Ok(());
    }
    let by_date = going.iter().any(|index| index.spec.contains_key("expireAfterSeconds"));
    let container = db
        .replace_collection(database, name, |json| {
            let documents = &mut json["documents"];
            let mut leaving = Vec::new();
            if let Some(indexes) = documents["indexes"].as_array_mut() {
                indexes.retain(|index| {
                    let stays = !index["spec"]["name"].as_str().is_some_and(named);
                    if !stays {
                        leaving.push(index["number"].clone());
                    }
                    stays
                });
            }
            leaving.into_iter().for_each(|number| push(&mut documents["leaving"], number));
            if by_date {
                json.remove("defaultTtl");
                json.remove("ttlPropertyPath");
                if let Some(documents) = json["documents"].as_object_mut() {
                    documents.remove("ttlPath");
                    documents.remove("ttlSecs");
                }
            }
        })
        .await?;
    if by_date {
        db.describe_again(&container).await?;
    }
    clear(call.db(), &container).await
}

/// Removes what indexes that are gone have stored.
pub(crate) async fn clear(db: &db::Db, container: &Arc<Container>) -> Result<()> {
    let leaving =
        container.settings.json["documents"]["leaving"].as_array().cloned().unwrap_or_default();
    for number in &leaving {
        if let Some(number) = number.as_u64() {
            db.clear_entries(container, &(number as u32).to_be_bytes()).await?;
        }
    }
    if !leaving.is_empty() {
        db.replace_collection(&container.database_id, container.id(), |json| {
            if let Some(left) = json["documents"]["leaving"].as_array_mut() {
                left.retain(|number| !leaving.contains(number));
            }
        })
        .await?;
    }
    Ok(())
}

/// `collMod`'s part about an index.
pub(super) async fn modify(
    call: &Call<'_>,
    container: &Arc<Container>,
    spec: &RawDocument,
    reply: &mut RawDocumentBuf,
) -> Result<()> {
    let fields = Fields(spec);
    let all = shown(container);
    let found = match (fields.text("name")?, fields.document("keyPattern")?) {
        (Some(name), None) => {
            all.iter().find(|index| index.get_str("name").is_ok_and(|found| found == name))
        }
        (None, Some(key)) => {
            let key: Document = key.try_into()?;
            all.iter()
                .find(|index| index.get_document("key").is_ok_and(|found| same_key(found, &key)))
        }
        _ => {
            return Err(Refusal::new(
                72,
                "Specify the index by exactly one of name and keyPattern",
            ));
        }
    };
    let index = found.ok_or_else(|| Refusal::new(27, "cannot find index for ns"))?;
    let name = index.get_str("name").unwrap_or_default().to_owned();
    let Some(secs) = fields.int("expireAfterSeconds")? else {
        return match fields.get("hidden") {
            Some(_) => hide(call, container, &name, fields.flag("hidden")?).await,
            None => Err(Refusal::new(72, "no expireAfterSeconds field")),
        };
    };
    let on_ts = index.get_document("key").is_ok_and(|key| key.keys().eq(["_ts"]));
    let fine = if on_ts { secs == -1 || secs > 0 } else { secs >= 0 };
    if !fine || secs > i64::from(TTL_SECS_MAX) {
        return Err(Refusal::new(
            72,
            format!(
                "TTL index 'expireAfterSeconds' option must be within an acceptable range: {secs}"
            ),
        ));
    }
    let Some(old) = index.get("expireAfterSeconds").and_then(number_of) else {
        return Err(Refusal::new(72, "no expireAfterSeconds field to update"));
    };
    let edit = |json: &mut Map<String, Value>| {
        json.insert("defaultTtl".into(), secs.into());
        if !on_ts {
            let documents = &mut json["documents"];
            documents["ttlSecs"] = secs.into();
            for index in documents["indexes"].as_array_mut().into_iter().flatten() {
                if index["spec"]["name"] == name.as_str() {
                    index["spec"]["expireAfterSeconds"] =
                        Bson::Int32(secs as i32).into_canonical_extjson();
                }
            }
        }
    };
    call.db().replace_collection(&container.database_id, container.id(), edit).await?;
    reply.append(bson::cstr!("expireAfterSeconds_old"), old as i64);
    reply.append(bson::cstr!("expireAfterSeconds_new"), secs);
    Ok(())
}

async fn hide(call: &Call<'_>, container: &Arc<Container>, name: &str, hidden: bool) -> Result<()> {
    let edit = |json: &mut Map<String, Value>| {
        for index in json["documents"]["indexes"].as_array_mut().into_iter().flatten() {
            if index["spec"]["name"] == name
                && let Some(spec) = index["spec"].as_object_mut()
            {
                match hidden {
                    true => drop(spec.insert("hidden".into(), true.into())),
                    false => drop(spec.remove("hidden")),
                }
            }
        }
    };
    call.db().replace_collection(&container.database_id, container.id(), edit).await?;
    Ok(())
}

/// Writes every entry anew.
pub async fn rebuild(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let name = call.collection_name()?;
    let container =
        call.find_container(name)?.ok_or_else(|| Refusal::new(26, "collection does not exist"))?;
    call.db().describe_again(&container).await?;
    let all = shown(&container);
    let mut list = RawArrayBuf::new();
    for index in &all {
        list.push(RawDocumentBuf::try_from(index)?);
    }
    Ok(
        rawdoc! {"nIndexesWas": all.len() as i32, "nIndexes": all.len() as i32, "indexes": list, "ok": 1.0},
    )
}

/// Finishes what a stop has cut short: indexes that were being built, and entries of those that had gone.
pub async fn resume(db: &db::Db) -> Result<()> {
    for database in db.databases() {
        for container in db.containers(&database.id).unwrap_or_default() {
            let Some(collection) = layout::of(&container) else { continue };
            clear(db, &container).await?;
            if collection.indexes.iter().all(|index| index.ready) {
                continue;
            }
            db.describe_again(&container).await?;
            db.replace_collection(&database.id, container.id(), |json| {
                for index in json["documents"]["indexes"].as_array_mut().into_iter().flatten() {
                    index["ready"] = true.into();
                }
            })
            .await?;
        }
    }
    Ok(())
}
