//! A store on PostgreSQL: opening, when all is well and when it is not; two servers; lost connections.

use std::sync::Arc;

use super::put;
use crate::postgres::{Buckets, Options, Postgres};
use crate::testing::postgres::{as_user, database, databases, sql};
use crate::{Batch, Direction, Engine, Error, Family};

/// Eight bytes of the key; of the catalog half of the rows are in the first bucket, and half anywhere. Neighbours lie in different stores.
pub(super) const BUCKETS: Buckets = Buckets {
    of: |family, key| {
        let eight = |from: usize| {
            let byte = |at: usize| key.get(from + at).copied().unwrap_or(0);
            u64::from_be_bytes(std::array::from_fn(byte)) >> 1
        };
        match (family, key.first()) {
            (Family::Catalog, Some(kind)) if kind % 2 == 1 => 0,
            (Family::Catalog, _) => eight(1),
            _ => eight(0),
        }
    },
    home: |bucket| bucket.to_be_bytes().iter().map(|byte| u64::from(*byte)).sum(),
};

pub(super) async fn open(url: &str) -> crate::Result<Postgres> {
    open_all(&[url]).await
}

pub(super) async fn open_all(urls: &[impl AsRef<str>]) -> crate::Result<Postgres> {
    let options = Options { writers: 2, readers: 2, snapshots_max: 100 };
    Postgres::open(urls, BUCKETS, options).await
}

async fn refusal(url: &str) -> String {
    super::refusal(open(url).await)
}

/// A batch as a partition's: its head is checked and counted up.
pub(super) fn counted(from: u64, key: &str) -> Batch {
    let mut batch = put(key, "x");
    let head = |n: u64| (n > 0).then(|| n.to_string().into());
    batch.check(Family::Catalog, "head", head(from));
    batch.put(Family::Catalog, "head", (from + 1).to_string());
    batch
}

/// That head, as soon as a session lives long enough to ask for it.
pub(super) async fn head(engine: &Postgres) -> u64 {
    loop {
        if let Ok(head) = engine.get(Family::Catalog, b"head").await {
            return head.map_or(0, |head| std::str::from_utf8(&head).unwrap().parse().unwrap());
        }
    }
}

/// From when a freeze has returned nothing changes, whoever was committing; reads go on; and when it is over, so do commits.
#[tokio::test]
async fn a_frozen_store_takes_no_commit_of_anybody() {
    let Some(url) = database() else { return };
    let (one, other) = (Arc::new(open(&url).await.unwrap()), open(&url).await.unwrap());
    let committing = tokio::spawn({
        let one = one.clone();
        async move {
            for n in 0.. {
                if let Err(error) = one.commit(counted(n, "k")).await {
                    return (n, error);
                }
            }
            unreachable!("it is frozen some time")
        }
    });
    while head(&other).await < 5 {}
    other.freeze(true).await.unwrap();
    let frozen_at = head(&other).await;
    let (made, error) = committing.await.unwrap();
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    assert_eq!((made, head(&one).await), (frozen_at, frozen_at));
    assert!(matches!(other.commit(put("k", "y")).await, Err(Error::Unavailable(_))));
    other.freeze(true).await.unwrap();
    other.freeze(false).await.unwrap();
    one.commit(counted(made, "k")).await.unwrap();
    other.commit(put("k", "z")).await.unwrap();
}

#[tokio::test]
async fn a_store_that_cannot_be_used_says_why() {
    let Some(url) = database() else { return };
    drop(open(&url).await.unwrap());

    let text = refusal("postgres://127.0.0.1:1/x").await;
    assert!(text.contains("127.0.0.1:1") && text.contains("refused"), "{text}");
    let text = refusal(&url.replacen("/t", "/not_t", 1)).await;
    assert!(text.contains("there is no database 'not_t"), "{text}");

    sql(&url, "DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN");
    let text = refusal(&as_user(&url, "guest")).await;
    assert!(text.contains("permission denied") && text.contains("GRANT SELECT ON"), "{text}");
    sql(&url, "GRANT SELECT ON sidereal_store, sidereal_kv TO guest");
    let text = refusal(&as_user(&url, "guest")).await;
    assert!(text.contains("DELETE on sidereal_kv is missing") && text.contains("GRANT"), "{text}");

    sql(&url, "ALTER ROLE guest SET default_transaction_read_only = on");
    let text = refusal(&as_user(&url, "guest")).await;
    assert!(text.contains("it is read-only"), "{text}");

    sql(&url, "UPDATE sidereal_store SET format = 3");
    let text = refusal(&url).await;
    assert!(text.contains("newer version of Sidereal (format 3; this version knows 2)"), "{text}");
    sql(&url, "DROP OWNED BY guest; DROP ROLE guest");
}

/// Tables of the first version are brought up to date.
#[tokio::test]
async fn tables_of_an_earlier_version_are_changed() {
    let Some(url) = database() else { return };
    open(&url).await.unwrap().commit(put("k", "v")).await.unwrap();
    let first = "ALTER TABLE sidereal_store DROP COLUMN id, DROP COLUMN complete; UPDATE sidereal_store SET format = 1";
    sql(&url, first);
    let (a, b) = (open(&url), open(&url));
    let (a, b) = tokio::join!(a, b);
    assert_eq!(a.unwrap().get(Family::Item, b"k").await.unwrap(), Some("v".into()));
    drop(b.unwrap());
}

/// A store of several parts is opened with all of them, each where it belongs.
#[tokio::test]
async fn the_parts_of_a_store_belong_together() {
    let Some(urls) = databases(3) else { return };
    let [a, b, c] = &urls[..] else { panic!("three were asked for") };
    let refusal = async |urls: &[&String]| super::refusal(open_all(urls).await);
    // Made by two servers at once, and by one that was stopped before it had made the last.
    let text = refusal(&[a, &"postgres://127.0.0.1:1/x".into()]).await;
    assert!(text.contains("(number 2 of 2)") && text.contains("refused"), "{text}");
    let both = [a, b];
    let (first, second) = tokio::join!(open_all(&both), open_all(&both));
    first.unwrap().commit(put("k", "v")).await.unwrap();
    drop(second.unwrap());

    let text = refusal(&[b, a]).await;
    assert!(text.contains("is number 2 of 2, and is given here as number 1 of 2"), "{text}");
    let text = refusal(&[a]).await;
    assert!(text.contains("is number 1 of 2, and is given here as number 1 of 1"), "{text}");
    let text = refusal(&[a, b, c]).await;
    assert!(text.contains("is number 1 of 2, and is given here as number 1 of 3"), "{text}");
    let text = refusal(&[a, a]).await;
    assert!(text.contains("is number 1 of 2, and is given here as number 2 of 2"), "{text}");
    let text = refusal(&[a, c]).await;
    assert!(text.contains("is empty, but it is number 2 of 2"), "{text}");
    let others = databases(2).unwrap();
    drop(open_all(&others).await.unwrap());
    let text = refusal(&[a, &others[1]]).await;
    assert!(text.contains("is number 2 of another store"), "{text}");
    let engine = open_all(&[a, b]).await.unwrap();
    assert_eq!(engine.get(Family::Item, b"k").await.unwrap(), Some("v".into()));
}

/// Keys of every part of a store: what lies where, as far as the test cares.
fn everywhere(value: &str) -> Batch {
    let mut batch = Batch::default();
    batch.check(Family::Catalog, "a", None);
    for key in ["a", "b", "c"] {
        batch.put(Family::Item, key, value.to_owned());
    }
    batch
}

/// While a part cannot be reached, the others go on; a batch for all of them waits for it, and is then made nowhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_part_takes_only_its_own_keys_along() {
    let Some(urls) = databases(3) else { return };
    let engine = open_all(&urls).await.unwrap();
    engine.commit(everywhere("1")).await.unwrap();
    let get = async |key: &str| engine.get(Family::Item, key.as_bytes()).await;
    // A database that takes no connections is as good as a node that is gone.
    let name = |url: &str| url.rsplit('/').next().unwrap().to_owned();
    let gone = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ";
    let lost = name(&urls[1]);
    sql(&urls[0], &format!("ALTER DATABASE {lost} ALLOW_CONNECTIONS false; {gone}'{lost}'"));
    let mut answers = Vec::new();
    for key in ["a", "b", "c"] {
        answers.push(get(key).await.map(|value| value.is_some()));
    }
    let there = answers.iter().filter(|answer| matches!(answer, Ok(true))).count();
    let away = answers.iter().filter(|a| matches!(a, Err(Error::Unavailable(_)))).count();
    assert_eq!((there, away), (2, 1), "{answers:?}");
    assert!(matches!(engine.commit(everywhere("2")).await, Err(Error::Unavailable(_))));
    sql(&urls[0], &format!("ALTER DATABASE {lost} ALLOW_CONNECTIONS true"));
    for key in ["a", "b", "c"] {
        assert_eq!(get(key).await.unwrap(), Some("1".into()), "{key}");
    }
    engine.commit(everywhere("3")).await.unwrap();
    assert_eq!(get("b").await.unwrap(), Some("3".into()));
}

/// Two servers change all parts at once, under one check: each change is everywhere or nowhere, and none waits for another for ever.
#[tokio::test(flavor = "multi_thread")]
async fn batches_for_several_parts_never_interleave() {
    let Some(urls) = databases(3) else { return };
    let mut servers = Vec::new();
    for server in 0..2 {
        let engine = open_all(&urls).await.unwrap();
        servers.push(tokio::spawn(async move {
            let (mut made, mut seen) = (0, None);
            while made < 20 {
                let mut batch = Batch::default();
                let next = format!("{server}-{made}");
                batch.check(Family::Catalog, "count", seen.clone());
                batch.put(Family::Catalog, "count", next.clone());
                for key in ["a", "b", "c"] {
                    batch.put(Family::Item, key, next.clone());
                }
                match engine.commit(batch).await {
                    Ok(()) => made += 1,
                    Err(Error::Conflict) => {}
                    Err(error) => panic!("{error}"),
                }
                seen = engine.get(Family::Catalog, b"count").await.unwrap();
            }
        }));
    }
    for server in servers {
        server.await.unwrap();
    }
    let engine = open_all(&urls).await.unwrap();
    let last = engine.get(Family::Catalog, b"count").await.unwrap();
    for key in ["a", "b", "c"] {
        assert_eq!(engine.get(Family::Item, key.as_bytes()).await.unwrap(), last);
    }
}

#[tokio::test]
async fn without_rights_the_tables_are_not_made() {
    let Some(url) = database() else { return };
    sql(
        &url,
        "DROP ROLE IF EXISTS maker; CREATE ROLE maker LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    );
    let text = refusal(&as_user(&url, "maker")).await;
    assert!(text.contains("GRANT CREATE ON SCHEMA public"), "{text}");
}

/// Many at once, on one head: each number is given out once, nothing is lost and nothing torn.
#[tokio::test(flavor = "multi_thread")]
async fn two_servers_never_interleave() {
    let Some(url) = database() else { return };
    let mut servers = Vec::new();
    let start = Arc::new(tokio::sync::Barrier::new(2));
    for server in 0..2 {
        let engine = Arc::new(open(&url).await.unwrap());
        let start = start.clone();
        servers.push(tokio::spawn(async move {
            let (mut made, mut conflicts) = (0, 0);
            while made < 50 {
                let head = head(&engine).await;
                if made + conflicts == 0 {
                    // Both have the same head at first: one of them is refused.
                    start.wait().await;
                }
                match engine.commit(counted(head, &format!("{head:03}-{server}"))).await {
                    Ok(()) => made += 1,
                    Err(Error::Conflict) => conflicts += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            conflicts
        }));
    }
    let mut conflicts = 0;
    for server in servers {
        conflicts += server.await.unwrap();
    }
    assert!(conflicts > 0, "they never met");
    let engine = open(&url).await.unwrap();
    let all = engine.snapshot();
    let all = all.scan(Family::Item, "".into().."9".into(), Direction::Forward, usize::MAX);
    let numbers: Vec<_> = all.await.unwrap().iter().map(|(key, _)| key.slice(..3)).collect();
    let expected: Vec<_> = (0..100).map(|n| format!("{n:03}")).collect();
    assert_eq!(numbers, expected);
}

/// Sessions are killed under load: each commit is known to be made or not, by the next check of the head.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_commit_is_found_out() {
    let Some(url) = database() else { return };
    let engine = Arc::new(open(&url).await.unwrap());
    let killing = {
        let url = url.clone();
        tokio::task::spawn_blocking(move || {
            for _ in 0..10 {
                sql(
                    &url,
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE datname = current_database() AND pid <> pg_backend_pid()",
                );
            }
        })
    };
    let mut next = 0;
    while !killing.is_finished() || next < 2 {
        match engine.commit(counted(next, &format!("{next:05}"))).await {
            Ok(()) => next += 1,
            // The look for it was killed, too.
            Err(Error::Unknown(_)) => next = head(&engine).await,
            Err(Error::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(head(&engine).await, next);
}

#[tokio::test]
async fn a_pulse_has_the_value_and_the_time() {
    let Some(url) = database() else { return };
    let engine = open(&url).await.unwrap();
    engine.commit(put("k", "v")).await.unwrap();
    let pulse = engine.pulse(Family::Item, b"k").unwrap().await.unwrap();
    assert_eq!(pulse.value, Some("v".into()));
    assert!(pulse.now_secs > 1_700_000_000);
    engine.close().await.unwrap();
    assert!(matches!(engine.pulse(Family::Item, b"k").unwrap().await, Err(Error::Closed)));
}

/// A conflict in the middle of many commits of a bucket fails those behind it that were made on it, and no others.
#[tokio::test]
async fn commits_of_a_bucket_keep_their_order() {
    let Some(url) = database() else { return };
    let engine = open(&url).await.unwrap();
    let commits: Vec<_> = (0..20).map(|n| engine.commit(counted(n, "k"))).collect();
    for commit in commits {
        commit.await.unwrap();
    }
    let bad = engine.commit(counted(3, "k"));
    let good = engine.commit(counted(20, "k"));
    assert!(matches!(bad.await, Err(Error::Conflict)));
    good.await.unwrap();
}
