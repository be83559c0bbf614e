//! `POST …/docs` with a query: rows, or the plan that some SDKs ask for first.

use db::{QueryRequest, ReadOptions, ResumeFilter, Scope};
use http::StatusCode;
use serde_json::Value;

use crate::answer::Answer;
use crate::call::Call;
use crate::error::{Failure, Result};
use crate::feed::charged;
use crate::headers::{self, flag};
use crate::items;

/// Runs a query over items.
pub(crate) async fn run(call: &mut Call<'_>, database: &str, container: &str) -> Result<Answer> {
    let mut request = request(call)?;
    let container = call.owner(database, container)?;
    request.scope = call.scope(&container)?;
    let (page, session) = (call.page()?, call.session()?);
    let reply = call.db.query(&container, &request, &page, ReadOptions { session: &session }).await;
    items::rows(reply, &container)
}

/// Says how a query would be split over partitions.
pub(crate) fn plan(call: &mut Call<'_>, database: &str, container: &str) -> Result<Answer> {
    let mut request = request(call)?;
    let container = call.owner(database, container)?;
    if let Some(key) = call.partition_key()? {
        request.scope = Scope::Key(key);
    }
    let plan = call.db.query_plan(&container, &request)?;
    Ok(charged(Answer::json(StatusCode::OK, &plan)))
}

/// The query in the body: `{"query": …, "parameters": [{"name": …, "value": …}]}`.
pub(crate) fn request(call: &mut Call<'_>) -> Result<QueryRequest> {
    let mut body = call.json_object()?;
    let Some(Value::String(text)) = body.get_mut("query").map(Value::take) else {
        return Err(Failure::bad_request(
            "Required property query is not specified in the request.",
        ));
    };
    let parameters = match body.get_mut("parameters").map(Value::take) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(parameters)) => parameters
            .into_iter()
            .map(parameter)
            .collect::<Option<_>>()
            .ok_or_else(bad_parameters)?,
        Some(_) => return Err(bad_parameters()),
    };
    let cross_partition = flag(call.headers, &headers::CROSS_PARTITION);
    let resume = match body.get_mut("resumeFilter").map(Value::take) {
        None | Some(Value::Null) => None,
        Some(filter) => Some(resume_filter(filter).ok_or_else(|| {
            Failure::bad_request(
                "The query's resumeFilter must be an object with a value, which is the list of ORDER BY keys.",
            )
        })?),
    };
    Ok(QueryRequest { text, parameters, cross_partition, scope: Scope::Container, resume })
}

/// Where to begin: `{"value": [key, …], "rid"?: …, "exclude"?: bool}`, in which `[]` is an undefined key.
fn resume_filter(mut filter: Value) -> Option<ResumeFilter> {
    let Value::Array(keys) = filter.get_mut("value")?.take() else { return None };
    let key = |key: Value| match &key {
        Value::Array(list) if list.is_empty() => None,
        _ => Some(key),
    };
    Some(ResumeFilter {
        keys: keys.into_iter().map(key).collect(),
        rid: filter["rid"].as_str().map(str::to_owned),
        exclude: filter["exclude"].as_bool().unwrap_or(false),
    })
}

fn parameter(mut parameter: Value) -> Option<(String, Value)> {
    let name = parameter.get("name")?.as_str()?.to_owned();
    let value = parameter.get_mut("value").map_or(Value::Null, Value::take);
    Some((name, value))
}

fn bad_parameters() -> Failure {
    Failure::bad_request(
        "The query's parameters must be an array of objects with a name and a value.",
    )
}
