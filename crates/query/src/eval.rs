//! Evaluates expressions over one item, and the subqueries in them.
//!
//! Three-valued logic: `undefined AND false` is false, `undefined OR true` is true, and apart from
//! that undefined spreads. Whatever is not a boolean counts as undefined in AND, OR and NOT.

mod operators;

use serde_json::Value as Json;

use crate::error::{Error, Result};
use crate::expr::{Block, Expr, Source, SourceRows};
use crate::functions::{Function, Host, like};
use crate::gather::{Gather, Origin};
use crate::item::Item;
use crate::lazy;
use crate::pipeline::Udfs;
use crate::sql::ast::{Step, SubqueryKind};
use crate::value::Value;

/// The longest string or array text that an expression may make on the way.
const BUILT_BYTES_MAX: usize = 16 << 20;

/// What an expression can see while one item is evaluated.
pub struct Env<'a> {
    /// The item.
    pub item: Item<'a>,
    /// The current row of each source.
    pub slots: Vec<Value<'a>>,
    /// The keys of the group at hand.
    pub keys: Vec<Value<'a>>,
    /// The aggregates of the group at hand.
    pub aggregates: Vec<Value<'a>>,
    /// Time, chance and the allowance of work.
    pub host: &'a Host,
    /// User-defined functions, if there are any.
    pub udfs: Option<&'a dyn Udfs>,
}

/// What to do with a row; false ends the rows.
type Each<'e, 'a> = dyn FnMut(&mut Env<'a>) -> Result<bool> + 'e;

impl<'a> Env<'a> {
    /// The surroundings of one item, with room for the rows of so many sources.
    pub fn new(item: Item<'a>, slots: usize, host: &'a Host) -> Self {
        let slots = vec![Value::Undefined; slots];
        Self { item, slots, keys: Vec::new(), aggregates: Vec::new(), host, udfs: None }
    }

    /// The value of an expression.
    pub fn eval(&mut self, expr: &'a Expr) -> Result<Value<'a>> {
        self.host.spend(1)?;
        Ok(match expr {
            Expr::Constant(value) => value.as_ref().map_or(Value::Undefined, Value::literal),
            Expr::Item => Value::read(self.item.text()),
            Expr::Field(field, steps) => {
                self.find(*field, steps)?.map_or(Value::Undefined, Value::read)
            }
            Expr::Slot(slot) => self.slots[*slot].clone(),
            Expr::GroupKey(key) => self.keys.get(*key).cloned().unwrap_or(Value::Undefined),
            Expr::Aggregate(n) => self.aggregates.get(*n).cloned().unwrap_or(Value::Undefined),
            Expr::Member(base, name) => self.eval(base)?.member(name),
            Expr::Index(base, index) => {
                let base = self.eval(base)?;
                match self.eval(index)? {
                    Value::String(name) => base.member(&name),
                    index => match index.as_i64().and_then(|i| usize::try_from(i).ok()) {
                        Some(index) => base.element(index),
                        None => Value::Undefined,
                    },
                }
            }
            Expr::Array(_) | Expr::Object(_) => self.build(expr)?,
            Expr::Unary(op, operand) => operators::unary(*op, self.eval(operand)?),
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.eval(a)?, self.eval(b)?);
                self.checked(operators::binary(*op, &a, &b))?
            }
            Expr::Between(value, low, high) => {
                let value = self.eval(value)?;
                let (low, high) = (self.eval(low)?, self.eval(high)?);
                operators::between(&value, &low, &high)
            }
            Expr::And(all) => self.logic(all, false)?,
            Expr::Or(all) => self.logic(all, true)?,
            Expr::Coalesce(a, b) => match self.eval(a)? {
                Value::Undefined => self.eval(b)?,
                value => value,
            },
            Expr::Conditional(condition, then, otherwise) => {
                let chosen = if self.eval(condition)?.is_true() { then } else { otherwise };
                self.eval(chosen)?
            }
            Expr::In(needle, list) => self.is_in(needle, list)?,
            Expr::InSet(needle, keys, _) => match self.eval(needle)? {
                Value::Undefined => Value::Undefined,
                needle => {
                    let mut key = Vec::new();
                    needle.write_key(&mut key);
                    keys.contains(&key).into()
                }
            },
            Expr::Like(value, pattern) => {
                self.eval(value)?.as_str().map(|text| pattern.matches(text)).into()
            }
            Expr::LikeComputed(value, pattern, escape) => {
                let (value, pattern) = (self.eval(value)?, self.eval(pattern)?);
                let escape = escape.as_ref().map(|escape| self.eval(escape)).transpose()?;
                like::matches(&value, &pattern, escape.as_ref())
            }
            Expr::Call(function, args) => self.call(function, args)?,
            Expr::Udf(name, args) => self.udf(name, args)?,
            Expr::Subquery(kind, block) => self.subquery(*kind, block)?,
        })
    }

    /// Whether a filter lets the item pass.
    pub fn passes(&mut self, filter: Option<&'a Expr>) -> Result<bool> {
        filter.map_or(Ok(true), |filter| Ok(self.eval(filter)?.is_true()))
    }

    /// Appends the JSON of an expression; false, and nothing, if it is undefined. What comes from
    /// the item is copied as it stands there.
    pub fn write(&mut self, expr: &'a Expr, out: &mut Vec<u8>) -> Result<bool> {
        match expr {
            Expr::Item => out.extend_from_slice(self.item.text()),
            Expr::Field(field, steps) => match self.find(*field, steps)? {
                Some(text) => out.extend_from_slice(text),
                None => return Ok(false),
            },
            Expr::Object(members) => {
                out.push(b'{');
                let first = out.len();
                for (name, value) in members {
                    let start = out.len();
                    if start > first {
                        out.push(b',');
                    }
                    crate::value::write_string(name, out);
                    out.push(b':');
                    if !self.write(value, out)? {
                        out.truncate(start);
                    }
                }
                out.push(b'}');
            }
            Expr::Array(items) => {
                out.push(b'[');
                let first = out.len();
                for item in items {
                    let start = out.len();
                    if start > first {
                        out.push(b',');
                    }
                    if !self.write(item, out)? {
                        out.truncate(start);
                    }
                }
                out.push(b']');
            }
            _ => {
                let value = self.eval(expr)?;
                value.write(out);
                return Ok(!value.is_undefined());
            }
        }
        Ok(true)
    }

    /// The text at a path into the item.
    fn find(&mut self, field: usize, steps: &[Step]) -> Result<Option<&'a [u8]>> {
        let mut text = self.item.field(field)?;
        for step in steps {
            text = match (text, step) {
                (Some(text), Step::Name(name)) if text.first() == Some(&b'{') => {
                    let mut members = lazy::Members::new(text);
                    let found = members.find(|(written, _)| lazy::is_named(written, name));
                    found.map(|(_, value)| value)
                }
                (Some(text), Step::Index(index)) if text.first() == Some(&b'[') => {
                    let index = usize::try_from(*index).unwrap_or(usize::MAX);
                    lazy::Elements::new(text).nth(index)
                }
                _ => return Ok(None),
            };
        }
        Ok(text)
    }

    /// An array or object as a tree.
    fn build(&mut self, expr: &'a Expr) -> Result<Value<'a>> {
        let mut text = Vec::new();
        self.write(expr, &mut text)?;
        self.host.spend(text.len() as u64 / 16)?;
        Ok(Value::built(serde_json::from_slice(&text).map_err(|_| Error::Item)?))
    }

    /// AND (decided by false) or OR (decided by true).
    fn logic(&mut self, operands: &'a [Expr], decisive: bool) -> Result<Value<'a>> {
        let mut undefined = false;
        for operand in operands {
            match self.eval(operand)?.as_bool() {
                Some(value) if value == decisive => return Ok(decisive.into()),
                Some(_) => {}
                None => undefined = true,
            }
        }
        Ok(if undefined { Value::Undefined } else { (!decisive).into() })
    }

    fn is_in(&mut self, needle: &'a Expr, list: &'a [Expr]) -> Result<Value<'a>> {
        let needle = self.eval(needle)?;
        if needle.is_undefined() {
            return Ok(Value::Undefined);
        }
        for item in list {
            if needle.equals(&self.eval(item)?) {
                return Ok(true.into());
            }
        }
        Ok(false.into())
    }

    fn call(&mut self, function: &'static Function, args: &'a [Expr]) -> Result<Value<'a>> {
        let body = function.body;
        // The common counts need no allocation.
        let result = match args {
            [a] => body(self.host, &[self.eval(a)?]),
            [a, b] => body(self.host, &[self.eval(a)?, self.eval(b)?]),
            [a, b, c] => body(self.host, &[self.eval(a)?, self.eval(b)?, self.eval(c)?]),
            _ => {
                let args = args.iter().map(|arg| self.eval(arg)).collect::<Result<Vec<_>>>()?;
                body(self.host, &args)
            }
        };
        self.checked(result)
    }

    /// A result, unless it has grown out of all proportion.
    fn checked(&self, value: Value<'a>) -> Result<Value<'a>> {
        match &value {
            Value::String(s) if s.len() > BUILT_BYTES_MAX => {
                Err(Error::Memory { what: "build a string", max: BUILT_BYTES_MAX })
            }
            Value::Built(json) => {
                // So much more does an element cost than a row that is only looked at.
                const ELEMENT_STEPS: u64 = 16;
                let elements = json.as_array().map_or(1, |items| items.len() as u64);
                self.host.spend(ELEMENT_STEPS * elements)?;
                Ok(value)
            }
            _ => Ok(value),
        }
    }

    fn udf(&mut self, name: &str, args: &'a [Expr]) -> Result<Value<'a>> {
        let args = args.iter().map(|arg| Ok(self.eval(arg)?.to_json()));
        let args = args.collect::<Result<Vec<Option<Json>>>>()?;
        let Some(udfs) = self.udfs else {
            return Err(Error::Udf(format!("The user defined function '{name}' does not exist.")));
        };
        let result = udfs.call(name, &args).map_err(Error::Udf)?;
        Ok(result.map_or(Value::Undefined, Value::built))
    }

    fn subquery(&mut self, kind: SubqueryKind, block: &'a Block) -> Result<Value<'a>> {
        let rows_max = match kind {
            SubqueryKind::Exists | SubqueryKind::First => 1,
            SubqueryKind::Scalar => 2,
            SubqueryKind::Array | SubqueryKind::All | SubqueryKind::Last => usize::MAX,
        };
        let mut rows = self.subquery_rows(block, rows_max)?;
        Ok(match kind {
            SubqueryKind::Exists => (!rows.is_empty()).into(),
            SubqueryKind::Array => {
                let bytes: usize = rows.iter().map(Value::text_len).sum();
                self.host.spend(bytes as u64 / 16)?;
                Value::array(rows)
            }
            SubqueryKind::All => rows.iter().all(Value::is_true).into(),
            SubqueryKind::First | SubqueryKind::Last => rows.pop().unwrap_or(Value::Undefined),
            SubqueryKind::Scalar if rows.len() > 1 => return Err(Error::Cardinality),
            SubqueryKind::Scalar => rows.pop().unwrap_or(Value::Undefined),
        })
    }

    /// The rows of a subquery, the first so many of them.
    fn subquery_rows(&mut self, block: &'a Block, rows_max: usize) -> Result<Vec<Value<'a>>> {
        let mut rows = Vec::new();
        if block.is_streaming() && !block.distinct && block.offset == 0 {
            let limit = block.limit.map_or(usize::MAX, |limit| limit as usize).min(rows_max);
            if limit > 0 {
                self.for_each_row(block, &mut |env| {
                    let value = env.eval(&block.projection)?;
                    if !value.is_undefined() {
                        rows.push(value);
                    }
                    Ok(rows.len() < limit)
                })?;
            }
            return Ok(rows);
        }
        let mut gather = Gather::new(block, BUILT_BYTES_MAX);
        let mut ordinal = 0;
        self.for_each_row(block, &mut |env| {
            ordinal += 1;
            gather.row(block, env, &Origin { ordinal, ..Origin::default() }, 0)
        })?;
        gather.finish(block, self)?;
        for row in gather.take_rows().iter().take(rows_max) {
            rows.push(Value::built(serde_json::from_slice(row).map_err(|_| Error::Item)?));
        }
        Ok(rows)
    }

    /// Sets each combination of the sources' rows in turn, and hands on those that pass WHERE.
    /// False if it was ended early.
    pub fn for_each_row(&mut self, block: &'a Block, each: &mut Each<'_, 'a>) -> Result<bool> {
        self.for_each_source(&block.sources, &mut |env| {
            if env.passes(block.filter.as_ref())? { each(env) } else { Ok(true) }
        })
    }

    /// The same before WHERE.
    pub fn for_each_source(
        &mut self,
        sources: &'a [Source],
        each: &mut Each<'_, 'a>,
    ) -> Result<bool> {
        self.host.spend(1)?;
        let Some((source, rest)) = sources.split_first() else { return each(self) };
        let slot = source.slot.unwrap_or_default();
        match &source.rows {
            SourceRows::Item => return self.for_each_source(rest, each),
            SourceRows::Value(expr) => {
                let value = self.eval(expr)?;
                if !value.is_undefined() {
                    self.slots[slot] = value;
                    return self.for_each_source(rest, each);
                }
            }
            SourceRows::Elements(expr) => {
                for element in self.eval(expr)?.elements().into_iter().flatten() {
                    self.slots[slot] = element;
                    if !self.for_each_source(rest, each)? {
                        return Ok(false);
                    }
                }
            }
            SourceRows::Rows(block) => {
                for row in self.subquery_rows(block, usize::MAX)? {
                    self.slots[slot] = row;
                    if !self.for_each_source(rest, each)? {
                        return Ok(false);
                    }
                }
            }
            SourceRows::RowElements(block) => {
                let rows = self.subquery_rows(block, usize::MAX)?;
                for element in rows.iter().filter_map(Value::elements).flatten() {
                    self.slots[slot] = element;
                    if !self.for_each_source(rest, each)? {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}
