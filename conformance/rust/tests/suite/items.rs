//! Items.

use azure_data_cosmos::models::{ContainerProperties, PartitionKeyDefinition};
use azure_data_cosmos::options::{
    ChangeFeedStartFrom, ContentResponseOnWrite, ItemReadOptions, ItemWriteOptions,
    OperationOptionsBuilder, Precondition,
};
use azure_data_cosmos::{FeedScope, PartitionKey, Query, TransactionalBatch};
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};

use crate::server::{USUAL, connect, container, plain_container, status};

#[tokio::test]
async fn create_read_replace_upsert_delete() {
    let container = plain_container(&connect(USUAL).await).await;
    let created =
        container.create_item("a", "1", json!({"id": "1", "pk": "a", "n": 1}), None).await;
    let created = created.expect("create");
    assert_eq!(u16::from(created.status()), 201);
    assert!(created.headers().session_token().is_some());
    assert!(created.headers().request_charge().is_some_and(|charge| charge.value() > 0.0));
    assert!(created.into_body().is_empty(), "no body was asked for");
    let replaced =
        container.replace_item("a", "1", json!({"id": "1", "pk": "a", "n": 2}), None).await;
    assert_eq!(u16::from(replaced.expect("replace").status()), 200);
    let upserted = container.upsert_item("a", "2", json!({"id": "2", "pk": "a"}), None).await;
    assert_eq!(u16::from(upserted.expect("upsert").status()), 201);
    let read: Value =
        container.read_item("a", "1", None).await.expect("read").into_model().expect("JSON");
    assert_eq!(read["n"], 2);
    assert_eq!(
        u16::from(container.delete_item("a", "1", None).await.expect("delete").status()),
        204
    );
    assert_eq!(status(container.read_item("a", "1", None).await), 404);
}

#[tokio::test]
async fn a_body_comes_back_when_asked_for() {
    let container = plain_container(&connect(USUAL).await).await;
    let options = ItemWriteOptions::default().with_operation_options(
        OperationOptionsBuilder::new()
            .with_content_response_on_write(ContentResponseOnWrite::Enabled)
            .build(),
    );
    let item = json!({"id": "1", "pk": "a", "n": 1});
    let created = container.create_item("a", "1", item, Some(options)).await.expect("create");
    let body: Value = created.into_model().expect("JSON");
    assert_eq!(body["n"], 1);
    assert!(body["_ts"].is_u64());
}

#[tokio::test]
async fn an_id_is_taken_once() {
    let container = plain_container(&connect(USUAL).await).await;
    let item = json!({"id": "1", "pk": "a"});
    container.create_item("a", "1", &item, None).await.expect("create");
    assert_eq!(status(container.create_item("a", "1", &item, None).await), 409);
}

#[tokio::test]
async fn etags_guard() {
    let container = plain_container(&connect(USUAL).await).await;
    let item = json!({"id": "1", "pk": "a"});
    let created = container.create_item("a", "1", &item, None).await.expect("create");
    let etag = created.headers().etag().expect("an etag").clone();
    let guarded =
        ItemWriteOptions::default().with_precondition(Precondition::if_match(etag.clone()));
    let replaced = container.replace_item("a", "1", &item, Some(guarded.clone())).await;
    replaced.expect("the etag is still that one");
    assert_eq!(status(container.replace_item("a", "1", &item, Some(guarded)).await), 412);
    let now = container.read_item("a", "1", None).await.expect("read");
    let etag = now.headers().etag().expect("an etag").clone();
    let spared = ItemReadOptions::default().with_precondition(Precondition::if_none_match(etag));
    match container.read_item("a", "1", Some(spared)).await {
        Ok(response) => assert_eq!(u16::from(response.status()), 304),
        Err(error) => assert_eq!(u16::from(error.status()), 304),
    }
}

#[tokio::test]
async fn partition_keys_of_every_type() {
    let container = plain_container(&connect(USUAL).await).await;
    let keys: [(PartitionKey, Value); 5] = [
        ("1".into(), json!("1")),
        (1_i64.into(), json!(1)),
        (true.into(), json!(true)),
        (PartitionKey::NULL.into(), Value::Null),
        ("".into(), json!("")),
    ];
    for (key, value) in &keys {
        let item = json!({"id": "1", "pk": value});
        container.create_item(key.clone(), "1", item, None).await.expect("create");
    }
    let none = PartitionKey::from(PartitionKey::UNDEFINED);
    container.create_item(none.clone(), "1", json!({"id": "1"}), None).await.expect("create");
    for (key, value) in &keys {
        let read: Value =
            container.read_item(key.clone(), "1", None).await.expect("read").into_model().unwrap();
        assert_eq!(&read["pk"], value);
    }
    let read: Value =
        container.read_item(none, "1", None).await.expect("read").into_model().unwrap();
    assert_eq!(read.get("pk"), None);
}

#[tokio::test]
async fn hierarchical_partition_keys() {
    let definition = PartitionKeyDefinition::new(vec!["/a".into(), "/b".into()]);
    let properties = ContainerProperties::new("multi", definition);
    let container = container(&connect(USUAL).await, properties).await;
    for b in ["x", "y"] {
        let item = json!({"id": "1", "a": "k", "b": b});
        container.create_item(("k", b), "1", item, None).await.expect("create");
    }
    let read: Value =
        container.read_item(("k", "y"), "1", None).await.expect("read").into_model().unwrap();
    assert_eq!(read["b"], "y");
    assert_eq!(status(container.read_item(("k", "z"), "1", None).await), 404);
}

#[tokio::test]
async fn queries() {
    let container = plain_container(&connect(USUAL).await).await;
    for n in 0..10 {
        let (id, key) = (n.to_string(), format!("k{}", n % 2));
        let item = json!({"id": id, "pk": key, "n": n});
        container.create_item(key, &id, item, None).await.expect("create");
    }
    let all: Vec<Value> = container
        .query_items("SELECT * FROM c", FeedScope::full_container(), None)
        .await
        .expect("query")
        .try_collect()
        .await
        .expect("rows");
    assert_eq!(all.len(), 10);
    let of_key: Vec<Value> = container
        .query_items("SELECT * FROM c", FeedScope::partition("k1"), None)
        .await
        .expect("query")
        .try_collect()
        .await
        .expect("rows");
    assert_eq!(of_key.iter().map(|item| &item["n"]).collect::<Vec<_>>(), [1, 3, 5, 7, 9]);
    let by_id = Query::from("SELECT * FROM c WHERE c.id = @id").with_parameter("@id", "4").unwrap();
    let one: Vec<Value> = container
        .query_items(by_id, FeedScope::full_container(), None)
        .await
        .expect("query")
        .try_collect()
        .await
        .expect("rows");
    assert_eq!(one.iter().map(|item| &item["n"]).collect::<Vec<_>>(), [4]);
}

#[tokio::test]
async fn change_feed() {
    let container = plain_container(&connect(USUAL).await).await;
    for (id, n) in [("1", 1), ("2", 1), ("1", 2)] {
        container
            .upsert_item("a", id, json!({"id": id, "pk": "a", "n": n}), None)
            .await
            .expect("upsert");
    }
    let mut pages = container
        .query_change_feed::<Value>(
            FeedScope::full_container(),
            ChangeFeedStartFrom::Beginning,
            None,
        )
        .await
        .expect("change feed");
    let mut seen = Vec::new();
    while let Some(page) = pages.next().await {
        let items = page.expect("a page").into_items();
        if items.is_empty() {
            break;
        }
        for item in &items {
            let current = item.current().expect("the item");
            seen.push((current["id"].clone(), current["n"].clone()));
        }
    }
    assert_eq!(seen, [(json!("2"), json!(1)), (json!("1"), json!(2))]);
}

#[tokio::test]
async fn transactional_batch() {
    let container = plain_container(&connect(USUAL).await).await;
    let batch = TransactionalBatch::new("a")
        .create_item(json!({"id": "1", "pk": "a"}))
        .unwrap()
        .create_item(json!({"id": "2", "pk": "a"}))
        .unwrap();
    container.execute_transactional_batch(batch, None).await.expect("batch");
    container.read_item("a", "2", None).await.expect("read");
}
