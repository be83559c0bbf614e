//! `/dbs/{db}/colls/{c}/pkranges`: partition key ranges.
//!
//! Clients read this feed incrementally, with the etag of the answer before, until they are told 304: an answer without one
//! would keep them asking for ever.

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use crate::answer::Answer;
use crate::call::Call;
use crate::error::Result;
use crate::feed::{self, Numbered, charged};

/// The name of the array in this feed.
const ARRAY: &str = "PartitionKeyRanges";

/// `GET …/pkranges`
pub(crate) fn list(call: &Call<'_>, database: &str, container: &str) -> Result<Answer> {
    call.items_max()?;
    let container = call.db.owner(database, container)?;
    let known = call.if_none_match()?;
    let (ranges, etag) = container.partition_key_ranges(known);
    let known = known == Some(&etag);
    let mut answer = if known {
        Answer::empty(StatusCode::NOT_MODIFIED)
    } else {
        let rows: Vec<Bytes> = ranges.iter().map(|range| Bytes::from(range.to_string())).collect();
        feed::answer(container.rid, ARRAY, &rows)
    };
    let etag = HeaderValue::try_from(etag).expect("etags are visible ASCII");
    answer.headers.insert(http::header::ETAG, etag);
    Ok(charged(answer))
}

/// `POST …/pkranges`: a query over the ranges.
pub(crate) fn post(call: &mut Call<'_>, database: &str, container: &str) -> Result<Answer> {
    let container = call.db.owner(database, container)?;
    let (ranges, _) = container.partition_key_ranges(None);
    let documents: Vec<Numbered> = (0..).zip(ranges).collect();
    feed::query_only(call, &container.rid.to_string(), ARRAY, documents)
}
