//! Databases.

use futures::TryStreamExt;

use std::collections::HashMap;

use azure_core::http::headers::{HeaderName, HeaderValue};
use azure_data_cosmos::models::ThroughputProperties;
use azure_data_cosmos::options::{CreateDatabaseOptions, OperationOptionsBuilder};
use azure_data_cosmos::{Query, ResourceIdentity};

use crate::server::{USUAL, connect, fresh, status};

#[tokio::test]
async fn create_read_delete() {
    let client = connect(USUAL).await;
    let id = fresh("db");
    let created = client.create_database(&id, None).await.expect("create");
    assert_eq!(u16::from(created.status()), 201);
    let database = client.database_client(id.as_str());
    let read = database.read(None).await.expect("read").into_model().expect("JSON");
    assert_eq!(read.id.as_deref(), Some(id.as_str()));
    database.delete(None).await.expect("delete");
    assert_eq!(status(database.read(None).await), 404);
}

#[tokio::test]
async fn a_name_is_taken_once() {
    let client = connect(USUAL).await;
    let id = fresh("db");
    client.create_database(&id, None).await.expect("create");
    assert_eq!(status(client.create_database(&id, None).await), 409);
}

#[tokio::test]
async fn query_by_id() {
    let client = connect(USUAL).await;
    let id = fresh("db");
    client.create_database(&id, None).await.expect("create");
    let query =
        Query::from("SELECT * FROM root r WHERE r.id = @id").with_parameter("@id", &id).unwrap();
    let found: Vec<_> = client
        .query_databases(query, None)
        .await
        .expect("query")
        .try_collect()
        .await
        .expect("rows");
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].id.as_deref(), Some(id.as_str()));
}

/// The SDK cannot ask for a database's throughput when it makes one, but it can send the header.
#[tokio::test]
async fn shared_throughput_is_read_and_replaced() {
    let client = connect(USUAL).await;
    let id = fresh("db");
    let headers = HashMap::from([(
        HeaderName::from_static("x-ms-offer-throughput"),
        HeaderValue::from_static("500"),
    )]);
    let operation = OperationOptionsBuilder::new().with_custom_headers(headers).build();
    let options = CreateDatabaseOptions::default().with_operation_options(operation);
    client.create_database(&id, Some(options)).await.expect("create");
    let database = client.database_client(id.as_str());
    let read = database.read_throughput(None).await.expect("read").expect("an offer");
    assert_eq!(read.throughput(), Some(500));
    let larger = ThroughputProperties::manual(600);
    database.begin_replace_throughput(larger, None).await.expect("replace").await.expect("done");
    let read = database.read_throughput(None).await.expect("read").expect("an offer");
    assert_eq!(read.throughput(), Some(600));
}

#[tokio::test]
async fn a_client_knows_where_and_what_it_is() {
    let client = connect(USUAL).await;
    assert_eq!(client.endpoint().port(), Some(crate::server::port()));
    let database = client.database_client("some");
    assert_eq!((database.name(), database.rid().is_none()), (Some("some"), true));
    assert_eq!(database.id(), &ResourceIdentity::from("some"));
}
