//! The service's own commands: customAction, shardCollection, getLastRequestStatistics.

use bson::{Document, RawArrayBuf, RawDocumentBuf, rawdoc};
use db::Throughput;

use super::collections::{self, Sharding, only_field};
use super::{Call, indexes, ok};
use crate::error::{Refusal, Result};
use crate::options::{Fields, missing};

/// What the last command on this connection cost.
pub fn statistics(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let last = &call.state.last_charge;
    Ok(rawdoc! {
        "_t": "GetRequestStatisticsResponse", "CommandName": last.command.as_str(), "RequestCharge": last.charge,
        "RequestDurationInMilliSeconds": last.millis, "ok": 1.0,
    })
}

pub async fn shard_collection(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let namespace = call.target.as_str().ok_or_else(|| missing("shardCollection"))?;
    let (database, name) = namespace
        .split_once('.')
        .ok_or_else(|| Refusal::new(73, format!("Invalid namespace specified '{namespace}'")))?;
    let key = call.fields().document("key")?.ok_or_else(|| missing("key"))?;
    let (path, _) =
        only_field(key).ok_or_else(|| Refusal::bad_value("A shard key has one field."))?;
    call.database = database;
    if call.find_container(name)?.is_some() {
        return Err(Refusal::new(
            20,
            format!(
                "The collection {namespace} exists already: it can only be sharded when it is made."
            ),
        ));
    }
    let sharding = Sharding { key: Some(path), throughput: None };
    collections::make(call, name, &Document::new(), sharding).await?;
    Ok(rawdoc! {"_t": "ShardCollectionResponse", "collectionsharded": namespace, "ok": 1.0})
}

pub async fn custom_action(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    match call.target.as_str().unwrap_or_default() {
        "CreateDatabase" => {
            let throughput = throughput(call.fields())?;
            let body = serde_json::json!({"id": call.database});
            call.db().create_database(&body, throughput).await?;
            Ok(ok())
        }
        "UpdateDatabase" => {
            let database = call.db().database(call.database)?;
            set_throughput(call, &database.rid.to_string()).await
        }
        "GetDatabase" => {
            let database = call.db().database(call.database)?;
            let mut reply = rawdoc! {"database": call.database};
            show_throughput(call, &database.rid.to_string(), &mut reply);
            reply.append(bson::cstr!("ok"), 1.0);
            Ok(reply)
        }
        "CreateCollection" => create_collection(call).await,
        "UpdateCollection" => {
            let name = call.fields().required_text("collection")?;
            let container =
                call.find_container(name)?.ok_or_else(|| Refusal::new(26, "ns not found"))?;
            set_throughput(call, &container.rid.to_string()).await
        }
        "GetCollection" => get_collection(call),
        other => Err(Refusal::bad_value(format!("The customAction '{other}' is unknown."))),
    }
}

async fn create_collection(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let fields = call.fields();
    let name = fields.required_text("collection")?;
    if call.find_container(name)?.is_some() {
        return Err(Refusal::new(
            48,
            format!("Collection {} already exists.", call.namespace(name)),
        ));
    }
    let sharding = Sharding {
        key: fields.text("shardKey")?.map(str::to_owned),
        throughput: throughput(fields)?,
    };
    collections::make(call, name, &Document::new(), sharding).await?;
    if let Some(list) = fields.array("indexes")? {
        let mut wanted = RawArrayBuf::new();
        for index in list {
            let index = index?
                .as_document()
                .ok_or_else(|| Refusal::type_mismatch("indexes must be documents"))?;
            if index
                .get_document("key")
                .is_ok_and(|key| only_field(key).is_none_or(|(path, _)| path != "_id"))
            {
                wanted.push(index.to_owned());
            }
        }
        if !wanted.is_empty() {
            let body = rawdoc! {"createIndexes": name, "indexes": wanted};
            let mut inner = Call {
                front_end: call.front_end,
                state: &mut *call.state,
                name: "createIndexes",
                target: bson::RawBsonRef::String(name),
                database: call.database,
                body: &body,
                sequences: &[],
                charge: call.charge,
                bills: Vec::new(),
                transaction: None,
                retry: None,
                made: None,
            };
            indexes::create(&mut inner).await?;
        }
    }
    Ok(ok())
}

fn get_collection(call: &Call<'_>) -> Result<RawDocumentBuf> {
    let fields = call.fields();
    let name = fields.required_text("collection")?;
    let container = call.find_container(name)?.ok_or_else(|| Refusal::new(26, "ns not found"))?;
    let mut reply = rawdoc! {"database": call.database, "collection": name};
    let path = container.settings.partition_key.paths.first().map(|path| path.segments().join("."));
    if let Some(path) = path.filter(|path| path != "_id")
        && let Ok(text) = bson::raw::CString::try_from(path)
    {
        let mut key = RawDocumentBuf::new();
        key.append(text, "hashed");
        reply.append(bson::cstr!("shardKeyDefinition"), key);
    }
    show_throughput(call, &container.rid.to_string(), &mut reply);
    if fields.flag("showIndexes")? {
        let mut list = RawArrayBuf::new();
        for index in indexes::shown(&container) {
            list.push(RawDocumentBuf::try_from(&index)?);
        }
        reply.append(bson::cstr!("indexes"), list);
    }
    reply.append(bson::cstr!("ok"), 1.0);
    Ok(reply)
}

fn throughput(fields: Fields<'_>) -> Result<Option<Throughput>> {
    if let Some(auto) = fields.document("autoScaleSettings")? {
        let max = Fields(auto).int("maxThroughput")?.ok_or_else(|| missing("maxThroughput"))?;
        return Ok(Some(Throughput::autoscale(max, None)?));
    }
    Ok(fields.int("offerThroughput")?.map(Throughput::manual).transpose()?)
}

fn show_throughput(call: &Call<'_>, rid: &str, reply: &mut RawDocumentBuf) {
    let offers = call.db().offers();
    let Some(offer) = offers.iter().find(|offer| offer.resource_rid == rid) else { return };
    match offer.throughput {
        Throughput::Manual(rate) => reply.append(bson::cstr!("provisionedThroughput"), rate as i32),
        Throughput::Autoscale { max, .. } => {
            reply.append(bson::cstr!("autoScaleSettings"), rawdoc! {"maxThroughput": max as i32});
        }
    }
}

async fn set_throughput(call: &Call<'_>, rid: &str) -> Result<RawDocumentBuf> {
    let Some(wanted) = throughput(call.fields())? else { return Ok(ok()) };
    let offers = call.db().offers();
    let offer = offers
        .iter()
        .find(|offer| offer.resource_rid == rid)
        .ok_or_else(|| Refusal::new(26, "There is no throughput of its own to change."))?;
    let content = match wanted {
        Throughput::Manual(rate) => serde_json::json!({"offerThroughput": rate}),
        Throughput::Autoscale { max, .. } => {
            serde_json::json!({"offerAutopilotSettings": {"maxThroughput": max}})
        }
    };
    let body = serde_json::json!({"content": content});
    call.db().replace_offer(&offer.rid.to_string(), &body, db::Migration::None).await?;
    Ok(ok())
}
