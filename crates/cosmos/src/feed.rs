//! Feeds: a page of rows in the wire's wrapper, `{"_rid": …, "<Array>": […], "_count": n}`.

use std::fmt::Display;
use std::io::Write;

use bytes::Bytes;
use db::{Page, QueryRequest};
use http::{HeaderValue, StatusCode};
use serde_json::Value;

use crate::answer::Answer;
use crate::call::{Call, Intent};
use crate::error::{Failure, Result};
use crate::headers::{self, Pen};
use crate::query;

/// A page of rows as an answer.
pub(crate) fn answer(parent: impl Display, array: &str, rows: &[Bytes]) -> Answer {
    let size = rows.iter().map(|row| row.len()).sum();
    written(parent, array, (rows, size), |row, body| body.extend_from_slice(row))
}

/// A page of what `write` makes rows of, which will take about so many bytes.
pub(crate) fn written<T>(
    parent: impl Display,
    array: &str,
    (rows, size): (&[T], usize),
    write: impl Fn(&T, &mut Vec<u8>),
) -> Answer {
    let mut body = Vec::with_capacity(size + rows.len() + 96);
    write!(body, r#"{{"_rid":"{parent}","{array}":["#).expect("writing to memory cannot fail");
    for (place, row) in rows.iter().enumerate() {
        if place > 0 {
            body.push(b',');
        }
        write(row, &mut body);
    }
    write!(body, r#"],"_count":{}}}"#, rows.len()).expect("writing to memory cannot fail");
    let mut answer = Answer::bytes(StatusCode::OK, Bytes::from(body));
    answer.headers.insert(&headers::ITEM_COUNT, HeaderValue::from(rows.len()));
    answer
}

/// The same for rows that may go on in another page.
pub(crate) fn answer_page(parent: impl Display, array: &str, page: &Page) -> Answer {
    let mut answer = answer(parent, array, &page.rows);
    if let Some(continuation) = &page.continuation {
        answer.headers.insert(&headers::CONTINUATION, Pen::new().value(continuation));
    }
    answer
}

/// A document of the catalog and the number that lists are ordered by.
pub(crate) type Numbered = (u64, Value);

/// A page of a list of the catalog. The continuation is the number of the last document that was answered, so that
/// documents which come and go between two pages neither shift nor repeat the others.
pub(crate) fn list(
    call: &Call<'_>,
    parent: &str,
    array: &str,
    documents: Vec<Numbered>,
) -> Result<Answer> {
    let (items_max, after) = (call.items_max()?, continuation(call)?);
    let mut rest =
        documents.into_iter().filter(|(number, _)| after.is_none_or(|after| *number > after));
    let mut last = 0;
    let mut rows = Vec::new();
    for (number, document) in rest.by_ref().take(items_max) {
        rows.push(Bytes::from(document.to_string()));
        last = number;
    }
    let continuation = rest.next().map(|_| last.to_string());
    Ok(charged(answer_page(parent, array, &Page { rows, continuation, ..Page::default() })))
}

/// A page of a query over documents of the catalog. The continuation is how many rows were answered.
pub(crate) fn query(
    call: &mut Call<'_>,
    parent: &str,
    array: &str,
    documents: Vec<Numbered>,
) -> Result<Answer> {
    let (items_max, skip) = (call.items_max()?, continuation(call)?.unwrap_or(0));
    let request: QueryRequest = query::request(call)?;
    let documents = documents.into_iter().map(|(_, document)| document).collect();
    let rows = call.db.query_documents(&request, documents)?;
    let skip = usize::try_from(skip).unwrap_or(usize::MAX).min(rows.len());
    let end = skip.saturating_add(items_max).min(rows.len());
    let continuation = (end < rows.len()).then(|| end.to_string());
    let page = Page { rows: rows[skip..end].to_vec(), continuation, ..Page::default() };
    Ok(charged(answer_page(parent, array, &page)))
}

/// A POST to a feed of the catalog that only takes queries.
pub(crate) fn query_only(
    call: &mut Call<'_>,
    parent: &str,
    array: &str,
    documents: Vec<Numbered>,
) -> Result<Answer> {
    match Intent::of(call.headers) {
        Intent::Query => query(call, parent, array, documents),
        _ => Err(Failure::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "The requested verb is not supported.",
        )),
    }
}

/// The answer with the charge of a look at the catalog.
pub(crate) fn charged(mut answer: Answer) -> Answer {
    answer.headers.insert(&headers::REQUEST_CHARGE, headers::CHARGE_ONE.clone());
    answer
}

fn continuation(call: &Call<'_>) -> Result<Option<u64>> {
    let token = call.text(&headers::CONTINUATION)?;
    let bad = |_| Failure::bad_request("Invalid Continuation Token");
    token.map(|token| token.parse().map_err(bad)).transpose()
}
