//! `/dbs/{db}/colls`: containers.

use db::Container;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::call::{Call, Intent};
use crate::error::{Failure, Result};
use crate::feed::{self, Numbered, charged};
use crate::headers::{self, Pen, flag};

/// The name of the array in feeds of containers.
const ARRAY: &str = "DocumentCollections";

/// The first API version in which every container has a partition key.
const KEYS_REQUIRED: &str = "2018-12-31";

/// The limits that clients' quota calls show; -1 is none.
const QUOTA: HeaderValue = HeaderValue::from_static(
    "functions=50;storedProcedures=100;triggers=25;documentSize=10240;documentsSize=10485760;\
     documentsCount=-1;collectionSize=10485760;",
);

/// `GET /dbs/{db}/colls`
pub(crate) fn list(call: &Call<'_>, database: &str) -> Result<Answer> {
    let (parent, documents) = documents(call, database)?;
    feed::list(call, &parent, ARRAY, documents)
}

/// `POST /dbs/{db}/colls`: a query over containers, or a new one.
pub(crate) async fn post(call: &mut Call<'_>, database: &str) -> Result<Answer> {
    match Intent::of(call.headers) {
        Intent::Query => {
            let (parent, documents) = documents(call, database)?;
            feed::query(call, &parent, ARRAY, documents)
        }
        Intent::Create => {
            let (throughput, mut body) = (call.throughput()?, call.json_object()?);
            let version = call.text(&headers::VERSION)?;
            if version.is_some_and(|version| version < KEYS_REQUIRED) {
                no_key(&mut body);
            }
            let container = call.db.create_container(database, &body, throughput).await?;
            Ok(answer(StatusCode::CREATED, &container))
        }
        Intent::Upsert | Intent::Plan | Intent::Batch => {
            Err(Failure::unsupported("this operation on containers"))
        }
    }
}

/// `GET /dbs/{db}/colls/{c}`
pub(crate) fn read(call: &Call<'_>, database: &str, container: &str) -> Result<Answer> {
    let container = call.db.container(database, container)?;
    call.check_intended(&container)?;
    let mut answer = answer(StatusCode::OK, &container);
    if flag(call.headers, &headers::POPULATE_STATISTICS) {
        let mut json = container.to_json();
        json["statistics"] = container.statistics();
        answer.body = json.to_string().into();
    }
    answer.headers.insert(&headers::RESOURCE_QUOTA, QUOTA);
    answer.headers.insert(&headers::RESOURCE_USAGE, usage(&container));
    let progress = u16::from(container.index_progress());
    answer.headers.insert(&headers::INDEX_PROGRESS, HeaderValue::from(progress));
    Ok(answer)
}

/// `PUT /dbs/{db}/colls/{c}`
pub(crate) async fn replace(
    call: &mut Call<'_>,
    database: &str,
    container: &str,
) -> Result<Answer> {
    let body = call.json_object()?;
    let container = call.db.replace_container(database, container, &body, call.if_match()?).await?;
    Ok(answer(StatusCode::OK, &container))
}

/// `DELETE /dbs/{db}/colls/{c}`
pub(crate) async fn delete(call: &Call<'_>, database: &str, container: &str) -> Result<Answer> {
    call.db.delete_container(database, container, call.if_match()?).await?;
    Ok(charged(Answer::empty(StatusCode::NO_CONTENT)))
}

/// Gives a definition without partition key the one that the service made of such: a property that items need not have.
fn no_key(body: &mut Value) {
    if let Some(members) = body.as_object_mut()
        && members.get("partitionKey").is_none_or(Value::is_null)
    {
        let key = json!({"paths": ["/_partitionKey"], "kind": "Hash", "systemKey": true});
        members.insert("partitionKey".into(), key);
    }
}

/// The database's rid and its containers.
fn documents(call: &Call<'_>, database: &str) -> Result<(String, Vec<Numbered>)> {
    let containers = call.db.containers(database)?;
    let parent = call.db.database(database)?;
    let documents = containers
        .iter()
        .map(|container| (container.rid.number.into(), container.to_json()))
        .collect();
    Ok((parent.rid.to_string(), documents))
}

fn answer(status: StatusCode, container: &Container) -> Answer {
    let mut pen = Pen::new();
    let mut answer = charged(Answer::json(status, &container.to_json()));
    answer.headers.insert(http::header::ETAG, pen.value(container.etag));
    answer.headers.insert(
        &headers::ALT_CONTENT_PATH,
        pen.value(format_args!("dbs/{}", container.database_id)),
    );
    answer.headers.insert(&headers::CONTENT_PATH, pen.value(container.rid));
    answer
}

/// How much of the quota is used; sizes are in kilobytes.
fn usage(container: &Container) -> HeaderValue {
    let (items, bytes) = container.usage();
    let kilobytes = bytes.div_ceil(1024);
    Pen::new().value(format_args!(
        "functions=0;storedProcedures=0;triggers=0;documentSize=0;documentsSize={kilobytes};\
         documentsCount={items};collectionSize={kilobytes};"
    ))
}
