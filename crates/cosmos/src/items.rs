//! `/dbs/{db}/colls/{c}/docs`: items.
//!
//! A point read is the hottest path of the server: the item's bytes go from the store into the response as they are, and the
//! headers that change share one allocation.

use bytes::Bytes;
use db::{Container, Item, ReadOptions, Reply, Triggers, Verb, Write};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::answer::Answer;
use crate::call::Call;
use crate::error::{Failure, Result};
use crate::feed;
use crate::grants;
use crate::headers::{self, Pen};

/// The name of the array in feeds of items and rows.
pub(crate) const ARRAY: &str = "Documents";

/// `GET …/docs/{id}`
pub(crate) async fn read(
    call: &mut Call<'_>,
    database: &str,
    container: &str,
    id: &str,
) -> Result<Answer> {
    let container = call.owner(database, container)?;
    let key = call.partition_key()?.ok_or_else(key_missing)?;
    let session = call.session()?;
    let options = ReadOptions { session: &session };
    let reply = match call.seen {
        None => call.db.read(&container, &key, id, options).await,
        Some(seen) => {
            let read = Box::pin(call.db.read_at_once((seen, &container), &key, id, options)).await;
            // Nobody will see this answer: the request begins again.
            let reply = read.ok_or(db::Error::Contention)?;
            call.seen = None;
            reply
        }
    };
    let mut answer = Answer::empty(StatusCode::OK);
    let mut pen = Pen::new();
    let item = describe(reply, &container, &mut answer.headers, &mut pen)?;
    let etag = describe_item(&item, &mut answer.headers, &mut pen);
    if call
        .if_none_match()?
        .is_some_and(|known| known.as_bytes() == etag.as_bytes() || known == "*")
    {
        answer.status = StatusCode::NOT_MODIFIED;
    } else {
        answer.headers.insert(http::header::CONTENT_TYPE, headers::JSON.clone());
        answer.body = item.body;
    }
    Ok(answer)
}

/// `GET …/docs`: a page of all items, or of those of one partition key or range.
pub(crate) async fn list(call: &Call<'_>, database: &str, container: &str) -> Result<Answer> {
    let container = call.owner(database, container)?;
    let (scope, page, session) = (call.scope(&container)?, call.page()?, call.session()?);
    let reply = call.db.list(&container, &scope, &page, ReadOptions { session: &session }).await;
    rows(reply, &container)
}

/// `POST …/docs`: a new item, or with `upsert` one that may be there already.
pub(crate) async fn create(
    call: &mut Call<'_>,
    database: &str,
    container: &str,
    upsert: bool,
) -> Result<Answer> {
    let verb = if upsert { Verb::Upsert } else { Verb::Create };
    write(call, database, container, verb).await
}

/// `PUT …/docs/{id}`
pub(crate) async fn replace(
    call: &mut Call<'_>,
    database: &str,
    container: &str,
    id: &str,
) -> Result<Answer> {
    write(call, database, container, Verb::Replace(id.to_owned())).await
}

/// `DELETE …/docs/{id}`
pub(crate) async fn delete(
    call: &mut Call<'_>,
    database: &str,
    container: &str,
    id: &str,
) -> Result<Answer> {
    call.body = Bytes::new();
    write(call, database, container, Verb::Delete(id.to_owned())).await
}

/// `PATCH …/docs/{id}`
pub(crate) async fn patch(
    call: &mut Call<'_>,
    database: &str,
    container: &str,
    id: &str,
) -> Result<Answer> {
    write(call, database, container, Verb::Patch(id.to_owned())).await
}

async fn write(call: &mut Call<'_>, database: &str, container: &str, verb: Verb) -> Result<Answer> {
    check_options(call)?;
    let container = call.owner(database, container)?;
    let partition_key = call.partition_key()?;
    if partition_key.is_none() && matches!(verb, Verb::Delete(_) | Verb::Patch(_)) {
        return Err(key_missing());
    }
    let body = call.json_text()?;
    if matches!(verb, Verb::Replace(_)) {
        grants::check_name(call.grant.as_deref(), &body)?;
    }
    let write = Write {
        verb,
        partition_key,
        body,
        if_match: call.if_match()?.map(str::to_owned),
        if_none_match: call.if_none_match()?.map(str::to_owned),
    };
    let triggers = triggers(call)?;
    let reply = match triggers == Triggers::default() {
        true => call.db.write(&container, write).await,
        false => call.db.write_with_triggers(&container, write, &triggers).await,
    };
    let mut answer = Answer::empty(StatusCode::OK);
    let mut pen = Pen::new();
    let written = describe(reply, &container, &mut answer.headers, &mut pen)?;
    match written.item {
        None => answer.status = StatusCode::NO_CONTENT,
        Some(item) => {
            answer.status = if written.created { StatusCode::CREATED } else { StatusCode::OK };
            describe_item(&item, &mut answer.headers, &mut pen);
            if wants_body(call)? {
                answer.headers.insert(http::header::CONTENT_TYPE, headers::JSON.clone());
                answer.body = item.body;
            }
        }
    }
    Ok(answer)
}

/// `POST …/operations/partitionkeydelete`: all items of a partition key go.
pub(crate) async fn delete_key(call: &Call<'_>, database: &str, container: &str) -> Result<Answer> {
    let container = call.owner(database, container)?;
    let key = call.partition_key()?.ok_or_else(key_missing)?;
    let reply = call.db.delete_key(&container, &key).await;
    let mut answer = Answer::empty(StatusCode::OK);
    describe(reply, &container, &mut answer.headers, &mut Pen::new())?;
    Ok(answer)
}

/// A page of items or rows as an answer.
pub(crate) fn rows(reply: Reply<db::Page>, container: &Container) -> Result<Answer> {
    let mut described = HeaderMap::new();
    let page = describe(reply, container, &mut described, &mut Pen::new())?;
    let mut answer = feed::answer_page(container.rid, ARRAY, &page);
    answer.headers.extend(described);
    Ok(answer)
}

/// Writes down what every answer about a container's items says: what it cost, whose items, how far the client has now seen.
/// A refusal says it too.
pub(crate) fn describe<T>(
    reply: Reply<T>,
    container: &Container,
    headers: &mut HeaderMap,
    pen: &mut Pen,
) -> Result<T> {
    headers.insert(&headers::REQUEST_CHARGE, pen.charge(reply.charge));
    if let Some(session) = reply.session {
        let token = match &reply.other_sessions[..] {
            [] => pen.value(session),
            others => pen.value(
                others.iter().fold(session.to_string(), |all, other| format!("{all},{other}")),
            ),
        };
        headers.insert(&headers::SESSION_TOKEN, token);
        headers.insert(&headers::LSN, HeaderValue::from(session.lsn));
        headers.insert(&headers::PARTITION_KEY_RANGE_ID, HeaderValue::from(session.partition));
    }
    headers.insert(&headers::CONTENT_PATH, pen.shared(container.rid_text()));
    headers.insert(&headers::ALT_CONTENT_PATH, pen.shared(container.path()));
    reply.result.map_err(|error| Failure::from(error).with_headers(std::mem::take(headers)))
}

fn describe_item(item: &Item, headers: &mut HeaderMap, pen: &mut Pen) -> HeaderValue {
    let etag = pen.value(item.etag);
    headers.insert(http::header::ETAG, etag.clone());
    etag
}

/// Whether the client wants to see what it has written.
pub(crate) fn wants_body(call: &Call<'_>) -> Result<bool> {
    let minimal = call.text(&headers::PREFER)?.is_some_and(|prefer| {
        prefer.split([',', ';']).any(|part| part.trim().eq_ignore_ascii_case("return=minimal"))
    });
    let unwanted = call
        .text(&headers::CONTENT_ON_WRITE)?
        .is_some_and(|wanted| wanted.eq_ignore_ascii_case("false"));
    Ok(!minimal && !unwanted)
}

/// The triggers that a write names.
fn triggers(call: &Call<'_>) -> Result<Triggers> {
    let names = |header: Option<&str>| {
        let names = header.unwrap_or_default().split(',').map(|name| name.trim().to_owned());
        names.filter(|name| !name.is_empty()).collect()
    };
    Ok(Triggers {
        pre: names(call.text(&headers::PRE_TRIGGER)?),
        post: names(call.text(&headers::POST_TRIGGER)?),
    })
}

/// What a write may ask for and this server does not know.
fn check_options(call: &Call<'_>) -> Result<()> {
    if let Some(directive) = call.text(&headers::INDEXING_DIRECTIVE)?
        && !["Default", "Include", "Exclude"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(directive))
    {
        return Err(Failure::bad_header(headers::INDEXING_DIRECTIVE.as_str(), directive));
    }
    Ok(())
}

fn key_missing() -> Failure {
    Failure::bad_request("PartitionKey value must be supplied for this operation.")
}
