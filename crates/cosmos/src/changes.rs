//! `GET …/docs` with `A-IM`: the change feed.
//!
//! Each answer carries the etag to go on from; when there is nothing new the answer is 304, with an etag too.

use bytes::Bytes;
use db::{ChangesMode, ChangesRequest};
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use crate::answer::Answer;
use crate::call::Call;
use crate::date;
use crate::error::{Failure, Result};
use crate::feed;
use crate::headers::{self, Pen};
use crate::items::{self, describe};

/// A page of changes.
pub(crate) async fn read(call: &Call<'_>, database: &str, container: &str) -> Result<Answer> {
    let name = call.text(&headers::A_IM)?.unwrap_or_default();
    let mode = match name {
        _ if name.eq_ignore_ascii_case("Incremental Feed") => ChangesMode::Latest,
        _ if name.eq_ignore_ascii_case("Full-Fidelity Feed") => ChangesMode::All,
        _ => return Err(Failure::bad_header(headers::A_IM.as_str(), name)),
    };
    let container = call.owner(database, container)?;
    let (scope, from, items_max) = (call.scope(&container)?, start(call)?, call.items_max()?);
    call.session()?;
    let reply = call.db.changes(&container, &scope, (mode, &from), items_max).await;

    let mut pen = Pen::new();
    let mut described = HeaderMap::new();
    let mut page = describe(reply, &container, &mut described, &mut pen)?;
    if mode == ChangesMode::Latest && call.text(&headers::CHANGE_FEED_FORMAT)?.is_some() {
        page.rows = page.rows.iter().map(envelope).collect();
    }
    let mut answer = feed::answer(container.rid, items::ARRAY, &page.rows);
    if page.rows.is_empty() {
        answer.status = StatusCode::NOT_MODIFIED;
        answer.body = Bytes::new();
    }
    answer.headers.extend(described);
    let etag = page.continuation.unwrap_or_default();
    answer.headers.insert(http::header::ETAG, pen.value(etag));
    Ok(answer)
}

/// Where to begin: an etag wins over a time.
fn start(call: &Call<'_>) -> Result<ChangesRequest> {
    match call.if_none_match()? {
        Some("*") => return Ok(ChangesRequest::Now),
        Some(etag) => return Ok(ChangesRequest::After(etag.to_owned())),
        None => {}
    }
    let Some(since) = call.text(&http::header::IF_MODIFIED_SINCE)? else {
        return Ok(ChangesRequest::Beginning);
    };
    match date::parse(since) {
        Some(instant) => Ok(ChangesRequest::Since(instant)),
        None => Err(Failure::bad_header(http::header::IF_MODIFIED_SINCE.as_str(), since)),
    }
}

/// A changed item in the newer wire format: the item and what is known of the change.
fn envelope(row: &Bytes) -> Bytes {
    let item: Value = serde_json::from_slice(row).unwrap_or_default();
    let (lsn, ts) = (&item["_lsn"], &item["_ts"]);
    let metadata = format!(r#","metadata":{{"lsn":{lsn},"crts":{ts}}}}}"#);
    let mut text = Vec::with_capacity(row.len() + metadata.len() + 11);
    text.extend_from_slice(br#"{"current":"#);
    text.extend_from_slice(row);
    text.extend_from_slice(metadata.as_bytes());
    Bytes::from(text)
}
