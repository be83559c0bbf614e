//! Databases.

use futures::TryStreamExt;

use azure_data_cosmos::Query;

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
