//! `$facet`: several pipelines over the same documents, their results side by side in one document.

use bson::{RawArrayBuf, RawDocumentBuf};

use super::flow::exceeded;
use super::{Pipeline, Stage, Step, Up};
use crate::language::failure::Result;
use crate::language::projection::field_name;

#[derive(Debug)]
pub struct Facet {
    branches: Vec<Branch>,
    held: Vec<RawDocumentBuf>,
    bytes: usize,
    bytes_max: usize,
    /// Which branch runs, once all documents are there.
    running: Option<usize>,
    done: bool,
}

#[derive(Debug)]
struct Branch {
    name: String,
    pipeline: Pipeline,
    fed: usize,
    results: RawArrayBuf,
}

impl Facet {
    pub fn new(branches: Vec<(String, Pipeline)>, bytes_max: usize) -> Self {
        let branches = branches
            .into_iter()
            .map(|(name, pipeline)| Branch { name, pipeline, fed: 0, results: RawArrayBuf::new() })
            .collect();
        Self { branches, held: Vec::new(), bytes: 0, bytes_max, running: None, done: false }
    }

    /// Runs the branches one after the other; stops where one needs another collection.
    fn run(&mut self) -> Result<Step> {
        while let Some(branch) = self.running.and_then(|at| self.branches.get_mut(at)) {
            match branch.pipeline.step()? {
                Step::Document(document) => {
                    self.bytes += document.as_bytes().len();
                    if self.bytes > self.bytes_max {
                        return Err(exceeded("$facet"));
                    }
                    branch.results.push(&*document);
                }
                Step::Input => match self.held.get(branch.fed) {
                    Some(document) => {
                        branch.fed += 1;
                        branch.pipeline.feed(document.clone());
                    }
                    None => branch.pipeline.end(),
                },
                Step::Foreign(foreign) => return Ok(Step::Foreign(foreign)),
                Step::Done => self.running = self.running.map(|at| at + 1),
            }
        }
        self.done = true;
        let mut out = RawDocumentBuf::new();
        for branch in self.branches.drain(..) {
            out.append(field_name(&branch.name)?, branch.results);
        }
        Ok(Step::Document(out))
    }
}

impl Stage for Facet {
    fn next(&mut self, up: &mut Up<'_>) -> Result<Step> {
        if self.done {
            return Ok(Step::Done);
        }
        while self.running.is_none() {
            match up()? {
                Step::Document(document) => {
                    self.bytes += document.as_bytes().len() + 64;
                    if self.bytes > self.bytes_max {
                        return Err(exceeded("$facet"));
                    }
                    self.held.push(document);
                }
                Step::Done => self.running = Some(0),
                other => return Ok(other),
            }
        }
        self.run()
    }

    fn supply(&mut self, documents: Vec<RawDocumentBuf>) -> Option<Vec<RawDocumentBuf>> {
        match self.running.and_then(|at| self.branches.get_mut(at)) {
            Some(branch) => {
                branch.pipeline.supply(documents);
                None
            }
            None => Some(documents),
        }
    }
}
