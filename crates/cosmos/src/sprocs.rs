//! `POST …/sprocs/{id}`: running a stored procedure.

use std::fmt::Write;

use http::{HeaderValue, StatusCode};
use serde_json::Value;

use crate::answer::Answer;
use crate::call::Call;
use crate::error::{Failure, Result};
use crate::headers::{self, Pen, flag};
use crate::items;

/// Runs a stored procedure on the partition key of the request. The body is the array of its arguments.
pub(crate) async fn execute(
    call: &mut Call<'_>,
    database: &str,
    container: &str,
    id: &str,
) -> Result<Answer> {
    let container = call.owner(database, container)?;
    let key = call.partition_key()?.ok_or_else(|| {
        Failure::bad_request("PartitionKey value must be supplied for this operation.")
    })?;
    let body = call.json_text()?;
    let arguments: Value = match body.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(&body).map_err(|error| {
            Failure::bad_request(format!(
                "The input content is invalid: the arguments of a stored procedure are a JSON array ({error})."
            ))
        })?,
    };
    let reply = call.db.execute(&container, id, &key, &arguments).await;
    let mut answer = Answer::empty(StatusCode::OK);
    let executed = items::describe(reply, &container, &mut answer.headers, &mut Pen::new())?;
    if flag(call.headers, &headers::SCRIPT_LOGGING)
        && let Ok(log) = HeaderValue::try_from(escaped(&executed.log))
    {
        answer.headers.insert(&headers::SCRIPT_LOG, log);
    }
    if let Some(response) = executed.response {
        answer.headers.insert(http::header::CONTENT_TYPE, headers::JSON.clone());
        answer.body = response.into();
    }
    Ok(answer)
}

/// A text as a header can hold it: percent-encoded, as clients expect it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            other => write!(out, "%{other:02X}").expect("writing to memory cannot fail"),
        }
    }
    out
}
