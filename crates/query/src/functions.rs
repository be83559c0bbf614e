//! The built-in functions, one file a family, found by name in their tables.
//!
//! A function takes values and gives a value; what it cannot work with makes it undefined, so none
//! of them fails. The few that depend on more than their arguments take it from the [`Host`].

mod array;
mod calendar;
pub mod cells;
mod convert;
mod date;
pub mod full_text;
mod geometry;
mod integer;
mod item;
pub mod like;
mod math;
mod plane;
mod regexp;
mod spatial;
mod string;
mod type_check;
pub mod vector;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use fancy_regex::{Regex, RegexBuilder};

use crate::error::{Error, Result};
use crate::value::Value;

/// A built-in function.
#[derive(Debug)]
pub struct Function {
    /// Its name, in capitals.
    pub name: &'static str,
    /// The fewest arguments it takes.
    pub args_min: usize,
    /// The most arguments it takes.
    pub args_max: usize,
    /// What it does.
    pub body: Body,
    /// What its result depends on.
    pub depends: Depends,
    /// Whether it takes shapes to lie on a plane.
    pub flat: bool,
}

/// What the result of a function depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depends {
    /// Its arguments.
    Arguments,
    /// Also the query's `now`.
    Now,
    /// Also chance.
    Chance,
}

/// What a function does: arguments in, result out.
pub type Body = for<'a> fn(&Host, &[Value<'a>]) -> Value<'a>;

/// For functions that take any number of arguments.
const MANY: usize = usize::MAX;

/// A function of its arguments alone.
const fn pure(name: &'static str, args: (usize, usize), body: Body) -> Function {
    let depends = Depends::Arguments;
    Function { name, args_min: args.0, args_max: args.1, body, depends, flat: false }
}

/// The function of this name, in any case, with or without underscores between its words.
pub fn find(name: &str) -> Option<&'static Function> {
    all().find(|function| letters(function.name).eq(letters(name)))
}

/// The same for a container whose shapes lie on a plane.
pub fn find_on_plane(name: &str) -> Option<&'static Function> {
    let mut flat = spatial::ON_PLANE.iter();
    flat.find(|function| letters(function.name).eq(letters(name))).or_else(|| find(name))
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Function> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// What counts of a name. An underscore at its start does: those functions are for SDKs alone.
fn letters(name: &str) -> impl Iterator<Item = u8> {
    let counts = |(at, letter): &(usize, u8)| *at == 0 || *letter != b'_';
    name.bytes().enumerate().filter(counts).map(|(_, letter)| letter.to_ascii_uppercase())
}

const FAMILIES: &[&[Function]] = &[
    array::FUNCTIONS,
    convert::FUNCTIONS,
    date::FUNCTIONS,
    full_text::FUNCTIONS,
    integer::FUNCTIONS,
    item::FUNCTIONS,
    math::FUNCTIONS,
    regexp::FUNCTIONS,
    spatial::FUNCTIONS,
    string::FUNCTIONS,
    type_check::FUNCTIONS,
    vector::FUNCTIONS,
];

/// A function that also depends on the query's `now`.
const fn timely(name: &'static str, args: (usize, usize), body: Body) -> Function {
    Function { depends: Depends::Now, ..pure(name, args, body) }
}

/// Answers joined by AND or OR; `None` is undefined.
fn joined<'a>(answers: impl Iterator<Item = Option<bool>>, all: bool) -> Value<'a> {
    let mut undefined = false;
    for answer in answers {
        match answer {
            Some(answer) if answer != all => return answer.into(),
            Some(_) => {}
            None => undefined = true,
        }
    }
    if undefined { Value::Undefined } else { all.into() }
}

/// The world outside the arguments: the time, chance, patterns already compiled, and how much more
/// work may be done.
#[derive(Debug)]
pub struct Host {
    /// The query's one `now`, in milliseconds since 1970.
    pub now_millis: i64,
    random: Cell<u64>,
    patterns: RefCell<HashMap<String, Option<Regex>>>,
    steps_left: Cell<u64>,
    steps_max: u64,
}

impl Host {
    /// A world at this time, with this seed for chance and this much work for each item.
    pub fn new(now_millis: i64, seed: u64, steps_max: u64) -> Self {
        Self {
            now_millis,
            random: Cell::new(seed ^ 0x9e37_79b9_7f4a_7c15),
            patterns: RefCell::default(),
            steps_left: Cell::new(steps_max),
            steps_max,
        }
    }

    /// Allows the full work again, for the next item.
    pub fn refill(&self) {
        self.steps_left.set(self.steps_max);
    }

    /// Takes some of the work that is allowed.
    pub fn spend(&self, steps: u64) -> Result<()> {
        let left = self.steps_left.get().checked_sub(steps);
        self.steps_left.set(left.ok_or(Error::Work { max: self.steps_max })?);
        Ok(())
    }

    /// A number from 0 up to 1.
    pub fn random(&self) -> f64 {
        // splitmix64
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The compiled form of a pattern, kept for the next item; `None` if it has none.
    pub fn pattern(&self, source: &str) -> Option<Regex> {
        const KEPT_MAX: usize = 64;
        const COMPILED_BYTES_MAX: usize = 1 << 20;
        const BACKTRACKS_MAX: usize = 100_000;
        let mut patterns = self.patterns.borrow_mut();
        if let Some(pattern) = patterns.get(source) {
            return pattern.clone();
        }
        let mut builder = RegexBuilder::new(source);
        builder.backtrack_limit(BACKTRACKS_MAX).delegate_size_limit(COMPILED_BYTES_MAX);
        let pattern = builder.build().ok();
        if patterns.len() >= KEPT_MAX {
            patterns.clear();
        }
        patterns.insert(source.to_owned(), pattern.clone());
        pattern
    }
}
