//! What a query asks of those who store the items: which to read, in which order, and what the SDKs
//! must know to split it over partitions.
//!
//! A [`Plan`] is a promise: items that its [`Condition`] leaves out cannot be in the result. What
//! the condition lets through may still fail WHERE, unless [`Plan::exact`] says otherwise.

mod condition;
mod extract;
mod hybrid;
mod info;
mod range;
mod rewrite;

use std::fmt;

pub use condition::Condition;
pub use extract::scalar_path;
pub use info::Info;
pub use range::{Bound, Range};
use serde_json::Value as Json;

use crate::compile::Compiled;
use crate::expr::{AggregateFunction, Expr};

/// What to read for a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What every item of the result meets.
    pub condition: Condition,
    /// Whether, conversely, every item that meets the condition passes WHERE.
    pub exact: bool,
    /// The paths that ORDER BY sorts by; empty if it does not, or by something else.
    pub order: Vec<OrderPath>,
    /// Whether the result is just how many items there are: `SELECT COUNT(1)` without JOIN or GROUP.
    pub counts_only: bool,
}

/// One key of ORDER BY that an index can serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderPath {
    /// Such as `/a/b/?`.
    pub path: String,
    /// Largest first.
    pub descending: bool,
}

impl Compiled {
    /// What to read for this query.
    pub fn plan(&self) -> Plan {
        if let Some(inner) = &self.inner {
            // The rows of the inner query are not items, so nothing of the outer one applies.
            return Plan { order: Vec::new(), counts_only: false, ..inner.plan() };
        }
        let (condition, exact) = extract::of_block(&self.block, &self.fields);
        let keys = self.block.order.iter();
        let order: Option<Vec<OrderPath>> = keys
            .map(|key| {
                let path = extract::indexed_path(&key.expr, &self.fields)?;
                Some(OrderPath { path, descending: key.descending })
            })
            .collect();
        let order = order.filter(|_| self.block.group.is_none()).unwrap_or_default();
        Plan { condition, exact, order, counts_only: self.counts_only() }
    }

    fn counts_only(&self) -> bool {
        let Some(group) = &self.block.group else { return false };
        let counts = group.aggregates.iter().all(|aggregate| {
            aggregate.function == AggregateFunction::Count
                && matches!(aggregate.argument, Expr::Constant(Some(_)) | Expr::Item)
        });
        group.keys.is_empty() && counts && extract::reads_whole_items(&self.block)
    }
}

/// For people: what is read, in which order, and whether WHERE must be asked again.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.condition, if self.exact { "" } else { " and recheck" })?;
        for (i, key) in self.order.iter().enumerate() {
            f.write_str(if i == 0 { ", order by " } else { ", " })?;
            write!(f, "{}{}", key.path, if key.descending { " descending" } else { "" })?;
        }
        f.write_str(if self.counts_only { ", counts only" } else { "" })
    }
}

impl Plan {
    /// The values that the filter pins these paths to (`/id/?`, the partition key): each entry one
    /// value a path. `None` if some path is not pinned, or there are too many combinations.
    pub fn pinned(&self, paths: &[&str]) -> Option<Vec<Vec<Json>>> {
        self.condition.pinned(paths)
    }
}
