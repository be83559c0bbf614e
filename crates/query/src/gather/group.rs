//! GROUP BY: for each combination of keys, the aggregates so far.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::Value as Json;

use super::aggregate::Accumulator;
use super::{Held, ROW_BYTES, short};
use crate::error::Result;
use crate::eval::Env;
use crate::expr::Group;
use crate::value::Value;

/// The groups so far, by the sortable form of their keys; they come out in that order.
#[derive(Debug, Default)]
pub struct Groups(HashMap<Vec<u8>, State>);

#[derive(Debug)]
struct State {
    keys: Vec<Option<Json>>,
    accumulators: Vec<Accumulator>,
}

impl State {
    fn new(group: &Group, keys: &[Value<'_>]) -> Self {
        let aggregates = group.aggregates.iter();
        Self {
            keys: keys.iter().map(Value::to_json).collect(),
            accumulators: aggregates.map(|a| Accumulator::new(a.function)).collect(),
        }
    }
}

impl Groups {
    /// Takes in the row that `env` shows.
    pub fn add<'a>(&mut self, group: &'a Group, env: &mut Env<'a>, held: &mut Held) -> Result<()> {
        let keys = group.keys.iter().map(|key| env.eval(key)).collect::<Result<Vec<_>>>()?;
        let mut encoded = Vec::new();
        keys.iter().for_each(|key| key.write_key(&mut encoded));
        let state = match self.0.entry(encoded) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let size = entry.key().len() * 3 + ROW_BYTES * (1 + group.aggregates.len());
                held.add("group", size)?;
                entry.insert(State::new(group, &keys))
            }
        };
        for (accumulator, aggregate) in state.accumulators.iter_mut().zip(&group.aggregates) {
            held.add("group", accumulator.add(&env.eval(&aggregate.argument)?))?;
        }
        Ok(())
    }

    /// Takes in so many rows of a query without GROUP BY that only counts.
    pub fn count(&mut self, group: &Group, rows: u64) {
        let state = self.0.entry(Vec::new()).or_insert_with(|| State::new(group, &[]));
        for accumulator in &mut state.accumulators {
            if let Accumulator::Count { count, .. } = accumulator {
                *count += rows;
            }
        }
    }

    /// The place, keys and aggregates of each group; without GROUP BY there is always one.
    pub fn finish<'a>(
        mut self,
        group: &Group,
    ) -> impl Iterator<Item = (Vec<u8>, Vec<Value<'a>>, Vec<Value<'a>>)> + use<'a> {
        if group.keys.is_empty() && self.0.is_empty() {
            self.0.insert(Vec::new(), State::new(group, &[]));
        }
        let mut groups: Vec<_> =
            self.0.into_iter().map(|(key, state)| (short(key), state)).collect();
        groups.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        groups.into_iter().map(|(place, State { keys, accumulators })| {
            let keys = keys.into_iter().map(|key| key.map_or(Value::Undefined, Value::built));
            let results = accumulators.into_iter().map(Accumulator::result);
            (place, keys.collect(), results.collect())
        })
    }
}
