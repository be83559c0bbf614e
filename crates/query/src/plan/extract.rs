//! From WHERE to conditions on single paths.
//!
//! Everything here errs on one side: a condition may let through more than WHERE does, never less.

use serde_json::{Value as Json, json};

use super::condition::Condition;
use super::range::{Range, normalize};
use crate::expr::{Block, Expr, SourceRows};
use crate::functions::{Function, cells};
use crate::item::Fields;
use crate::sql::ast::{BinaryOp, Step, SubqueryKind};

/// The condition of a block's WHERE, and whether it is all of it.
pub fn of_block(block: &Block, fields: &Fields) -> (Condition, bool) {
    let mut paths = Paths { fields, slots: Vec::new() };
    paths.enter(block);
    // Unless each item is one row, an item that passes may have rows that do not, or none.
    let items_are_rows = reads_whole_items(block);
    let Some(filter) = &block.filter else { return (Condition::All, items_are_rows) };
    let (condition, exact) = paths.condition(filter);
    (condition, exact && items_are_rows)
}

/// Whether each item is exactly one row: a plain `FROM c`.
pub fn reads_whole_items(block: &Block) -> bool {
    matches!(block.sources.as_slice(), [source] if matches!(source.rows, SourceRows::Item))
}

/// The path of an expression that an index on single values can sort by.
pub fn indexed_path(expr: &Expr, fields: &Fields) -> Option<String> {
    let (path, whole) = Paths { fields, slots: Vec::new() }.path(expr)?;
    whole.then(|| path + "/?")
}

/// Knows which paths the sources of a block stand for.
struct Paths<'q> {
    fields: &'q Fields,
    slots: Vec<(usize, String)>,
}

impl Paths<'_> {
    /// Learns the sources of a block.
    fn enter(&mut self, block: &Block) {
        for source in &block.sources {
            let path = match &source.rows {
                SourceRows::Elements(expr) => self.path(expr).map(|(path, _)| path + "/[]"),
                SourceRows::Value(expr) => self.path(expr).map(|(path, _)| path),
                _ => None,
            };
            if let (Some(slot), Some(path)) = (source.slot, path) {
                self.slots.push((slot, path));
            }
        }
    }

    /// The path that an expression reads, and whether it is the whole story: a path into an array
    /// stands for all its elements.
    fn path(&self, expr: &Expr) -> Option<(String, bool)> {
        match expr {
            Expr::Field(field, steps) => {
                let mut path = segment(self.fields.name(*field)?);
                let mut whole = true;
                for step in steps {
                    match step {
                        Step::Name(name) => path.push_str(&segment(name)),
                        Step::Index(_) => {
                            path.push_str("/[]");
                            whole = false;
                        }
                    }
                }
                Some((path, whole))
            }
            Expr::Slot(slot) => {
                let (_, path) = self.slots.iter().find(|(known, _)| known == slot)?;
                Some((path.clone(), false))
            }
            Expr::Member(base, name) => {
                let (path, whole) = self.path(base)?;
                Some((path + &segment(name), whole))
            }
            Expr::Index(base, index) => match **index {
                Expr::Constant(Some(Json::Number(_))) => Some((self.path(base)?.0 + "/[]", false)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The condition under which an expression can be true, and whether it then is.
    fn condition(&self, expr: &Expr) -> (Condition, bool) {
        match expr {
            Expr::Constant(Some(Json::Bool(true))) => (Condition::All, true),
            Expr::Constant(_) => (Condition::Nothing, true),
            Expr::And(all) => {
                let (all, exact) = self.conditions(all);
                (Condition::and(all), exact)
            }
            Expr::Or(any) => {
                let (any, exact) = self.conditions(any);
                (Condition::or(any), exact)
            }
            Expr::Binary(op, a, b) => self.comparison(*op, a, b).unwrap_or(ANY),
            Expr::Between(value, low, high) => {
                let above = self.comparison(BinaryOp::GreaterOrEqual, value, low).unwrap_or(ANY);
                let below = self.comparison(BinaryOp::LessOrEqual, value, high).unwrap_or(ANY);
                (Condition::and(vec![above.0, below.0]), above.1 && below.1)
            }
            Expr::In(needle, list) => {
                let values = list.iter().map(constant).collect::<Option<Vec<&Json>>>();
                values.map_or(ANY, |values| self.one_of(needle, &values))
            }
            Expr::InSet(needle, _, values) => {
                self.one_of(needle, &values.iter().collect::<Vec<_>>())
            }
            Expr::Like(value, pattern) => {
                let (prefix, only) = pattern.prefix();
                let condition = self.ranges(value, vec![Range::prefix(prefix)]);
                condition.map_or(ANY, |(condition, exact)| (condition, exact && only))
            }
            Expr::Call(function, args) => self.call(function, args).unwrap_or(ANY),
            // A bare path is true where it is true.
            Expr::Field(..) | Expr::Slot(_) | Expr::Member(..) => {
                self.ranges(expr, vec![Range::point(json!(true))]).unwrap_or(ANY)
            }
            Expr::Subquery(SubqueryKind::Exists, block) => self.exists(block),
            _ => ANY,
        }
    }

    fn conditions(&self, exprs: &[Expr]) -> (Vec<Condition>, bool) {
        let parts: Vec<_> = exprs.iter().map(|expr| self.condition(expr)).collect();
        let exact = parts.iter().all(|(_, exact)| *exact);
        (parts.into_iter().map(|(condition, _)| condition).collect(), exact)
    }

    /// A path with a value in these ranges.
    fn ranges(&self, expr: &Expr, ranges: Vec<Range>) -> Option<(Condition, bool)> {
        let (path, whole) = self.path(expr)?;
        let ranges = normalize(ranges);
        if ranges.is_empty() {
            return Some((Condition::Nothing, true));
        }
        Some((Condition::Path(path + "/?", ranges), whole))
    }

    fn comparison(&self, op: BinaryOp, a: &Expr, b: &Expr) -> Option<(Condition, bool)> {
        let (expr, op, value) = match (constant(a), constant(b)) {
            (None, Some(value)) => (a, op, value),
            (Some(value), None) => (b, mirrored(op), value),
            _ => return None,
        };
        if let Expr::Call(function, args) = expr {
            let near = matches!(op, BinaryOp::Less | BinaryOp::LessOrEqual | BinaryOp::Equal);
            return match (function.name, value.as_f64()) {
                ("ST_DISTANCE", Some(metres)) if near => self.shapes(function, args, metres),
                _ => None,
            };
        }
        let range = match op {
            BinaryOp::Equal => Range::same_type(value).map(|_| Range::point(value.clone())),
            BinaryOp::Less => Range::below(value, false),
            BinaryOp::LessOrEqual => Range::below(value, true),
            BinaryOp::Greater => Range::above(value, false),
            BinaryOp::GreaterOrEqual => Range::above(value, true),
            BinaryOp::NotEqual => None,
            _ => return None,
        };
        match range {
            Some(range) => self.ranges(expr, vec![range]),
            // What differs from something, or equals an array or object, is at least there.
            None if matches!(op, BinaryOp::Equal | BinaryOp::NotEqual) => self.defined(expr, false),
            // Nothing is less or more than an array or object.
            None => self.path(expr).map(|_| (Condition::Nothing, true)),
        }
    }

    fn defined(&self, expr: &Expr, exact: bool) -> Option<(Condition, bool)> {
        let (path, whole) = self.path(expr)?;
        Some((Condition::Defined(path), exact && whole))
    }

    fn one_of(&self, needle: &Expr, values: &[&Json]) -> (Condition, bool) {
        if values.iter().any(|value| Range::same_type(value).is_none()) {
            return self.defined(needle, false).unwrap_or(ANY);
        }
        let points = values.iter().map(|value| Range::point((*value).clone())).collect();
        self.ranges(needle, points).unwrap_or(ANY)
    }

    fn call(&self, function: &Function, args: &[Expr]) -> Option<(Condition, bool)> {
        let name = function.name;
        let of_type = |example: Json| -> Option<(Condition, bool)> {
            self.ranges(args.first()?, vec![Range::same_type(&example)?])
        };
        match name {
            "IS_DEFINED" => self.defined(args.first()?, true),
            "IS_NULL" => of_type(Json::Null),
            "IS_BOOL" | "IS_BOOLEAN" => of_type(json!(true)),
            "IS_NUMBER" | "IS_FINITE_NUMBER" => of_type(json!(0)),
            "IS_STRING" => of_type(json!("")),
            "IS_ARRAY" | "IS_OBJECT" | "IS_PRIMITIVE" => self.defined(args.first()?, false),
            "IS_INTEGER" => of_type(json!(0)).map(|(condition, _)| (condition, false)),
            "STARTSWITH" | "STRINGEQUALS" => {
                let text = constant(args.get(1)?)?.as_str()?;
                let range = match args.get(2).map(constant) {
                    None | Some(Some(Json::Bool(false))) if name == "STARTSWITH" => {
                        Range::prefix(text)
                    }
                    None | Some(Some(Json::Bool(false))) => Range::point(json!(text)),
                    _ => {
                        let (condition, _) = self.strings(args)?;
                        return Some((condition, false));
                    }
                };
                self.ranges(&args[0], vec![range])
            }
            "CONTAINS" | "ENDSWITH" | "REGEXMATCH" | "FULLTEXTCONTAINS" => {
                self.strings(args).map(|(condition, _)| (condition, false))
            }
            "ARRAY_CONTAINS" => self.array_contains(args),
            "ST_WITHIN" | "ST_INTERSECTS" => self.shapes(function, args, 0.0),
            _ => None,
        }
    }

    /// A path and a shape, in either order, that come within so many metres of each other.
    fn shapes(&self, function: &Function, args: &[Expr], metres: f64) -> Option<(Condition, bool)> {
        let [a, b] = args else { return None };
        let (path, shape) = match (constant(a), constant(b)) {
            (None, Some(shape)) => (self.path(a)?, shape),
            (Some(shape), None) => (self.path(b)?, shape),
            _ => return None,
        };
        match (path, cells::around(shape, metres, function.flat)) {
            ((path, true), Some(cells)) => Some((Condition::Cells(path, cells), false)),
            // Nothing is near what is no shape.
            (_, None) => Some((Condition::Nothing, true)),
            _ => None,
        }
    }

    fn strings(&self, args: &[Expr]) -> Option<(Condition, bool)> {
        self.ranges(args.first()?, vec![Range::same_type(&json!(""))?])
    }

    fn array_contains(&self, args: &[Expr]) -> Option<(Condition, bool)> {
        let partial = args.get(2).is_some_and(|p| constant(p) != Some(&Json::Bool(false)));
        if let Some(Json::Array(values)) = constant(args.first()?) {
            let (condition, exact) = self.one_of(args.get(1)?, &values.iter().collect::<Vec<_>>());
            return Some((condition, exact && !partial));
        }
        let (path, whole) = self.path(args.first()?)?;
        let value = constant(args.get(1)?)?;
        if Range::same_type(value).is_none() {
            return Some((Condition::Defined(path), false));
        }
        let ranges = vec![Range::point(value.clone())];
        Some((Condition::Path(path + "/[]/?", ranges), whole && !partial))
    }

    /// `EXISTS(SELECT … FROM t IN c.tags WHERE …)`: what its WHERE asks of some element.
    fn exists(&self, block: &Block) -> (Condition, bool) {
        let plain = block.is_streaming() && block.offset == 0;
        let mut inner = Paths { fields: self.fields, slots: self.slots.clone() };
        inner.enter(block);
        match &block.filter {
            Some(filter) if plain => (inner.condition(filter).0, false),
            _ => ANY,
        }
    }
}

/// Nothing is known.
const ANY: (Condition, bool) = (Condition::All, false);

fn constant(expr: &Expr) -> Option<&Json> {
    if let Expr::Constant(value) = expr { value.as_ref() } else { None }
}

/// The operator that says the same with its operands swapped.
fn mirrored(op: BinaryOp) -> BinaryOp {
    match op {
        BinaryOp::Less => BinaryOp::Greater,
        BinaryOp::LessOrEqual => BinaryOp::GreaterOrEqual,
        BinaryOp::Greater => BinaryOp::Less,
        BinaryOp::GreaterOrEqual => BinaryOp::LessOrEqual,
        other => other,
    }
}

/// The path of the scalar under these names, as conditions name it.
pub fn scalar_path(names: &[String]) -> String {
    let path: String = names.iter().map(|name| segment(name)).collect();
    path + "/?"
}

/// A name in a path; quoted where it could be taken for something else.
fn segment(name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if plain { format!("/{name}") } else { format!("/{}", Json::from(name)) }
}
