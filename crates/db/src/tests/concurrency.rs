//! Many clients at once on few items: rounds overlap, and still every answer must fit one order of events.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;
use storage::Engine;
use storage::embedded::{self, Embedded};
use storage::memory::Memory;
use storage::testing::{Fate, Forgetful};

use super::{World, key};
use crate::items::{ReadOptions, Verb, Write, Written};
use crate::{Error, Options, Result};

const CLIENTS: u64 = 8;
const WRITES: usize = 150;
const IDS: u8 = 6;

#[test]
fn overlapping_rounds_on_memory() {
    clients(Arc::new(Memory::new()));
}

#[test]
fn overlapping_rounds_on_the_embedded_engine() {
    let folder = tempfile::tempdir().unwrap();
    clients(Arc::new(Embedded::open(folder.path(), embedded::Options::default()).unwrap()));
}

/// Creates and deletes of one id must alternate, whatever order the clients ask in.
fn clients(engine: Arc<dyn Engine>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let world = Arc::new(World::new(engine, Options::default()).await);
        make_container(&world).await;
        let clients = (0..CLIENTS).map(|seed| tokio::spawn(client(world.clone(), seed)));
        let mut balance: HashMap<String, i64> = HashMap::new();
        for client in clients.collect::<Vec<_>>() {
            for (id, change) in client.await.unwrap() {
                *balance.entry(id).or_default() += change;
            }
        }
        for (id, balance) in balance {
            let read = world
                .db
                .read(&world.container(), &key("p"), &id, ReadOptions::default())
                .await
                .result;
            assert_eq!(
                balance,
                i64::from(read.is_ok()),
                "{id}: made and deleted must differ by what is there"
            );
        }
        let report = crate::check::run(&*world.engine, None, &mut |_, _| {}).await.unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
    });
}

/// What a client's writes added to and took from each id.
async fn client(world: Arc<World>, seed: u64) -> Vec<(String, i64)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut changes = Vec::new();
    for _ in 0..WRITES {
        let id = random.u8(0..IDS).to_string();
        let verb = match random.u8(0..4) {
            0 => Verb::Create,
            1 => Verb::Upsert,
            2 => Verb::Replace(id.clone()),
            _ => Verb::Delete(id.clone()),
        };
        // Few values for a unique key, so that violations and releases cross rounds too.
        match write(&world, verb.clone(), &id, random.u8(0..4)).await {
            Ok(written) if written.created => changes.push((id, 1)),
            Ok(written) if written.item.is_none() => changes.push((id, -1)),
            Ok(_) | Err(Error::Exists | Error::NotFound | Error::UniqueKeyViolation { .. }) => {}
            Err(error) => panic!("{verb:?} {id}: {error}"),
        }
    }
    changes
}

/// A sync fails in the middle of overlapping rounds: what was acknowledged is there after a restart, what was refused need not be, and
/// nothing is torn.
#[test]
fn a_failed_sync_loses_nothing_acknowledged() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for fails_at in 4..24 {
        for fate in [Fate::Kept, Fate::Lost] {
            runtime.block_on(async {
                let engine = Arc::new(Forgetful::new());
                let world = Arc::new(World::new(engine.clone(), Options::default()).await);
                make_container(&world).await;
                engine.fail_sync(fails_at, fate);
                let writes = (0..40u8).map(|id| {
                    let world = world.clone();
                    tokio::spawn(async move {
                        if id % 3 == 0 {
                            tokio::task::yield_now().await;
                        }
                        (id, write(&world, Verb::Create, &id.to_string(), id).await.is_ok())
                    })
                });
                let mut acknowledged = Vec::new();
                for write in writes.collect::<Vec<_>>() {
                    let (id, made) = write.await.unwrap();
                    acknowledged.extend(made.then_some(id));
                }
                let after: Arc<dyn Engine> = Arc::new(engine.crash());
                let report = crate::check::run(&*after, None, &mut |_, _| {}).await.unwrap();
                assert_eq!(report.problems, Vec::<String>::new(), "sync {fails_at}");
                let db =
                    crate::Db::open(after, world.clock.clone(), Options::default()).await.unwrap();
                let container = db.container("d", "c").unwrap();
                for id in acknowledged {
                    let read = db
                        .read(&container, &key("p"), &id.to_string(), ReadOptions::default())
                        .await;
                    assert!(
                        read.result.is_ok(),
                        "{id} was acknowledged before sync {fails_at} failed"
                    );
                }
            });
        }
    }
}

pub(super) async fn make_container(world: &World) {
    let definition = json!({
        "id": "c", "partitionKey": {"paths": ["/pk"], "version": 2},
        "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/u"]}]},
    });
    world.db.create_container("d", &definition, None).await.unwrap();
}

async fn write(world: &World, verb: Verb, id: &str, unique: u8) -> Result<Written> {
    let write = Write {
        verb,
        partition_key: Some(key("p")),
        body: json!({"id": id, "pk": "p", "u": unique}).to_string().into(),
        if_match: None,
        if_none_match: None,
    };
    world.db.write(&world.container(), write).await.result
}
