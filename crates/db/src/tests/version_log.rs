//! The log of all versions keeps within its size, and whoever it has left behind is told so.

use serde_json::json;
use storage::{Direction, Family};

use super::{World, key};
use crate::items::{Scope, Verb, Write};
use crate::keys::history_from;
use crate::{ChangesMode, ChangesRequest, Error, Options};

const MEGABYTE: u64 = 1 << 20;

#[tokio::test]
async fn the_log_keeps_within_its_size() {
    let world = World::in_memory(Options { partitions: Some(1), ..Options::default() }).await;
    let definition = json!({
        "id": "c", "partitionKey": {"paths": ["/pk"], "version": 2},
        "changeFeedPolicy": {"retentionDuration": 60, "maxSizeInMB": 1},
    });
    world.db.create_container("d", &definition, None).await.unwrap();

    let (mut longest, mut last) = (0, None);
    for n in 0..80 {
        upsert(&world, n % 5, 20_000).await;
        let stored = stored_bytes(&world).await;
        assert_eq!(head(&world).log_bytes, stored, "what the head says after write {n}");
        longest = longest.max(stored);
        last = Some(changes(&world, "\"0\"").await);
        if n == 5 {
            assert_eq!(last.as_ref().unwrap().as_ref().unwrap().len(), 6, "all are there yet");
        }
    }
    // A version of an item holds two bodies.
    assert!((MEGABYTE / 2..MEGABYTE + 45_000).contains(&longest), "{longest} bytes");
    let too_late = last.unwrap().unwrap_err();
    assert!(too_late.to_string().contains("within the retention period"), "{too_late}");

    // What is left is complete, up to the last change.
    let from = head(&world).log_from;
    let lsns = changes(&world, &format!("\"{}\"", from - 1)).await.unwrap();
    assert_eq!(lsns, (from..=80).collect::<Vec<_>>());
    let report = crate::check::run(&*world.engine, None, &mut |_, _| {}).await.unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

async fn upsert(world: &World, id: u32, bytes: usize) {
    let body = json!({"id": id.to_string(), "pk": "p", "text": "x".repeat(bytes)}).to_string();
    let write = Write {
        verb: Verb::Upsert,
        partition_key: Some(key("p")),
        body: body.into(),
        if_match: None,
        if_none_match: None,
    };
    world.db.write(&world.container(), write).await.result.unwrap();
}

/// The numbers of the changes after an etag.
async fn changes(world: &World, etag: &str) -> Result<Vec<u64>, Error> {
    let (mut lsns, mut etag) = (Vec::new(), etag.to_owned());
    loop {
        let from = ChangesRequest::After(etag);
        let mode = (ChangesMode::All, &from);
        let page =
            world.db.changes(&world.container(), &Scope::Container, mode, 100).await.result?;
        if page.rows.is_empty() {
            return Ok(lsns);
        }
        lsns.extend(page.rows.iter().map(|change| change.lsn));
        etag = page.etag;
    }
}

fn head(world: &World) -> crate::partition::Head {
    world.container().partitions.all[0].head()
}

async fn stored_bytes(world: &World) -> u64 {
    let range = history_from(world.container().partitions.all[0].id, 0);
    let snapshot = world.engine.snapshot();
    let entries = snapshot.scan(Family::Feed, range, Direction::Forward, usize::MAX).await.unwrap();
    entries.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
}
