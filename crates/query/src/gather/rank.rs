//! ORDER BY RANK: rows by how well they match, once it is known how common the search terms are.
//!
//! The statistics behind a full-text score are those of all items that were pushed, also of those
//! that WHERE then drops. Several scores are fused by reciprocal ranks: a row's result is the sum of
//! `weight / (60 + rank)` over its places in the order of each score.
//!
//! What a row's result is measured by (the statistics, and which score has which rank) is taken at the first page and kept for the later ones, so
//! that the order of rows stays what it was, whatever has come or gone meanwhile. For that to be small, only the first ranks are told apart one
//! by one; from then on, the larger they are the more of them count as one ([`Ladder`]).

use super::sort::{Row, append_sort_key};
use super::{Held, ROW_BYTES};
use crate::error::Result;
use crate::eval::Env;
use crate::expr::{Rank, Score};
use crate::functions::full_text::{Statistics, occurrences, words};

/// Softens how much the first few ranks count for.
const FUSION: f64 = 60.0;

/// What one score needs to know of an item.
#[derive(Clone, Debug)]
enum Sample {
    /// How often each term occurs, and how many words there are.
    Text(Vec<u64>, u64),
    /// The number itself, larger being better.
    Number(Option<f64>),
}

/// The rows to rank.
#[derive(Debug, Default)]
pub struct Ranker {
    /// For each score.
    statistics: Vec<Statistics>,
    /// For each score, if there are several.
    ladders: Vec<Ladder>,
    /// Whether these are those of an earlier page.
    measured: bool,
    current: Vec<Sample>,
    rows: Vec<(Vec<Sample>, Row)>,
}

impl Ranker {
    /// Looks at an item before WHERE.
    pub fn observe<'a>(&mut self, rank: &'a Rank, env: &mut Env<'a>) -> Result<()> {
        self.statistics.resize(rank.scores.len(), Statistics::default());
        self.current.clear();
        for (score, statistics) in rank.scores.iter().zip(&mut self.statistics) {
            self.current.push(match score {
                Score::FullText { text, terms } => {
                    let text = env.eval(text)?.as_str().map(words).unwrap_or_default();
                    let counts: Vec<u64> = terms.iter().map(|t| occurrences(&text, t)).collect();
                    if !self.measured {
                        statistics.add(&counts, text.len() as u64);
                    }
                    Sample::Text(counts, text.len() as u64)
                }
                Score::Vector { call, smaller_is_better } => {
                    let number = env.eval(call)?.as_f64();
                    Sample::Number(number.map(|n| if *smaller_is_better { -n } else { n }))
                }
            });
        }
        Ok(())
    }

    /// Takes in a row of the item last looked at.
    pub fn add(&mut self, row: Row, held: &mut Held) -> Result<()> {
        held.add("rank", row.text.len() + ROW_BYTES * (1 + self.current.len()))?;
        self.rows.push((self.current.clone(), row));
        Ok(())
    }

    /// The rows, each with its result as the first of its keys, so that the best sorts first.
    pub fn take(&mut self, rank: &Rank) -> Vec<Row> {
        let rows = std::mem::take(&mut self.rows);
        if rank.scores.len() > 1 && !self.measured {
            let ladder = |(n, weight): (usize, &f64)| {
                let scores = rows.iter().map(|(samples, _)| self.score(n, &samples[n], *weight));
                Ladder::new(scores.collect())
            };
            self.ladders = rank.weights.iter().enumerate().map(ladder).collect();
        }
        let result = |samples: &[Sample]| match &self.ladders[..] {
            [] => self.score(0, &samples[0], 1.0),
            ladders => {
                let scores = rank.weights.iter().enumerate().map(|(n, weight)| {
                    let rank = ladders[n].rank(self.score(n, &samples[n], *weight));
                    weight.abs() / (FUSION + rank as f64)
                });
                scores.sum()
            }
        };
        let keyed = |(samples, mut row): (Vec<Sample>, Row)| {
            let mut key = Vec::new();
            append_sort_key(&result(&samples).into(), true, &mut key);
            key.append(&mut row.position.key);
            row.position.key = key;
            row
        };
        rows.into_iter().map(keyed).collect()
    }

    /// Larger is better: a negative weight turns the order of its score around.
    fn score(&self, n: usize, sample: &Sample, weight: f64) -> f64 {
        match sample {
            Sample::Text(counts, length) => {
                weight.signum() * self.statistics[n].score(counts, *length)
            }
            Sample::Number(number) => {
                number.map_or(f64::NEG_INFINITY, |number| weight.signum() * number)
            }
        }
    }

    /// What the results were measured by, as bytes.
    pub fn measure(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for Statistics { documents, words, hits } in &self.statistics {
            [*documents, *words, hits.len() as u64]
                .iter()
                .chain(hits)
                .for_each(|n| write(*n, &mut out));
        }
        for Ladder(steps) in &self.ladders {
            write(steps.len() as u64, &mut out);
            steps.iter().for_each(|step| out.extend(step.to_bits().to_be_bytes()));
        }
        out
    }

    /// Measures by what an earlier page has measured by, of a query with so many scores.
    pub fn measure_by(&mut self, scores: usize, mut bytes: &[u8]) {
        let mut read = || -> Option<(Vec<Statistics>, Vec<Ladder>)> {
            let statistics = (0..scores).map(|_| {
                let (documents, words, count) =
                    (take(&mut bytes)?, take(&mut bytes)?, take(&mut bytes)?);
                let hits = (0..count).map(|_| take(&mut bytes)).collect::<Option<_>>()?;
                Some(Statistics { documents, words, hits })
            });
            let statistics = statistics.collect::<Option<_>>()?;
            let mut ladders = Vec::new();
            while !bytes.is_empty() {
                let steps = (0..take(&mut bytes)?).map(|_| {
                    let (step, rest) = bytes.split_first_chunk()?;
                    bytes = rest;
                    Some(f64::from_bits(u64::from_be_bytes(*step)))
                });
                ladders.push(Ladder(steps.collect::<Option<_>>()?));
            }
            Some((statistics, ladders))
        };
        if let Some((statistics, ladders)) = read() {
            (self.statistics, self.ladders, self.measured) = (statistics, ladders, true);
        }
    }
}

/// Which scores have which rank: the best score of each rank that is told apart, best first. Equal scores have the same rank, as in the SDKs
/// that fuse by themselves.
#[derive(Clone, Debug, Default)]
struct Ladder(Vec<f64>);

/// As many ranks are told apart one by one; of the others, each stands for an eighth more than itself.
const RANKS_APART: u64 = 64;

impl Ladder {
    fn new(mut scores: Vec<f64>) -> Self {
        scores.sort_unstable_by(|a, b| b.total_cmp(a));
        scores.dedup();
        let mut steps = Vec::new();
        let mut rank = 1;
        while let Some(score) = scores.get(rank as usize - 1) {
            steps.push(*score);
            rank = next(rank);
        }
        Self(steps)
    }

    /// The rank of a score: that of the first step that is no better.
    fn rank(&self, score: f64) -> u64 {
        let better = self.0.partition_point(|step| *step > score);
        (0..better).fold(1, |rank, _| next(rank))
    }
}

/// The next rank that is told apart.
fn next(rank: u64) -> u64 {
    rank + if rank < RANKS_APART { 1 } else { rank / 8 }
}

/// A number in as few bytes as it needs, seven bits each, the last without a mark.
fn write(mut number: u64, out: &mut Vec<u8>) {
    while number > 0x7F {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
