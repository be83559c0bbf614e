//! The change feed against a plain list of what changed last: whichever way the pages are read, each living item is there once, in order.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{World, key};
use crate::items::{Scope, Verb, Write};
use crate::{ChangesMode, ChangesRequest, Options};

/// What the feed should show: by id, the last change and when the item was made.
type Model = BTreeMap<String, (u64, u64)>;

#[tokio::test]
async fn the_feed_is_the_order_of_last_changes() {
    for (seed, calm) in [(1, 0.0), (2, 0.9), (3, 0.99), (4, 0.997)] {
        let world = World::in_memory(Options { partitions: Some(1), ..Options::default() }).await;
        let definition = json!({"id": "c", "partitionKey": {"paths": ["/pk"], "version": 2}});
        world.db.create_container("d", &definition, None).await.unwrap();
        let model = live(&world, fastrand::Rng::with_seed(seed), calm).await;
        let mut expected: Vec<(&(u64, u64), &String)> =
            model.iter().map(|(id, at)| (at, id)).collect();
        expected.sort();
        let expected: Vec<&str> = expected.into_iter().map(|(_, id)| id.as_str()).collect();
        for page in [1, 10, 100, 999, 5_000] {
            assert_eq!(read(&world, page).await, expected, "seed {seed}, pages of {page}");
        }
    }
}

/// Makes, changes and removes items; the calmer, the more often they are only made, one after the other.
async fn live(world: &World, mut random: fastrand::Rng, calm: f64) -> Model {
    let (mut model, mut lsn, mut made) = (Model::new(), 0, 0);
    for n in 0..1_200 {
        let new = format!("i{n}");
        lsn += 1;
        let old = random.choice(model.keys().cloned().collect::<Vec<_>>());
        match (random.f64() < calm, old, random.u8(0..4)) {
            (false, Some(old), 0) => {
                write(world, Verb::Delete(old.clone()), &old).await;
                model.remove(&old);
            }
            (false, Some(old), 1) => {
                write(world, Verb::Replace(old.clone()), &old).await;
                model.get_mut(&old).unwrap().0 = lsn;
            }
            (false, Some(old), 2) => {
                // One change of two items.
                let create = new_write(Verb::Create, &new);
                let replace = new_write(Verb::Replace(old.clone()), &old);
                let batch = vec![create, replace];
                world.db.transact(&world.container(), batch).await.result.unwrap();
                made += 1;
                model.insert(new, (lsn, made));
                model.get_mut(&old).unwrap().0 = lsn;
            }
            _ => {
                write(world, Verb::Create, &new).await;
                made += 1;
                model.insert(new, (lsn, made));
            }
        }
    }
    model
}

async fn write(world: &World, verb: Verb, id: &str) {
    world.db.write(&world.container(), new_write(verb, id)).await.result.unwrap();
}

fn new_write(verb: Verb, id: &str) -> Write {
    let body = json!({"id": id, "pk": "p"}).to_string().into();
    Write { verb, partition_key: Some(key("p")), body, if_match: None, if_none_match: None }
}

/// All ids from the beginning on, in pages of at most so many.
async fn read(world: &World, items_max: usize) -> Vec<String> {
    let (mut ids, mut from) = (Vec::new(), ChangesRequest::Beginning);
    loop {
        let mode = (ChangesMode::Latest, &from);
        let page = world.db.changes(&world.container(), &Scope::Container, mode, items_max).await;
        let page = page.result.unwrap();
        if page.rows.is_empty() {
            return ids;
        }
        for change in &page.rows {
            let item: Value = serde_json::from_slice(&change.json).unwrap();
            ids.push(item["id"].as_str().unwrap().to_owned());
        }
        from = ChangesRequest::After(page.etag);
    }
}
