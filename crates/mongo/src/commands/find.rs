//! find, getMore, killCursors, count, distinct.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bson::{RawArrayBuf, RawBson, RawDocumentBuf, rawdoc};
use md5::{Digest as _, Md5};

use super::Call;
use super::reading::{self, Matches, Order, Returned, Search, SearchOptions};
use crate::auth::hex;
use crate::cursors::{self, Cursor, FIRST_BATCH, Source};
use crate::error::{Refusal, Result};
use crate::language::filter::Filter;
use crate::language::keycode;
use crate::language::path::{Leaf, Path};
use crate::language::projection::Projection;
use crate::language::sort::Sort;
use crate::layout;
use crate::options::{document, missing};

pub async fn find(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let collection = call.collection_name()?;
    let fields = call.fields();
    let namespace = call.namespace(collection);
    let container = call.find_container(collection)?;
    let mut vars = call.vars()?;
    call.with_default_collation(container.as_deref(), &mut vars)?;
    let empty = RawDocumentBuf::new();
    let filter_document = fields.document("filter")?.unwrap_or(&empty);
    let filter = Filter::parse(filter_document, &vars)?;
    let sort = match fields.document("sort")? {
        Some(sort) if !sort.is_empty() => Some(Sort::parse(sort, vars.collation.as_ref())?),
        // Without another order, what is near something comes nearest first.
        _ => filter.near().map(|(path, near)| Sort::by_distance(path, near)),
    };
    let projection = match fields.document("projection")? {
        Some(projection) if !projection.is_empty() => Some(Projection::parse(projection, &vars)?),
        _ => None,
    };
    let skip = fields.count("skip")?.unwrap_or(0);
    // Old drivers say by a negative limit that there shall be one batch.
    let limit = fields.int("limit")?.filter(|limit| *limit != 0);
    let single = fields.flag("singleBatch")? || limit.is_some_and(|limit| limit < 0);
    let limit = limit.map(|limit| limit.unsigned_abs() as usize);
    let batch_size = fields.count("batchSize")?;
    if fields.flag("awaitData")? && !fields.flag("tailable")? {
        return Err(Refusal::parse("Cannot set 'awaitData' without also setting 'tailable'"));
    }
    if fields.flag("tailable")? {
        return Err(Refusal::bad_value(format!(
            "error processing query: tailable cursor requested on non capped collection {namespace}"
        )));
    }
    let Some(container) = container else {
        return Ok(cursors::reply(0, &namespace, true, &[]));
    };
    let hint = reading::hint(fields, &container)?;
    let collated = vars.collation.is_some();
    let (min, max) = (fields.document("min")?, fields.document("max")?);
    let plan = match (min.or(max), hint.as_deref()) {
        (None, hint) => reading::plan(&container, &filter, sort.as_ref(), (hint, collated))?,
        (Some(_), None) => {
            return Err(Refusal::new(51173, "A .hint() is required when using .min() or .max()"));
        }
        (Some(_), Some(hint)) => layout::of(&container)
            .and_then(|collection| crate::plan::between(collection, hint, min, max))
            .ok_or_else(|| {
                Refusal::new(51174, "The index and the fields of min and max do not match")
            })?,
    };
    let returned = Returned::of(fields, &container, &plan)?;
    let plain = returned.is_plain() && projection.is_none() && skip == 0 && batch_size != Some(0);
    if plan.point && plain && call.transaction.is_none() {
        return find_one(call, &container, &filter, &plan, &namespace).await;
    }
    let order = Order::of(&plan);
    let matches = call.matches(container, filter, plan.route)?;
    let options = SearchOptions { sort, projection, skip, limit, returned };
    let mut search = Search::new(matches, order, options);
    let first = batch_size.unwrap_or(FIRST_BATCH.min(limit.unwrap_or(usize::MAX)));
    let batch = search.next(call.db(), first).await?;
    call.bills.push(search.bill());
    if batch.done || single {
        return Ok(cursors::reply(0, &namespace, true, &batch.rows));
    }
    let patient = fields.flag("noCursorTimeout")?;
    let session = fields.document("lsid")?.map(|session| session.as_bytes().to_vec());
    let source = Source::Search(Box::new(search));
    let cursor = Cursor { namespace: namespace.clone(), source, session, patient };
    let number = call.front_end.cursors.open_new(cursor, call.db().clock().elapsed())?;
    Ok(cursors::reply(number, &namespace, true, &batch.rows))
}

/// The document with an `_id`: what most finds are.
async fn find_one(
    call: &mut Call<'_>,
    container: &db::Container,
    filter: &Filter,
    plan: &crate::plan::Plan,
    namespace: &str,
) -> Result<RawDocumentBuf> {
    let db::documents::Route::Names(names) = &plan.route else {
        return Err(Refusal::new(1, "a point without a name"));
    };
    let reply = call.db().document(container, &names[0]).await;
    call.charge += reply.charge;
    let mut found = reply.result?;
    if let Some(body) = &found
        && !filter.is_id_only()
        && !filter.matches(document(body)?)?
    {
        found = None;
    }
    Ok(cursors::reply(0, namespace, true, found.as_slice()))
}

pub async fn get_more(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let fields = call.fields();
    let number = fields.int("getMore")?.ok_or_else(|| missing("getMore"))?;
    let collection = fields.required_text("collection")?;
    let namespace = call.namespace(collection);
    let batch_size = fields.count("batchSize")?.filter(|size| *size > 0).unwrap_or(usize::MAX);
    let wait = fields.count("maxTimeMS")?;
    let cursors = &call.front_end.cursors;
    let clock = call.db().clock();
    let mut cursor = cursors.take(number, &namespace, clock.elapsed())?;
    match (&mut cursor.source, wait) {
        (Source::Changes(stream), Some(millis)) => {
            stream.wait = std::time::Duration::from_millis(millis.min(60_000) as u64);
        }
        (_, Some(1..)) => {
            cursors.put_back(number, cursor, clock.elapsed());
            return Err(Refusal::bad_value(
                "cannot set maxTimeMS on getMore command for a non-awaitData cursor",
            ));
        }
        _ => {}
    }
    let admitted = cursor.container().map_or(Ok(()), |container| call.db().admit_scan(container));
    if let Err(error) = admitted {
        // It can be asked again, later.
        cursors.put_back(number, cursor, clock.elapsed());
        return Err(error.into());
    }
    let made = cursor.next(call.db(), batch_size).await;
    call.bills.extend(cursor.bills());
    match made {
        Ok(batch) if batch.done => {
            cursors.kill(number);
            Ok(cursors::reply_batch(0, &namespace, false, &batch))
        }
        Ok(batch) => {
            cursors.put_back(number, cursor, clock.elapsed());
            Ok(cursors::reply_batch(number, &namespace, false, &batch))
        }
        Err(refusal) => {
            cursors.kill(number);
            Err(refusal)
        }
    }
}

pub fn kill_cursors(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let list = call.fields().array("cursors")?.ok_or_else(|| missing("cursors"))?;
    let (mut killed, mut unknown) = (RawArrayBuf::new(), RawArrayBuf::new());
    for number in list {
        let number = crate::options::whole(number?).ok_or_else(|| {
            Refusal::type_mismatch("BSON field 'killCursors.cursors' must be an array of longs")
        })?;
        match call.front_end.cursors.kill(number) {
            true => killed.push(number),
            false => unknown.push(number),
        }
    }
    Ok(rawdoc! {
        "cursorsKilled": killed, "cursorsNotFound": unknown, "cursorsAlive": [], "cursorsUnknown": [], "ok": 1.0,
    })
}

pub async fn count(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let fields = call.fields();
    let skip = fields.count("skip")?.unwrap_or(0);
    let limit =
        fields.int("limit")?.map(|limit| limit.unsigned_abs() as usize).filter(|limit| *limit > 0);
    let Some(mut matches) = matches(call, "query").await? else {
        return Ok(rawdoc! {"n": 0, "ok": 1.0});
    };
    let mut found = 0;
    if matches.are_all() {
        let reply = call.db().count_documents(&matches.container).await;
        call.charge += reply.charge;
        found = reply.result? as usize;
    } else {
        let wanted = skip.saturating_add(limit.unwrap_or(usize::MAX));
        while found < wanted && matches.next(call.db()).await?.is_some() {
            found += 1;
        }
        call.bills.push(matches.bill());
    }
    let count = found.saturating_sub(skip).min(limit.unwrap_or(usize::MAX));
    let count = i32::try_from(count).map_or(RawBson::Int64(count as i64), RawBson::Int32);
    Ok(rawdoc! {"n": count, "ok": 1.0})
}

pub async fn distinct(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let key = call.fields().required_text("key")?;
    let path = Path::new(key);
    let collation = call.vars()?.collation;
    let mut values: BTreeMap<Vec<u8>, RawBson> = BTreeMap::new();
    let mut bytes = 0;
    if let Some(mut matches) = matches(call, "query").await? {
        while let Some(found) = matches.next(call.db()).await? {
            let walked: ControlFlow<Refusal> =
                path.walk(document(&found.body)?, Leaf::Expand, &mut |found| {
                    let Some(value) = found.value else { return ControlFlow::Continue(()) };
                    // An array stands for its elements.
                    if matches!(value, bson::RawBsonRef::Array(_)) && found.position.is_none() {
                        return ControlFlow::Continue(());
                    }
                    let mut place = Vec::new();
                    keycode::append(&mut place, value, collation.as_ref());
                    values.entry(place).or_insert_with_key(|place| {
                        bytes += place.len() * 2;
                        bson::RawBson::from(value)
                    });
                    match bytes > 16 << 20 {
                        true => {
                            ControlFlow::Break(Refusal::new(17217, "distinct too big, 16mb cap"))
                        }
                        false => ControlFlow::Continue(()),
                    }
                });
            if let ControlFlow::Break(refusal) = walked {
                return Err(refusal);
            }
        }
        call.bills.push(matches.bill());
    }
    let mut list = RawArrayBuf::new();
    values.into_values().for_each(|value| list.push(value));
    Ok(rawdoc! {"values": list, "ok": 1.0})
}

/// The digest of a file of GridFS: of its chunks in their order.
pub async fn file_md5(call: &mut Call<'_>) -> Result<RawDocumentBuf> {
    let root = call.fields().text("root")?.unwrap_or("fs");
    let name = format!("{root}.chunks");
    super::check_collection_name(call.database, &name)?;
    let mut digest = Md5::new();
    let mut count = 0;
    if let Some(container) = call.find_container(&name)? {
        let vars = call.vars()?;
        let mut query = RawDocumentBuf::new();
        query.append(bson::cstr!("files_id"), rawdoc! {"$eq": RawBson::from(call.target)});
        let filter = Filter::parse(&query, &vars)?;
        let sort = Sort::parse(&rawdoc! {"n": 1}, None)?;
        let plan = reading::plan(&container, &filter, Some(&sort), (None, false))?;
        let order = Order::of(&plan);
        let matches = call.matches(container, filter, plan.route)?;
        let options = SearchOptions { sort: Some(sort), ..SearchOptions::default() };
        let mut search = Search::new(matches, order, options);
        loop {
            let batch = search.next(call.db(), FIRST_BATCH).await?;
            for chunk in &batch.rows {
                let data = document(chunk)?.get_binary("data")?;
                digest.update(data.bytes);
                count += 1;
            }
            if batch.done {
                break;
            }
        }
        call.bills.push(search.bill());
    }
    Ok(rawdoc! {"numChunks": count, "md5": hex(&digest.finalize()), "ok": 1.0})
}

/// The documents of a command with a filter under `name`; `None` if there is no collection.
async fn matches(call: &mut Call<'_>, name: &str) -> Result<Option<Matches>> {
    let collection = call.collection_name()?;
    let fields = call.fields();
    let container = call.find_container(collection)?;
    let mut vars = call.vars()?;
    call.with_default_collation(container.as_deref(), &mut vars)?;
    let empty = RawDocumentBuf::new();
    let filter_document = fields.document(name)?.unwrap_or(&empty);
    let filter = Filter::parse(filter_document, &vars)?;
    let Some(container) = container else { return Ok(None) };
    let hint = reading::hint(fields, &container)?;
    let how = (hint.as_deref(), vars.collation.is_some());
    let plan = reading::plan(&container, &filter, None, how)?;
    call.matches(container, filter, plan.route).map(Some)
}
