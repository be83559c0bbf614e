//! Scripts beside other clients: what they do is as if they had been alone, or nothing; and they keep nobody waiting.

use std::sync::Arc;

use serde_json::{Value, json};
use storage::memory::Memory;

use super::{World, key};
use crate::items::{ReadOptions, Verb, Write};
use crate::{Container, Error, Kind, Options, Parent, Place};

fn on_threads<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(work)
}

async fn world() -> Arc<World> {
    let world = Arc::new(World::new(Arc::new(Memory::new()), Options::default()).await);
    super::concurrency::make_container(&world).await;
    world
}

async fn procedure(world: &World, id: &str, body: &str) {
    let container = world.container();
    let parent = Parent::Container(&container.database_id, container.id());
    let place = Place { parent, kind: Kind::Procedure };
    let body = json!({"id": id, "body": body});
    world.db.create_resource(place, &body, false).await.unwrap();
}

async fn create(world: &World, container: &Container, item: Value) {
    let write = Write {
        verb: Verb::Upsert,
        partition_key: Some(key("p")),
        body: item.to_string().into(),
        if_match: None,
        if_none_match: None,
    };
    world.db.write(container, write).await.result.unwrap();
}

async fn number(world: &World, id: &str) -> u64 {
    let read = world.db.read(&world.container(), &key("p"), id, ReadOptions::default()).await;
    serde_json::from_slice::<Value>(&read.result.unwrap().body).unwrap()["n"].as_u64().unwrap()
}

/// Increments by many scripts at once: none is lost, though each reads before it writes.
#[test]
fn scripts_do_not_lose_each_others_changes() {
    on_threads(async {
        let world = world().await;
        let container = world.container();
        create(&world, &container, json!({"id": "counter", "pk": "p", "n": 0, "u": 1})).await;
        let body = "function () { var link = __.getAltLink() + '/docs/counter';
            __.readDocument(link, {}, function (e, d) { d.n++; __.replaceDocument(link, d); }); }";
        procedure(&world, "add", body).await;
        let add = |_| {
            let world = world.clone();
            tokio::spawn(async move {
                let mut added = 0;
                for _ in 0..20 {
                    let reply =
                        world.db.execute(&world.container(), "add", &key("p"), &Value::Null).await;
                    match reply.result {
                        Ok(_) => added += 1,
                        Err(Error::Contention) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                added
            })
        };
        let mut added = 0;
        for client in (0..4).map(add).collect::<Vec<_>>() {
            added += client.await.unwrap();
        }
        assert!(added > 0);
        assert_eq!(number(&world, "counter").await, added);
    });
}

/// While scripts loop for ever, and while they eat all the memory they may have, writes and reads go on; the scripts are ended.
#[test]
fn bombs_keep_nobody_waiting() {
    on_threads(async {
        let world = world().await;
        let container = world.container();
        procedure(&world, "loop", "function () { for (;;); }").await;
        procedure(
            &world,
            "eat",
            "function () { var a = []; for (;;) a.push(new Array(1e4).fill(1)); }",
        )
        .await;
        let run = |id: &'static str| {
            let world = world.clone();
            tokio::spawn(async move {
                world.db.execute(&world.container(), id, &key("p"), &Value::Null).await.result
            })
        };
        let (looping, eating) = (run("loop"), run("eat"));
        let mut rounds = 0;
        while !looping.is_finished() || rounds < 100 {
            create(&world, &container, json!({"id": "x", "pk": "p", "n": rounds, "u": 1})).await;
            assert_eq!(number(&world, "x").await, rounds);
            rounds += 1;
        }
        assert!(matches!(looping.await.unwrap(), Err(Error::ScriptTime)));
        let eaten = eating.await.unwrap();
        assert!(matches!(eaten, Err(Error::Script { .. } | Error::ScriptTime)), "{eaten:?}");
        assert!(rounds >= 100);
    });
}
