//! The tree back to text, for rewritten queries and messages. Parsing what is printed gives the same
//! tree again.

use std::fmt::{self, Write};

use crate::sql::ast::{
    BinaryOp, Collection, Expr, ExprKind, From, OrderBy, Query, SelectSpec, Source, Step,
    SubqueryKind, UnaryOp,
};
use crate::value::{write_number, write_string};

/// The text of a query.
pub fn query(query: &Query) -> String {
    let mut out = String::new();
    write_query(&mut out, query).expect("a string is written to memory");
    out
}

/// The text of an expression.
pub fn expr(expr: &Expr) -> String {
    let mut out = String::new();
    write_expr(&mut out, expr).expect("a string is written to memory");
    out
}

/// The text of a FROM clause, without the keyword.
pub fn from(from: &From) -> String {
    let mut out = String::new();
    write_from(&mut out, from).expect("a string is written to memory");
    out
}

/// The name that the items of its first collection have in the rest of the query.
pub fn root(from: &From) -> String {
    from.first.alias.clone().unwrap_or_else(|| {
        let mut out = String::new();
        write_source(&mut out, &from.first).expect("a string is written to memory");
        out
    })
}

/// The ORDER BY clause of a query, with a blank before it; nothing if it has none.
pub fn order_by(query: &Query) -> String {
    let mut out = String::new();
    write_order_by(&mut out, query).expect("a string is written to memory");
    out
}

/// The text of a string literal.
pub fn string(value: &str) -> String {
    let mut out = Vec::new();
    write_string(value, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

fn write_query(out: &mut String, query: &Query) -> fmt::Result {
    out.push_str("SELECT ");
    if query.select.distinct {
        out.push_str("DISTINCT ");
    }
    if let Some(top) = &query.select.top {
        write!(out, "TOP {} ", expr(top))?;
    }
    match &query.select.spec {
        SelectSpec::Star => out.push('*'),
        SelectSpec::Value(value) => {
            out.push_str("VALUE ");
            write_expr(out, value)?;
        }
        SelectSpec::List(items) => write_list(out, items, |out, item| {
            write_expr(out, &item.expr)?;
            match &item.alias {
                Some(alias) => write!(out, " AS {}", name(alias)),
                None => Ok(()),
            }
        })?,
    }
    write_clauses(out, query)
}

/// Everything after the SELECT clause.
fn write_clauses(out: &mut String, query: &Query) -> fmt::Result {
    if let Some(from) = &query.from {
        out.push_str(" FROM ");
        write_from(out, from)?;
    }
    if let Some(filter) = &query.filter {
        out.push_str(" WHERE ");
        write_expr(out, filter)?;
    }
    if !query.group_by.is_empty() {
        out.push_str(" GROUP BY ");
        write_list(out, &query.group_by, write_expr)?;
    }
    write_order_by(out, query)?;
    if let Some((offset, limit)) = &query.offset_limit {
        write!(out, " OFFSET {} LIMIT {}", expr(offset), expr(limit))?;
    }
    Ok(())
}

fn write_order_by(out: &mut String, query: &Query) -> fmt::Result {
    match &query.order_by {
        None => Ok(()),
        Some(OrderBy::Rank(score)) => write!(out, " ORDER BY RANK {}", expr(score)),
        Some(OrderBy::Keys(keys)) => {
            out.push_str(" ORDER BY ");
            write_list(out, keys, |out, key| {
                write_expr(out, &key.expr)?;
                out.write_str(if key.descending { " DESC" } else { "" })
            })
        }
    }
}

fn write_from(out: &mut String, from: &From) -> fmt::Result {
    write_source(out, &from.first)?;
    for join in &from.joins {
        out.push_str(" JOIN ");
        write_source(out, join)?;
    }
    Ok(())
}

fn write_source(out: &mut String, source: &Source) -> fmt::Result {
    if let (true, Some(alias)) = (source.iterate, &source.alias) {
        write!(out, "{alias} IN ")?;
    }
    match &source.collection {
        Collection::Path { root, steps } => {
            out.push_str(root);
            for step in steps {
                match step {
                    Step::Name(name) => write_member(out, name),
                    Step::Index(index) => write!(out, "[{index}]"),
                }?;
            }
        }
        Collection::Subquery(query) => {
            out.push('(');
            write_query(out, query)?;
            out.push(')');
        }
    }
    match (&source.alias, source.iterate) {
        (Some(alias), false) => write!(out, " AS {alias}"),
        _ => Ok(()),
    }
}

fn write_expr(out: &mut String, expr: &Expr) -> fmt::Result {
    match &expr.kind {
        ExprKind::Undefined => out.write_str("undefined"),
        ExprKind::Null => out.write_str("null"),
        ExprKind::Bool(b) => write!(out, "{b}"),
        ExprKind::Number(n) => {
            let mut text = Vec::new();
            write_number(n, &mut text);
            out.write_str(&String::from_utf8(text).unwrap_or_default())
        }
        ExprKind::String(s) => out.write_str(&string(s)),
        ExprKind::Parameter(name) | ExprKind::Name(name) => out.write_str(name),
        // Without parentheses the dot would be taken for a decimal point.
        ExprKind::Member(base, name) if matches!(base.kind, ExprKind::Number(_)) => {
            write!(out, "({})", self::expr(base))?;
            write_member(out, name)
        }
        ExprKind::Member(base, name) => {
            write_expr(out, base)?;
            write_member(out, name)
        }
        ExprKind::Index(base, index) => {
            write_expr(out, base)?;
            out.push('[');
            write_expr(out, index)?;
            out.write_char(']')
        }
        ExprKind::Array(items) => {
            out.push('[');
            write_list(out, items, write_expr)?;
            out.write_char(']')
        }
        ExprKind::Object(members) => {
            out.push('{');
            write_list(out, members, |out, (name, value)| {
                write!(out, "{}: ", string(name))?;
                write_expr(out, value)
            })?;
            out.write_char('}')
        }
        ExprKind::Call { name, udf, args } => {
            write!(out, "{}{name}(", if *udf { "udf." } else { "" })?;
            write_list(out, args, write_expr)?;
            out.write_char(')')
        }
        ExprKind::Subquery(kind, query) => {
            write!(out, "{}(", subquery_name(*kind))?;
            write_query(out, query)?;
            out.write_char(')')
        }
        _ => {
            out.push('(');
            write_operators(out, expr)?;
            out.write_char(')')
        }
    }
}

/// What is written with operators, between the parentheses that make its bounds plain.
fn write_operators(out: &mut String, expr: &Expr) -> fmt::Result {
    let not = |negated: &bool| if *negated { "NOT " } else { "" };
    match &expr.kind {
        ExprKind::Unary(op, operand) => {
            out.push_str(match op {
                UnaryOp::Not => "NOT ",
                UnaryOp::Minus => "-",
                UnaryOp::Plus => "+",
                UnaryOp::BitNot => "~",
            });
            write_expr(out, operand)
        }
        ExprKind::Binary(op, a, b) => {
            write_expr(out, a)?;
            write!(out, " {} ", symbol(*op))?;
            write_expr(out, b)
        }
        ExprKind::And(all) => write_chain(out, all, " AND "),
        ExprKind::Or(all) => write_chain(out, all, " OR "),
        ExprKind::Coalesce(a, b) => {
            write_expr(out, a)?;
            out.push_str(" ?? ");
            write_expr(out, b)
        }
        ExprKind::Conditional(a, b, c) => {
            write_expr(out, a)?;
            out.push_str(" ? ");
            write_expr(out, b)?;
            out.push_str(" : ");
            write_expr(out, c)
        }
        ExprKind::In { needle, list, negated } => {
            write_expr(out, needle)?;
            write!(out, " {}IN (", not(negated))?;
            write_list(out, list, write_expr)?;
            out.write_char(')')
        }
        ExprKind::Between { value, low, high, negated } => {
            write_expr(out, value)?;
            write!(out, " {}BETWEEN ", not(negated))?;
            write_expr(out, low)?;
            out.push_str(" AND ");
            write_expr(out, high)
        }
        ExprKind::Like { value, pattern, escape, negated } => {
            write_expr(out, value)?;
            write!(out, " {}LIKE ", not(negated))?;
            write_expr(out, pattern)?;
            let Some(escape) = escape else { return Ok(()) };
            out.push_str(" ESCAPE ");
            write_expr(out, escape)
        }
        _ => write_expr(out, expr),
    }
}

fn write_chain(out: &mut String, operands: &[Expr], between: &str) -> fmt::Result {
    for (i, operand) in operands.iter().enumerate() {
        if i > 0 {
            out.push_str(between);
        }
        write_expr(out, operand)?;
    }
    Ok(())
}

fn write_list<T>(
    out: &mut String,
    items: &[T],
    mut write: impl FnMut(&mut String, &T) -> fmt::Result,
) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push_str(", ");
        }
        write(out, item)?;
    }
    Ok(())
}

/// `.name` where that can be read back, `["name"]` elsewhere.
fn write_member(out: &mut String, member: &str) -> fmt::Result {
    if is_word(member) { write!(out, ".{member}") } else { write!(out, "[{}]", string(member)) }
}

fn name(alias: &str) -> String {
    if is_word(alias) { alias.to_owned() } else { string(alias) }
}

fn is_word(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || c == '_')
}

fn subquery_name(kind: SubqueryKind) -> &'static str {
    match kind {
        SubqueryKind::Scalar => "",
        SubqueryKind::Exists => "EXISTS",
        SubqueryKind::Array => "ARRAY",
        SubqueryKind::All => "ALL",
        SubqueryKind::First => "FIRST",
        SubqueryKind::Last => "LAST",
    }
}

fn symbol(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Add => "+",
        BinaryOp::Subtract => "-",
        BinaryOp::Multiply => "*",
        BinaryOp::Divide => "/",
        BinaryOp::Modulo => "%",
        BinaryOp::BitAnd => "&",
        BinaryOp::BitOr => "|",
        BinaryOp::BitXor => "^",
        BinaryOp::ShiftLeft => "<<",
        BinaryOp::ShiftRight => ">>",
        BinaryOp::ShiftRightZero => ">>>",
        BinaryOp::Equal => "=",
        BinaryOp::NotEqual => "!=",
        BinaryOp::Less => "<",
        BinaryOp::LessOrEqual => "<=",
        BinaryOp::Greater => ">",
        BinaryOp::GreaterOrEqual => ">=",
        BinaryOp::Concat => "||",
    }
}
