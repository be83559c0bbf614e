//! Random histories against a naive model that looks at every item every second.
//!
//! The model is the contract read aloud: each second, each item whose `_ts` + effective ttl has come is dead, and stays dead. After
//! every step the database must show exactly the model's living items, by every way of reading, before and after any purge.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use storage::Engine;
use storage::embedded::{self, Embedded};
use storage::memory::Memory;
use storage::testing::Mirror;

use super::{START, World, is_dead, key, seeds};
use crate::items::{PageRequest, ReadOptions, Scope, Verb, Write};
use crate::{ChangesMode, ChangesRequest, Db, Error, Options};

const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const KEYS: [&str; 3] = ["p", "q", "r"];

/// The partition key of an item.
fn key_of(id: &str) -> &'static str {
    KEYS[usize::from(id.as_bytes()[0]) % KEYS.len()]
}
const STEPS: usize = 60;

#[derive(Default)]
struct Model {
    /// Whether items expire by the time that they carry at `/at`, not by their last write (R30).
    dated: bool,
    default: Option<i64>,
    items: BTreeMap<&'static str, Expected>,
    now: u64,
}

/// A living item of the model.
#[derive(Clone)]
struct Expected {
    ts: u64,
    ttl: Option<i64>,
    /// The time it carries.
    at: Option<u64>,
    etag: String,
}

impl Model {
    /// One second passes, or a rule changes: who is dead now is dead for ever.
    fn bury(&mut self) {
        let (dated, default, now) = (self.dated, self.default, self.now);
        self.items.retain(|_, item| match (dated, item.at) {
            (true, None) => true,
            (true, Some(at)) => !is_dead(default, item.ttl, at, now),
            (false, _) => !is_dead(default, item.ttl, item.ts, now),
        });
    }

    /// The defaults that its container can have.
    fn defaults(&self) -> &'static [Option<i64>] {
        match self.dated {
            true => &[None, Some(1), Some(5), Some(10)],
            false => &[None, Some(-1), Some(1), Some(5), Some(10)],
        }
    }

    fn definition(&self, default: Option<i64>) -> Value {
        let mut body =
            json!({"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}});
        if let Some(default) = default {
            body["defaultTtl"] = default.into();
        }
        if self.dated {
            body["ttlPropertyPath"] = "/at".into();
        }
        body
    }
}

#[test]
fn ttl_r01_to_r24_random_histories_on_memory() {
    run_seeds((200, 1), || Arc::new(Memory::new()), Options::default(), false);
}

#[test]
fn ttl_r30_random_histories_of_items_that_carry_their_time() {
    run_seeds((60, 1), || Arc::new(Memory::new()), Options::default(), true);
}

#[test]
fn ttl_r01_to_r24_random_histories_on_both_engines() {
    let folder = tempfile::tempdir().unwrap();
    let mut number = 0;
    let engine = || -> Arc<dyn Engine> {
        number += 1;
        let path = folder.path().join(number.to_string());
        let embedded = Embedded::open(path, embedded::Options::default()).unwrap();
        Arc::new(Mirror::new(Arc::new(Memory::new()), Arc::new(embedded)))
    };
    run_seeds((4, 1), engine, Options::default(), false);
}

/// Each step, and each look at what there is, is by any of three servers.
#[test]
fn ttl_r01_to_r24_random_histories_of_servers_on_one_store() {
    run_seeds((60, 3), || Arc::new(Memory::new()), Options::default(), false);
}

#[test]
fn ttl_r01_to_r24_random_histories_on_postgres() {
    let Some(urls) = storage::testing::postgres::databases(2) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut engine = || super::empty_postgres(&runtime, &urls);
    run_seeds((1, 3), &mut engine, Options::default(), false);
    let mirror = || -> Arc<dyn Engine> { Arc::new(Mirror::new(Arc::new(Memory::new()), engine())) };
    run_seeds((1, 1), mirror, Options::default(), false);
}

#[test]
fn ttl_r20_random_histories_under_throttling() {
    let options = Options { throttle: true, ..Options::default() };
    run_seeds((50, 1), || Arc::new(Memory::new()), options, false);
}

/// So many histories, of so many servers on one store.
fn run_seeds(
    (count, servers): (u64, usize),
    mut engine: impl FnMut() -> Arc<dyn Engine>,
    options: Options,
    dated: bool,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for seed in seeds(count) {
        runtime.block_on(run_history((seed, servers), engine(), options, dated));
    }
}

async fn run_history(
    (seed, servers): (u64, usize),
    engine: Arc<dyn Engine>,
    options: Options,
    dated: bool,
) {
    let mut random = fastrand::Rng::with_seed(seed);
    let partitions = Some(random.u32(1..4));
    let options = Options { partitions, ..options };
    let mut world = match servers {
        1 => World::new(engine, options).await,
        _ => World::shared(engine, servers, options).await,
    };
    let mut model = Model { dated, ..Model::default() };
    world.db.create_container("d", &model.definition(None), None).await.unwrap();
    let mut log = Vec::new();
    for _ in 0..STEPS {
        world.change_server(&mut random).await;
        log.push(step(&mut random, &mut world, &mut model).await);
        world.change_server(&mut random).await;
        if let Err(difference) = compare(&world, &model).await {
            panic!("{difference}\nseed {seed}, after\n  {}", log.join("\n  "));
        }
    }
    world.db.purge_all().await.unwrap();
    let (items, _) = world.container().usage();
    assert_eq!(
        items,
        model.items.len() as u64,
        "after the purge, seed {seed}:\n  {}",
        log.join("\n  ")
    );
    let report = crate::check::run(&*world.engine, None, &mut |_, _| {}).await.unwrap();
    assert_eq!(report.problems, Vec::<String>::new(), "seed {seed}:\n  {}", log.join("\n  "));
}

async fn step(random: &mut fastrand::Rng, world: &mut World, model: &mut Model) -> String {
    match random.u8(0..22) {
        20 => {
            let partitions = world.container().partitions.clone();
            let number = random.choice(&partitions.all).unwrap().id.partition;
            if partitions.all.len() < 6 && !world.db.is_shared() {
                world.db.split("d", "c", number).await.unwrap();
            }
            format!("split {number}")
        }
        21 => {
            let pk = *random.choice(&KEYS).unwrap();
            match world.db.delete_key(&world.container(), &key(pk)).await.result {
                Err(Error::Throttled { .. }) => return format!("delete {pk}: throttled"),
                result => result.unwrap(),
            }
            model.items.retain(|id, _| key_of(id) != pk);
            format!("delete {pk}")
        }
        0..10 => {
            let text = write(random, world, model).await;
            model.bury();
            text
        }
        10..15 => {
            let secs = random.u64(1..8);
            world.clock.advance(secs);
            for _ in 0..secs {
                model.now += 1;
                model.bury();
            }
            format!("advance {secs}")
        }
        15..17 => {
            let default = *random.choice(model.defaults()).unwrap();
            let definition = model.definition(default);
            world.db.replace_container("d", "c", &definition, None).await.unwrap();
            model.default = default;
            model.bury();
            format!("default {default:?}")
        }
        17 => {
            let report = world.db.purge().await.unwrap();
            format!("purge: {report:?}")
        }
        18 => {
            world.db.purge_all().await.unwrap();
            "purge all".to_owned()
        }
        _ => {
            // A machine's clock may have stepped back: the server's does not (R13).
            let back = random.u64(0..20);
            world.restart(START.plus(model.now).minus(back).unwrap()).await;
            assert_eq!(world.secs(), model.now);
            format!("restart {back} s back")
        }
    }
}

async fn write(random: &mut fastrand::Rng, world: &mut World, model: &mut Model) -> String {
    let id = *random.choice(&IDS).unwrap();
    let own = if model.dated { 3 } else { 6 };
    let own = &[None, None, Some(-1), Some(1), Some(4), Some(12)][..own];
    let ttl = *random.choice(own).unwrap();
    let at = (model.dated && random.u8(0..5) > 0)
        .then(|| (model.now + random.u64(0..12)).saturating_sub(8));
    let old = model.items.get(id).cloned();
    let verb = match random.u8(0..5) {
        0 | 1 => Verb::Create,
        2 => Verb::Upsert,
        3 => Verb::Replace(id.to_owned()),
        _ => Verb::Delete(id.to_owned()),
    };
    let if_match = match (&old, random.u8(0..4)) {
        (Some(old), 0) => Some(old.etag.clone()),
        (_, 1) => Some("\"other\"".to_owned()),
        _ => None,
    };
    let mut body =
        json!({"id": id, "pk": key_of(id), "n": random.u8(..), "tags": [random.u8(0..3), "x"]});
    if let Some(ttl) = ttl {
        body["ttl"] = ttl.into();
    }
    if let Some(at) = at {
        body["at"] = START.plus(at).0.into();
    }
    let text = format!("{verb:?} {id} at {at:?} ttl {ttl:?} if {if_match:?}");
    let write = Write {
        verb: verb.clone(),
        partition_key: Some(key(key_of(id))),
        body: body.to_string().into(),
        if_match: if_match.clone(),
        if_none_match: None,
    };
    let result = world.db.write(&world.container(), write).await.result;
    let matches = if_match.is_none_or(|etag| old.as_ref().is_none_or(|old| old.etag == etag));
    let expected = match (&verb, &old) {
        (Verb::Create, Some(_)) => Err("exists"),
        (Verb::Replace(_) | Verb::Delete(_), None) => Err("not found"),
        _ if !matches => Err("precondition"),
        (Verb::Delete(_), Some(_)) => Ok("deleted"),
        (_, Some(_)) => Ok("replaced"),
        (_, None) => Ok("created"),
    };
    let outcome = match &result {
        Ok(written) => Ok(match (written.created, &written.item) {
            (true, _) => "created",
            (false, Some(_)) => "replaced",
            (false, None) => "deleted",
        }),
        Err(Error::Throttled { .. }) => return format!("{text}: throttled"),
        Err(Error::Exists) => Err("exists"),
        Err(Error::NotFound) => Err("not found"),
        Err(Error::PreconditionFailed) => Err("precondition"),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(outcome, expected, "{text}");
    if let Ok(written) = result {
        match written.item {
            None => drop(model.items.remove(id)),
            Some(item) => {
                let etag = item.etag.to_string();
                model.items.insert(id, Expected { ts: model.now, ttl, at, etag });
            }
        }
    }
    format!("{text}: {outcome:?}")
}

/// What a server shows that asks the store with each read only, as a front end does it.
async fn read_unasked(db: &Db) -> Result<BTreeMap<String, u64>, String> {
    let mut read = BTreeMap::new();
    for id in IDS {
        let (seen, key) = (db.seen(), key(key_of(id)));
        let mut reply = None;
        if let Ok(container) = db.container("d", "c") {
            reply = db.read_at_once((seen, &container), &key, id, ReadOptions::default()).await;
        }
        if reply.is_none() {
            db.refresh().await.map_err(|error| error.to_string())?;
            let container = db.container("d", "c").map_err(|error| error.to_string())?;
            reply = Some(db.read(&container, &key, id, ReadOptions::default()).await);
        }
        match reply.expect("one of the two").result {
            Ok(item) => read.extend(entries(&[item.body])),
            Err(Error::NotFound) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(read)
}

/// Every way of reading must show the model's items and no others.
async fn compare(world: &World, model: &Model) -> Result<(), String> {
    let container = world.container();
    compare_timeline(world, model).await?;
    let expected: BTreeMap<String, u64> =
        model.items.iter().map(|(id, item)| ((*id).to_owned(), item.ts + START.0)).collect();
    let same = |how: &str, found: BTreeMap<String, u64>| match found == expected {
        true => Ok(()),
        false => {
            Err(format!("{how} shows {found:?} where {expected:?} is alive at +{}", model.now))
        }
    };
    let mut read = BTreeMap::new();
    for id in IDS {
        match world.db.read(&container, &key(key_of(id)), id, ReadOptions::default()).await.result {
            Ok(item) => read.extend(entries(&[item.body])),
            Err(Error::NotFound) => {}
            Err(Error::Throttled { .. }) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
    }
    same("a read", read)?;
    for other in &world.others {
        same("a read of a server that has not asked", read_unasked(other).await?)?;
    }
    let by_key = KEYS.map(|pk| Scope::Key(key(pk))).to_vec();
    for scopes in [vec![Scope::Container], by_key] {
        let (mut listed, mut continuation) = (BTreeMap::new(), None);
        let mut scopes = scopes.iter();
        let mut scope = scopes.next();
        while let Some(current) = scope {
            let page = PageRequest { items_max: 2, continuation };
            match world.db.list(&container, current, &page, ReadOptions::default()).await.result {
                Ok(page) => {
                    listed.extend(entries(&page.rows));
                    continuation = page.continuation;
                }
                Err(Error::Throttled { .. }) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
            if continuation.is_none() {
                scope = scopes.next();
            }
        }
        same("a list", listed)?;
    }
    match world
        .db
        .changes(
            &container,
            &Scope::Container,
            (ChangesMode::Latest, &ChangesRequest::Beginning),
            100,
        )
        .await
        .result
    {
        Ok(page) => {
            let rows: Vec<_> = page.rows.into_iter().map(|change| change.json).collect();
            same("the change feed", entries(&rows))
        }
        Err(Error::Throttled { .. }) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// The timeline must foresee what the model will bury, under the rule in force and under any other.
async fn compare_timeline(world: &World, model: &Model) -> Result<(), String> {
    let ask =
        async || world.db.timeline(&world.container()).await.map_err(|error| error.to_string());
    let mut timeline = ask().await?;
    // On a busy machine the first answer may be of what was counted by then.
    for _ in 0..1_000 {
        if timeline.is_exact() {
            break;
        }
        tokio::task::yield_now().await;
        timeline = ask().await?;
    }
    let buried = |default, secs| {
        let items = model.items.clone();
        let mut later = Model { dated: model.dated, default, items, now: model.now };
        later.bury();
        let at_once = model.items.len() - later.items.len();
        later.now += secs;
        later.bury();
        (at_once as u64, (model.items.len() - at_once - later.items.len()) as u64)
    };
    let same = |what: String, found: u64, expected: u64| match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: the timeline says {found}, the model {expected}")),
    };
    let living = timeline.stored.items - timeline.expired().total().items;
    same("living items".into(), living, model.items.len() as u64)?;
    for secs in [1, 4, 9, 15] {
        let due = timeline.due(timeline.now, timeline.now.plus(secs)).total().items;
        same(format!("within {secs} s"), due, buried(model.default, secs).1)?;
    }
    let settings = world.container().settings.clone();
    for default in model.defaults().iter().copied() {
        let rule = settings.default_of(&default.into()).map_err(|error| error.to_string())?;
        let forecast = timeline.forecast(rule);
        let (at_once, day) = buried(default, 86_400);
        same(format!("{rule:?} at once"), forecast.at_once.total().items, at_once)?;
        same(format!("{rule:?} within a day"), forecast.day.total().items, day)?;
    }
    match timeline.is_exact() {
        true => Ok(()),
        false => Err("the timeline is not exact".into()),
    }
}

fn entries(rows: &[bytes::Bytes]) -> BTreeMap<String, u64> {
    let entry = |row: &bytes::Bytes| {
        let value: Value = serde_json::from_slice(row).unwrap();
        (value["id"].as_str().unwrap().to_owned(), value["_ts"].as_u64().unwrap())
    };
    rows.iter().map(entry).collect()
}
