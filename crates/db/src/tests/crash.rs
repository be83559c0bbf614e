//! Operations that take more than one write, stopped at every sync in turn: the next process finds all of an operation or nothing of it.
//!
//! The disk forgets what was not synced. Of the batch whose sync failed nobody can know whether it got there, so each is tried both
//! ways. Whatever was found, nothing acknowledged is lost, the store is sound, and no session token goes backwards.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use model::clock::VirtualClock;
use model::resource::SessionToken;
use serde_json::{Value, json};
use storage::Engine;
use storage::testing::{Fate, Forgetful};

use super::{START, World, key};
use crate::items::{PageRequest, ReadOptions, Scope, Verb, Write};
use crate::{Container, Db, Kind, Options, Parent, Place};

/// An operation that is to be whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Batch,
    Bulk,
    Patch,
    Procedure,
    Split,
    DeleteKey,
}

/// What a client was told: which of its operations were done (all or none of them, but for bulk), and how far it has seen.
struct Told {
    done: Vec<bool>,
    sessions: Vec<SessionToken>,
}

#[test]
fn a_batch_is_whole() {
    stop_everywhere(Work::Batch, 3);
}

#[test]
fn each_operation_of_a_bulk_is_whole() {
    stop_everywhere(Work::Bulk, 3);
}

#[test]
fn a_patch_is_whole() {
    stop_everywhere(Work::Patch, 3);
}

#[test]
fn a_procedure_that_makes_a_thousand_items_is_whole() {
    stop_everywhere(Work::Procedure, 3);
}

#[test]
fn a_split_loses_and_repeats_nothing() {
    stop_everywhere(Work::Split, 700);
}

/// More items than go in one batch: once it has begun it is finished, by the next process if need be.
#[test]
fn a_large_deletion_of_a_key_is_whole() {
    stop_everywhere(Work::DeleteKey, 4_100);
}

/// Does the work on a store with so many items once for each sync that it takes, and stops it there.
fn stop_everywhere(work: Work, items: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let disk = prepared(items).await;
        let engine = Arc::new(disk.crash());
        let db = open(engine.clone()).await;
        let (before, opened) = (items_of(&db).await, engine.stats().syncs);
        let told = perform(work, &db).await;
        assert!(told.done.iter().all(|done| *done), "{work:?} fails where nothing stops it");
        let (after, syncs) = (items_of(&db).await, engine.stats().syncs);
        assert!(syncs > opened, "{work:?} has written something");
        assert_eq!(before == after, work == Work::Split, "{work:?} changes what is there");

        for stop in opened + 1..=syncs {
            for fate in [Fate::Kept, Fate::Lost] {
                let engine = Arc::new(disk.crash());
                let db = open(engine.clone()).await;
                engine.fail_sync(stop, fate);
                let told = perform(work, &db).await;
                let found = Arc::new(engine.crash());
                let what =
                    format!("{work:?} stopped at sync {stop} of {syncs}, which was {fate:?}");
                let report = crate::check::run(&*found, None, &mut |_, _| {}).await.unwrap();
                assert_eq!(report.problems, Vec::<String>::new(), "{what}");
                let db = open(found).await;
                judge(work, &told, [&before, &after], &items_of(&db).await, &what);
                for token in told.sessions {
                    assert!(has_seen(&container(&db), token), "{what}: {token} is from the future");
                }
            }
        }
    });
}

/// Compares what the next process has found with what was there before, what should be there after, and what a client was told.
fn judge(work: Work, told: &Told, [before, after]: [&Items; 2], found: &Items, what: &str) {
    if work == Work::Bulk {
        let made = after.iter().filter(|(id, _)| !before.contains_key(*id));
        for ((id, item), done) in made.zip(&told.done) {
            assert!(!done || found.contains_key(id), "{what}: {id} was acknowledged and is lost");
            assert!(found.get(id).is_none_or(|found| same(found, item)), "{what}: {id} is torn");
        }
        assert!(before.keys().all(|id| found.contains_key(id)), "{what}: something else is lost");
        return;
    }
    let is = |state: &Items| {
        state.len() == found.len()
            && state.iter().zip(found).all(|(a, b)| a.0 == b.0 && same(a.1, b.1))
    };
    let done = told.done.iter().all(|done| *done);
    assert!(is(after) || (!done && is(before)), "{what}: {} items are there", found.len());
}

/// Whether two items are the same but for when they were written.
fn same(a: &Bytes, b: &Bytes) -> bool {
    let content = |bytes: &Bytes| {
        let mut item: Value = serde_json::from_slice(bytes).unwrap();
        item.as_object_mut().unwrap().retain(|name, _| !name.starts_with('_'));
        item
    };
    a == b || content(a) == content(b)
}

/// A store with a procedure and so many items of one partition key, and a few of others.
async fn prepared(items: usize) -> Forgetful {
    let engine = Arc::new(Forgetful::new());
    let world = World::new(engine.clone(), Options::default()).await;
    let definition = json!({"id": "c", "partitionKey": {"paths": ["/pk"], "version": 2}});
    world.db.create_container("d", &definition, None).await.unwrap();
    let container = world.container();
    let place = Place { parent: Parent::Container("d", "c"), kind: Kind::Procedure };
    let body = "function (n) { for (var i = 0; i < n; i++) \
                __.createDocument(__.getSelfLink(), {id: 'made' + i, pk: 'p', n: i}); }";
    let procedure = json!({"id": "make", "body": body});
    world.db.create_resource(place, &procedure, false).await.unwrap();
    let numbers: Vec<usize> = (0..items).collect();
    for numbers in numbers.chunks(100) {
        let ours = numbers.iter().map(|n| create(&format!("i{n}"), "p"));
        let others = numbers.iter().take(3).map(|n| create(&format!("o{n}"), &format!("o{n}")));
        world.db.bulk(&container, ours.chain(others).collect()).await.result.unwrap();
    }
    engine.crash()
}

async fn open(engine: Arc<Forgetful>) -> Db {
    Db::open(engine, Arc::new(VirtualClock::frozen(START)), Options::default()).await.unwrap()
}

fn container(db: &Db) -> Arc<Container> {
    db.container("d", "c").unwrap()
}

/// All items by id, as clients see them.
type Items = BTreeMap<String, Bytes>;

async fn items_of(db: &Db) -> Items {
    let (mut items, mut continuation) = (Items::new(), None);
    loop {
        let page = PageRequest { items_max: 1_000, continuation };
        let page = db.list(&container(db), &Scope::Container, &page, ReadOptions::default()).await;
        let page = page.result.unwrap();
        for row in page.rows {
            let item: Value = serde_json::from_slice(&row).unwrap();
            let again = items.insert(item["id"].as_str().unwrap().to_owned(), row);
            assert!(again.is_none(), "{item} is there twice");
        }
        continuation = page.continuation;
        if continuation.is_none() {
            return items;
        }
    }
}

/// Whether the partitions of today have all that a token of theirs, or of those they come from, speaks of.
fn has_seen(container: &Container, token: SessionToken) -> bool {
    let all = &container.partitions.all;
    let mut heirs = all.iter().filter(|partition| partition.span.comes_from(token.partition));
    heirs.all(|partition| partition.session().lsn >= token.lsn)
}

async fn perform(work: Work, db: &Db) -> Told {
    let container = container(db);
    let (done, sessions) = match work {
        Work::Batch => {
            let writes = vec![
                create("new", "p"),
                write(Verb::Delete("i0".into()), "p", json!({})),
                write(Verb::Replace("i1".into()), "p", json!({"id": "i1", "pk": "p", "n": 1})),
            ];
            let reply = db.transact(&container, writes).await;
            let done = reply.result.is_ok_and(|all| all.iter().all(|one| one.result.is_ok()));
            (vec![done], reply.session)
        }
        Work::Bulk => {
            let writes = (0..20).map(|n| create(&format!("new{n:02}"), &n.to_string())).collect();
            let reply = db.bulk(&container, writes).await;
            let done = |outcomes: Vec<_>| outcomes.iter().map(is_done).collect();
            (reply.result.map_or_else(|_| vec![false; 20], done), reply.session)
        }
        Work::Patch => {
            let operations = json!({"operations": [
                {"op": "add", "path": "/a", "value": 1}, {"op": "incr", "path": "/n", "value": 5},
            ]});
            let reply =
                db.write(&container, write(Verb::Patch("i0".into()), "p", operations)).await;
            (vec![reply.result.is_ok()], reply.session)
        }
        Work::Procedure => {
            let reply = db.execute(&container, "make", &key("p"), &json!([1_000])).await;
            (vec![reply.result.is_ok()], reply.session)
        }
        Work::Split => (vec![db.split("d", "c", 0).await.is_ok()], None),
        Work::DeleteKey => {
            let reply = db.delete_key(&container, &key("p")).await;
            (vec![reply.result.is_ok()], reply.session)
        }
    };
    // What was refused may have been told of no change at all.
    let told = done.iter().any(|done| *done);
    Told { done, sessions: sessions.filter(|_| told).into_iter().collect() }
}

fn is_done(outcome: &crate::Outcome) -> bool {
    outcome.result.is_ok()
}

fn create(id: &str, key: &str) -> Write {
    write(Verb::Create, key, json!({"id": id, "pk": key, "n": 7}))
}

fn write(verb: Verb, partition_key: &str, body: Value) -> Write {
    let body = body.to_string().into();
    Write {
        verb,
        partition_key: Some(key(partition_key)),
        body,
        if_match: None,
        if_none_match: None,
    }
}
