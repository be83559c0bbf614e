//! Filters: the conditions of `find`, `$match`, `delete` and the rest.
//!
//! [`Filter::parse`] checks a filter once and turns it into a tree; [`Filter::matches`] walks raw documents with it and decodes
//! only what it compares. [`Filter::bounds`] tells the planner where on an index the matches lie, [`Filter::equalities`] what an
//! upsert starts from.

mod bounds;
mod operators;
mod parse;
mod schema;
mod test;

use bson::{RawBson, RawDocument};
use model::cells::Cell;

pub(crate) use bounds::after;
pub use bounds::{Bounds, Interval};
pub use operators::{Bits, Comparison, Kinds, Mask};

use super::collation::Collation;
use super::expression::Expression;
use super::failure::Result;
use super::geo::{Near, Region};
use super::path::Path;
use super::pattern::Pattern;
use super::vars::Vars;
use schema::Schema;

/// A condition on documents.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Node,
    collation: Option<Collation>,
}

/// The tree of a filter.
#[derive(Clone, Debug)]
enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    None(Vec<Node>),
    Not(Box<Node>),
    /// A test of the values at a path: one must pass.
    Path(Path, Test),
    Expression(Box<Expression>),
    Schema(Box<Schema>),
    Constant(bool),
    Sample(f64),
    /// `$near` and `$nearSphere`: within the distances. Whoever finds also sorts by distance.
    Near(Path, Near),
}

impl Node {
    /// Whether it asks for one `_id`.
    fn is_id(&self) -> bool {
        matches!(self, Self::Path(path, Test::Compare(operators::Comparison::Equal, _)) if path.as_str() == "_id")
    }
}

/// A test of one value.
#[derive(Clone, Debug)]
enum Test {
    Compare(Comparison, RawBson),
    In {
        values: Vec<RawBson>,
        patterns: Vec<Pattern>,
    },
    Pattern(Pattern),
    Exists,
    Type(Kinds),
    Mod {
        divisor: i64,
        remainder: i64,
    },
    Bits(Bits, Mask),
    /// Asks of an array as a whole.
    Size(i64),
    /// An array with an element that is a document and matches.
    ElementMatches(Box<Node>),
    /// An array with an element that passes (or fails, where it says so) all these.
    ElementPasses(Vec<(bool, Test)>),
    /// All these of one value.
    Together(Vec<(bool, Test)>),
    Geo(Region),
}

impl Filter {
    /// Reads a filter; the empty one matches everything.
    pub fn parse(filter: &RawDocument, vars: &Vars) -> Result<Self> {
        let root = parse::filter(filter, vars, true)?;
        Ok(Self { root, collation: vars.collation.clone() })
    }

    /// Whether a document matches. Only an expression that cannot be computed fails.
    pub fn matches(&self, document: &RawDocument) -> Result<bool> {
        test::node(&self.root, document, &mut test::Seen::new(self.collation.as_ref()))
    }

    /// Whether a document matches, and which element of an array did: what `$` in a path stands for.
    pub fn matches_at(&self, document: &RawDocument) -> Result<(bool, Option<usize>)> {
        let mut seen = test::Seen::new(self.collation.as_ref());
        let matched = test::node(&self.root, document, &mut seen)?;
        Ok((matched, seen.position.filter(|_| matched)))
    }

    /// Whether there is no condition at all.
    pub fn is_empty(&self) -> bool {
        matches!(&self.root, Node::All(all) if all.is_empty())
    }

    /// Where on an index the matches lie, by path. Every document that matches has a key in each of these.
    pub fn bounds(&self) -> Vec<Bounds> {
        bounds::of(&self.root, self.collation.as_ref())
    }

    /// What matching documents must equal: `{a: 1}`, `{a: {$eq: 1}}`, `{a: {$in: [1]}}`, also inside `$and`.
    pub fn equalities(&self) -> Vec<(&str, &RawBson)> {
        let mut found = Vec::new();
        bounds::equalities(&self.root, &mut found);
        found
    }

    /// Whether all that it asks is that `_id` equals one value.
    pub fn is_id_only(&self) -> bool {
        match &self.root {
            Node::All(nodes) => matches!(&nodes[..], [node] if node.is_id()),
            node => node.is_id(),
        }
    }

    /// The `$near` or `$nearSphere` of the filter: matches are to be sorted by its distance.
    pub fn near(&self) -> Option<(&str, &Near)> {
        fn within(node: &Node) -> Option<(&str, &Near)> {
            match node {
                Node::Near(path, near) => Some((path.as_str(), near)),
                Node::All(nodes) => nodes.iter().find_map(within),
                _ => None,
            }
        }
        within(&self.root)
    }

    /// That something is near, and another condition.
    pub(crate) fn near_and(path: &Path, near: &Near, rest: Option<&Self>) -> Self {
        let mut nodes = vec![Node::Near(path.clone(), near.clone())];
        nodes.extend(rest.map(|rest| rest.root.clone()));
        Self { root: Node::All(nodes), collation: rest.and_then(|rest| rest.collation.clone()) }
    }

    /// The cells of the world in which matches lie, by path: each match has a geometry there.
    pub fn cells(&self) -> Vec<(&str, Vec<Cell>)> {
        fn within<'a>(node: &'a Node, out: &mut Vec<(&'a str, Vec<Cell>)>) {
            let (path, cells) = match node {
                Node::Near(path, near) => (path, near.cells()),
                Node::Path(path, Test::Geo(region)) => (path, region.cells()),
                Node::All(nodes) => return nodes.iter().for_each(|node| within(node, out)),
                _ => return,
            };
            out.extend(cells.map(|cells| (path.as_str(), cells)));
        }
        let mut out = Vec::new();
        within(&self.root, &mut out);
        out
    }

    /// The value that `_id` must equal, if the filter says so: a point read.
    pub fn id(&self) -> Option<&RawBson> {
        self.equalities().into_iter().find(|(path, _)| *path == "_id").map(|(_, value)| value)
    }
}

/// Tests of a bare value, outside any document: what `$pull` and array filters apply to elements.
#[derive(Clone, Debug)]
pub struct ElementFilter {
    node: Node,
    collation: Option<Collation>,
}

impl ElementFilter {
    /// Reads `{$gte: 5}` and the like: operators on the element itself.
    pub fn parse_operators(operators: &RawDocument, vars: &Vars) -> Result<Self> {
        let mut nodes = Vec::new();
        parse::operators(&Path::new(""), operators, vars, &mut nodes)?;
        Ok(Self { node: Node::All(nodes), collation: vars.collation.clone() })
    }

    /// Whether a value passes.
    pub fn passes(&self, value: bson::RawBsonRef<'_>) -> Result<bool> {
        let mut wrapped = bson::RawDocumentBuf::new();
        wrapped.append(bson::raw::cstr!(""), value);
        test::node(&self.node, &wrapped, &mut test::Seen::new(self.collation.as_ref()))
    }
}
