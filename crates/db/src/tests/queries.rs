//! Random queries over random items that expire, against a naive model: every item looked at every second, every query worked out over
//! whole items by [`grammar`].
//!
//! Whichever index serves, however the items are spread over partitions, and wherever pages are cut, the rows must be the model's. And while
//! time passes between two pages, items expire, are purged and move to new partitions, each page must give the next of what then lives.

mod grammar;

use std::cmp::Ordering;
use std::sync::Arc;

use grammar::{Inner, Measure, Query, Select, compare};
use model::resource::ChildRid;
use serde_json::{Value, json};
use storage::Engine;
use storage::embedded::{self, Embedded};
use storage::memory::Memory;
use storage::testing::Mirror;

use super::{START, World, is_dead, key, seeds};
use crate::items::{PageRequest, ReadOptions, Scope, Verb, Write};
use crate::{Options, QueryRequest};

const IDS: usize = 30;
const QUERIES: usize = 12;

#[test]
fn ttl_r08_random_queries_agree_with_a_naive_evaluator() {
    run_seeds(10, || Arc::new(Memory::new()));
}

#[test]
fn ttl_r08_random_queries_agree_on_both_engines() {
    let folder = tempfile::tempdir().unwrap();
    let mut number = 0;
    run_seeds(1, || {
        number += 1;
        let path = folder.path().join(number.to_string());
        let embedded = Embedded::open(path, embedded::Options::default()).unwrap();
        Arc::new(Mirror::new(Arc::new(Memory::new()), Arc::new(embedded)))
    });
}

fn run_seeds(count: u64, mut engine: impl FnMut() -> Arc<dyn Engine>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for seed in seeds(count) {
        runtime.block_on(run(seed, engine()));
    }
}

/// The database, and what the contract says it holds.
struct Tried {
    world: World,
    definition: Value,
    /// Living items, as the database has told them.
    items: Vec<Value>,
}

async fn run(seed: u64, engine: Arc<dyn Engine>) {
    let random = &mut fastrand::Rng::with_seed(seed);
    let partitions = Some(random.u32(1..4));
    let world = World::new(engine, Options { partitions, ..Options::default() }).await;
    let definition = json!({
        "id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2},
        "defaultTtl": 20, "indexingPolicy": policy(random),
    });
    world.db.create_container("d", &definition, None).await.unwrap();
    let mut tried = Tried { world, definition, items: Vec::new() };
    for _ in 0..IDS {
        tried.advance(u64::from(random.u8(0..3) == 0));
        tried.write(random).await;
    }
    for _ in 0..QUERIES {
        let query = Query::random(random);
        let scope = match random.u8(0..3) {
            0 => Scope::Key(key(["x", "y"][random.usize(0..2)])),
            _ => Scope::Container,
        };
        let context = format!("seed {seed}, {scope:?}: {query}");
        let mut asked = Asked { query, scope, size: 0, context };
        let rows_max = tried.living(&asked.scope).len() * 2 + 1;
        // Large pages are much alike.
        for size in (1..=rows_max.min(9)).chain([17, 33, rows_max]) {
            asked.size = size;
            tried.check(None, &asked).await;
        }
        asked.size = random.usize(1..9);
        tried.check(Some(random), &asked).await;
        tried.step(random).await;
    }
}

impl Tried {
    /// Second by second: who is dead stays dead.
    fn advance(&mut self, secs: u64) {
        self.world.clock.advance(secs);
        self.bury();
    }

    fn bury(&mut self) {
        let (default, now) = (self.definition["defaultTtl"].as_i64(), self.world.secs());
        self.items.retain(|item| {
            let ts = item["_ts"].as_u64().unwrap() - START.0;
            !is_dead(default, item["ttl"].as_i64(), ts, now)
        });
    }

    /// Something happens to the container.
    async fn step(&mut self, random: &mut fastrand::Rng) {
        let db = &self.world.db;
        match random.u8(0..12) {
            0 => drop(db.purge_all().await.unwrap()),
            // A step of the rebuild, if there is one under way.
            1..4 => drop(db.purge().await.unwrap()),
            4 => {
                self.definition["indexingPolicy"] = policy(random);
                db.replace_container("d", "c", &self.definition, None).await.unwrap();
            }
            5 => {
                let defaults = [Value::Null, json!(-1), json!(8)];
                self.definition["defaultTtl"] = random.choice(&defaults).unwrap().clone();
                db.replace_container("d", "c", &self.definition, None).await.unwrap();
                self.bury();
            }
            6 => self.split(random).await,
            _ => {
                for _ in 0..random.u8(1..10) {
                    self.write(random).await;
                }
            }
        }
    }

    async fn split(&self, random: &mut fastrand::Rng) {
        let partitions = self.world.container().partitions.clone();
        if partitions.all.len() < 6 {
            let partition = random.choice(&partitions.all).unwrap().id.partition;
            self.world.db.split("d", "c", partition).await.unwrap();
        }
    }

    async fn write(&mut self, random: &mut fastrand::Rng) {
        let body = item(random);
        let write = Write {
            verb: Verb::Upsert,
            partition_key: None,
            body: body.to_string().into(),
            if_match: None,
            if_none_match: None,
        };
        let written = self.world.db.write(&self.world.container(), write).await.result.unwrap();
        let body: Value = serde_json::from_slice(&written.item.unwrap().body).unwrap();
        self.items.retain(|item| (&item["id"], &item["pk"]) != (&body["id"], &body["pk"]));
        self.items.push(body);
    }

    /// The living items of a scope as a scan meets them: by partition, and by age.
    fn living(&self, scope: &Scope) -> Vec<Value> {
        let container = self.world.container();
        let place = |item: &Value| {
            let home = container.partition_of(&key(item["pk"].as_str().unwrap()));
            let partitions = container.partitions.all.iter();
            let at = partitions.clone().position(|other| Arc::ptr_eq(other, home)).unwrap();
            (at, age(item))
        };
        let in_scope = |item: &&Value| match scope {
            Scope::Key(wanted) => key(item["pk"].as_str().unwrap()) == *wanted,
            _ => true,
        };
        let mut items: Vec<Value> = self.items.iter().filter(in_scope).cloned().collect();
        items.sort_by_key(|item| {
            let (at, (_, ordinal)) = place(item);
            (at, ordinal)
        });
        items
    }

    /// A query in pages of a size; with chance, time passes and partitions split between them.
    async fn check(&mut self, mut chance: Option<&mut fastrand::Rng>, asked: &Asked) {
        let Asked { query, scope, size, context } = asked;
        let size = *size;
        let request = QueryRequest {
            text: query.to_string(),
            parameters: Vec::new(),
            cross_partition: true,
            scan: true,
            scope: scope.clone(),
            resume: None,
        };
        let mut given = Given::default();
        let mut continuation = None;
        loop {
            let page = PageRequest { items_max: size, continuation };
            let container = self.world.container();
            let reply = self.world.db.query(&container, &request, &page, ReadOptions::default());
            let page = reply.await.result.unwrap();
            assert!(page.rows.len() <= size, "{context}, pages of {size}");
            let rows: Vec<Value> =
                page.rows.iter().map(|row| serde_json::from_slice(row).unwrap()).collect();
            let is_last = page.continuation.is_none();
            if let Err(difference) =
                given.take(query, &self.living(scope), Answer { rows, size, is_last })
            {
                panic!("{context}, pages of {size}, at +{}: {difference}", self.world.secs());
            }
            if is_last {
                return;
            }
            continuation = page.continuation;
            if let Some(random) = &mut chance {
                self.advance(random.u64(0..3));
                match random.u8(0..6) {
                    0 => drop(self.world.db.purge_all().await.unwrap()),
                    1 => self.split(random).await,
                    2 => self.world.restart(START.plus(self.world.secs())).await,
                    _ => {}
                }
            }
        }
    }
}

/// A query in pages of a size, and how to name it.
struct Asked {
    query: Query,
    scope: Scope,
    size: usize,
    context: String,
}

/// A page of a size.
struct Answer {
    rows: Vec<Value>,
    size: usize,
    is_last: bool,
}

/// What earlier pages have given.
#[derive(Default)]
struct Given {
    /// Rows by item and number, those passed over for OFFSET among them.
    passed: Vec<(Value, usize)>,
    skipped: usize,
    rows: Vec<Value>,
    /// What an inner query has passed over or given, by rid; how many it has given, and the last of them.
    inner: Vec<Value>,
    inner_given: usize,
    inner_last: Value,
    /// By what ranks are measured.
    measure: Option<Measure>,
}

impl Given {
    /// Judges a page, by the items that live at its time.
    fn take(&mut self, query: &Query, living: &[Value], page: Answer) -> Result<(), String> {
        match query.select {
            Select::Distinct(_) => {
                let all = query.rows(living, by_age).into_iter().map(|(_, row)| row);
                self.take_some(&all.collect::<Vec<_>>(), page, |row| Some(row))
            }
            Select::Aggregate(..) => self.take_some(&query.groups(living), page, |_| None),
            Select::Group(_) => self.take_some(&query.groups(living), page, |row| row.get("k")),
            _ => self.take_next(query, living, page),
        }
    }

    /// A query whose rows have an order: the next ones.
    fn take_next(
        &mut self,
        query: &Query,
        living: &[Value],
        Answer { rows, size, is_last }: Answer,
    ) -> Result<(), String> {
        let (over, inner) = self.inner_rows(query, living);
        let mut left = query.rows(&inner, by_age);
        if !query.rank.is_empty() {
            let passing: Vec<&Value> = left.iter().map(|((item, _), _)| *item).collect();
            let first = || Measure::new(query, living, &passing);
            let measure = self.measure.get_or_insert_with(first);
            left.sort_by(|((a, _), _), ((b, _), _)| {
                let order = measure.result(b).total_cmp(&measure.result(a));
                order.then_with(|| by_age(a, b))
            });
        }
        let left = left.into_iter();
        let id = |item: &Value, row: usize| (item["_rid"].clone(), row);
        let left = left.filter(|((item, row), _)| !self.passed.contains(&id(item, *row)));
        let left: Vec<_> = left.collect();
        let skip = (query.offset - self.skipped).min(left.len());
        let most = query.limit.map_or(usize::MAX, |limit| limit - self.rows.len());
        let wanted = left[skip..].iter().take(most).count();
        let expected: Vec<Value> =
            left[skip..].iter().take(size.min(most)).map(|(_, row)| row.clone()).collect();
        if rows != expected {
            return Err(format!("{}\ninstead of\n{}", json!(rows), json!(expected)));
        }
        if is_last && wanted > rows.len() {
            return Err(format!("the page is the last, but {wanted} rows were left"));
        }
        self.skipped += skip;
        let last = left[..skip + rows.len()].last();
        let passed = left[..skip + rows.len()].iter();
        self.passed.extend(passed.map(|((item, row), _)| id(item, *row)));
        self.rows.extend(rows);
        if let Some(((last, _), _)) = last {
            let taken = inner.iter().position(|item| item["_rid"] == last["_rid"]).unwrap();
            let new = inner[..=taken].iter().filter(|item| !self.inner.contains(&item["_rid"]));
            let new: Vec<Value> = new.map(|item| item["_rid"].clone()).collect();
            self.inner_given += new.len();
            self.inner.extend(over.into_iter().chain(new));
            self.inner_last = last["_rid"].clone();
        }
        Ok(())
    }

    /// The rows that an inner query passes over, and then those that are left of it, the last that was given among them.
    fn inner_rows(&self, query: &Query, living: &[Value]) -> (Vec<Value>, Vec<Value>) {
        let rows = query.inner_order(living, by_age);
        let Inner::Some { offset, limit, .. } = query.inner else { return (Vec::new(), rows) };
        let mut skip = if self.inner.is_empty() { offset } else { 0 };
        let mut take = limit - self.inner_given;
        let (mut over, mut left) = (Vec::new(), Vec::new());
        for row in rows {
            match &row["_rid"] {
                rid if *rid == self.inner_last => left.push(row),
                rid if self.inner.contains(rid) => {}
                rid if skip > 0 => {
                    skip -= 1;
                    over.push(rid.clone());
                }
                _ if take > 0 => {
                    take -= 1;
                    left.push(row);
                }
                _ => {}
            }
        }
        (over, left)
    }

    /// A query whose rows come in any order: none twice, none that is not true, and in the end all.
    fn take_some(
        &mut self,
        all: &[Value],
        Answer { rows, is_last, .. }: Answer,
        name: impl Fn(&Value) -> Option<&Value>,
    ) -> Result<(), String> {
        let mut known = self.rows.clone();
        let has = |known: &[Value], one: &Value| {
            known.iter().any(|known| compare(name(known), name(one)).is_eq())
        };
        for row in &rows {
            if has(&known, row) {
                return Err(format!("{row} comes twice"));
            }
            if !all.iter().any(|one| compare(Some(one), Some(row)).is_eq()) {
                return Err(format!("{row} is none of {}", json!(all)));
            }
            known.push(row.clone());
        }
        let missing = all.iter().find(|one| !has(&known, one));
        self.rows = known;
        match missing.filter(|_| is_last) {
            Some(missing) => Err(format!("{missing} never came")),
            None => Ok(()),
        }
    }
}

/// Where an item was born, and its number there: the order of equal keys.
fn age(item: &Value) -> (u32, u64) {
    let rid = item["_rid"].as_str().and_then(ChildRid::parse_item);
    rid.map(|(_, partition, ordinal)| (partition, ordinal)).unwrap()
}

fn by_age(a: &Value, b: &Value) -> Ordering {
    age(a).cmp(&age(b))
}

fn policy(random: &mut fastrand::Rng) -> Value {
    let ascending = |path: &str| json!({"path": path, "order": "ascending"});
    let descending = |path: &str| json!({"path": path, "order": "descending"});
    let composites = json!([
        [ascending("/a"), ascending("/b")],
        [ascending("/b"), descending("/a")],
        [ascending("/_ts"), ascending("/a")],
    ]);
    match random.u8(0..4) {
        0 => json!({"includedPaths": [{"path": "/a/?"}], "excludedPaths": [{"path": "/*"}]}),
        1 => json!({"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/b/?"}]}),
        2 => json!({"includedPaths": [{"path": "/*"}], "compositeIndexes": composites}),
        _ => json!({"indexingMode": "consistent"}),
    }
}

fn item(random: &mut fastrand::Rng) -> Value {
    let id = random.usize(0..IDS);
    let pk = *random.choice(&["x", "y"]).unwrap();
    let mut body = json!({"id": id.to_string(), "pk": pk});
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
    if random.bool() {
        let tags = (0..random.u8(0..4))
            .map(|_| [json!(1), json!("k"), json!(3)][random.usize(0..3)].clone());
        body["tags"] = tags.collect();
    }
    if random.u8(0..3) > 0 {
        let count = random.usize(0..6);
        let word = |_| ["k", "z", "kk", "q"][random.usize(0..4)];
        body["s"] = (0..count).map(word).collect::<Vec<_>>().join(" ").into();
    }
    if random.u8(0..4) > 0 {
        body["n"] = random.i32(-3..9).into();
    }
    if random.u8(0..3) == 0 {
        body["ttl"] = [-1, 3, 30][random.usize(0..3)].into();
    }
    body
}
