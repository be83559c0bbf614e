//! A spatial index finds what a scan finds, living items only, and reads little else.

use serde_json::{Value, json};

use super::World;
use crate::account::How;
use crate::items::{Page, PageRequest, ReadOptions, Scope, Verb, Write};
use crate::{Container, Options, QueryRequest};

const ITEMS: usize = 400;

#[tokio::test]
async fn ttl_r08_a_spatial_index_finds_what_a_scan_finds() {
    let world = World::in_memory(Options { partitions: Some(2), ..Options::default() }).await;
    let definition = |id: &str, policy: Value| json!({"id": id, "partitionKey": {"paths": ["/id"], "version": 2}, "defaultTtl": -1, "indexingPolicy": policy});
    let spatial = json!({"spatialIndexes": [{"path": "/place/*", "types": ["Point", "Polygon"]}]});
    world.db.create_container("d", &definition("c", spatial.clone()), None).await.unwrap();
    world.db.create_container("d", &definition("plain", json!({})), None).await.unwrap();
    let (indexed, plain) = (world.container(), world.db.container("d", "plain").unwrap());
    let random = &mut fastrand::Rng::with_seed(3);
    for n in 0..ITEMS {
        let mut item = json!({"id": n.to_string(), "n": n % 3});
        if n % 10 > 0 {
            item["place"] = shape(random, 0.4);
        }
        if n % 7 == 0 {
            item["ttl"] = json!(5);
        }
        for container in [&indexed, &plain] {
            let (verb, body) = (Verb::Upsert, item.to_string().into());
            let write =
                Write { verb, partition_key: None, body, if_match: None, if_none_match: None };
            world.db.write(container, write).await.result.unwrap();
        }
    }
    world.clock.advance(5);
    let mut found = 0;
    for round in 0..40 {
        let place = shape(random, 3.0);
        let condition = match round % 4 {
            0 => format!("ST_DISTANCE(c.place, {place}) < {}", random.u32(0..300_000)),
            1 => format!("ST_WITHIN(c.place, {place})"),
            2 => format!("ST_INTERSECTS({place}, c.place)"),
            _ => format!("ST_INTERSECTS({place}, c.place) AND c.n = 1"),
        };
        let text = format!("SELECT VALUE c.id FROM c WHERE {condition}");
        let by_index = ask(&world, &indexed, &text).await;
        let by_scan = ask(&world, &plain, &text).await;
        assert_eq!(by_index.rows, by_scan.rows, "{text}");
        assert_eq!(by_index.account.how, How::ByIndex, "{text}");
        // Where another index helps as well, it may be the better one.
        let fewer = by_index.account.items < by_scan.account.items;
        assert!(fewer || text.ends_with("c.n = 1"), "{text}");
        found += by_index.rows.len();
    }
    assert!(found > 50, "only {found} items were found");

    // What helps, and what would.
    let text =
        "SELECT * FROM c WHERE ST_WITHIN(c.place, {\"type\": \"Point\", \"coordinates\": [1, 1]})";
    let used = |container: &Container| world.db.index_use(container, &request(text)).unwrap();
    assert_eq!(
        (used(&indexed).spatial, used(&plain).spatial_missing),
        (vec!["/place/*".into()], vec!["/place/*".into()])
    );

    // Without the index, and with it again, the answers stay.
    let before = ask(&world, &indexed, text).await;
    for policy in [json!({}), spatial] {
        world.db.replace_container("d", "c", &definition("c", policy), None).await.unwrap();
        assert_eq!(ask(&world, &world.container(), text).await.rows, before.rows);
        while world.db.purge().await.unwrap().more {}
        assert_eq!(ask(&world, &world.container(), text).await.rows, before.rows);
    }
    let report = crate::check::run(&*world.engine, None, &mut |_, _| {}).await.unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
    assert_eq!(ask(&world, &world.container(), text).await.account.how, How::ByIndex);
}

/// A point or a polygon of this size, somewhere in a part of the world.
fn shape(random: &mut fastrand::Rng, size: f64) -> Value {
    let (x, y) = (random.f64() * 20.0, random.f64() * 20.0);
    match random.bool() {
        true => json!({"type": "Point", "coordinates": [x, y]}),
        false => {
            let corners = [[x, y], [x + size, y], [x + size, y + size], [x, y + size], [x, y]];
            json!({"type": "Polygon", "coordinates": [corners]})
        }
    }
}

fn request(text: &str) -> QueryRequest {
    QueryRequest {
        text: text.to_owned(),
        parameters: Vec::new(),
        cross_partition: true,
        scan: true,
        scope: Scope::Container,
        resume: None,
    }
}

async fn ask(world: &World, container: &Container, text: &str) -> Page {
    let page = PageRequest { items_max: ITEMS, continuation: None };
    world.db.query(container, &request(text), &page, ReadOptions::default()).await.result.unwrap()
}
