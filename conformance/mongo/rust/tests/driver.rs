//! MongoDB's Rust driver: ordinary work with the connection string of the service, and without TLS.

use futures_util::TryStreamExt;
use mongodb::bson::{Document, doc};
use mongodb::options::IndexOptions;
use mongodb::{Client, Collection, IndexModel};

type Result<T = ()> = std::result::Result<T, mongodb::error::Error>;

async fn connect(options: &str) -> Result<Client> {
    let variable = |name| std::env::var(name).expect("conformance/run sets it");
    let key = variable("ACCOUNT_KEY");
    let key = percent_encoding::utf8_percent_encode(&key, percent_encoding::NON_ALPHANUMERIC);
    let port = variable("MONGO_PORT");
    Client::with_uri_str(format!("mongodb://sidereal:{key}@localhost:{port}/?{options}")).await
}

/// As the service's portal shows it.
const SERVICE: &str =
    "tls=true&replicaSet=globaldb&retryWrites=false&tlsAllowInvalidCertificates=true";

async fn ids(things: &Collection<Document>, filter: Document) -> Result<Vec<i32>> {
    let found: Vec<Document> =
        things.find(filter).sort(doc! {"_id": 1}).await?.try_collect().await?;
    Ok(found.iter().filter_map(|found| found.get_i32("_id").ok()).collect())
}

async fn ordinary_work(options: &str, collection: &str) -> Result {
    let client = connect(options).await?;
    let things = client.database("rust").collection::<Document>(collection);
    things.insert_many((1..=5).map(|n| doc! {"_id": n, "n": n})).await?;
    assert_eq!(ids(&things, doc! {"n": {"$gt": 1, "$lt": 4}}).await?, [2, 3]);
    let updated = things.update_many(doc! {"n": {"$lte": 2}}, doc! {"$inc": {"n": 10}}).await?;
    assert_eq!(updated.modified_count, 2);
    assert!(things.insert_one(doc! {"_id": 1}).await.is_err());
    let found = things.find_one_and_delete(doc! {"_id": 5}).await?;
    assert_eq!(found, Some(doc! {"_id": 5, "n": 5}));
    assert_eq!(things.count_documents(doc! {}).await?, 4);
    let rows: Vec<Document> = things
        .aggregate([doc! {"$group": {"_id": null, "sum": {"$sum": "$n"}}}])
        .await?
        .try_collect()
        .await?;
    assert_eq!(rows, [doc! {"_id": null, "sum": 30}]);
    let unique = IndexOptions::builder().unique(true).build();
    things.create_index(IndexModel::builder().keys(doc! {"n": 1}).options(unique).build()).await?;
    assert!(things.insert_one(doc! {"_id": 7, "n": 11}).await.is_err());
    assert_eq!(things.list_index_names().await?, ["_id_", "n_1"]);
    client.database("rust").collection::<Document>(collection).drop().await
}

#[tokio::test]
async fn ordinary_work_with_the_services_connection_string() -> Result {
    ordinary_work(SERVICE, "tls").await
}

#[tokio::test]
async fn ordinary_work_without_tls() -> Result {
    ordinary_work("", "plain").await
}

#[tokio::test]
async fn a_change_stream_sees_what_is_written_and_removed() -> Result {
    let client = connect(SERVICE).await?;
    let things = client.database("rust").collection::<Document>("watched");
    things.insert_one(doc! {"_id": 0}).await?;
    let mut stream = things.watch().await?;
    things.insert_one(doc! {"_id": 1}).await?;
    things.delete_one(doc! {"_id": 1}).await?;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        if let Some(event) = stream.next_if_any().await? {
            seen.push(format!("{:?}", event.operation_type));
        }
    }
    assert_eq!(seen, ["Insert", "Delete"]);
    things.drop().await
}
