//! Items.

use std::time::Duration;

use azure_data_cosmos::feed::FeedRange;
use azure_data_cosmos::models::{
    BatchResponse, ChangeFeedPolicy, ContainerProperties, CosmosNumber, PartitionKeyDefinition,
    PatchInstructions, PatchOperation,
};
use azure_data_cosmos::options::{
    ChangeFeedMode, ChangeFeedOptions, ChangeFeedStartFrom, ContentResponseOnWrite,
    ItemReadOptions, ItemWriteOptions, OperationOptionsBuilder, PatchItemOptions, PatchStrategy,
    Precondition,
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
    let item = |id: &str, n: u64| json!({"id": id, "pk": "a", "n": n});
    let statuses = |batch: BatchResponse| -> Vec<u16> {
        let results = batch.into_model().expect("results");
        results.results().iter().map(|result| result.status_code()).collect()
    };
    let batch = TransactionalBatch::new("a")
        .create_item(item("1", 1))
        .unwrap()
        .upsert_item(item("2", 1), None)
        .unwrap()
        .replace_item("1", item("1", 2), None)
        .unwrap()
        .read_item("1", None)
        .delete_item("2", None);
    let done = container.execute_transactional_batch(batch, None).await.expect("batch");
    assert_eq!(statuses(done), [201, 201, 200, 200, 204]);
    let read: Value =
        container.read_item("a", "1", None).await.expect("read").into_model().unwrap();
    assert_eq!(read["n"], 2);
    assert_eq!(status(container.read_item("a", "2", None).await), 404);

    // All or nothing: the second is taken.
    let batch = TransactionalBatch::new("a")
        .create_item(item("3", 1))
        .unwrap()
        .create_item(item("1", 1))
        .unwrap();
    let undone = container.execute_transactional_batch(batch, None).await.expect("an answer");
    assert_eq!(statuses(undone), [424, 409]);
    assert_eq!(status(container.read_item("a", "3", None).await), 404);
}

#[tokio::test]
async fn patches_by_the_server_and_by_the_client() {
    let container = plain_container(&connect(USUAL).await).await;
    for strategy in [PatchStrategy::ServerSide, PatchStrategy::ClientSide] {
        let item = json!({"id": "1", "pk": "a", "n": 1, "list": ["x"], "old": 1, "gone": 1});
        container.upsert_item("a", "1", item, None).await.expect("upsert");
        let patch = PatchInstructions::new()
            .with_operation(PatchOperation::set("/s", json!("gold")))
            .with_operation(PatchOperation::add("/list/-", json!("y")))
            .with_operation(PatchOperation::replace("/old", json!(2)))
            .with_operation(PatchOperation::remove("/gone"))
            .with_operation(PatchOperation::increment("/n", CosmosNumber::from(4i64)))
            .with_operation(PatchOperation::move_value("/list/0", "/first"));
        let options = PatchItemOptions::default().with_strategy(strategy);
        let patched = container.patch_item("a", "1", patch, Some(options)).await.expect("patch");
        let patched: Value = patched.into_model().expect("JSON");
        for (name, value) in [
            ("s", json!("gold")),
            ("list", json!(["y"])),
            ("old", json!(2)),
            ("gone", Value::Null),
            ("n", json!(5)),
            ("first", json!("x")),
        ] {
            assert_eq!(patched[name], value, "{name}");
        }
    }
}

/// What one client was told serves another.
#[tokio::test]
async fn session_tokens_are_handed_on() {
    let writer = plain_container(&connect(USUAL).await).await;
    let mut told = Vec::new();
    for n in 0..3 {
        let item = json!({"id": "1", "pk": "a", "n": n});
        let written = writer.upsert_item("a", "1", item, None).await.expect("upsert");
        let token = written.headers().session_token().expect("a token").clone();
        told.push((FeedRange::full(), token));
    }
    let latest = writer.get_latest_session_token(&told, &FeedRange::full()).expect("latest");
    assert_eq!(latest.to_string(), told[2].1.to_string());
    let options = ItemReadOptions::default().with_session_token(latest);
    let read: Value =
        writer.read_item("a", "1", Some(options)).await.expect("read").into_model().unwrap();
    assert_eq!(read["n"], 2);
}

/// All versions and deletes, from now on.
#[tokio::test]
async fn change_feed_of_all_versions() {
    let policy = ChangeFeedPolicy::default().with_retention_duration(Duration::from_secs(600));
    let properties =
        ContainerProperties::new("items", "/pk".into()).with_change_feed_policy(policy);
    let container = container(&connect(USUAL).await, properties).await;
    let options = ChangeFeedOptions::default().with_mode(ChangeFeedMode::AllVersionsAndDeletes);
    let scope = FeedScope::full_container();
    let mut pages = container
        .query_change_feed::<Value>(scope, ChangeFeedStartFrom::Now, Some(options))
        .await
        .expect("change feed");
    assert!(pages.next().await.expect("a page").expect("nothing yet").into_items().is_empty());
    container.create_item("a", "1", json!({"id": "1", "pk": "a"}), None).await.expect("create");
    container.delete_item("a", "1", None).await.expect("delete");
    let changes = pages.next().await.expect("a page").expect("changes").into_items();
    let kinds: Vec<bool> = changes.iter().map(|change| change.current().is_some()).collect();
    assert_eq!(kinds, [true, false]);
}
