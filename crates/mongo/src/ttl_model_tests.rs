//! Random writes and rules through the wire, against a model that looks at every document every second.
//!
//! The model is what the contract says and no more: a document is gone from the second at which its rule says so, for good (R07, R08, R13,
//! R15 to R17, R25, R27, R29). Whether and when the purge runs must not make a difference to any command. A failure names its seed.

use std::collections::BTreeMap;

use bson::{Bson, DateTime, Document, doc};
use fastrand::Rng;
use model::clock::Clock;

use crate::script_tests::World;

/// Runs in the gate: each is a history of its own.
const SEEDS: u64 = 24;

/// Steps of a run.
const STEPS: usize = 100;

/// Few, so that documents meet.
const IDS: i32 = 6;

#[test]
fn ttl_r28_no_command_sees_what_the_model_does_not() {
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        let mut history = Vec::new();
        for step in 0..STEPS {
            let what = run.step();
            run.model.sweep();
            history.push(format!("{} {:?}: {what}", run.model.now, run.model.rule));
            let last = history[history.len().saturating_sub(12)..].join("\n");
            run.compare(&format!("seed {seed}, step {step}, after\n{last}"));
        }
    }
}

/// What decides when a document dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Off,
    /// A TTL index on `_ts`: -1, or seconds.
    Written(i32),
    /// A TTL index on `at`.
    Dated(i32),
}

#[derive(Clone, Debug)]
struct Living {
    written: u64,
    body: Document,
}

impl Living {
    fn is_dead(&self, rule: Rule, now: u64) -> bool {
        match rule {
            Rule::Off => false,
            Rule::Written(default) => {
                let own = match self.body.get("ttl") {
                    Some(Bson::Int32(secs)) => Some(i64::from(*secs)),
                    Some(Bson::Int64(secs)) => Some(*secs),
                    Some(Bson::Double(secs)) if secs.fract() == 0.0 => Some(*secs as i64),
                    _ => None,
                };
                let own = own.filter(|secs| *secs == -1 || (1..=2_147_483_647).contains(secs));
                let secs = own.unwrap_or(default.into());
                secs != -1 && self.written + secs.cast_unsigned() <= now
            }
            Rule::Dated(secs) => {
                let dates = match self.body.get("at") {
                    Some(Bson::DateTime(date)) => vec![*date],
                    Some(Bson::Array(list)) => {
                        list.iter().filter_map(Bson::as_datetime).copied().collect()
                    }
                    _ => Vec::new(),
                };
                let earliest = dates.iter().map(|date| date.timestamp_millis()).min();
                earliest.is_some_and(|millis| {
                    millis + i64::from(secs) * 1_000 <= now.cast_signed() * 1_000
                })
            }
        }
    }
}

struct Model {
    now: u64,
    rule: Rule,
    living: BTreeMap<i32, Living>,
}

impl Model {
    fn sweep(&mut self) {
        let (rule, now) = (self.rule, self.now);
        self.living.retain(|_, document| !document.is_dead(rule, now));
    }

    fn pass(&mut self, secs: u64) {
        for _ in 0..secs {
            self.now += 1;
            self.sweep();
        }
    }

    fn put(&mut self, id: i32, body: Document) {
        self.living.insert(id, Living { written: self.now, body });
    }
}

struct Run {
    world: World,
    model: Model,
    random: Rng,
    /// Makes every write one that changes something.
    counter: i32,
}

impl Run {
    fn new(seed: u64) -> Self {
        let world = World::new();
        let now = world.clock.now().0;
        let model = Model { now, rule: Rule::Off, living: BTreeMap::new() };
        let mut run = Self { world, model, random: Rng::with_seed(seed), counter: 0 };
        run.ok(doc! {"create": "c"});
        run.ok(doc! {"createIndexes": "c", "indexes": [{"key": {"n": 1}, "name": "n_1"}]});
        run
    }

    fn ask(&mut self, command: Document) -> Document {
        self.world.ask("d", command).unwrap()
    }

    fn ok(&mut self, command: Document) -> Document {
        let reply = self.ask(command.clone());
        assert!(reply.get_f64("ok").is_ok_and(|ok| ok == 1.0), "{command}: {reply}");
        reply
    }

    /// Fields of a document: a counter, and now and then a ttl and a date.
    fn fields(&mut self) -> Document {
        self.counter += 1;
        let mut fields = doc! {"n": self.counter};
        if self.random.bool() {
            fields.insert("ttl", self.ttl());
        }
        if self.random.bool() {
            fields.insert("at", self.dates());
        }
        fields
    }

    fn ttl(&mut self) -> Bson {
        let secs = self.random.i32(1..20);
        match self.random.u32(0..9) {
            0 | 1 => Bson::Int32(secs),
            2 => Bson::Int64(secs.into()),
            3 => Bson::Double(secs.into()),
            4 => Bson::Int32(-1),
            5 => Bson::Double(f64::from(secs) + 0.5),
            6 => Bson::Int64(2_147_483_648 + i64::from(secs)),
            7 => Bson::Int32(0),
            _ => Bson::String(secs.to_string()),
        }
    }

    fn dates(&mut self) -> Bson {
        let now = self.model.now.cast_signed() * 1_000;
        let mut date =
            || Bson::DateTime(DateTime::from_millis(now + self.random.i64(-8_000..15_000)));
        match date() {
            Bson::DateTime(one) if one.timestamp_millis() % 4 == 0 => {
                Bson::Array(vec![date(), Bson::String("x".into()), date()])
            }
            Bson::DateTime(one) if one.timestamp_millis() % 7 == 0 => {
                Bson::Int64(one.timestamp_millis())
            }
            one => one,
        }
    }

    /// One random step; what it was.
    fn step(&mut self) -> String {
        let id = self.random.i32(0..IDS);
        match self.random.u32(0..20) {
            0..5 => self.insert(id),
            5..9 => self.update(id),
            9 => self.replace(id),
            10 => self.delete(id),
            11..15 => {
                let secs = self.random.u64(1..6);
                self.world.clock.advance(secs);
                self.model.pass(secs);
                format!("advance {secs}")
            }
            15 | 16 => format!("purge {}", self.world.purge()),
            _ => self.change_rule(),
        }
    }

    fn insert(&mut self, id: i32) -> String {
        let mut body = doc! {"_id": id};
        body.extend(self.fields());
        let reply = self.ask(doc! {"insert": "c", "documents": [body.clone()]});
        let taken = self.model.living.contains_key(&id);
        assert_eq!(reply.get_i32("n").ok(), Some(i32::from(!taken)), "insert {body}: {reply}");
        if !taken {
            self.model.put(id, body.clone());
        }
        format!("insert {body}")
    }

    fn update(&mut self, id: i32) -> String {
        let set = self.fields();
        let (upsert, unset) = (self.random.bool(), self.random.bool());
        let mut change = doc! {"$set": set.clone()};
        if unset && !set.contains_key("ttl") {
            change.insert("$unset", doc! {"ttl": ""});
        }
        // By `_id`, or by what has to be looked for.
        let query = match self.random.bool() {
            true => doc! {"_id": id},
            false => doc! {"_id": {"$gte": id, "$lte": id}, "n": {"$gte": 0}},
        };
        let upsert = upsert && query.len() == 1;
        let statement = doc! {"q": query, "u": change.clone(), "upsert": upsert};
        let reply = self.ask(doc! {"update": "c", "updates": [statement]});
        let old = self.model.living.get(&id).map(|old| old.body.clone());
        let matched = old.is_some() || upsert;
        assert_eq!(
            reply.get_i32("n").ok(),
            Some(i32::from(matched)),
            "update {id}: {change}: {reply}"
        );
        assert_eq!(reply.contains_key("upserted"), old.is_none() && upsert, "{reply}");
        if matched {
            let mut body = old.unwrap_or_else(|| doc! {"_id": id});
            body.extend(set);
            if change.contains_key("$unset") {
                body.remove("ttl");
            }
            self.model.put(id, body);
        }
        format!("update {id}: {change}, upsert {upsert}")
    }

    fn replace(&mut self, id: i32) -> String {
        let fields = self.fields();
        let command = doc! {"findAndModify": "c", "query": {"_id": id}, "update": fields.clone(), "new": true};
        let reply = self.ok(command);
        let there = self.model.living.contains_key(&id);
        assert_eq!(reply.get_document("value").is_ok(), there, "replace {id}: {reply}");
        if there {
            let mut body = doc! {"_id": id};
            body.extend(fields.clone());
            self.model.put(id, body);
        }
        format!("replace {id}: {fields}")
    }

    fn delete(&mut self, id: i32) -> String {
        let reply = self.ok(doc! {"delete": "c", "deletes": [{"q": {"_id": id}, "limit": 1}]});
        let there = self.model.living.remove(&id).is_some();
        assert_eq!(reply.get_i32("n").ok(), Some(i32::from(there)), "delete {id}: {reply}");
        format!("delete {id}")
    }

    fn change_rule(&mut self) -> String {
        let secs = self.random.i32(1..12);
        let on_ts = |secs: i32| doc! {"key": {"_ts": 1}, "name": "ttl", "expireAfterSeconds": secs};
        let on_date =
            |secs: i32| doc! {"key": {"at": 1}, "name": "ttl", "expireAfterSeconds": secs};
        let (command, rule) = match (self.model.rule, self.random.u32(0..3)) {
            (Rule::Off, 0) => {
                (doc! {"createIndexes": "c", "indexes": [on_ts(secs)]}, Rule::Written(secs))
            }
            (Rule::Off, 1) => {
                (doc! {"createIndexes": "c", "indexes": [on_ts(-1)]}, Rule::Written(-1))
            }
            (Rule::Off, _) => {
                (doc! {"createIndexes": "c", "indexes": [on_date(secs)]}, Rule::Dated(secs))
            }
            (_, 0) => (doc! {"dropIndexes": "c", "index": "ttl"}, Rule::Off),
            (rule, _) => {
                let index = doc! {"name": "ttl", "expireAfterSeconds": secs};
                let rule = match rule {
                    Rule::Dated(_) => Rule::Dated(secs),
                    _ => Rule::Written(secs),
                };
                (doc! {"collMod": "c", "index": index}, rule)
            }
        };
        self.ok(command.clone());
        self.model.rule = rule;
        command.to_string()
    }

    /// Every way to read gives what the model has.
    fn compare(&mut self, when: &str) {
        let wanted: Vec<Bson> =
            self.model.living.values().map(|one| Bson::Document(one.body.clone())).collect();
        let ids: Vec<Bson> = self.model.living.keys().map(|id| Bson::Int32(*id)).collect();
        let rows = |reply: Document| {
            reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone()
        };
        let sorted = |mut rows: Vec<Bson>| {
            rows.sort_by_key(|row| row.as_document().unwrap().get_i32("_id").unwrap());
            let mut plain = Vec::new();
            for row in rows {
                // Fields in any order: an update appends what is new.
                plain.push(Bson::Document(ordered(row.as_document().unwrap())));
            }
            plain
        };
        let wanted = sorted(wanted);
        let all = self.ok(doc! {"find": "c"});
        assert_eq!(sorted(rows(all)), wanted, "find, {when}");
        let by_index = self.ok(doc! {"find": "c", "filter": {"n": {"$gt": 0}}, "hint": "n_1"});
        assert_eq!(sorted(rows(by_index)), wanted, "find by an index, {when}");
        let count = self.ok(doc! {"count": "c", "query": {"n": {"$gt": 0}}});
        assert_eq!(count.get_i32("n").ok(), Some(wanted.len() as i32), "count, {when}");
        let distinct = self.ok(doc! {"distinct": "c", "key": "_id"});
        assert_eq!(distinct.get_array("values").ok(), Some(&ids), "distinct, {when}");
        let pipeline = [doc! {"$sort": {"_id": 1}}, doc! {"$project": {"_id": 1}}];
        let piped = self.ok(doc! {"aggregate": "c", "pipeline": pipeline.to_vec(), "cursor": {}});
        let named: Vec<Bson> = ids.iter().map(|id| Bson::Document(doc! {"_id": id})).collect();
        assert_eq!(rows(piped), named, "aggregate, {when}");
        let id = self.random.i32(0..IDS);
        let found = self.ok(doc! {"find": "c", "filter": {"_id": id}});
        let there = usize::from(self.model.living.contains_key(&id));
        assert_eq!(rows(found).len(), there, "find {id}, {when}");
    }
}

fn ordered(document: &Document) -> Document {
    let mut fields: Vec<_> = document.iter().collect();
    fields.sort_by_key(|(name, _)| name.as_str());
    fields.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}
