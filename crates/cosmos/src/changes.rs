//! `GET …/docs` with `A-IM`: the change feed.
//!
//! Each answer carries the etag to go on from; when there is nothing new the answer is 304, with an etag too.

use std::io::Write;

use bytes::Bytes;
use db::{Change, ChangesMode, ChangesRequest};
use http::{HeaderMap, StatusCode};

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
    let page = describe(reply, &container, &mut described, &mut pen)?;
    let wrapped = call.text(&headers::CHANGE_FEED_FORMAT)?.is_some();
    let write = match mode {
        ChangesMode::All => version,
        ChangesMode::Latest if wrapped => envelope,
        ChangesMode::Latest => item,
    };
    let size = page.rows.iter().map(|change| change.json.len() + DECORATION_BYTES).sum();
    let mut answer = feed::written(container.rid, items::ARRAY, (&page.rows, size), write);
    if page.rows.is_empty() {
        answer.status = StatusCode::NOT_MODIFIED;
        answer.body = Bytes::new();
    }
    answer.headers.extend(described);
    answer.headers.insert(http::header::ETAG, pen.value(page.etag));
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

/// What a row has besides the item, at most.
const DECORATION_BYTES: usize = 96;

/// One of all versions: it is complete.
fn version(change: &Change, body: &mut Vec<u8>) {
    body.extend_from_slice(&change.json);
}

/// A changed item with its change's number behind the other system properties.
fn item(change: &Change, body: &mut Vec<u8>) {
    body.extend_from_slice(change.json.strip_suffix(b"}").unwrap_or(&change.json));
    write!(body, r#","_lsn":{}}}"#, change.lsn).expect("writing to memory cannot fail");
}

/// The same in the newer wire format: the item and what is known of the change.
fn envelope(change: &Change, body: &mut Vec<u8>) {
    body.extend_from_slice(br#"{"current":"#);
    item(change, body);
    let Change { lsn, ts, .. } = change;
    write!(body, r#","metadata":{{"lsn":{lsn},"crts":{}}}}}"#, ts.0)
        .expect("writing to memory cannot fail");
}
