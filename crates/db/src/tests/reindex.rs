//! The index follows the policy: in the background, a step at a time, across restarts, and queries are right meanwhile.

use serde_json::json;

use super::{START, World};
use crate::items::{PageRequest, ReadOptions, Scope, Verb, Write};
use crate::{Options, QueryRequest};

const ITEMS: u64 = 300;

#[tokio::test]
async fn a_changed_policy_is_followed_step_by_step_and_across_restarts() {
    let mut world = World::in_memory(Options::default()).await;
    let definition = |policy: serde_json::Value| json!({"id": "c", "partitionKey": {"paths": ["/pk"], "version": 2}, "indexingPolicy": policy});
    let narrow = json!({"includedPaths": [{"path": "/a/?"}], "excludedPaths": [{"path": "/*"}]});
    let wide = json!({"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/a/?"}]});
    world.db.create_container("d", &definition(narrow.clone()), None).await.unwrap();
    for n in 0..ITEMS {
        upsert(&world, n, n % 7).await;
    }
    assert_eq!(world.container().index_progress(), 100);
    let entries = entries(&world).await;

    world.db.replace_container("d", "c", &definition(wide), None).await.unwrap();
    assert_eq!(world.container().index_progress(), 0);
    assert_eq!(count(&world).await, ITEMS / 7 + 1, "by looking at every item");
    assert!(world.db.purge().await.unwrap().more);
    let progress = world.container().index_progress();
    assert!((30..50).contains(&progress), "{progress} %");

    // Both sides of the cursor change meanwhile.
    upsert(&world, 3, 0).await;
    upsert(&world, 250, 0).await;
    check(&world).await;
    world.restart(START).await;
    assert!(world.db.purge().await.unwrap().more);
    assert!(world.container().index_progress() > progress, "it does not begin again");
    while world.db.purge().await.unwrap().more {}
    assert_eq!(world.container().index_progress(), 100);
    assert_eq!(count(&world).await, ITEMS / 7 + 3, "by index");
    check(&world).await;

    // And back, twice, the second time before the first is through: nothing is left of either.
    world.db.replace_container("d", "c", &definition(json!({})), None).await.unwrap();
    world.db.purge().await.unwrap();
    world.db.replace_container("d", "c", &definition(narrow), None).await.unwrap();
    while world.db.purge().await.unwrap().more {}
    assert_eq!(self::entries(&world).await, entries);
    world.restart(START).await;
    assert_eq!(world.container().index_progress(), 100);
    check(&world).await;
}

async fn upsert(world: &World, n: u64, b: u64) {
    let body = json!({"id": n.to_string(), "pk": "p", "a": n, "b": b}).to_string().into();
    let verb = Verb::Upsert;
    let write = Write { verb, partition_key: None, body, if_match: None, if_none_match: None };
    world.db.write(&world.container(), write).await.result.unwrap();
}

async fn count(world: &World) -> u64 {
    let text = "SELECT VALUE COUNT(1) FROM c WHERE c.b = 0".to_owned();
    let query = QueryRequest {
        text,
        parameters: vec![],
        cross_partition: true,
        scan: true,
        scope: Scope::Container,
        resume: None,
    };
    let page = PageRequest { items_max: 10, continuation: None };
    let options = ReadOptions::default();
    let page = world.db.query(&world.container(), &query, &page, options).await.result.unwrap();
    serde_json::from_slice(&page.rows[0]).unwrap()
}

async fn entries(world: &World) -> usize {
    let all = bytes::Bytes::new()..storage::keycode::prefix_end(&[]);
    let snapshot = world.engine.snapshot();
    let forward = storage::Direction::Forward;
    snapshot.scan(storage::Family::Index, all, forward, usize::MAX).await.unwrap().len()
}

async fn check(world: &World) {
    let report = crate::check::run(&*world.engine, None, &mut |_, _| {}).await.unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}
