//! Random queries over random items, some of which expire: by index and in pages of any size, a query must give what it gives when every
//! living item is simply pushed through it.

use serde_json::{Value, json};

use super::World;
use crate::items::{PageRequest, ReadOptions, Scope, Verb, Write};
use crate::{Options, QueryRequest};

const ROUNDS: u64 = 40;
const QUERIES: usize = 25;

#[test]
fn ttl_r08_random_queries_agree_with_a_full_scan() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for seed in 0..ROUNDS {
        runtime.block_on(run(seed));
    }
}

async fn run(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let partitions = Some(random.u32(1..4));
    let world = World::in_memory(Options { partitions, ..Options::default() }).await;
    let mut definition = json!({
        "id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}, "defaultTtl": 20,
    });
    definition["indexingPolicy"] = policy(&mut random);
    world.db.create_container("d", &definition, None).await.unwrap();
    for id in 0..60 {
        world.clock.advance(u64::from(random.u8(0..3) == 0));
        write(&mut random, &world, id).await;
    }
    for _ in 0..QUERIES {
        let text = query(&mut random);
        let scope = match random.bool() {
            true => Scope::Container,
            false => Scope::Key(super::key(["x", "y"][random.usize(0..2)])),
        };
        let mut expected = naive(&world, &text, &scope).await;
        // Nothing is lost or repeated by a split between two pages; but without ORDER BY the order may be another.
        let splits = random.u8(0..6) == 0;
        let page = random.usize(1..70);
        let mut found = paged(&world, &text, &scope, page, splits).await;
        if splits && !text.contains("ORDER BY") {
            if text.contains("TOP") {
                (found, expected) =
                    (vec![found.len().to_string()], vec![expected.len().to_string()]);
            }
            found.sort();
            expected.sort();
        }
        let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        assert!(
            differs.is_none() && found.len() == expected.len(),
            "seed {seed}, {scope:?}, pages of {page}: {text}: {} rows instead of {}, the first other one is {differs:?}",
            found.len(),
            expected.len(),
        );
        world.clock.advance(u64::from(random.u8(0..4) == 0));
        match random.u8(0..12) {
            0 | 1 => drop(world.db.purge_all().await.unwrap()),
            // A step of the rebuild, if there is one under way.
            2..6 => drop(world.db.purge().await.unwrap()),
            6 => {
                definition["indexingPolicy"] = policy(&mut random);
                world.db.replace_container("d", "c", &definition, None).await.unwrap();
            }
            7 | 8 => {
                let id = random.usize(0..60);
                write(&mut random, &world, id).await;
            }
            _ => {}
        }
    }
}

fn policy(random: &mut fastrand::Rng) -> Value {
    let ascending = |path: &str| json!({"path": path, "order": "ascending"});
    let descending = |path: &str| json!({"path": path, "order": "descending"});
    let composites =
        json!([[ascending("/a"), ascending("/b")], [ascending("/b"), descending("/a")],]);
    match random.u8(0..4) {
        0 => json!({"includedPaths": [{"path": "/a/?"}], "excludedPaths": [{"path": "/*"}]}),
        1 => json!({"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/b/?"}]}),
        2 => json!({"includedPaths": [{"path": "/*"}], "compositeIndexes": composites}),
        _ => json!({"indexingMode": "consistent"}),
    }
}

async fn write(random: &mut fastrand::Rng, world: &World, id: usize) {
    let key = ["x", "y"][random.usize(0..2)];
    let mut body = json!({"id": id.to_string(), "pk": key});
    for name in ["a", "b"] {
        match random.u8(0..8) {
            0 => {}
            1 => body[name] = Value::Null,
            2 => body[name] = random.bool().into(),
            3 if random.u8(0..3) == 0 => {
                // Longer than an index holds.
                body[name] = ("k".repeat(1_200) + ["", "a", "b"][random.usize(0..3)]).into();
            }
            3 => body[name] = ["", "k", "kk", "z"][random.usize(0..4)].into(),
            4 => body[name] = json!([random.u8(0..3), "k"]),
            5 => body[name] = json!({"c": random.u8(0..3)}),
            _ => body[name] = random.u8(0..5).into(),
        }
    }
    if random.u8(0..3) == 0 {
        body["ttl"] = [-1, 3, 30][random.usize(0..3)].into();
    }
    let partition_key = None;
    let body = body.to_string().into();
    let write =
        Write { verb: Verb::Upsert, partition_key, body, if_match: None, if_none_match: None };
    world.db.write(&world.container(), write).await.result.unwrap();
}

fn query(random: &mut fastrand::Rng) -> String {
    let select = [
        "SELECT *",
        "SELECT VALUE c.id",
        "SELECT c.a, c.b",
        "SELECT VALUE COUNT(1)",
        "SELECT TOP 3 VALUE c.id",
    ];
    let order = [
        "",
        "",
        " ORDER BY c.a",
        " ORDER BY c.a DESC",
        " ORDER BY c.b DESC",
        " ORDER BY c.a.c",
        " ORDER BY c._ts DESC",
        " ORDER BY c.a, c.b",
        " ORDER BY c.a DESC, c.b DESC",
        " ORDER BY c.b, c.a DESC",
        " ORDER BY c.id OFFSET 2 LIMIT 5",
    ];
    let select = select[random.usize(0..select.len())];
    let order = if select.contains("COUNT") { "" } else { order[random.usize(0..order.len())] };
    let order = if select.contains("TOP") { order.split(" OFFSET").next().unwrap() } else { order };
    match random.u8(0..3) {
        0 => format!("{select} FROM c{order}"),
        _ => format!("{select} FROM c WHERE {}{order}", filter(random, 2)),
    }
}

fn filter(random: &mut fastrand::Rng, depth: u8) -> String {
    let path = ["c.a", "c.b", "c.a.c", "c.id", "c._ts"][random.usize(0..5)];
    let value = ["1", "'k'", "null", "true", "3", "''", "'7'", "1000004"][random.usize(0..8)];
    match random.u8(0..if depth == 0 { 8 } else { 11 }) {
        0 | 1 => format!("{path} = {value}"),
        2 => format!("{path} > {value}"),
        3 => format!("{path} <= {value}"),
        4 => format!("{path} IN (1, {value}, 'z')"),
        5 => format!("STARTSWITH({path}, 'k')"),
        6 if random.bool() => format!("IS_DEFINED({path})"),
        6 => format!("ARRAY_CONTAINS({path}, {value})"),
        7 => format!("{path} != {value}"),
        8 => format!("({} AND {})", filter(random, depth - 1), filter(random, depth - 1)),
        9 => format!("({} OR {})", filter(random, depth - 1), filter(random, depth - 1)),
        _ => format!("NOT ({})", filter(random, depth - 1)),
    }
}

/// Every living item of the scope, pushed through the query.
async fn naive(world: &World, text: &str, scope: &Scope) -> Vec<String> {
    let all = PageRequest { items_max: 1_000, continuation: None };
    let page = world
        .db
        .list(&world.container(), scope, &all, ReadOptions::default())
        .await
        .result
        .unwrap();
    let mut items: Vec<Value> =
        page.rows.iter().map(|row| serde_json::from_slice(row).unwrap()).collect();
    if text.contains("ORDER BY") {
        // Equal rows come in the order of their rids, whichever partition has them by now.
        items.sort_by_key(|item| {
            let rid = item["_rid"].as_str().and_then(model::resource::ChildRid::parse_item);
            rid.map(|(_, partition, ordinal)| (partition, ordinal))
        });
    }
    texts(&world.db.query_documents(&request(text, scope), items).unwrap())
}

async fn paged(
    world: &World,
    text: &str,
    scope: &Scope,
    items_max: usize,
    mut splits: bool,
) -> Vec<String> {
    let (mut rows, mut continuation) = (Vec::new(), None);
    loop {
        let page = PageRequest { items_max, continuation };
        let container = world.container();
        let reply =
            world.db.query(&container, &request(text, scope), &page, ReadOptions::default()).await;
        let page = reply.result.unwrap();
        assert!(page.rows.len() <= items_max);
        rows.extend(texts(&page.rows));
        continuation = page.continuation;
        if continuation.is_none() {
            return rows;
        }
        if std::mem::take(&mut splits) {
            let first = container.partitions.all[0].id.partition;
            world.db.split("d", "c", first).await.unwrap();
        }
    }
}

fn request(text: &str, scope: &Scope) -> QueryRequest {
    let (text, scope) = (text.to_owned(), scope.clone());
    QueryRequest { text, parameters: Vec::new(), cross_partition: true, scope, resume: None }
}

fn texts(rows: &[bytes::Bytes]) -> Vec<String> {
    rows.iter().map(|row| String::from_utf8(row.to_vec()).unwrap()).collect()
}
