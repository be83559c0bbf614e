//! `POST …/docs` with a query: rows, or the plan that some SDKs ask for first.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use db::{Account, Container, How, IndexUse, QueryRequest, ReadOptions, ResumeFilter, Scope};
use http::StatusCode;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::call::Call;
use crate::error::{Failure, Result};
use crate::feed::charged;
use crate::headers::{self, Pen, flag};
use crate::items;

/// Runs a query over items.
pub(crate) async fn run(call: &mut Call<'_>, database: &str, container: &str) -> Result<Answer> {
    let mut request = request(call)?;
    let container = call.owner(database, container)?;
    request.scope = call.scope(&container)?;
    if let Some(plan) = plan_in_advance(call, &container, &request)? {
        return Err(Failure::bad_request(NOT_SERVABLE).with_substatus(1004).with_info(plan));
    }
    let (page, session) = (call.page()?, call.session()?);
    let reply = call.db.query(&container, &request, &page, ReadOptions { session: &session }).await;
    let account = reply.result.as_ref().ok().map(|page| page.account);
    let mut answer = items::rows(reply, &container)?;
    if let Some(account) = account {
        describe_work(call, &container, &request, &account, &mut answer)?;
    }
    Ok(answer)
}

/// The first version of the wire whose clients ask for a plan.
const PLAN_REQUESTS: &str = "2018-12-31";

/// What clients from before then can merge.
const MERGED_BY_ALL: [&str; 4] = ["Aggregate", "MultipleOrderBy", "OrderBy", "Top"];

const NOT_SERVABLE: &str = "The provided cross partition query can not be directly served by the gateway. This is a \
    first chance (internal) exception that all newer clients will know how to handle gracefully. This exception is traced, \
    but unless you see it bubble up as an exception (which only happens on older SDK clients), then you can safely ignore \
    this message.";

/// The plan that a client from before plan requests waits for: it sends the query as it is, is refused with the plan, and then asks every
/// partition itself. Sidereal merges partitions for whoever lets it, so this is only for those who declare an old version, and only where
/// it leads to the right result: what they cannot merge is answered as for everybody else.
fn plan_in_advance(
    call: &Call<'_>,
    container: &Container,
    request: &QueryRequest,
) -> Result<Option<String>> {
    let is_new = call.text(&headers::VERSION)?.is_none_or(|version| version >= PLAN_REQUESTS);
    if is_new || call.text(&headers::CONTINUATION)?.is_some() {
        return Ok(None);
    }
    let plan = call.db.merge_plan(container, request, &MERGED_BY_ALL)?;
    Ok(plan.map(|plan| plan.to_string()))
}

/// Says what a page took and which indexes helped, as far as the client wants to know.
fn describe_work(
    call: &Call<'_>,
    container: &Container,
    request: &QueryRequest,
    account: &Account,
    answer: &mut Answer,
) -> Result<()> {
    if flag(call.headers, &headers::POPULATE_QUERY_METRICS) {
        answer.headers.insert(&headers::QUERY_METRICS, query_metrics(account));
    }
    let old = flag(call.headers, &headers::POPULATE_INDEX_METRICS);
    let new = flag(call.headers, &headers::POPULATE_INDEX_METRICS_V2);
    if old || new {
        let used = call.db.index_use(container, request)?;
        let value = match new {
            true => Pen::new().value(url_encoded(&used_v2(&used).to_string())),
            false => Pen::new().value(STANDARD.encode(used_v1(&used).to_string())),
        };
        answer.headers.insert(&headers::INDEX_UTILIZATION, value);
        let how = match account.how {
            How::Scanned => "all items of the scope were read",
            How::ByIndex => "an index named the items",
            How::InOrder => "an index gave the items in order",
            How::Counted => "an index counted the items",
        };
        let sorted = if account.sorted { ", and the rows were sorted" } else { "" };
        let Account { items, entries, rows, .. } = account;
        let text = format_args!(
            "{how}{sorted} ({items} items and {entries} index entries read for {rows} rows); the query {used}"
        );
        answer.headers.insert(&headers::EXPLANATION, Pen::new().value(text));
    }
    Ok(())
}

/// The names and units are those of the service.
fn query_metrics(account: &Account) -> http::HeaderValue {
    let millis = |duration: std::time::Duration| duration.as_secs_f64() * 1_000.0;
    let (total, compile) = (millis(account.total), millis(account.compile));
    let run = total - compile;
    let ratio = match account.items {
        0 => 1.0,
        items => (account.rows as f64 / items as f64).min(1.0),
    };
    Pen::new().value(format_args!(
        "totalExecutionTimeInMs={total:.2};queryCompileTimeInMs={compile:.2};queryLogicalPlanBuildTimeInMs=0.00;\
         queryPhysicalPlanBuildTimeInMs=0.00;queryOptimizationTimeInMs=0.00;VMExecutionTimeInMs={run:.2};\
         indexLookupTimeInMs=0.00;instructionCount={};documentLoadTimeInMs=0.00;systemFunctionExecuteTimeInMs=0.00;\
         userFunctionExecuteTimeInMs=0.00;retrievedDocumentCount={};retrievedDocumentSize={};outputDocumentCount={};\
         outputDocumentSize={};writeOutputTimeInMs=0.00;indexUtilizationRatio={ratio:.2}",
        account.entries + account.items,
        account.items,
        account.item_bytes,
        account.rows,
        account.row_bytes,
    ))
}

/// A text as a component of a URL.
fn url_encoded(text: &str) -> String {
    let encoded = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(encoded).collect()
}

/// Index metrics as older SDKs read them.
fn used_v1(used: &IndexUse) -> Value {
    let single = |path: &String| {
        json!({
            "FilterExpression": "", "IndexSpec": path, "FilterPreciseSet": true, "IndexPreciseSet": true,
            "IndexImpactScore": "High",
        })
    };
    let composite = |paths: &Vec<String>| json!({"IndexSpecs": paths, "IndexPreciseSet": true, "IndexImpactScore": "High"});
    json!({
        "UtilizedSingleIndexes": used.single.iter().chain(&used.spatial).map(single).collect::<Vec<_>>(),
        "PotentialSingleIndexes": used.single_missing.iter().chain(&used.spatial_missing).map(single).collect::<Vec<_>>(),
        "UtilizedCompositeIndexes": used.composite.iter().map(composite).collect::<Vec<_>>(),
        "PotentialCompositeIndexes": used.composite_missing.iter().map(composite).collect::<Vec<_>>(),
    })
}

/// Index metrics as newer SDKs read them.
fn used_v2(used: &IndexUse) -> Value {
    let single = |path: &String| json!({"IndexSpec": path});
    let composite = |paths: &Vec<String>| json!({"IndexSpecs": paths});
    let rated = |mut index: Value| {
        index["IndexImpactScore"] = "High".into();
        index
    };
    json!({
        "Utilized": {
            "SingleIndexes": used.single.iter().chain(&used.spatial).map(single).collect::<Vec<_>>(),
            "CompositeIndexes": used.composite.iter().map(composite).collect::<Vec<_>>(),
        },
        "Potential": {
            "SingleIndexes": used.single_missing.iter().chain(&used.spatial_missing).map(single).map(rated).collect::<Vec<_>>(),
            "CompositeIndexes": used.composite_missing.iter().map(composite).map(rated).collect::<Vec<_>>(),
        },
    })
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
    let scan = flag(call.headers, &headers::ENABLE_SCAN);
    let resume = match body.get_mut("resumeFilter").map(Value::take) {
        None | Some(Value::Null) => None,
        Some(filter) => Some(resume_filter(filter).ok_or_else(|| {
            Failure::bad_request(
                "The query's resumeFilter must be an object with a value, which is the list of ORDER BY keys.",
            )
        })?),
    };
    Ok(QueryRequest { text, parameters, cross_partition, scan, scope: Scope::Container, resume })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_named_as_the_service_names_them() {
        let account =
            Account { items: 4, item_bytes: 400, rows: 1, row_bytes: 9, ..Account::default() };
        let value = query_metrics(&account);
        let metrics: std::collections::HashMap<_, _> =
            value.to_str().unwrap().split(';').map(|part| part.split_once('=').unwrap()).collect();
        assert_eq!(metrics["retrievedDocumentCount"], "4");
        assert_eq!(metrics["outputDocumentSize"], "9");
        assert_eq!(metrics["indexUtilizationRatio"], "0.25");
        assert!(metrics.values().all(|value| value.parse::<f64>().is_ok()));
    }
}
