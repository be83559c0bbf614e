//! TLS and plain, HTTP/1.1 and 2, binary and text JSON: all on one port, all the same answers.

use serde_json::{Value, json};

use crate::server::{Talk, USUAL, connect, connect_with_key, plain_container, status};

async fn round_trip(talk: Talk) {
    let container = plain_container(&connect(talk).await).await;
    let item = json!({
        "id": "1", "pk": "a", "text": "ø 漢字 🙂", "long": "x".repeat(70_000), "empty": "", "yes": true, "no": false,
        "null": null, "numbers": [0, 31, 32, 255, 256, 65_536, -1, -129, 4_294_967_296_i64, -4_294_967_297_i64, 1.5, -0.25],
        "nested": {"list": [[], {}, [{"deep": [1, [2, [3]]]}]], "2026-11-15T10:17:10Z": "date"},
        "guid": "0f8fad5b-d9cb-469f-a165-70867728950e",
    });
    container.create_item("a", "1", &item, None).await.expect("create");
    let read: Value =
        container.read_item("a", "1", None).await.expect("read").into_model().expect("JSON");
    for (name, value) in item.as_object().unwrap() {
        assert_eq!(&read[name], value, "{name}");
    }
    container.delete_item("a", "1", None).await.expect("delete");
    assert_eq!(status(container.read_item("a", "1", None).await), 404);
}

#[tokio::test]
async fn tls_http2_binary() {
    round_trip(USUAL).await;
}

#[tokio::test]
async fn tls_http1_binary() {
    round_trip(Talk { http2: false, ..USUAL }).await;
}

#[tokio::test]
async fn tls_http2_text() {
    round_trip(Talk { binary: false, ..USUAL }).await;
}

#[tokio::test]
async fn plain_http2_binary() {
    round_trip(Talk { tls: false, ..USUAL }).await;
}

#[tokio::test]
async fn plain_http1_text() {
    round_trip(Talk { tls: false, http2: false, binary: false }).await;
}

#[tokio::test]
async fn wrong_key_is_refused() {
    let key = "bm90IHRoZSBrZXkgb2YgdGhpcyBhY2NvdW50".to_owned();
    let result = match connect_with_key(USUAL, key).await {
        Ok(client) => client.create_database("never", None).await.map(|_| ()),
        Err(error) => Err(error),
    };
    assert_eq!(status(result), 401);
}
