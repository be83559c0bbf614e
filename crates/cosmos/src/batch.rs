//! `POST …/docs` with a list of operations: a transactional batch, or a bulk request whose operations stand by themselves.

use bytes::Bytes;
use db::{Outcome, Verb, Write};
use http::StatusCode;
use model::partition_key::PartitionKey;
use serde_json::Value;

use crate::answer::Answer;
use crate::call::Call;
use crate::error::{Failure, Result};
use crate::grants;
use crate::headers::{self, Pen, flag};
use crate::hybrid_row;
use crate::items;

/// The most operations in a request.
const OPERATIONS_MAX: usize = 100;

/// Runs the operations of a request, all or none where it says so.
pub(crate) async fn run(call: &mut Call<'_>, database: &str, container: &str) -> Result<Answer> {
    let container = call.owner(database, container)?;
    let atomic = flag(call.headers, &headers::BATCH_ATOMIC);
    let key = call.partition_key()?;
    if atomic && key.is_none() {
        return Err(Failure::bad_request(
            "PartitionKey value must be supplied for this operation.",
        ));
    }
    if let Some(key) = &key
        && key.0.len() != container.settings.partition_key.paths.len()
    {
        return Err(db::Error::PartitionKeyMismatch.into());
    }
    call.partition(&container)?;
    let rows = call.body.first() == Some(&hybrid_row::VERSION);
    let operations = operations(call, key.as_ref())?;
    let quiet = !items::wants_body(call)?;
    let silent: Vec<bool> = operations.iter().map(|operation| quiet || operation.silent).collect();
    let verbs: Vec<Verb> =
        operations.iter().map(|operation| operation.write.verb.clone()).collect();
    let writes = operations.into_iter().map(|operation| operation.write).collect();
    let stops =
        call.text(&headers::BATCH_CONTINUE)?.is_some_and(|on| on.eq_ignore_ascii_case("false"));
    let reply = match (atomic, stops) {
        (true, _) => call.db.transact(&container, writes).await,
        (false, false) => call.db.bulk(&container, writes).await,
        (false, true) => call.db.bulk_until_refused(&container, writes).await,
    };
    let mut answer = Answer::bytes(StatusCode::OK, Bytes::new());
    let outcomes = items::describe(reply, &container, &mut answer.headers, &mut Pen::new())?;
    if outcomes.iter().any(|outcome| outcome.result.is_err()) {
        answer.status = StatusCode::MULTI_STATUS;
    }
    let mut body = Vec::with_capacity(256 * outcomes.len());
    for ((outcome, verb), silent) in outcomes.into_iter().zip(&verbs).zip(silent) {
        body.push(if body.is_empty() { b'[' } else { b',' });
        push_result(&mut body, outcome, verb, silent);
    }
    body.push(b']');
    if rows {
        let results: Vec<Value> = serde_json::from_slice(&body).expect("it was just written");
        body = hybrid_row::results(&results);
    }
    answer.body = body.into();
    Ok(answer)
}

/// An operation of a request.
struct Operation {
    write: Write,
    /// Whether the client does not want to see the item.
    silent: bool,
}

fn operations(call: &mut Call<'_>, key: Option<&PartitionKey>) -> Result<Vec<Operation>> {
    if call.body.first() == Some(&hybrid_row::VERSION) {
        let list = hybrid_row::operations(&std::mem::take(&mut call.body)).map_err(|why| {
            Failure::bad_request(format!("The input content is invalid: a batch with {why}."))
        })?;
        return operations_of(call, key, list);
    }
    let text = call.json_text()?;
    let body: Value = serde_json::from_slice(&text).map_err(|error| {
        Failure::bad_request(format!(
            "The input content is invalid: not a JSON list of operations ({error})."
        ))
    })?;
    let Value::Array(list) = body else {
        return Err(Failure::bad_request(
            "The input content is invalid: a batch is a JSON list of operations.",
        ));
    };
    operations_of(call, key, list)
}

fn operations_of(
    call: &Call<'_>,
    key: Option<&PartitionKey>,
    list: Vec<Value>,
) -> Result<Vec<Operation>> {
    if list.is_empty() {
        return Err(Failure::bad_request("Batch request has no operations."));
    }
    if list.len() > OPERATIONS_MAX {
        return Err(Failure::bad_request(
            "Batch request has more operations than what is supported.",
        ));
    }
    list.into_iter().map(|value| operation(call, key, value)).collect()
}

fn operation(call: &Call<'_>, key: Option<&PartitionKey>, mut value: Value) -> Result<Operation> {
    let text =
        |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let id = || {
        text(&value, "id").ok_or_else(|| {
            Failure::bad_request(
                "The input content is invalid: an operation of the batch lacks its 'id'.",
            )
        })
    };
    let verb = match value["operationType"].as_str().unwrap_or_default() {
        "Create" => Verb::Create,
        "Upsert" => Verb::Upsert,
        "Replace" => Verb::Replace(id()?),
        "Delete" => Verb::Delete(id()?),
        "Patch" => Verb::Patch(id()?),
        "Read" => Verb::Read(id()?),
        other => {
            return Err(Failure::bad_request(format!(
                "The input content is invalid: a batch cannot do '{other}'."
            )));
        }
    };
    let partition_key = match text(&value, "partitionKey") {
        Some(header) => Some(call.parse_partition_key(&header)?),
        None => key.cloned(),
    };
    grants::check_key(call.grant.as_deref(), partition_key.as_ref())?;
    let body = value
        .get_mut("resourceBody")
        .map_or_else(Bytes::new, |body| body.take().to_string().into());
    let silent = value["minimalReturnPreference"].as_bool().unwrap_or(false);
    let (if_match, if_none_match) = (text(&value, "ifMatch"), text(&value, "ifNoneMatch"));
    Ok(Operation { write: Write { verb, partition_key, body, if_match, if_none_match }, silent })
}

/// Appends what one operation came to.
fn push_result(body: &mut Vec<u8>, outcome: Outcome, verb: &Verb, silent: bool) {
    let charge = outcome.charge.0;
    let text = match outcome.result {
        Err(error) => {
            let failure = Failure::from(error);
            let mut result = serde_json::json!({"statusCode": failure.status().as_u16(), "requestCharge": charge});
            failure.describe(&mut result);
            result.to_string()
        }
        Ok(written) => {
            let status = match (verb, written.created) {
                (Verb::Delete(_), _) => 204,
                (_, true) => 201,
                (_, false) => 200,
            };
            let mut text = format!("{{\"statusCode\":{status},\"requestCharge\":{charge}");
            if let Some(item) = written.item {
                let etag = Value::String(item.etag.to_string());
                text.push_str(&format!(",\"eTag\":{etag}"));
                if !silent || matches!(verb, Verb::Read(_)) {
                    body.extend_from_slice(text.as_bytes());
                    body.extend_from_slice(b",\"resourceBody\":");
                    body.extend_from_slice(&item.body);
                    text = String::new();
                }
            }
            text.push('}');
            text
        }
    };
    body.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_json() {
        let mut body = Vec::new();
        let outcome = Outcome { result: Err(db::Error::Exists), charge: db::RequestCharge(1.5) };
        push_result(&mut body, outcome, &Verb::Create, false);
        let value: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (value["statusCode"].as_u64(), value["requestCharge"].as_f64()),
            (Some(409), Some(1.5))
        );
    }
}
