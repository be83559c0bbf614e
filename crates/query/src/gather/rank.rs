//! ORDER BY RANK: rows by how well they match, once it is known how common the search terms are.
//!
//! The statistics behind a full-text score are those of all items that were pushed, also of those
//! that WHERE then drops. Several scores are fused by reciprocal ranks: a row's result is the sum of
//! `weight / (60 + rank)` over its places in the order of each score.

use super::sort::Row;
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
    statistics: Vec<Statistics>,
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
                    statistics.hits.resize(terms.len(), 0);
                    statistics.documents += 1;
                    statistics.words += text.len() as u64;
                    for (hits, count) in statistics.hits.iter_mut().zip(&counts) {
                        *hits += u64::from(*count > 0);
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

    /// The rows, best first; equal ones in the order of their items.
    pub fn take(&mut self, rank: &Rank) -> Vec<Row> {
        let rows = std::mem::take(&mut self.rows);
        let scores = |n: usize| -> Vec<f64> {
            rows.iter().map(|(samples, _)| self.score(n, &samples[n])).collect()
        };
        let results = match rank.scores.len() {
            1 => scores(0),
            count => {
                let mut fused = vec![0.0; rows.len()];
                for (n, weight) in (0..count).zip(&rank.weights) {
                    // A negative weight turns the order of its score around.
                    let scores = scores(n).into_iter().map(|score| score * weight.signum());
                    for (row, rank) in ranks(&scores.collect::<Vec<_>>()).iter().enumerate() {
                        fused[row] += weight.abs() / (FUSION + *rank as f64);
                    }
                }
                fused
            }
        };
        let order = ranking(&results);
        let mut rows: Vec<Option<Row>> = rows.into_iter().map(|(_, row)| Some(row)).collect();
        order.into_iter().filter_map(|n| rows[n].take()).collect()
    }

    fn score(&self, n: usize, sample: &Sample) -> f64 {
        match sample {
            Sample::Text(counts, length) => self.statistics[n].score(counts, *length),
            Sample::Number(number) => number.unwrap_or(f64::NEG_INFINITY),
        }
    }
}

/// The rank of each score, the best being the first; equal ones have the same, as in the SDKs that fuse by themselves.
fn ranks(scores: &[f64]) -> Vec<usize> {
    let mut ranks = vec![0; scores.len()];
    let (mut rank, mut last) = (0, None);
    for n in ranking(scores) {
        rank += usize::from(last != Some(scores[n]));
        last = Some(scores[n]);
        ranks[n] = rank;
    }
    ranks
}

/// The numbers of the scores, best first, equal ones as they came.
fn ranking(scores: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order
}
