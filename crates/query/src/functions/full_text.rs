//! Full-text search: FULLTEXTCONTAINS and the BM25 score behind ORDER BY RANK.
//!
//! A text is its words: runs of letters and digits, in lower case. There is no stemming and no list
//! of words to ignore. A search term of several words is a phrase and must be found as such.

use super::{Function, Host, MANY, joined, pure};
use crate::value::Value;

/// The family's table. FULLTEXTSCORE itself stands only in ORDER BY RANK.
pub const FUNCTIONS: &[Function] = &[
    pure("FULLTEXTCONTAINS", (2, 2), |_, args| contains(args, true)),
    pure("FULLTEXTCONTAINSALL", (2, MANY), |_, args| contains(args, true)),
    pure("FULLTEXTCONTAINSANY", (2, MANY), |_, args| contains(args, false)),
    pure("_FULLTEXTSCORE", (5, 5), score_with_statistics),
    pure("_FULLTEXTWORDCOUNT", (1, 1), |_, args| {
        args[0].as_str().map(|text| words(text).len() as i64).into()
    }),
];

/// The words of a text.
pub fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// How often a phrase stands in a text.
pub fn occurrences(text: &[String], phrase: &[String]) -> u64 {
    if phrase.is_empty() {
        return 0;
    }
    text.windows(phrase.len()).filter(|window| *window == phrase).count() as u64
}

fn contains<'a>(args: &[Value<'a>], all: bool) -> Value<'a> {
    let Some(text) = args[0].as_str().map(words) else { return Value::Undefined };
    let found = |term: &Value<'_>| Some(occurrences(&text, &words(term.as_str()?)) > 0);
    joined(args[1..].iter().map(found), all)
}

/// What is known of all texts, against which one is scored.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// How many texts.
    pub documents: u64,
    /// How many words they have together.
    pub words: u64,
    /// How many texts have each term.
    pub hits: Vec<u64>,
}

impl Statistics {
    /// Takes in a text of this length, with each term so many times.
    pub fn add(&mut self, counts: &[u64], length: u64) {
        self.hits.resize(counts.len(), 0);
        self.documents += 1;
        self.words += length;
        for (hits, count) in self.hits.iter_mut().zip(counts) {
            *hits += u64::from(*count > 0);
        }
    }

    /// BM25: how well a text of this length, with each term so many times, answers the search.
    pub fn score(&self, counts: &[u64], length: u64) -> f64 {
        const SATURATION: f64 = 1.2;
        const LENGTH_WEIGHT: f64 = 0.75;
        let documents = self.documents as f64;
        let average = (self.words as f64 / documents.max(1.0)).max(1.0);
        let relative = 1.0 - LENGTH_WEIGHT + LENGTH_WEIGHT * length as f64 / average;
        let terms = counts.iter().zip(&self.hits).map(|(count, hits)| {
            let (count, hits) = (*count as f64, *hits as f64);
            let rarity = (1.0 + ((documents - hits).max(0.0) + 0.5) / (hits + 0.5)).ln();
            rarity * count * (SATURATION + 1.0) / (count + SATURATION * relative)
        });
        terms.sum()
    }
}

/// The score with statistics that the client gathered: the text, the terms, how many texts, how
/// many words, and in how many texts each term is.
fn score_with_statistics<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let count = |value: &Value<'a>| value.as_f64().filter(|n| *n >= 0.0).map(|n| n as u64);
    let hits = args[4].elements().map(|all| all.filter_map(|n| count(&n)).collect());
    let (Some(terms), Some(documents), Some(all_words), Some(hits)) =
        (args[1].elements(), count(&args[2]), count(&args[3]), hits)
    else {
        return Value::Undefined;
    };
    let Some(text) = args[0].as_str().map(words) else { return Value::Undefined };
    let counts: Vec<u64> =
        terms.map(|term| occurrences(&text, &words(term.as_str().unwrap_or_default()))).collect();
    let statistics = Statistics { documents, words: all_words, hits };
    statistics.score(&counts, text.len() as u64).into()
}
