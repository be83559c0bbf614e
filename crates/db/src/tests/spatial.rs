//! A spatial index finds what a scan finds, living items only, and reads little else.

use model::clock::Clock;
use serde_json::{Value, json};
use storage::{Batch, Direction, Family};

use super::World;
use crate::account::How;
use crate::items::{Page, PageRequest, ReadOptions, Scope, Verb, Write};
use crate::keys::{Key, partition_range};
use crate::{Container, Options, QueryRequest};

const ITEMS: usize = 400;

#[tokio::test]
async fn ttl_r08_a_spatial_index_finds_what_a_scan_finds() {
    on_a_surface("Geography").await;
}

#[tokio::test]
async fn ttl_r08_a_spatial_index_on_a_plane_finds_what_a_scan_finds() {
    on_a_surface("Geometry").await;
}

async fn on_a_surface(surface: &str) {
    let mut world = World::in_memory(Options { partitions: Some(2), ..Options::default() }).await;
    let definition = |id: &str, policy: Value| json!({"id": id, "partitionKey": {"paths": ["/id"], "version": 2}, "defaultTtl": -1, "indexingPolicy": policy, "geospatialConfig": {"type": surface}});
    let mut index = json!({"path": "/place/*", "types": ["Point", "Polygon"]});
    // On the plane, units are larger than degrees, and distances are in them.
    let (scale, distances) = match surface {
        "Geometry" => {
            index["boundingBox"] = json!({"xmin": 0, "ymin": 0, "xmax": 20_000, "ymax": 20_000});
            (1_000.0, 3_000)
        }
        _ => (1.0, 300_000),
    };
    let spatial = json!({"spatialIndexes": [index]});
    world.db.create_container("d", &definition("c", spatial.clone()), None).await.unwrap();
    world.db.create_container("d", &definition("plain", json!({})), None).await.unwrap();
    let (indexed, plain) = (world.container(), world.db.container("d", "plain").unwrap());
    let random = &mut fastrand::Rng::with_seed(3);
    for n in 0..ITEMS {
        let mut item = json!({"id": n.to_string(), "n": n % 3});
        if n % 10 > 0 {
            item["place"] = shape(random, 0.4, scale);
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
        let place = shape(random, 3.0, scale);
        let condition = match round % 4 {
            0 => format!("ST_DISTANCE(c.place, {place}) < {}", random.u32(0..distances)),
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

    // A store from before there were such terms is indexed anew when it is opened; until then its items are read.
    forget_shapes(&world).await;
    world.restart(world.clock.now()).await;
    let end = 5.0 * scale;
    let region = [[0.0, 0.0], [end, 0.0], [end, end], [0.0, end], [0.0, 0.0]];
    let region = json!({"type": "Polygon", "coordinates": [region]});
    let text = format!("SELECT VALUE c.id FROM c WHERE ST_INTERSECTS(c.place, {region})");
    let expected = ask(&world, &world.db.container("d", "plain").unwrap(), &text).await.rows;
    assert!(!expected.is_empty());
    let early = ask(&world, &world.container(), &text).await;
    assert_eq!((early.rows, early.account.how), (expected.clone(), How::Scanned));
    assert!(world.container().index_progress() < 100);
    while world.db.purge().await.unwrap().more {}
    let late = ask(&world, &world.container(), &text).await;
    assert_eq!((late.rows, late.account.how), (expected, How::ByIndex));
    assert_eq!(world.container().index_progress(), 100);
    let report = crate::check::run(&*world.engine, None, &mut |_, _| {}).await.unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

/// Makes the store what it was before shapes had terms.
async fn forget_shapes(world: &World) {
    let container = world.container();
    let key = Key::Container(container.rid.number).encode();
    let snapshot = world.engine.snapshot();
    let row = snapshot.get(Family::Catalog, &key).await.unwrap().unwrap();
    let mut row: Value = serde_json::from_slice(&row).unwrap();
    row["indexing"].as_object_mut().unwrap().remove("terms").unwrap();
    let mut batch = Batch::default();
    batch.put(Family::Catalog, key, row.to_string());
    let mut shapes = 0;
    for partition in &container.partitions.all {
        let range = partition_range(partition.id);
        let all = snapshot.scan(Family::Index, range, Direction::Forward, usize::MAX).await;
        for (key, _) in all.unwrap() {
            if key.windows(7).any(|part| part == b"@/place") {
                batch.delete(Family::Index, key);
                shapes += 1;
            }
        }
    }
    assert!(shapes > 100);
    world.engine.commit(batch).await.unwrap();
}

/// A point or a polygon of this size, somewhere in a part of the world.
fn shape(random: &mut fastrand::Rng, size: f64, scale: f64) -> Value {
    let (x, y, size) = (random.f64() * 20.0 * scale, random.f64() * 20.0 * scale, size * scale);
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
