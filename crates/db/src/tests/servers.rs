//! Several servers on one store: what one has acknowledged, the next request to any other obeys.

use std::sync::Arc;

use model::resource::SessionToken;
use serde_json::json;
use storage::memory::Memory;

use super::{World, key, server};
use crate::items::{ReadOptions, Scope, Verb, Write};
use crate::{
    ChangesMode, ChangesRequest, Container, Db, Error, Kind, Options, Parent, Place, Throughput,
    Written,
};

async fn world() -> World {
    let options = Options { partitions: Some(2), ..Options::default() };
    let world = World::shared(Arc::new(Memory::new()), 2, options).await;
    world.db.create_container("d", &definition(None), None).await.unwrap();
    world
}

fn definition(default: Option<i64>) -> serde_json::Value {
    json!({"id": "c", "partitionKey": {"paths": ["/id"]}, "defaultTtl": default})
}

/// A request: to whatever is known after asking the store.
async fn container(db: &Db) -> crate::Result<Arc<Container>> {
    db.refresh().await?;
    db.container("d", "c")
}

async fn write(
    db: &Db,
    verb: Verb,
    id: &str,
    n: u64,
    etag: Option<String>,
) -> crate::Result<Written> {
    let container = container(db).await?;
    let write = Write {
        verb,
        partition_key: Some(key(id)),
        body: json!({"id": id, "n": n}).to_string().into(),
        if_match: etag,
        if_none_match: None,
    };
    db.write(&container, write).await.result
}

async fn read(db: &Db, id: &str) -> crate::Result<serde_json::Value> {
    let container = container(db).await?;
    let item = db.read(&container, &key(id), id, ReadOptions::default()).await.result?;
    Ok(serde_json::from_slice(&item.body).unwrap())
}

#[tokio::test]
async fn definitions_are_known_to_all_from_the_next_request_on() {
    let world = world().await;
    let (a, b) = (&world.db, &world.others[0]);
    write(a, Verb::Create, "x", 1, None).await.unwrap();
    assert_eq!(read(b, "x").await.unwrap()["n"], 1);
    assert!(matches!(write(b, Verb::Create, "x", 2, None).await, Err(Error::Exists)));
    write(b, Verb::Replace("x".into()), "x", 3, None).await.unwrap();
    assert_eq!(read(a, "x").await.unwrap()["n"], 3);

    container(b).await.unwrap();
    b.delete_container("d", "c", None).await.unwrap();
    assert!(matches!(container(a).await, Err(Error::NotFound)));
    a.create_container("d", &definition(None), None).await.unwrap();
    assert!(matches!(read(b, "x").await, Err(Error::NotFound)));
    write(b, Verb::Create, "x", 4, None).await.unwrap();
    assert_eq!(read(a, "x").await.unwrap()["n"], 4);
}

/// What the catalog holds beside containers: made, changed and removed by one server, known to the other with its next request.
#[tokio::test]
async fn every_kind_of_resource_is_known_to_all_from_the_next_request_on() {
    let world = world().await;
    let (a, b) = (&world.db, &world.others[0]);
    let (user, within) = (Parent::User("d", "u"), Parent::Container("d", "c"));
    let permission = json!({"id": "p", "permissionMode": "Read", "resource": "dbs/d/colls/c"});
    let kinds = [
        (Parent::Database("d"), Kind::User, json!({"id": "u"})),
        (user, Kind::Permission, permission),
        (
            within,
            Kind::Procedure,
            json!({"id": "s", "body": "function () { __.response.setBody(1); }"}),
        ),
        (
            within,
            Kind::Trigger,
            json!({"id": "t", "body": "function () {}", "triggerType": "Pre", "triggerOperation": "All"}),
        ),
        (within, Kind::Function, json!({"id": "f", "body": "function () { return 1; }"})),
    ];
    for (parent, kind, body) in &kinds {
        let (place, id) = (Place { parent: *parent, kind: *kind }, body["id"].as_str().unwrap());
        a.create_resource(place, body, false).await.unwrap();
        assert!(
            matches!(b.resource(place, id), Err(Error::NotFound | Error::OwnerNotFound)),
            "{id}: before its next request"
        );
        b.refresh().await.unwrap();
        assert_eq!(
            b.resource(place, id).unwrap().to_json(),
            a.resource(place, id).unwrap().to_json()
        );
    }
    // Changed by b, used by a.
    let place = Place { parent: within, kind: Kind::Procedure };
    let changed = json!({"id": "s", "body": "function () { __.response.setBody(2); }"});
    b.replace_resource(place, "s", &changed, None).await.unwrap();
    let known = container(a).await.unwrap();
    let run = a.execute(&known, "s", &key("x"), &json!(null)).await.result.unwrap();
    assert_eq!(run.response.as_deref(), Some("2"));
    let place = Place { parent: user, kind: Kind::Permission };
    let rid = b.resource(place, "p").unwrap().rid();
    b.delete_resource(place, "p", None).await.unwrap();
    a.refresh().await.unwrap();
    assert!(a.permission(&rid).is_none(), "its tokens are good for nothing any more");
    // A name that is taken is taken on every server, whatever it knows.
    b.create_database(&json!({"id": "e"}), None).await.unwrap();
    assert!(matches!(a.create_database(&json!({"id": "e"}), None).await, Err(Error::Exists)));
}

/// Throughput: the request after the one that changed it has the new rate.
#[tokio::test]
async fn throughput_counts_for_all_from_the_next_request_on() {
    let options = Options { throttle: true, partitions: Some(2), ..Options::default() };
    let world = World::shared(Arc::new(Memory::new()), 2, options).await;
    let (a, b) = (&world.db, &world.others[0]);
    a.create_container("d", &definition(None), Some(Throughput::Manual(400))).await.unwrap();
    let rate = |container: &Container| container.partitions.all[0].bucket().rate();
    assert_eq!(rate(&container(b).await.unwrap()), Some(200.0));
    let offer = a.offers()[0].clone();
    let mut body = offer.to_json();
    body["content"]["offerThroughput"] = json!(1_000);
    a.replace_offer(&offer.rid.to_string(), &body, crate::Migration::None).await.unwrap();
    assert_eq!(rate(&container(b).await.unwrap()), Some(500.0));
}

/// An indexing policy: what is written by another server has the terms of the new one, and the rebuild by either is for both.
#[tokio::test]
async fn an_indexing_policy_counts_for_all_from_the_next_request_on() {
    let world = world().await;
    let (a, b) = (&world.db, &world.others[0]);
    write(a, Verb::Create, "old", 1, None).await.unwrap();
    let known = container(b).await.unwrap();
    let mut narrow = definition(None);
    narrow["indexingPolicy"] =
        json!({"includedPaths": [{"path": "/n/?"}], "excludedPaths": [{"path": "/*"}]});
    a.replace_container("d", "c", &narrow, None).await.unwrap();
    // b has begun its write under the policy before.
    let late = Write {
        verb: Verb::Create,
        partition_key: Some(key("late")),
        body: json!({"id": "late", "n": 7, "m": 7}).to_string().into(),
        if_match: None,
        if_none_match: None,
    };
    b.write(&known, late).await.result.unwrap();
    write(b, Verb::Create, "new", 2, None).await.unwrap();
    while !container(b).await.unwrap().settings.is_indexed() {
        b.purge().await.unwrap();
    }
    assert!(container(a).await.unwrap().settings.is_indexed());
    let report = crate::check::run(&*world.engine, None, &mut |_, _| {}).await.unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

#[tokio::test]
async fn ttl_r15_a_default_counts_for_all_from_the_next_request_on() {
    let world = world().await;
    let (a, b) = (&world.db, &world.others[0]);
    write(a, Verb::Create, "x", 1, None).await.unwrap();
    write(a, Verb::Create, "y", 1, None).await.unwrap();
    read(b, "x").await.unwrap();
    world.clock.advance(10);
    a.refresh().await.unwrap();
    a.replace_container("d", "c", &definition(Some(10)), None).await.unwrap();
    assert!(matches!(read(b, "x").await, Err(Error::NotFound)));
    // Its name is free (R09), and it stays dead when the rule goes (R13).
    assert!(write(b, Verb::Upsert, "x", 2, None).await.unwrap().created);
    b.replace_container("d", "c", &definition(None), None).await.unwrap();
    assert!(matches!(read(a, "y").await, Err(Error::NotFound)));
    assert!(matches!(
        write(a, Verb::Replace("y".into()), "y", 2, None).await,
        Err(Error::NotFound)
    ));
}

/// A point read asks whether the catalog has changed and for its item in one go. If it has changed, the request begins again.
#[tokio::test]
async fn a_point_read_at_once_obeys_what_others_have_changed() {
    let world = world().await;
    let (a, b) = (&world.db, &world.others[0]);
    let at_once = async || {
        let (seen, container) = (b.seen(), b.container("d", "c").unwrap());
        let reply =
            b.read_at_once((seen, &container), &key("x"), "x", ReadOptions::default()).await;
        reply.map(|reply| reply.result.map(|item| item.lsn))
    };
    write(a, Verb::Create, "x", 1, None).await.unwrap();
    container(b).await.unwrap();
    assert!(at_once().await.is_none(), "its number is not known yet");
    read(b, "x").await.unwrap();
    assert_eq!(at_once().await.unwrap().unwrap(), 1);
    write(a, Verb::Replace("x".into()), "x", 2, None).await.unwrap();
    assert_eq!(at_once().await.unwrap().unwrap(), 2);
    // Another item by the same name has another number.
    write(a, Verb::Delete("x".into()), "x", 0, None).await.unwrap();
    assert!(matches!(at_once().await, Some(Err(Error::NotFound))));
    write(a, Verb::Create, "x", 3, None).await.unwrap();
    assert_eq!(at_once().await.unwrap().unwrap(), 4);
    // The store's time counts (R02), and a rule that b has not heard of (R15).
    world.clock.advance(10);
    a.refresh().await.unwrap();
    a.replace_container("d", "c", &definition(Some(20)), None).await.unwrap();
    assert!(at_once().await.is_none(), "the catalog has changed");
    assert!(read(b, "x").await.is_ok());
    assert_eq!(at_once().await.unwrap().unwrap(), 4);
    world.clock.advance(10);
    assert!(matches!(at_once().await, Some(Err(Error::NotFound))));
}

/// A write that was queued under the old rule is decided again under the new: it cannot revive what has died by it.
#[tokio::test]
async fn ttl_r13_a_round_of_an_old_rule_is_not_committed() {
    let world = world().await;
    let (a, b) = (&world.db, &world.others[0]);
    write(a, Verb::Create, "x", 1, None).await.unwrap();
    world.clock.advance(10);
    // b knows the time and the old rule, and a changes it before b has written.
    let known = container(b).await.unwrap();
    a.refresh().await.unwrap();
    a.replace_container("d", "c", &definition(Some(5)), None).await.unwrap();
    let late = Write {
        verb: Verb::Replace("x".into()),
        partition_key: Some(key("x")),
        body: json!({"id": "x", "n": 2}).to_string().into(),
        if_match: None,
        if_none_match: None,
    };
    assert!(matches!(b.write(&known, late).await.result, Err(Error::NotFound)));
    assert!(matches!(read(a, "x").await, Err(Error::NotFound)));
}

/// A server that dies after it has announced a change holds the others up for a while, not for ever.
#[tokio::test]
async fn an_announced_change_that_never_comes_is_withdrawn() {
    let world = world().await;
    let (a, b) = (&world.db, &world.others[0]);
    a.pulse().await.unwrap();
    let numbers = a.catalog.load().numbers;
    let row = crate::keys::Key::Meta(crate::keys::Meta::Numbers);
    let announced = crate::catalog::Numbers { pending: a.now().0, ..numbers };
    let mut batch = storage::Batch::default();
    batch.put(row.family(), row.encode(), announced.encode());
    world.engine.commit(batch).await.unwrap();

    let waiting = read(b, "x");
    tokio::pin!(waiting);
    tokio::select! {
        _ = &mut waiting => panic!("it must wait"),
        () = tokio::time::sleep(std::time::Duration::from_millis(20)) => {}
    }
    world.clock.advance(11);
    assert!(matches!(waiting.await, Err(Error::NotFound)));
    a.refresh().await.unwrap();
    a.replace_container("d", "c", &definition(Some(5)), None).await.unwrap();
}

#[tokio::test]
async fn sessions_and_feeds_hold_across_servers() {
    let world = world().await;
    let (a, b) = (&world.db, &world.others[0]);
    container(b).await.unwrap();
    for n in 0..5 {
        write(a, Verb::Upsert, "x", n, None).await.unwrap();
    }
    let on_a = container(a).await.unwrap();
    let token: SessionToken = on_a.partition_of(&key("x")).session();
    let on_b = container(b).await.unwrap();
    let options = ReadOptions { session: &[token] };
    let reply = b.read(&on_b, &key("x"), "x", options).await;
    assert!(reply.result.is_ok());
    assert!(reply.session.unwrap().lsn <= token.lsn);
    let from = (ChangesMode::Latest, &ChangesRequest::Beginning);
    let changes = b.changes(&on_b, &Scope::Container, from, 10).await.result.unwrap();
    assert_eq!(changes.rows.len(), 1);
    let now = (ChangesMode::Latest, &ChangesRequest::Now);
    assert!(b.changes(&on_b, &Scope::Container, now, 10).await.result.unwrap().rows.is_empty());
}

/// Only one server purges a partition at a time; when it is gone, another takes over.
#[tokio::test]
async fn the_purge_is_leased() {
    let mut world = world().await;
    let (a, b) = (world.db.clone(), world.others[0].clone());
    a.replace_container("d", "c", &definition(Some(5)), None).await.unwrap();
    write(&a, Verb::Create, "x", 1, None).await.unwrap();
    world.clock.advance(10);
    assert_eq!(a.purge().await.unwrap().purged, 1);
    write(&a, Verb::Create, "x", 1, None).await.unwrap();
    world.clock.advance(5);
    assert_eq!(b.purge().await.unwrap().purged, 0, "a holds the lease");
    world.clock.advance(15);
    assert_eq!(b.purge().await.unwrap().purged, 1, "a has not renewed it");
    world.db = server(&world.engine, world.options).await;
    assert_eq!(world.db.container("d", "c").unwrap().usage(), (0, 0));
}

/// Both servers write while one of them splits: nothing is lost or counted twice, and what was queued goes to the children.
#[tokio::test(flavor = "multi_thread")]
async fn a_split_is_obeyed_by_the_writers_of_all_servers() {
    let world = world().await;
    let (a, b) = (world.db.clone(), world.others[0].clone());
    for n in 0..200 {
        write(&a, Verb::Create, &format!("old{n}"), n, None).await.unwrap();
    }
    let token = ChangesRequest::Now;
    let from = (ChangesMode::Latest, &token);
    let now = b.changes(&container(&b).await.unwrap(), &Scope::Container, from, 10).await;
    let seen = now.result.unwrap().etag;
    let session = container(&a).await.unwrap().partition_of(&key("x")).session();

    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut clients = Vec::new();
    for client in 0..6_u64 {
        let db = if client % 2 == 0 { a.clone() } else { b.clone() };
        let stop = stop.clone();
        clients.push(tokio::spawn(async move {
            let mut n = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) || n == 0 {
                write(&db, Verb::Upsert, &format!("c{client}-{n}"), n, None).await.unwrap();
                n += 1;
            }
            n
        }));
    }
    let mut split = Vec::new();
    for number in [0, 1] {
        let [one, two] = a.split("d", "c", number).await.unwrap();
        split.extend([one, two]);
    }
    b.refresh().await.unwrap();
    b.split("d", "c", split[3]).await.unwrap();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut written = 0;
    for client in clients {
        written += client.await.unwrap();
    }
    for db in [&a, &b] {
        let all = container(db).await.unwrap();
        assert_eq!(all.partitions.all.len(), 5);
        db.look_at_heads(all.partitions.all.iter().cloned()).await.unwrap();
        assert_eq!(all.usage().0, 200 + written);
        // What the parents have promised holds: a session, and a place in the feed.
        let options = ReadOptions { session: &[session] };
        let read = db.read(&all, &key("old1"), "old1", options).await;
        assert!(read.result.is_ok());
        let from = ChangesRequest::After(seen.clone());
        let from = (ChangesMode::Latest, &from);
        let new = db.changes(&all, &Scope::Container, from, 100_000).await.result.unwrap();
        assert_eq!(new.rows.len() as u64, written);
    }
    // The parents' data goes when no request can be reading it any more.
    world.clock.advance(301);
    a.purge_all().await.unwrap();
    let report = crate::check::run(&*world.engine, None, &mut |_, _| {}).await.unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

/// A server that dies while it splits holds the writers up for a while, not for ever, and what it has left is removed.
#[tokio::test]
async fn a_split_that_never_ends_is_given_up() {
    let world = world().await;
    let (a, b) = (&world.db, &world.others[0]);
    write(a, Verb::Create, "x", 1, None).await.unwrap();
    let all = container(a).await.unwrap();
    let number = all.partition_of(&key("x")).id.partition;
    let died = a.begin_split("d", "c", number).await.unwrap();
    let waiting = write(b, Verb::Upsert, "x", 2, None);
    tokio::pin!(waiting);
    tokio::select! {
        _ = &mut waiting => panic!("it must wait"),
        () = tokio::time::sleep(std::time::Duration::from_millis(60)) => {}
    }
    assert_eq!(read(b, "x").await.unwrap()["n"], 1, "reads do not wait");
    assert!(matches!(b.split("d", "c", number).await, Err(Error::Contention)));
    world.clock.advance(16);
    waiting.await.unwrap();
    // The dead one wakes up, and is refused.
    assert!(matches!(died.finish(a).await, Err(Error::Contention)));
    b.purge_all().await.unwrap();
    let children = b.split("d", "c", number).await.unwrap();
    assert_eq!(read(a, "x").await.unwrap()["n"], 2);
    assert!(children[0] > number);
    world.clock.advance(301);
    b.purge_all().await.unwrap();
    let report = crate::check::run(&*world.engine, None, &mut |_, _| {}).await.unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

/// Many clients of two servers count up the same items: nothing is lost, nothing counted twice, and each name is created once.
#[tokio::test(flavor = "multi_thread")]
async fn two_servers_at_once_lose_nothing() {
    count_up(Arc::new(Memory::new()), 60).await;
}

#[test]
fn two_servers_at_once_lose_nothing_on_postgres() {
    let Some(urls) = storage::testing::postgres::databases(2) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let options = storage::postgres::Options { writers: 2, readers: 2, snapshots_max: 8 };
        let open = || storage::postgres::Postgres::open(&urls, crate::BUCKETS, options);
        count_up(Arc::new(open().await.unwrap()), 20).await;
    });
}

async fn count_up(engine: Arc<dyn storage::Engine>, times: u64) {
    let options = Options { partitions: Some(2), ..Options::default() };
    let world = World::shared(engine, 2, options).await;
    world.db.create_container("d", &definition(None), None).await.unwrap();
    let mut clients = Vec::new();
    for client in 0..8_u64 {
        let db = if client % 2 == 0 { world.db.clone() } else { world.others[0].clone() };
        clients.push(tokio::spawn(async move {
            let (mut counted, mut created) = (0, 0);
            while counted < times {
                let id = ["x", "y", "z"][(counted + client) as usize % 3];
                let (verb, n, etag) = match read(&db, id).await {
                    Ok(item) => {
                        let etag = item["_etag"].as_str().unwrap().to_owned();
                        (Verb::Replace(id.into()), item["n"].as_u64().unwrap() + 1, Some(etag))
                    }
                    Err(Error::NotFound) => (Verb::Create, 1, None),
                    Err(error) => panic!("{error}"),
                };
                match write(&db, verb, id, n, etag).await {
                    Ok(written) => {
                        counted += 1;
                        created += u64::from(written.created);
                    }
                    Err(Error::PreconditionFailed | Error::Exists | Error::Contention) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            created
        }));
    }
    let mut created = 0;
    for client in clients {
        created += client.await.unwrap();
    }
    assert_eq!(created, 3);
    let mut sum = 0;
    for id in ["x", "y", "z"] {
        sum += read(&world.others[0], id).await.unwrap()["n"].as_u64().unwrap();
    }
    assert_eq!(sum, 8 * times);
    let report = crate::check::run(&*world.engine, None, &mut |_, _| {}).await.unwrap();
    assert_eq!(report.problems, Vec::<String>::new());
}

/// What is copied is the same, to the byte, after the copy was stopped at every batch in turn.
#[tokio::test]
async fn a_copy_is_the_same_and_goes_on_where_it_was_stopped() {
    use storage::testing::{Fate, Forgetful};
    use storage::{Direction, Engine, Family};
    let world = World::in_memory(Options::default()).await;
    world.db.create_container("d", &definition(Some(100)), None).await.unwrap();
    for n in 0..700 {
        write(&world.db, Verb::Create, &format!("i{n}"), n, None).await.unwrap();
    }
    let mut target = Forgetful::new();
    let mut runs = 0;
    loop {
        runs += 1;
        target.fail_sync(2, if runs % 2 == 0 { Fate::Kept } else { Fate::Lost });
        let copied = crate::copy::run(&*world.engine, &target, &mut |_| {}).await;
        target = target.crash();
        let opened = Db::open(Arc::new(target.crash()), world.clock.clone(), world.options).await;
        // Whether the last batch got there is not told when its sync fails.
        if copied.is_ok() || opened.is_ok() {
            break;
        }
    }
    assert!(runs > 5, "it was stopped only {runs} times");
    for family in Family::ALL {
        let all = async |engine: &dyn Engine| {
            let range = bytes::Bytes::new()..storage::keycode::prefix_end(&[]);
            engine.snapshot().scan(family, range, Direction::Forward, usize::MAX).await.unwrap()
        };
        assert_eq!(all(&*world.engine).await, all(&target).await);
    }
    let text =
        crate::copy::run(&*world.engine, &target, &mut |_| {}).await.unwrap_err().to_string();
    assert!(text.contains("not empty"), "{text}");
    let copy = Db::open(Arc::new(target), world.clock.clone(), world.options).await.unwrap();
    assert_eq!(read(&copy, "i699").await.unwrap(), read(&world.db, "i699").await.unwrap());
}

/// To a store in three parts and back: the same, to the byte, and served by either.
#[test]
fn a_copy_to_a_store_of_parts_and_back_is_the_same() {
    use storage::{Direction, Engine, Family};
    let Some(urls) = storage::testing::postgres::databases(3) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let parts = super::empty_postgres(&runtime, &urls);
    runtime.block_on(async {
        let options = Options { partitions: Some(4), ..Options::default() };
        let world = World::in_memory(options).await;
        world.db.create_container("d", &definition(Some(100)), None).await.unwrap();
        for n in 0..300 {
            write(&world.db, Verb::Create, &format!("i{n}"), n, None).await.unwrap();
        }
        crate::copy::run(&*world.engine, &*parts, &mut |_| {}).await.unwrap();
        let back: Arc<dyn Engine> = Arc::new(Memory::new());
        crate::copy::run(&*parts, &*back, &mut |_| {}).await.unwrap();
        for family in Family::ALL {
            let all = async |engine: &dyn Engine| {
                let range = bytes::Bytes::new()..storage::keycode::prefix_end(&[]);
                engine.snapshot().scan(family, range, Direction::Forward, usize::MAX).await.unwrap()
            };
            assert_eq!(all(&*world.engine).await, all(&*back).await);
        }
        let shared = World::over(parts, 1, options, &world.clock).await;
        assert_eq!(read(&shared.db, "i7").await.unwrap()["n"], 7);
    });
}

/// While one of two parts of a store is away, its partitions answer that they cannot be reached; the others go on, and so does the purge.
#[test]
fn a_part_that_is_away_takes_only_its_partitions_along() {
    use storage::testing::postgres::{databases, sql};
    let Some(urls) = databases(2) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let engine = super::empty_postgres(&runtime, &urls);
    runtime.block_on(async {
        let options = Options { partitions: Some(2), ..Options::default() };
        let world = World::shared(engine, 1, options).await;
        let db = &world.db;
        db.create_container("d", &definition(Some(10)), None).await.unwrap();
        for n in 0..4 {
            write(db, Verb::Create, &format!("i{n}"), n, None).await.unwrap();
        }
        let name = urls[1].rsplit('/').next().unwrap().to_owned();
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ";
        sql(&urls[0], &format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false; {end}'{name}'"));
        let (mut there, mut away) = (Vec::new(), Vec::new());
        for n in 0..4 {
            let id = format!("i{n}");
            match write(db, Verb::Upsert, &id, 100 + n, None).await {
                Ok(_) => there.push(id),
                Err(Error::Unavailable(_)) => away.push(id),
                Err(error) => panic!("{error}"),
            }
        }
        assert!(!there.is_empty() && !away.is_empty(), "{there:?} {away:?}");
        for id in &there {
            assert!(read(db, id).await.is_ok());
        }
        world.clock.advance(20);
        assert_eq!(db.purge().await.unwrap().purged, there.len() as u64);
        sql(&urls[0], &format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true"));
        while db.purge().await.unwrap().purged == 0 {}
        for id in there.iter().chain(&away) {
            assert!(write(db, Verb::Create, id, 1, None).await.unwrap().created);
        }
    });
}
