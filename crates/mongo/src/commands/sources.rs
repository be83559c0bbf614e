//! Stages that the server itself feeds: sessions, operations, figures of collections and indexes.
//!
//! Each becomes a `$documents` stage with what there is to tell, so that the rest of the pipeline knows nothing of it. And `$geoNear`, which may leave it to
//! the indexes which field is meant.

use bson::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};

use super::{Call, collections, indexes};
use crate::error::{Refusal, Result};
use crate::options::Fields;

/// The stage to run instead of a first stage like these; `None` if it is another.
pub(super) async fn replaced(
    call: &Call<'_>,
    collection: Option<&str>,
    stage: RawBsonRef<'_>,
) -> Result<Option<RawDocumentBuf>> {
    let Some(stage) = stage.as_document() else { return Ok(None) };
    let Some((name, options)) = stage.iter().next().transpose()? else { return Ok(None) };
    let name = name.as_str();
    if name == "$geoNear" {
        return with_key(call, collection, stage);
    }
    let of_database = matches!(name, "$listLocalSessions" | "$listSessions" | "$currentOp");
    let of_collection = matches!(name, "$collStats" | "$indexStats" | "$planCacheStats");
    if !of_database && !of_collection {
        return Ok(None);
    }
    let Some(options) = options.as_document() else {
        return Err(Refusal::parse(format!("{name} options must be specified in an object")));
    };
    if of_database && collection.is_some() && name != "$listSessions" {
        return Err(Refusal::new(
            73,
            format!("{name} must be run against a database with {{aggregate: 1}}"),
        ));
    }
    let mut rows = RawArrayBuf::new();
    match (name, collection) {
        ("$listLocalSessions" | "$listSessions", _) => {
            let current = call.fields().document("lsid")?;
            for (session, used) in call.front_end.sessions.listed(current) {
                let rested = call.db().clock().elapsed().saturating_sub(used);
                let millis = call.now().timestamp_millis() - rested.as_millis() as i64;
                rows.push(rawdoc! {"_id": session, "lastUse": bson::DateTime::from_millis(millis)});
            }
        }
        ("$currentOp", _) => rows.push(rawdoc! {
            "type": "op", "host": call.state.local.to_string(), "connectionId": call.state.number, "active": true,
            "op": "command", "ns": call.namespace("$cmd.aggregate"), "command": call.body.to_owned(),
        }),
        (_, None) => {
            return Err(Refusal::new(73, format!("{name} needs a collection to tell about")));
        }
        ("$planCacheStats", Some(_)) => {}
        ("$indexStats", Some(collection)) => {
            let container = call.find_container(collection)?;
            for index in container.iter().flat_map(|container| indexes::shown(container)) {
                let name = index.get_str("name").unwrap_or_default();
                let key = index.get_document("key").cloned().unwrap_or_default();
                rows.push(rawdoc! {
                    "name": name, "key": RawDocumentBuf::try_from(&key)?, "host": call.state.local.to_string(),
                    "accesses": {"ops": 0_i64, "since": call.now()}, "spec": RawDocumentBuf::try_from(&index)?,
                });
            }
        }
        (_, Some(collection)) => rows.push(figures(call, collection, Fields(options)).await?),
    }
    // What is told is no expression, whatever it looks like.
    Ok(Some(rawdoc! {"$documents": {"$literal": rows}}))
}

/// A stage `$geoNear` that does not say which field it is about is about that of the only index for places.
pub(super) fn with_key(
    call: &Call<'_>,
    collection: Option<&str>,
    stage: &RawDocument,
) -> Result<Option<RawDocumentBuf>> {
    let Some(options) = Fields(stage).document("$geoNear")? else { return Ok(None) };
    if options.get("key")?.is_some() {
        return Ok(None);
    }
    let Some(collection) = collection else { return Ok(None) };
    let Some(container) = call.find_container(collection)? else { return Ok(None) };
    let mut paths = Vec::new();
    for index in indexes::shown(&container) {
        for (path, kind) in index.get_document("key").into_iter().flatten() {
            if matches!(kind.as_str(), Some("2dsphere" | "2d")) && !paths.contains(path) {
                paths.push(path.clone());
            }
        }
    }
    match &paths[..] {
        [] => Ok(None),
        [path] => {
            let mut options = options.to_owned();
            options.append(bson::cstr!("key"), path.as_str());
            Ok(Some(rawdoc! {"$geoNear": options}))
        }
        _ => Err(Refusal::new(
            27,
            "There is more than one 2dsphere or 2d index: say which field is meant with 'key'.",
        )),
    }
}

/// `$collStats`.
async fn figures(call: &Call<'_>, collection: &str, options: Fields<'_>) -> Result<RawDocumentBuf> {
    let namespace = call.namespace(collection);
    if call.find_container(collection)?.is_none() && options.get("count").is_some() {
        return Err(Refusal::new(
            26,
            format!("Unable to retrieve count in $collStats stage: {namespace} does not exist"),
        ));
    }
    let storage = collections::statistics_of(call, collection, 1).await?;
    let mut row = rawdoc! {
        "ns": namespace, "host": call.state.local.to_string(), "localTime": call.now(),
    };
    if options.get("count").is_some() {
        row.append(bson::cstr!("count"), storage.get_i64("count").unwrap_or(0));
    }
    if options.get("storageStats").is_some() {
        row.append(bson::cstr!("storageStats"), storage);
    }
    Ok(row)
}
