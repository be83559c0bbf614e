//! The expressions of the language, by precedence climbing.
//!
//! From loose to tight: `? :`, `??`, OR, AND, NOT, comparisons with IN, BETWEEN and LIKE, `|`, `^`,
//! `&`, shifts, `+ - ||`, `* / %`, the unary operators, and steps into a value.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::Number;

use super::{Parsed, Parser, is_reserved, too_deep};
use crate::error::Span;
use crate::sql::ast::{BinaryOp, Expr, ExprKind, SubqueryKind, UnaryOp};
use crate::sql::lexer::Kind;

/// How deep an expression may be; it bounds every later walk.
const DEPTH_MAX: u16 = 128;

impl Parser<'_> {
    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        self.nested(1, Self::conditional)
    }

    fn conditional(&mut self) -> Parsed<Expr> {
        let mut left = self.logical()?;
        while self.symbol("??") {
            let right = self.logical()?;
            let (span, depth) = (left.span, left.depth.max(right.depth));
            left = self.node(span, depth, ExprKind::Coalesce(left.into(), right.into()))?;
        }
        if self.symbol("?") { self.branches(left) } else { Ok(left) }
    }

    /// What follows `condition ?`.
    fn branches(&mut self, condition: Expr) -> Parsed<Expr> {
        let then = self.expression()?;
        self.expect_symbol(":")?;
        let otherwise = self.expression()?;
        let depth = condition.depth.max(then.depth).max(otherwise.depth);
        let span = condition.span;
        let kind = ExprKind::Conditional(condition.into(), then.into(), otherwise.into());
        self.node(span, depth, kind)
    }

    /// `a AND b OR c …`. Operands of one kind become one flat node, so that the long filters that
    /// programs write stay shallow.
    fn logical(&mut self) -> Parsed<Expr> {
        let mut alternatives = Vec::new();
        loop {
            let mut all = vec![self.comparison()?];
            while self.keyword("AND") {
                all.push(self.comparison()?);
            }
            alternatives.push(self.joined(all, ExprKind::And)?);
            if !self.keyword("OR") {
                return self.joined(alternatives, ExprKind::Or);
            }
        }
    }

    /// Several operands as one node; one operand as itself.
    fn joined(&self, mut operands: Vec<Expr>, make: fn(Vec<Expr>) -> ExprKind) -> Parsed<Expr> {
        if operands.len() == 1 {
            return Ok(operands.remove(0));
        }
        let span = operands[0].span;
        let depth = deepest(&operands);
        self.node(span, depth, make(operands))
    }

    fn comparison(&mut self) -> Parsed<Expr> {
        let mut negations = Vec::new();
        while self.peek_keyword("NOT") {
            negations.push((UnaryOp::Not, self.span()));
            self.at += 1;
        }
        let mut left = self.binary(0)?;
        loop {
            let negated = self.peek_keyword("NOT");
            self.at += usize::from(negated);
            left = if self.keyword("IN") {
                self.in_list(left, negated)?
            } else if self.keyword("BETWEEN") {
                self.between(left, negated)?
            } else if self.keyword("LIKE") {
                self.like(left, negated)?
            } else if negated {
                return Err(self.unexpected());
            } else if let Some(op) = self.comparison_operator() {
                self.compared(op, left)?
            } else {
                return self.prefixed(negations, left);
            };
        }
    }

    fn compared(&mut self, op: BinaryOp, left: Expr) -> Parsed<Expr> {
        let right = self.binary(0)?;
        let (span, depth) = (left.span, left.depth.max(right.depth));
        self.node(span, depth, ExprKind::Binary(op, left.into(), right.into()))
    }

    /// An operand under the operators before it, the last of which binds first.
    fn prefixed(&self, operators: Vec<(UnaryOp, Span)>, mut operand: Expr) -> Parsed<Expr> {
        for (op, span) in operators.into_iter().rev() {
            let depth = operand.depth;
            operand = self.node(span, depth, ExprKind::Unary(op, operand.into()))?;
        }
        Ok(operand)
    }

    fn comparison_operator(&mut self) -> Option<BinaryOp> {
        let Kind::Symbol(symbol) = self.peek() else { return None };
        let op = match *symbol {
            "=" => BinaryOp::Equal,
            "!=" | "<>" => BinaryOp::NotEqual,
            "<" => BinaryOp::Less,
            "<=" => BinaryOp::LessOrEqual,
            ">" => BinaryOp::Greater,
            ">=" => BinaryOp::GreaterOrEqual,
            _ => return None,
        };
        self.at += 1;
        Some(op)
    }

    fn in_list(&mut self, needle: Expr, negated: bool) -> Parsed<Expr> {
        self.expect_symbol("(")?;
        let list = self.list(Self::expression)?;
        self.expect_symbol(")")?;
        let depth = deepest(&list).max(needle.depth);
        let span = needle.span;
        self.node(span, depth, ExprKind::In { needle: needle.into(), list, negated })
    }

    fn between(&mut self, value: Expr, negated: bool) -> Parsed<Expr> {
        let low = self.binary(0)?;
        self.expect_keyword("AND")?;
        let high = self.binary(0)?;
        let (span, depth) = (value.span, value.depth.max(low.depth).max(high.depth));
        let (value, low, high) = (value.into(), low.into(), high.into());
        self.node(span, depth, ExprKind::Between { value, low, high, negated })
    }

    fn like(&mut self, value: Expr, negated: bool) -> Parsed<Expr> {
        let pattern = self.binary(0)?;
        let mut depth = value.depth.max(pattern.depth);
        let mut escape = None;
        if self.keyword("ESCAPE") {
            let character = self.binary(0)?;
            depth = depth.max(character.depth);
            escape = Some(Box::new(character));
        }
        let span = value.span;
        let (value, pattern) = (value.into(), pattern.into());
        self.node(span, depth, ExprKind::Like { value, pattern, escape, negated })
    }

    /// Operators between values, at or above a level of tightness.
    fn binary(&mut self, level: u8) -> Parsed<Expr> {
        let mut left = self.unary()?;
        while let Kind::Symbol(symbol) = self.peek()
            && let Some((op, op_level)) = binary_operator(symbol)
            && op_level >= level
        {
            self.at += 1;
            let right = self.binary(op_level + 1)?;
            let (span, depth) = (left.span, left.depth.max(right.depth));
            left = self.node(span, depth, ExprKind::Binary(op, left.into(), right.into()))?;
        }
        Ok(left)
    }

    /// A value under its signs.
    fn unary(&mut self) -> Parsed<Expr> {
        let mut operators = Vec::new();
        loop {
            let op = match self.peek() {
                Kind::Symbol("-") => UnaryOp::Minus,
                Kind::Symbol("+") => UnaryOp::Plus,
                Kind::Symbol("~") => UnaryOp::BitNot,
                _ => break,
            };
            operators.push((op, self.span()));
            self.at += 1;
        }
        let mut value = self.primary()?;
        while self.peek_symbol(".") || self.peek_symbol("[") {
            value = self.step(value)?;
        }
        self.prefixed(operators, value)
    }

    /// One step into a value.
    fn step(&mut self, base: Expr) -> Parsed<Expr> {
        let (span, depth) = (base.span, base.depth);
        if self.symbol(".") {
            let name = self.property()?;
            return self.node(span, depth, ExprKind::Member(base.into(), name));
        }
        self.expect_symbol("[")?;
        let index = self.expression()?;
        self.expect_symbol("]")?;
        let depth = depth.max(index.depth);
        let kind = match index.kind {
            ExprKind::String(name) => ExprKind::Member(base.into(), name),
            _ => ExprKind::Index(base.into(), index.into()),
        };
        self.node(span, depth, kind)
    }

    pub(super) fn primary(&mut self) -> Parsed<Expr> {
        let span = self.span();
        let kind = match self.next() {
            Kind::Integer(value) => ExprKind::Number(value.into()),
            Kind::Number(value) => match Number::from_f64(value) {
                Some(number) => ExprKind::Number(number),
                None => return Err(self.unexpected_last()),
            },
            Kind::String(value) => ExprKind::String(value),
            Kind::Parameter(name) => ExprKind::Parameter(name),
            Kind::Word(word) => return self.word(span, word),
            Kind::Symbol("(") => return self.parenthesis(span),
            Kind::Symbol("[") => return self.array(span),
            Kind::Symbol("{") => return self.object(span),
            _ => return Err(self.unexpected_last()),
        };
        self.node(span, 0, kind)
    }

    fn array(&mut self, span: Span) -> Parsed<Expr> {
        let items = self.items("]", Self::expression)?;
        let depth = deepest(&items);
        self.node(span, depth, ExprKind::Array(items))
    }

    fn object(&mut self, span: Span) -> Parsed<Expr> {
        let mut members: Vec<(String, Expr)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (name, value) in self.items("}", Self::member)? {
            // Of two members with one name the last counts.
            match places.entry(name.clone()) {
                Entry::Occupied(place) => members[*place.get()].1 = value,
                Entry::Vacant(place) => {
                    place.insert(members.len());
                    members.push((name, value));
                }
            }
        }
        let depth = members.iter().map(|(_, value)| value.depth).max().unwrap_or(0);
        self.node(span, depth, ExprKind::Object(members))
    }

    fn parenthesis(&mut self, span: Span) -> Parsed<Expr> {
        if self.keyword("SELECT") {
            self.at -= 1;
            return self.subquery_node(span, SubqueryKind::Scalar);
        }
        let inner = self.expression()?;
        self.expect_symbol(")")?;
        Ok(Expr { span: span.to(self.last_span()), ..inner })
    }

    /// What a word begins: a literal, a call, a subquery or a name.
    fn word(&mut self, span: Span, word: String) -> Parsed<Expr> {
        let upper = word.to_ascii_uppercase();
        let subquery = match upper.as_str() {
            "EXISTS" => Some(SubqueryKind::Exists),
            "ARRAY" => Some(SubqueryKind::Array),
            "ALL" => Some(SubqueryKind::All),
            "FIRST" => Some(SubqueryKind::First),
            "LAST" => Some(SubqueryKind::Last),
            _ => None,
        };
        if let Some(kind) = subquery
            && self.peek_symbol("(")
        {
            self.at += 1;
            if !self.peek_keyword("SELECT") {
                return Err(self.unexpected());
            }
            return self.subquery_node(span, kind);
        }
        let kind = match upper.as_str() {
            "NULL" => ExprKind::Null,
            "UNDEFINED" => ExprKind::Undefined,
            "TRUE" => ExprKind::Bool(true),
            "FALSE" => ExprKind::Bool(false),
            "UDF" if self.symbol(".") => {
                let name = self.property()?;
                self.expect_symbol("(")?;
                return self.call(span, name, true);
            }
            // LEFT, RIGHT and the like are functions only before a parenthesis.
            _ if self.symbol("(") => return self.call(span, word, false),
            _ if is_reserved(&word) && upper != "VALUE" => return Err(self.unexpected_last()),
            _ => ExprKind::Name(word),
        };
        self.node(span, 0, kind)
    }

    fn subquery_node(&mut self, span: Span, kind: SubqueryKind) -> Parsed<Expr> {
        let query = self.subquery()?;
        let depth = depth_of(&query);
        self.node(span, depth, ExprKind::Subquery(kind, query))
    }

    fn call(&mut self, span: Span, name: String, udf: bool) -> Parsed<Expr> {
        let args = self.items(")", Self::expression)?;
        let depth = deepest(&args);
        self.node(span, depth, ExprKind::Call { name, udf, args })
    }

    /// `"name": value`, where the name may go without quotes.
    fn member(&mut self) -> Parsed<(String, Expr)> {
        let name = match self.next() {
            Kind::String(name) | Kind::Word(name) => name,
            _ => return Err(self.unexpected_last()),
        };
        self.expect_symbol(":")?;
        Ok((name, self.expression()?))
    }

    /// A list, possibly empty, up to its closing bracket.
    fn items<T>(
        &mut self,
        close: &str,
        rule: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        if self.symbol(close) {
            return Ok(Vec::new());
        }
        let items = self.list(rule)?;
        self.expect_symbol(close)?;
        Ok(items)
    }

    /// A node above others of the given depth, from `start` to the last token read.
    fn node(&self, start: Span, below: u16, kind: ExprKind) -> Parsed<Expr> {
        let span = start.to(self.last_span());
        if below >= DEPTH_MAX {
            return Err(too_deep(span));
        }
        Ok(Expr { kind, span, depth: below + 1 })
    }
}

fn deepest(exprs: &[Expr]) -> u16 {
    exprs.iter().map(|expr| expr.depth).max().unwrap_or(0)
}

/// The depth of the deepest expression in a query.
fn depth_of(query: &crate::sql::ast::Query) -> u16 {
    use crate::sql::ast::{Collection, OrderBy, SelectSpec, Source};

    let source = |source: &Source| match &source.collection {
        Collection::Subquery(query) => depth_of(query) + 1,
        Collection::Path { .. } => 0,
    };
    let select = match &query.select.spec {
        SelectSpec::Star => 0,
        SelectSpec::Value(expr) => expr.depth,
        SelectSpec::List(items) => items.iter().map(|item| item.expr.depth).max().unwrap_or(0),
    };
    let order = match &query.order_by {
        None => 0,
        Some(OrderBy::Rank(expr)) => expr.depth,
        Some(OrderBy::Keys(keys)) => keys.iter().map(|key| key.expr.depth).max().unwrap_or(0),
    };
    let from = query.from.iter().flat_map(|from| std::iter::once(&from.first).chain(&from.joins));
    let filter = query.filter.as_ref().map_or(0, |filter| filter.depth);
    let rest = from.map(source).max().unwrap_or(0);
    select.max(order).max(filter).max(rest).max(deepest(&query.group_by))
}

fn binary_operator(symbol: &str) -> Option<(BinaryOp, u8)> {
    Some(match symbol {
        "|" => (BinaryOp::BitOr, 0),
        "^" => (BinaryOp::BitXor, 1),
        "&" => (BinaryOp::BitAnd, 2),
        "<<" => (BinaryOp::ShiftLeft, 3),
        ">>" => (BinaryOp::ShiftRight, 3),
        ">>>" => (BinaryOp::ShiftRightZero, 3),
        "+" => (BinaryOp::Add, 4),
        "-" => (BinaryOp::Subtract, 4),
        "||" => (BinaryOp::Concat, 4),
        "*" => (BinaryOp::Multiply, 5),
        "/" => (BinaryOp::Divide, 5),
        "%" => (BinaryOp::Modulo, 5),
        _ => return None,
    })
}
