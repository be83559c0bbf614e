//! Containers and their throughput.

use azure_data_cosmos::Query;
use azure_data_cosmos::models::{ContainerProperties, ThroughputProperties, TimeToLive};
use azure_data_cosmos::options::CreateContainerOptions;
use futures::TryStreamExt;

use crate::server::{USUAL, connect, database, plain_container, status};

#[tokio::test]
async fn create_read_replace_delete() {
    let database = database(&connect(USUAL).await).await;
    let properties =
        ContainerProperties::new("c", "/pk".into()).with_default_ttl(TimeToLive::Seconds(600));
    let created = database.create_container(properties, None).await.expect("create");
    assert_eq!(u16::from(created.status()), 201);
    let container = database.container_client("c", None).await.expect("client");
    let read = container.read(None).await.expect("read").into_model().expect("JSON");
    assert_eq!(read.default_ttl, TimeToLive::Seconds(600));
    assert!(read.indexing_policy.is_some());
    let replaced = container
        .replace(read.with_default_ttl(TimeToLive::NoDefault), None)
        .await
        .expect("replace")
        .into_model()
        .expect("JSON");
    assert_eq!(replaced.default_ttl, TimeToLive::NoDefault);
    container.delete(None).await.expect("delete");
    assert_eq!(status(container.read(None).await), 404);
}

#[tokio::test]
async fn query_by_id() {
    let database = database(&connect(USUAL).await).await;
    for id in ["one", "two"] {
        let properties = ContainerProperties::new(id, "/pk".into());
        database.create_container(properties, None).await.expect("create");
    }
    let query = Query::from("SELECT * FROM root r WHERE r.id = 'two'");
    let found: Vec<_> = database
        .query_containers(query, None)
        .await
        .expect("query")
        .try_collect()
        .await
        .expect("rows");
    assert_eq!(found.iter().map(|c| c.id.as_ref()).collect::<Vec<_>>(), ["two"]);
}

#[tokio::test]
async fn throughput_can_be_given_read_and_replaced() {
    let database = database(&connect(USUAL).await).await;
    let options =
        CreateContainerOptions::default().with_throughput(ThroughputProperties::manual(700));
    let properties = ContainerProperties::new("c", "/pk".into());
    database.create_container(properties, Some(options)).await.expect("create");
    let container = database.container_client("c", None).await.expect("client");
    let read = container.read_throughput(None).await.expect("read").expect("an offer");
    assert_eq!(read.throughput(), Some(700));
    container
        .begin_replace_throughput(ThroughputProperties::manual(1000), None)
        .await
        .expect("replace")
        .await
        .expect("done");
    let read = container.read_throughput(None).await.expect("read").expect("an offer");
    assert_eq!(read.throughput(), Some(1000));
}

#[tokio::test]
async fn autoscale() {
    let database = database(&connect(USUAL).await).await;
    let throughput = ThroughputProperties::autoscale(4000, None);
    let options = CreateContainerOptions::default().with_throughput(throughput);
    let properties = ContainerProperties::new("c", "/pk".into());
    database.create_container(properties, Some(options)).await.expect("create");
    let container = database.container_client("c", None).await.expect("client");
    let read = container.read_throughput(None).await.expect("read").expect("an offer");
    assert_eq!(read.autoscale_maximum(), Some(4000));
}

#[tokio::test]
async fn feed_ranges_cover_the_container() {
    let container = plain_container(&connect(USUAL).await).await;
    let ranges = container.read_feed_ranges(None).await.expect("ranges");
    assert!(!ranges.is_empty());
    let of_key = container.feed_range_from_partition_key("a", None).await.expect("range of a key");
    assert_eq!(of_key.len(), 1);
}
