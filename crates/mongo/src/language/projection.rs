//! Projections: which fields of a document a client gets, and what is computed besides.
//!
//! `find`'s projection, `$project`, `$addFields` and `$unset` are one tree ([`Tree`]) that is laid over a raw document: fields that
//! it does not touch are copied as bytes.

mod parse;

use bson::raw::CString;
use bson::{Bson, RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::expression::Expression;
use super::failure::{Failure, Result};
use super::filter::Filter;
use super::value::raw;
use super::vars::Vars;

/// The projection of a `find`.
#[derive(Clone, Debug)]
pub struct Projection {
    tree: Tree,
    positional: bool,
}

/// What happens to the fields of a document.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// Whether fields that are not named stay.
    keep_rest: bool,
    /// Whether something in here is computed, so that it comes to be where it is missing.
    computes: bool,
    children: Vec<(String, Child)>,
}

#[derive(Clone, Debug)]
enum Child {
    Keep,
    Drop,
    Inner(Tree),
    Computed(Expression),
    Slice {
        skip: Option<i64>,
        limit: i64,
    },
    /// The first element that matches; a filter on a field called as the child.
    ElementMatch(Filter),
    /// The element that the filter matched.
    Positional,
}

impl Projection {
    /// Reads the projection of a `find`. The empty one gives whole documents.
    pub fn parse(spec: &RawDocument, vars: &Vars) -> Result<Self> {
        let (tree, positional) = parse::find(spec, vars)?;
        Ok(Self { tree, positional })
    }

    /// Whether it needs to know which element the filter matched ([`Filter::matches_at`]).
    pub fn is_positional(&self) -> bool {
        self.positional
    }

    /// The document as the client gets it. `position` is what `$` stands for.
    pub fn apply(&self, document: &RawDocument, position: Option<usize>) -> Result<RawDocumentBuf> {
        self.tree.lay_over(document, document, position)
    }
}

impl Tree {
    /// `$project`.
    pub fn project(spec: &RawDocument, vars: &Vars) -> Result<Self> {
        parse::project(spec, vars)
    }

    /// `$addFields` and `$set`.
    pub fn add_fields(spec: &RawDocument, vars: &Vars, stage: &str) -> Result<Self> {
        parse::add_fields(spec, vars, stage)
    }

    /// `$unset`.
    pub fn unset(paths: &[&str]) -> Result<Self> {
        parse::unset(paths)
    }

    /// The document after the projection.
    pub fn apply(&self, document: &RawDocument) -> Result<RawDocumentBuf> {
        self.lay_over(document, document, None)
    }

    fn child(&self, name: &str) -> Option<(usize, &Child)> {
        self.children
            .iter()
            .enumerate()
            .find(|(_, (known, _))| known == name)
            .map(|(at, (_, child))| (at, child))
    }

    /// Lays the tree over a document, which is all of `root` or a part of it.
    fn lay_over(
        &self,
        document: &RawDocument,
        root: &RawDocument,
        position: Option<usize>,
    ) -> Result<RawDocumentBuf> {
        let mut out = RawDocumentBuf::new();
        let mut done = vec![false; self.children.len()];
        for element in document.iter_elements() {
            let element = element?;
            let name = element.key();
            let Some((at, child)) = self.child(name.as_str()) else {
                if self.keep_rest {
                    out.append(name, element.value()?);
                }
                continue;
            };
            match child {
                Child::Keep => out.append(name, element.value()?),
                Child::Drop => {}
                // What is computed comes last where fields are chosen, and in place where they stay.
                Child::Computed(_) if !self.keep_rest => continue,
                Child::Computed(expression) => match expression.value(root)? {
                    Bson::Undefined => {}
                    value => out.append(name, raw(value)?),
                },
                Child::Inner(tree) => {
                    if let Some(value) = tree.over_value(element.value()?, root, position)? {
                        out.append(name, value);
                    }
                }
                Child::Slice { skip, limit } => match element.value()? {
                    RawBsonRef::Array(array) => out.append(name, sliced(array, *skip, *limit)),
                    other => out.append(name, other),
                },
                Child::ElementMatch(filter) => {
                    if let RawBsonRef::Array(array) = element.value()? {
                        let mut wrapped = RawDocumentBuf::new();
                        wrapped.append(name, array);
                        if let (true, Some(at)) = filter.matches_at(&wrapped)? {
                            out.append(name, nth(array, at)?);
                        }
                    }
                }
                Child::Positional => match element.value()? {
                    RawBsonRef::Array(array) => {
                        let found = position.map(|at| nth(array, at)).transpose()?;
                        match found.filter(|found| !found.is_empty()) {
                            Some(found) => out.append(name, found),
                            None => {
                                return Err(Failure::coded(
                                    51246,
                                    "Executor error during find command :: caused by :: positional operator '.$' couldn't find a matching element in the array",
                                ));
                            }
                        }
                    }
                    other => out.append(name, other),
                },
            }
            done[at] = true;
        }
        for ((name, child), done) in self.children.iter().zip(done) {
            if done {
                continue;
            }
            match child {
                Child::Computed(expression) => match expression.value(root)? {
                    Bson::Undefined => {}
                    value => out.append(field_name(name)?, raw(value)?),
                },
                Child::Inner(tree) if tree.computes => {
                    let inner = tree.lay_over(RawDocumentBuf::new().as_ref(), root, position)?;
                    out.append(field_name(name)?, &*inner);
                }
                _ => {}
            }
        }
        Ok(out)
    }

    /// Lays the tree over a field's value; none if nothing of it is left.
    fn over_value(
        &self,
        value: RawBsonRef<'_>,
        root: &RawDocument,
        position: Option<usize>,
    ) -> Result<Option<RawBson>> {
        let laid = |document: &RawDocument| -> Result<Option<RawBson>> {
            Ok(Some(RawBson::Document(self.lay_over(document, root, position)?)))
        };
        match value {
            RawBsonRef::Document(inner) => laid(inner),
            RawBsonRef::Array(array) => {
                let mut out = RawArrayBuf::new();
                for value in array {
                    if let Some(value) = self.over_value(value?, root, position)? {
                        out.push(value);
                    }
                }
                Ok(Some(RawBson::Array(out)))
            }
            _ if self.computes => laid(&RawDocumentBuf::new()),
            other if self.keep_rest => Ok(Some(other.into())),
            _ => Ok(None),
        }
    }
}

/// A field's name, which cannot hold a zero byte.
pub(crate) fn field_name(name: &str) -> Result<CString> {
    Ok(CString::try_from(name)?)
}

fn nth(array: &RawArray, at: usize) -> Result<RawArrayBuf> {
    let mut out = RawArrayBuf::new();
    if let Some(value) = array.into_iter().nth(at) {
        out.push(value?);
    }
    Ok(out)
}

fn sliced(array: &RawArray, skip: Option<i64>, limit: i64) -> RawArrayBuf {
    let len = array.into_iter().count() as i64;
    let (start, count) = match skip {
        None if limit < 0 => ((len + limit).max(0), -limit),
        None => (0, limit),
        Some(skip) if skip < 0 => ((len + skip).max(0), limit),
        Some(skip) => (skip, limit),
    };
    let mut out = RawArrayBuf::new();
    for value in array.into_iter().flatten().skip(start as usize).take(count as usize) {
        out.push(value);
    }
    out
}
