//! Random histories, compared with a plain map after every step.
//!
//! `SIDEREAL_TEST_SECONDS` makes a run longer, `SIDEREAL_TEST_SEED` repeats one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::embedded::{Embedded, Options};
use crate::keycode::prefix_end;
use crate::memory::Memory;
use crate::testing::{self, Mirror, block_on, random_seed};
use crate::tests::postgres::open_all as open_postgres;
use crate::{Batch, Direction, Engine, Error, Family, Pair, Snapshot};

/// What a store must hold.
type Model = BTreeMap<(Family, Bytes), Bytes>;

struct Run {
    random: fastrand::Rng,
    model: Model,
    /// Open snapshots, and what each must hold.
    snapshots: Vec<(Box<dyn Snapshot>, Model)>,
    seed: u64,
    /// Whether some keys are of thousands of bytes.
    keys_long: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { random, model: Model::new(), snapshots: Vec::new(), seed, keys_long: false }
    }

    fn step(&mut self, engine: &dyn Engine) {
        match self.random.u8(..10) {
            0..5 => self.commit(engine),
            5 => {
                let snapshot = engine.snapshot();
                // The first read says which state it is of, in each place.
                let all = Bytes::new()..prefix_end(b"");
                block_on(snapshot.scan(Family::Item, all, Direction::Forward, 1)).unwrap();
                self.snapshots.push((snapshot, self.model.clone()));
            }
            6 if !self.snapshots.is_empty() => {
                let i = self.random.usize(..self.snapshots.len());
                drop(self.snapshots.swap_remove(i));
            }
            7 if !self.snapshots.is_empty() => {
                let i = self.random.usize(..self.snapshots.len());
                let (snapshot, model) = self.snapshots.swap_remove(i);
                self.read(&*snapshot, &model);
                self.snapshots.push((snapshot, model));
            }
            _ => {
                let model = self.model.clone();
                self.read(&*engine.snapshot(), &model);
            }
        }
    }

    fn commit(&mut self, engine: &dyn Engine) {
        let mut batch = Batch::default();
        let mut next = self.model.clone();
        for _ in 0..self.random.u8(..8) {
            let (family, key) = (self.family(), self.key());
            if self.random.u8(..3) == 0 {
                batch.delete(family, key.clone());
                next.remove(&(family, key));
            } else {
                let value = self.value();
                batch.put(family, key.clone(), value.clone());
                next.insert((family, key), value);
            }
        }
        let mut holds = true;
        for _ in 0..self.random.u8(..3) {
            let (family, key) = (self.family(), self.key());
            let actual = self.model.get(&(family, key.clone())).cloned();
            let expected =
                if self.random.u8(..8) == 0 { Some(self.value()) } else { actual.clone() };
            holds &= expected == actual;
            batch.check(family, key, expected);
        }
        match block_on(engine.commit(batch.clone())) {
            Ok(()) if holds => self.model = next,
            Err(Error::Conflict) if !holds => {}
            other => panic!("seed {}: {batch:?} gave {other:?}", self.seed),
        }
    }

    fn read(&mut self, snapshot: &dyn Snapshot, model: &Model) {
        let family = self.family();
        let key = self.key();
        let value = block_on(snapshot.get(family, &key)).unwrap();
        assert_eq!(
            value.as_ref(),
            model.get(&(family, key.clone())),
            "seed {}: {key:?}",
            self.seed
        );

        let (start, end) = (self.key(), self.key());
        let (start, end) = if self.random.u8(..8) == 0 { (start, end) } else { order(start, end) };
        let limit = if self.random.bool() { self.random.usize(..5) } else { usize::MAX };
        let direction = if self.random.bool() { Direction::Forward } else { Direction::Backward };
        let mut expected: Vec<Pair> = model
            .iter()
            .filter(|((f, key), _)| *f == family && *key >= start && *key < end)
            .map(|((_, key), value)| (key.clone(), value.clone()))
            .collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        expected.truncate(limit);
        let pairs =
            block_on(snapshot.scan(family, start.clone()..end.clone(), direction, limit)).unwrap();
        assert_eq!(pairs, expected, "seed {}: {start:?}..{end:?} {direction:?} {limit}", self.seed);
    }

    fn family(&mut self) -> Family {
        Family::ALL[self.random.usize(..Family::ALL.len())]
    }

    /// An engine that holds what the store must hold.
    fn memory(&self) -> Memory {
        let mut batch = Batch::default();
        for ((family, key), value) in &self.model {
            batch.put(*family, key.clone(), value.clone());
        }
        let memory = Memory::new();
        block_on(memory.commit(batch)).unwrap();
        memory
    }

    /// From few keys, so that histories meet.
    fn key(&mut self) -> Bytes {
        let length = self.random.usize(1..4);
        let stem =
            if self.keys_long { [0, 0, 1_897, 1_898, 3_000][self.random.usize(..5)] } else { 0 };
        let stem = std::iter::repeat_n(b'a', stem);
        stem.chain((0..length).map(|_| [0, b'a', b'b', 0xFF][self.random.usize(..4)])).collect()
    }

    fn value(&mut self) -> Bytes {
        let length = [0, 1, 10, 1_000, 20_000][self.random.usize(..5)];
        let byte = self.random.u8(..);
        vec![byte; length].into()
    }
}

fn order(a: Bytes, b: Bytes) -> (Bytes, Bytes) {
    if a <= b { (a, b) } else { (b, a) }
}

/// True until the time for a random test is over.
#[expect(clippy::disallowed_methods, reason = "how long a test runs is not what it tests")]
fn for_a_while() -> impl FnMut() -> bool {
    let seconds = std::env::var("SIDEREAL_TEST_SECONDS").ok();
    let seconds = seconds.map_or(1.0, |s| s.parse().expect("SIDEREAL_TEST_SECONDS is a number"));
    let start = Instant::now();
    move || start.elapsed() < Duration::from_secs_f64(seconds)
}

#[test]
fn memory_is_like_a_map() {
    let mut more = for_a_while();
    while more() {
        let engine = Memory::new();
        let mut run = Run::new(random_seed());
        (0..500).for_each(|_| run.step(&engine));
    }
}

/// Tiny memtables, so that there are flushes and compactions to go wrong.
fn small() -> Options {
    Options { memtable_bytes: 16 << 10, cache_bytes: 1 << 20, ..Options::default() }
}

#[test]
fn embedded_is_like_a_map_across_restarts() {
    let mut more = for_a_while();
    while more() {
        let directory = tempfile::tempdir().unwrap();
        let mut run = Run::new(random_seed());
        while more() {
            let engine = Embedded::open(directory.path(), small()).unwrap();
            let steps = run.random.usize(..300);
            (0..steps).for_each(|_| run.step(&engine));
            run.snapshots.clear();
            if run.random.bool() {
                block_on(engine.close()).unwrap();
            }
        }
    }
}

/// Keys that are too long for a btree, of a few beginnings, so that they lie close together.
#[test]
fn postgres_is_like_a_map() {
    postgres_of_parts_is_like_a_map(1);
}

#[test]
fn postgres_of_three_parts_is_like_a_map() {
    postgres_of_parts_is_like_a_map(3);
}

fn postgres_of_parts_is_like_a_map(parts: usize) {
    let Some(urls) = testing::postgres::databases(parts) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut run = Run::new(random_seed());
    run.keys_long = true;
    let mut more = for_a_while();
    while more() {
        let engine = runtime.block_on(open_postgres(&urls)).unwrap();
        let engine = Mirror::new(Arc::new(run.memory()), Arc::new(engine));
        (0..200).for_each(|_| run.step(&engine));
        run.snapshots.clear();
        block_on(engine.close()).unwrap();
    }
}

#[test]
fn engines_agree() {
    let mut more = for_a_while();
    while more() {
        let directory = tempfile::tempdir().unwrap();
        let embedded = Embedded::open(directory.path(), small()).unwrap();
        let engine = Mirror::new(Arc::new(Memory::new()), Arc::new(embedded));
        let mut run = Run::new(random_seed());
        (0..300).for_each(|_| run.step(&engine));
    }
}
