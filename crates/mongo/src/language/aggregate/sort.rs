//! `$sort`, in memory: all of it, or the first few if a limit follows.

use std::vec;

use bson::RawDocumentBuf;

use super::{Stage, Step, Up};
use crate::language::failure::{Failure, Result};
use crate::language::sort::Sort;

#[derive(Debug)]
pub struct Sorting {
    sort: Sort,
    /// How many are wanted at most.
    limit: Option<usize>,
    held: Vec<(Vec<u8>, RawDocumentBuf)>,
    bytes: usize,
    bytes_max: usize,
    results: Option<vec::IntoIter<(Vec<u8>, RawDocumentBuf)>>,
}

impl Sorting {
    pub fn new(sort: Sort, limit: Option<usize>, bytes_max: usize) -> Self {
        Self { sort, limit, held: Vec::new(), bytes: 0, bytes_max, results: None }
    }

    fn take(&mut self, document: RawDocumentBuf) -> Result<()> {
        let key = self.sort.key(&document);
        self.bytes += key.len() + document.as_bytes().len() + 48;
        self.held.push((key, document));
        if let Some(limit) = self.limit
            && self.held.len() >= limit.saturating_mul(2).max(64)
        {
            self.order();
            self.held.truncate(limit);
            self.bytes =
                self.held.iter().map(|(key, each)| key.len() + each.as_bytes().len() + 48).sum();
        }
        if self.bytes > self.bytes_max {
            return Err(Failure::coded(
                292,
                format!(
                    "Sort exceeded memory limit of {} bytes, but did not opt in to external sorting. Sort by an index, or limit the result.",
                    self.bytes_max
                ),
            ));
        }
        Ok(())
    }

    fn order(&mut self) {
        // Stable, so equal ones stay in the order in which they came.
        self.held.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
}

impl Stage for Sorting {
    fn sort(&self) -> Option<&Sort> {
        Some(&self.sort)
    }

    fn next(&mut self, up: &mut Up<'_>) -> Result<Step> {
        loop {
            if let Some(results) = &mut self.results {
                return Ok(results.next().map_or(Step::Done, |(_, each)| Step::Document(each)));
            }
            match up()? {
                Step::Document(document) => self.take(document)?,
                Step::Done => {
                    self.order();
                    if let Some(limit) = self.limit {
                        self.held.truncate(limit);
                    }
                    self.results = Some(std::mem::take(&mut self.held).into_iter());
                }
                other => return Ok(other),
            }
        }
    }
}
