//! What a page of a query took, and which indexes serve a query or would.

use std::time::Duration;

use query::Plan;
use query::plan::{Condition, OrderPath};

use crate::access::{index_path, spatial_index};
use crate::index::Composite;
use crate::order;
use crate::{Container, Db, QueryRequest, Result, Scope, Settings};

/// What a page took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// How its items came.
    pub how: How,
    /// Whether they, or their rows, were then sorted.
    pub sorted: bool,
    /// From the request to the page.
    pub total: Duration,
    /// To read and check the query's text, part of the total.
    pub compile: Duration,
    /// Items read, dead ones included.
    pub items: usize,
    /// Their bytes.
    pub item_bytes: usize,
    /// Index entries read.
    pub entries: usize,
    /// Rows in the page.
    pub rows: usize,
    /// Their bytes.
    pub row_bytes: usize,
}

/// How the items of a query came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum How {
    /// All items of the scope were read.
    #[default]
    Scanned,
    /// An index named them.
    ByIndex,
    /// An index gave them in the order that the query asks for.
    InOrder,
    /// They did not: an index counted them.
    Counted,
}

/// Which indexes a query uses, and which it could if there were any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexUse {
    /// Paths such as `/a/?` that are indexed.
    pub single: Vec<String>,
    /// The same that are not.
    pub single_missing: Vec<String>,
    /// Paths such as `/place/*` with a spatial index.
    pub spatial: Vec<String>,
    /// The same that have none.
    pub spatial_missing: Vec<String>,
    /// Composite indexes: `/a ASC`, `/b DESC`.
    pub composite: Vec<Vec<String>>,
    /// The same that are not there.
    pub composite_missing: Vec<Vec<String>>,
    /// What the query asks of the items, for people.
    pub plan: String,
}

impl Db {
    /// Which indexes a query uses, and which would help it.
    pub fn index_use(&self, container: &Container, query: &QueryRequest) -> Result<IndexUse> {
        let compiled = self.compiled(container, query)?;
        let settings = container.runtime.settings();
        let mut found = IndexUse::of(&settings, &compiled.plan());
        if let Scope::Key(key) = &query.scope {
            // A partition key is a condition like any other.
            for path in settings.partition_key.paths.iter().take(key.0.len()) {
                found.add_path(&settings, &query::plan::scalar_path(path.segments()));
            }
        }
        Ok(found)
    }
}

impl IndexUse {
    fn of(settings: &Settings, plan: &Plan) -> Self {
        let mut found = Self { plan: plan.to_string(), ..Self::default() };
        found.add_condition(settings, &plan.condition);
        match &plan.order[..] {
            [] => {}
            [only] => found.add_path(settings, &only.path),
            keys => {
                match settings.indexing.composites.iter().find(|c| order::fit(c, keys).is_some()) {
                    Some(composite) => found.composite.push(composite.specs()),
                    None => found.composite_missing.push(keys.iter().map(spec).collect()),
                }
            }
        }
        found
    }

    fn add_condition(&mut self, settings: &Settings, condition: &Condition) {
        match condition {
            Condition::All | Condition::Nothing => {}
            Condition::Path(path, _) => self.add_path(settings, path),
            Condition::Defined(path) => self.add_path(settings, &format!("{path}/?")),
            Condition::Cells(path, _) => {
                let spec = format!("{path}/*");
                match spatial_index(settings, path) {
                    Some(_) => self.spatial.push(spec),
                    None => self.spatial_missing.push(spec),
                }
            }
            Condition::And(parts) | Condition::Or(parts) => {
                parts.iter().for_each(|part| self.add_condition(settings, part));
            }
        }
    }

    fn add_path(&mut self, settings: &Settings, path: &str) {
        let list = match index_path(settings, path) {
            Some(_) => &mut self.single,
            None => &mut self.single_missing,
        };
        if !list.iter().any(|known| known == path) {
            list.push(path.to_owned());
        }
    }
}

/// For people: one line that says how the page came about, and what would help.
impl std::fmt::Display for IndexUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "asks for {}", self.plan)?;
        let lists = [
            ("uses", &self.single),
            ("would use, if it were indexed,", &self.single_missing),
            ("uses the spatial index", &self.spatial),
            ("would use a spatial index on", &self.spatial_missing),
        ];
        for (what, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            write!(f, "; {what} {}", list.join(" and "))?;
        }
        let lists = [
            ("uses the composite index", &self.composite),
            ("would use a composite index", &self.composite_missing),
        ];
        for (what, list) in lists {
            for composite in list {
                write!(f, "; {what} ({})", composite.join(", "))?;
            }
        }
        Ok(())
    }
}

impl Composite {
    /// As index metrics name it: `/a ASC`, `/b DESC`.
    fn specs(&self) -> Vec<String> {
        let path = |path: &crate::index::CompositePath| {
            let text = query::plan::scalar_path(path.path.segments());
            spec(&OrderPath { path: text, descending: path.descending })
        };
        self.paths.iter().map(path).collect()
    }
}

fn spec(key: &OrderPath) -> String {
    let path = key.path.strip_suffix("/?").unwrap_or(&key.path);
    format!("{path} {}", if key.descending { "DESC" } else { "ASC" })
}
