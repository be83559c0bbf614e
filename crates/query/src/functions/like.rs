//! LIKE: `%` for any text, `_` for one character, `[a-f]` and `[^a-f]` for one of several.
//!
//! Between its `%`s a pattern is segments of a fixed number of characters. The first must match at the
//! start of the text, the last at its end, and the others one after the other in between, each as far
//! left as it can: time grows with the length of the text, not with the number of ways to match.

use crate::value::Value;

/// A pattern ready to match.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    first: Segment,
    /// What follows each `%`.
    rest: Vec<Segment>,
}

/// A stretch without `%`.
#[derive(Clone, Debug, Default, PartialEq)]
struct Segment {
    parts: Vec<Part>,
    /// How many characters it matches.
    chars: usize,
}

#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// Itself.
    Text(String),
    /// `_`.
    Any,
    /// `[…]`: within one of the ranges, or in none.
    Class(Vec<(char, char)>, bool),
}

/// Whether text matches a pattern; undefined unless all are strings.
pub fn matches<'a>(
    value: &Value<'a>,
    pattern: &Value<'a>,
    escape: Option<&Value<'a>>,
) -> Value<'a> {
    let escape = match escape {
        None => None,
        Some(escape) => match single_char(escape) {
            Some(escape) => Some(escape),
            None => return Value::Undefined,
        },
    };
    match (value.as_str(), pattern.as_str()) {
        (Some(value), Some(pattern)) => Pattern::new(pattern, escape).matches(value).into(),
        _ => Value::Undefined,
    }
}

/// The escape character, if the value is a string of one.
pub fn single_char(value: &Value<'_>) -> Option<char> {
    let mut chars = value.as_str()?.chars();
    chars.next().filter(|_| chars.as_str().is_empty())
}

impl Pattern {
    /// Reads a pattern, in which the escape character makes the next one plain.
    pub fn new(text: &str, escape: Option<char>) -> Self {
        let mut segments = vec![Segment::default()];
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let part = match c {
                c if Some(c) == escape => Part::Text(chars.next().unwrap_or(c).to_string()),
                '%' => {
                    segments.push(Segment::default());
                    continue;
                }
                '_' => Part::Any,
                '[' => match chars.as_str().find(']') {
                    Some(end) if end > 0 => {
                        let class = class(&chars.as_str()[..end]);
                        chars = chars.as_str()[end + 1..].chars();
                        class
                    }
                    _ => Part::Text("[".to_owned()),
                },
                c => Part::Text(c.to_string()),
            };
            if let Some(segment) = segments.last_mut() {
                segment.push(part);
            }
        }
        let first = segments.remove(0);
        Self { first, rest: segments }
    }

    /// Whether all of the text matches.
    pub fn matches(&self, text: &str) -> bool {
        let Some(mut text) = self.first.strip(text) else { return false };
        let Some((last, middle)) = self.rest.split_last() else { return text.is_empty() };
        for segment in middle {
            match segment.find(text) {
                Some(rest) => text = rest,
                None => return false,
            }
        }
        last.ends(text)
    }

    /// The text that every match begins with, and whether the pattern says no more than that.
    pub fn prefix(&self) -> (&str, bool) {
        let prefix = match self.first.parts.first() {
            Some(Part::Text(text)) => text.as_str(),
            _ => "",
        };
        let only = self.first.parts.len() <= 1 && prefix.chars().count() == self.first.chars;
        (prefix, only && self.rest == [Segment::default()])
    }
}

impl Segment {
    fn push(&mut self, part: Part) {
        self.chars += 1;
        match (self.parts.last_mut(), part) {
            (Some(Part::Text(text)), Part::Text(more)) => text.push_str(&more),
            (_, part) => self.parts.push(part),
        }
    }

    /// What follows the segment at the start of the text.
    fn strip<'t>(&self, mut text: &'t str) -> Option<&'t str> {
        for part in &self.parts {
            text = match part {
                Part::Text(plain) => text.strip_prefix(plain.as_str())?,
                Part::Any => &text[text.chars().next()?.len_utf8()..],
                Part::Class(ranges, negated) => {
                    let c = text.chars().next()?;
                    let within = ranges.iter().any(|(low, high)| (*low..=*high).contains(&c));
                    if within == *negated {
                        return None;
                    }
                    &text[c.len_utf8()..]
                }
            };
        }
        Some(text)
    }

    /// What follows the segment where the text first has it.
    fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        if let [Part::Text(plain)] = self.parts.as_slice() {
            return text.find(plain.as_str()).map(|at| &text[at + plain.len()..]);
        }
        let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        starts.into_iter().find_map(|at| self.strip(&text[at..]))
    }

    /// Whether the text ends with the segment.
    fn ends(&self, text: &str) -> bool {
        if let [Part::Text(plain)] = self.parts.as_slice() {
            return text.ends_with(plain.as_str());
        }
        let start = match self.chars {
            0 => Some(text.len()),
            count => text.char_indices().rev().nth(count - 1).map(|(at, _)| at),
        };
        start.is_some_and(|start| self.strip(&text[start..]).is_some())
    }
}

/// What stands between brackets; `^` at the start excludes, `-` between two makes a range.
fn class(text: &str) -> Part {
    let (text, negated) = match text.strip_prefix('^') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let chars: Vec<char> = text.chars().collect();
    let mut ranges = Vec::new();
    let mut rest = chars.as_slice();
    loop {
        match rest {
            [low, '-', high, more @ ..] => {
                ranges.push((*low, *high));
                rest = more;
            }
            [c, more @ ..] => {
                ranges.push((*c, *c));
                rest = more;
            }
            [] => return Part::Class(ranges, negated),
        }
    }
}
