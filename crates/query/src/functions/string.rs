//! CONCAT to UPPER. Positions and lengths count characters (code points), from 0.
//!
//! Unless all that should be text is text, the result is undefined. What turns text into values and
//! back is in [`convert`](super::convert), regular expressions are in [`regexp`](super::regexp).

use std::borrow::Cow;

use super::{Function, Host, MANY, pure};
use crate::value::Value;

/// The family's table.
pub const FUNCTIONS: &[Function] = &[
    pure("CONCAT", (2, MANY), concat),
    pure("CONTAINS", (2, 3), |_, args| test(args, |text, part| text.contains(part))),
    pure("CONTAINS_ALL_CI", (2, MANY), |_, args| contains_several(args, true, true)),
    pure("CONTAINS_ALL_CS", (2, MANY), |_, args| contains_several(args, true, false)),
    pure("CONTAINS_ANY_CI", (2, MANY), |_, args| contains_several(args, false, true)),
    pure("CONTAINS_ANY_CS", (2, MANY), |_, args| contains_several(args, false, false)),
    pure("ENDSWITH", (2, 3), |_, args| test(args, |text, end| text.ends_with(end))),
    pure("INDEX_OF", (2, 3), index_of),
    pure("LASTINDEXOF", (2, 3), last_index_of),
    pure("LASTSUBSTRINGAFTER", (2, 2), |_, args| parts(args, |text, at| text.rsplit_once(at)).1),
    pure("LASTSUBSTRINGBEFORE", (2, 2), |_, args| parts(args, |text, at| text.rsplit_once(at)).0),
    pure("LEFT", (2, 2), |_, args| {
        map_count(args, |text, count| text.chars().take(count).collect())
    }),
    pure("LENGTH", (1, 1), |_, args| args[0].as_str().map(|s| s.chars().count() as i64).into()),
    pure("LOWER", (1, 1), |_, args| map(args, |text| text.to_lowercase())),
    pure("LTRIM", (1, 2), |_, args| trim(args, true, false)),
    pure("REPLACE", (3, 3), replace),
    pure("REPLICATE", (2, 2), replicate),
    pure("REVERSE", (1, 1), |_, args| map(args, |text| text.chars().rev().collect())),
    pure("RIGHT", (2, 2), |_, args| {
        map_count(args, |text, count| {
            text.chars().skip(text.chars().count().saturating_sub(count)).collect()
        })
    }),
    pure("RTRIM", (1, 2), |_, args| trim(args, false, true)),
    pure("STARTSWITH", (2, 3), |_, args| test(args, |text, start| text.starts_with(start))),
    pure("STRINGEQUALS", (2, 3), |_, args| test(args, |a, b| a == b)),
    pure("SUBSTRING", (3, 3), substring),
    pure("SUBSTRINGAFTER", (2, 2), |_, args| parts(args, |text, at| text.split_once(at)).1),
    pure("SUBSTRINGBEFORE", (2, 2), |_, args| parts(args, |text, at| text.split_once(at)).0),
    pure("TRIM", (1, 2), |_, args| trim(args, true, true)),
    pure("UPPER", (1, 1), |_, args| map(args, |text| text.to_uppercase())),
];

/// The longest text that REPLICATE makes, in characters.
const CHARS_MAX: usize = 10_000;
/// The most bytes that a replacement may add.
pub(super) const REPLACED_BYTES_MAX: usize = 16 << 20;

fn map<'a>(args: &[Value<'a>], f: fn(&str) -> String) -> Value<'a> {
    args[0].as_str().map(f).into()
}

fn map_count<'a>(args: &[Value<'a>], f: fn(&str, usize) -> String) -> Value<'a> {
    match (args[0].as_str(), count(&args[1])) {
        (Some(text), Some(count)) => f(text, count).into(),
        _ => Value::Undefined,
    }
}

/// A number as a count of characters: its integer part, and nothing below zero.
fn count(value: &Value<'_>) -> Option<usize> {
    value.as_f64().map(|n| n.max(0.0) as usize)
}

/// A question about two texts; a third argument of `true` makes it blind to case.
fn test<'a>(args: &[Value<'a>], f: fn(&str, &str) -> bool) -> Value<'a> {
    let (Some(text), Some(part)) = (args[0].as_str(), args[1].as_str()) else {
        return Value::Undefined;
    };
    match args.get(2).map(Value::as_bool) {
        None | Some(Some(false)) => f(text, part).into(),
        Some(Some(true)) => f(&text.to_lowercase(), &part.to_lowercase()).into(),
        Some(None) => Value::Undefined,
    }
}

/// Several questions joined by AND or OR, undefined ones included.
fn contains_several<'a>(args: &[Value<'a>], all: bool, blind_to_case: bool) -> Value<'a> {
    let fold = |text: &str| if blind_to_case { text.to_lowercase() } else { text.to_owned() };
    let Some(text) = args[0].as_str().map(fold) else { return Value::Undefined };
    let parts = args[1..].iter().map(|part| part.as_str().map(|part| text.contains(&fold(part))));
    super::joined(parts, all)
}

fn concat<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let texts: Option<Vec<&str>> = args.iter().map(Value::as_str).collect();
    texts.map(|texts| texts.concat()).into()
}

fn index_of<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let (Some(text), Some(part)) = (args[0].as_str(), args[1].as_str()) else {
        return Value::Undefined;
    };
    let start = match args.get(2) {
        None => 0,
        Some(start) => match count(start) {
            Some(start) => start,
            None => return Value::Undefined,
        },
    };
    let Some(from) = char_offset(text, start) else { return (-1i64).into() };
    match text[from..].find(part) {
        Some(at) => ((start + text[from..from + at].chars().count()) as i64).into(),
        None => (-1i64).into(),
    }
}

/// With a third argument, only what ends at or before that character counts.
fn last_index_of<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let (Some(mut text), Some(part)) = (args[0].as_str(), args[1].as_str()) else {
        return Value::Undefined;
    };
    match args.get(2).map(count) {
        None => {}
        Some(Some(last)) => {
            let end = char_offset(text, last.saturating_add(1)).unwrap_or(text.len());
            text = &text[..end];
        }
        Some(None) => return Value::Undefined,
    }
    let found = text.rfind(part).map(|at| text[..at].chars().count() as i64);
    found.unwrap_or(-1).into()
}

/// The byte at which the character with this number starts; the end counts as one.
fn char_offset(text: &str, number: usize) -> Option<usize> {
    text.char_indices().map(|(at, _)| at).chain([text.len()]).nth(number)
}

fn substring<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    match (args[0].as_str(), count(&args[1]), count(&args[2])) {
        (Some(text), Some(start), Some(length)) => {
            text.chars().skip(start).take(length).collect::<String>().into()
        }
        _ => Value::Undefined,
    }
}

/// What is before and after a delimiter; nothing, if it is not there.
fn parts<'a>(
    args: &[Value<'a>],
    split: for<'t> fn(&'t str, &str) -> Option<(&'t str, &'t str)>,
) -> (Value<'a>, Value<'a>) {
    let (Some(text), Some(delimiter)) = (args[0].as_str(), args[1].as_str()) else {
        return (Value::Undefined, Value::Undefined);
    };
    let (before, after) = split(text, delimiter).unwrap_or_default();
    (before.to_owned().into(), after.to_owned().into())
}

/// Cuts blanks, or any of the given characters, from the ends.
fn trim<'a>(args: &[Value<'a>], start: bool, end: bool) -> Value<'a> {
    let Some(mut text) = args[0].as_str() else { return Value::Undefined };
    let set: Option<Cow<'_, str>> = match args.get(1) {
        None => None,
        Some(Value::String(set)) => Some(set.clone()),
        Some(_) => return Value::Undefined,
    };
    let unwanted = |c: char| set.as_ref().map_or(c.is_whitespace(), |set| set.contains(c));
    if start {
        text = text.trim_start_matches(unwanted);
    }
    if end {
        text = text.trim_end_matches(unwanted);
    }
    text.to_owned().into()
}

fn replace<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let (Some(text), Some(from), Some(to)) = (args[0].as_str(), args[1].as_str(), args[2].as_str())
    else {
        return Value::Undefined;
    };
    if from.is_empty() {
        return args[0].clone();
    }
    let growth = text.matches(from).count().saturating_mul(to.len());
    if growth > REPLACED_BYTES_MAX {
        return Value::Undefined;
    }
    text.replace(from, to).into()
}

fn replicate<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let (Some(text), Some(times)) = (args[0].as_str(), args[1].as_f64()) else {
        return Value::Undefined;
    };
    let length = text.chars().count() as f64 * times;
    if times < 0.0 || length > CHARS_MAX as f64 {
        return Value::Undefined;
    }
    if text.is_empty() {
        return String::new().into();
    }
    text.repeat(times as usize).into()
}
