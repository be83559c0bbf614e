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

/// Whose turn it is with the clock: a transaction lasts five seconds only.
static CLOCK: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Moves the server's clock.
fn advance(seconds: u32) {
    ask("POST", &format!("{{\"advance\": {seconds}}}"));
}

/// What it says, in seconds.
fn clock() -> i64 {
    let answer = ask("GET", "");
    let digits = answer.split("\"now\":").nth(1).expect("it tells the time");
    let digits: String = digits.trim().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

fn ask(method: &str, body: &str) -> String {
    use std::io::{Read, Write};
    let variable = |name| std::env::var(name).expect("conformance/run sets it");
    let (port, key) = (variable("ACCOUNT_PORT"), variable("ACCOUNT_KEY"));
    let length = body.len();
    let request = format!(
        "{method} /_admin/clock HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    let mut server = std::net::TcpStream::connect(format!("localhost:{port}")).expect("it listens");
    server.write_all(request.as_bytes()).expect("it takes the request");
    let mut answer = String::new();
    server.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

#[tokio::test]
async fn documents_expire_by_their_own_ttl_and_by_dates_in_their_very_second() -> Result {
    let _turn = CLOCK.lock().await;
    let client = connect(SERVICE).await?;
    let things = client.database("rust").collection::<Document>("expiring");
    let expire = |seconds| {
        let after = std::time::Duration::from_secs(seconds);
        IndexOptions::builder().expire_after(after).build()
    };
    let index = |keys, seconds| IndexModel::builder().keys(keys).options(expire(seconds)).build();
    things.create_index(index(doc! {"_ts": 1}, 60)).await?;
    things
        .insert_many([
            doc! {"_id": 1, "ttl": 20},
            doc! {"_id": 2, "ttl": 20_i64},
            doc! {"_id": 3, "ttl": 20.0},
            doc! {"_id": 4, "ttl": 20.5},
            doc! {"_id": 5, "ttl": 2_147_483_649_i64},
        ])
        .await?;
    advance(19);
    assert_eq!(ids(&things, doc! {}).await?, [1, 2, 3, 4, 5]);
    advance(1);
    assert_eq!(ids(&things, doc! {}).await?, [4, 5]);
    advance(40);
    assert_eq!(ids(&things, doc! {}).await?, [0; 0]);
    things.drop().await?;
    things.create_index(index(doc! {"at": 1}, 10)).await?;
    let now = mongodb::bson::DateTime::from_millis(clock() * 1_000);
    things
        .insert_many([doc! {"_id": 1, "at": now}, doc! {"_id": 2, "at": [now]}, doc! {"_id": 3}])
        .await?;
    advance(9);
    assert_eq!(ids(&things, doc! {}).await?, [1, 2, 3]);
    advance(1);
    assert_eq!(ids(&things, doc! {}).await?, [3]);
    things.drop().await
}

#[tokio::test]
async fn a_transaction_is_all_or_nothing() -> Result {
    let _turn = CLOCK.lock().await;
    let client = connect(SERVICE).await?;
    let accounts = client.database("rust").collection::<Document>("accounts");
    accounts.insert_many([doc! {"_id": 1, "sum": 10}, doc! {"_id": 2, "sum": 0}]).await?;
    let mut session = client.start_session().await?;
    for commits in [false, true] {
        session.start_transaction().await?;
        for (id, by) in [(1, -5), (2, 5)] {
            let change = doc! {"$inc": {"sum": by}};
            accounts.update_one(doc! {"_id": id}, change).session(&mut session).await?;
        }
        let inside = accounts.find_one(doc! {"_id": 2}).session(&mut session).await?;
        assert_eq!(inside, Some(doc! {"_id": 2, "sum": 5}));
        assert_eq!(accounts.find_one(doc! {"_id": 2}).await?, Some(doc! {"_id": 2, "sum": 0}));
        match commits {
            true => session.commit_transaction().await?,
            false => session.abort_transaction().await?,
        }
        assert_eq!(ids(&accounts, doc! {"sum": 5}).await?.len(), if commits { 2 } else { 0 });
    }
    accounts.drop().await
}
