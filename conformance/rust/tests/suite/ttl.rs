//! Time to live, on the server's virtual clock. One at a time: it is one clock for all.

use azure_data_cosmos::clients::ContainerClient;
use azure_data_cosmos::models::{ContainerProperties, TimeToLive};
use serde_json::json;
use tokio::sync::Mutex;

use crate::server::{USUAL, advance, connect, container, status};

static CLOCK: Mutex<()> = Mutex::const_new(());

async fn with_default(default: TimeToLive) -> ContainerClient {
    let properties = ContainerProperties::new("ttl", "/pk".into()).with_default_ttl(default);
    container(&connect(USUAL).await, properties).await
}

async fn is_alive(container: &ContainerClient, id: &str) -> bool {
    match container.read_item("a", id, None).await {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(u16::from(error.status()), 404);
            false
        }
    }
}

#[tokio::test]
async fn items_follow_the_default_or_their_own() {
    let _clock = CLOCK.lock().await;
    let container = with_default(TimeToLive::Seconds(100)).await;
    for (id, item) in [
        ("default", json!({"id": "default", "pk": "a"})),
        ("own", json!({"id": "own", "pk": "a", "ttl": 1000})),
        ("never", json!({"id": "never", "pk": "a", "ttl": -1})),
    ] {
        container.create_item("a", id, item, None).await.expect("create");
    }
    advance(100);
    assert!(!is_alive(&container, "default").await);
    assert!(is_alive(&container, "own").await);
    advance(900);
    assert!(!is_alive(&container, "own").await);
    advance(100_000_000);
    assert!(is_alive(&container, "never").await);
}

#[tokio::test]
async fn a_new_default_counts_at_once_and_expired_is_final() {
    let _clock = CLOCK.lock().await;
    let container = with_default(TimeToLive::NoDefault).await;
    container.create_item("a", "1", json!({"id": "1", "pk": "a"}), None).await.expect("create");
    advance(1000);
    assert!(is_alive(&container, "1").await);
    for default in [TimeToLive::Seconds(500), TimeToLive::Seconds(1_000_000), TimeToLive::Forever] {
        let properties = container.read(None).await.expect("read").into_model().expect("JSON");
        container.replace(properties.with_default_ttl(default), None).await.expect("replace");
        assert!(!is_alive(&container, "1").await);
    }
}

#[tokio::test]
async fn an_illegal_ttl_is_refused() {
    let container = with_default(TimeToLive::NoDefault).await;
    for ttl in [json!(0), json!(-10), json!(1.5), json!("5"), json!(null), json!(2_147_483_648_i64)]
    {
        let item = json!({"id": "1", "pk": "a", "ttl": ttl});
        assert_eq!(status(container.create_item("a", "1", item, None).await), 400, "{ttl}");
    }
    assert!(!is_alive(&container, "1").await);
}
