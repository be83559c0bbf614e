//! Strings and regular expressions.

use std::cell::RefCell;

use bson::{Bson, doc};

use super::eval::{Scope, is_nullish, kind};
use super::{Function, MANY, NamedFunction};
use crate::language::failure::{Failure, Result};
use crate::language::number::Number;
use crate::language::pattern::{Match, Pattern};
use crate::language::value::shown;

pub(super) const FUNCTIONS: &[Function] = &[
    Function { name: "$concat", min: 0, max: MANY, call: |v, _| concat(v) },
    Function { name: "$indexOfBytes", min: 2, max: 4, call: |v, _| index_of("$indexOfBytes", v) },
    Function { name: "$indexOfCP", min: 2, max: 4, call: |v, _| index_of("$indexOfCP", v) },
    Function { name: "$split", min: 2, max: 2, call: |v, _| split(v) },
    Function { name: "$strLenBytes", min: 1, max: 1, call: |v, _| length("$strLenBytes", &v[0]) },
    Function { name: "$strLenCP", min: 1, max: 1, call: |v, _| length("$strLenCP", &v[0]) },
    Function { name: "$strcasecmp", min: 2, max: 2, call: |v, _| compare(v) },
    Function { name: "$substr", min: 3, max: 3, call: |v, _| bytes("$substrBytes", v) },
    Function { name: "$substrBytes", min: 3, max: 3, call: |v, _| bytes("$substrBytes", v) },
    Function { name: "$substrCP", min: 3, max: 3, call: |v, _| chars(v) },
    Function {
        name: "$toLower",
        min: 1,
        max: 1,
        call: |v, _| Ok(Bson::String(coerced("$toLower", &v[0])?.to_lowercase())),
    },
    Function {
        name: "$toUpper",
        min: 1,
        max: 1,
        call: |v, _| Ok(Bson::String(coerced("$toUpper", &v[0])?.to_uppercase())),
    },
];

pub(super) const NAMED: &[NamedFunction] = &[
    NamedFunction {
        name: "$trim",
        names: &["input", "chars"],
        required: 1,
        call: |v, _| trim("$trim", v),
    },
    NamedFunction {
        name: "$ltrim",
        names: &["input", "chars"],
        required: 1,
        call: |v, _| trim("$ltrim", v),
    },
    NamedFunction {
        name: "$rtrim",
        names: &["input", "chars"],
        required: 1,
        call: |v, _| trim("$rtrim", v),
    },
    NamedFunction {
        name: "$replaceOne",
        names: &["input", "find", "replacement"],
        required: 3,
        call: |v, _| replace("$replaceOne", v),
    },
    NamedFunction {
        name: "$replaceAll",
        names: &["input", "find", "replacement"],
        required: 3,
        call: |v, _| replace("$replaceAll", v),
    },
    NamedFunction {
        name: "$regexMatch",
        names: &["input", "regex", "options"],
        required: 2,
        call: regex_match,
    },
    NamedFunction {
        name: "$regexFind",
        names: &["input", "regex", "options"],
        required: 2,
        call: regex_find,
    },
    NamedFunction {
        name: "$regexFindAll",
        names: &["input", "regex", "options"],
        required: 2,
        call: regex_find_all,
    },
];

fn concat(values: &[Bson]) -> Result<Bson> {
    let mut out = String::new();
    for value in values {
        match value {
            value if is_nullish(value) => return Ok(Bson::Null),
            Bson::String(text) | Bson::Symbol(text) => out.push_str(text),
            other => {
                return Err(Failure::coded(
                    16702,
                    format!("$concat only supports strings, not {}", kind(other)),
                ));
            }
        }
    }
    Ok(Bson::String(out))
}

/// The optional bounds of `$indexOf…`: from and to, within the length.
pub(super) fn bounds(name: &str, values: &[Bson], len: usize) -> Result<(usize, usize)> {
    let bound = |at: usize, which: &str| -> Result<Option<usize>> {
        let Some(value) = values.get(at) else { return Ok(None) };
        let number = Number::of_bson(value).and_then(Number::to_i64_exact).ok_or_else(|| {
            Failure::coded(
                40096,
                format!("{name} requires an integral {which} index, found a value of type: {}, with value: {}", kind(value), shown(value)),
            )
        })?;
        usize::try_from(number).map(Some).map_err(|_| {
            Failure::coded(
                40097,
                format!("{name} requires a nonnegative {which} index, found: {number}"),
            )
        })
    };
    let start = bound(2, "starting")?.unwrap_or(0).min(len);
    let end = bound(3, "ending")?.unwrap_or(len).min(len);
    Ok((start, end.max(start)))
}

fn index_of(name: &str, values: &[Bson]) -> Result<Bson> {
    let text = match &values[0] {
        value if is_nullish(value) => return Ok(Bson::Null),
        Bson::String(text) => text,
        other => {
            let code = if name == "$indexOfCP" { 40093 } else { 40091 };
            return Err(Failure::coded(
                code,
                format!("{name} requires a string as the first argument, found: {}", kind(other)),
            ));
        }
    };
    let Bson::String(wanted) = &values[1] else {
        let code = if name == "$indexOfCP" { 40094 } else { 40092 };
        return Err(Failure::coded(
            code,
            format!("{name} requires a string as the second argument, found: {}", kind(&values[1])),
        ));
    };
    if name == "$indexOfBytes" {
        let (start, end) = bounds(name, values, text.len())?;
        let window = &text.as_bytes()[start..end];
        let found = (0..=window.len().saturating_sub(wanted.len()))
            .find(|at| window[*at..].starts_with(wanted.as_bytes()));
        return Ok(Bson::Int32(found.map_or(-1, |at| (start + at) as i32)));
    }
    let chars: Vec<char> = text.chars().collect();
    let wanted: Vec<char> = wanted.chars().collect();
    let (start, end) = bounds(name, values, chars.len())?;
    let window = &chars[start..end];
    let found = (0..=window.len().saturating_sub(wanted.len()))
        .find(|at| window[*at..].starts_with(&wanted));
    Ok(Bson::Int32(found.map_or(-1, |at| (start + at) as i32)))
}

fn split(values: &[Bson]) -> Result<Bson> {
    if values.iter().any(is_nullish) {
        return Ok(Bson::Null);
    }
    let (Bson::String(text), Bson::String(by)) = (&values[0], &values[1]) else {
        let (code, which, value) = match &values[0] {
            Bson::String(_) => (40086, "second", &values[1]),
            first => (40085, "first", first),
        };
        return Err(Failure::coded(
            code,
            format!(
                "$split requires an expression that evaluates to a string as a {which} argument, found: {}",
                kind(value)
            ),
        ));
    };
    if by.is_empty() {
        return Err(Failure::coded(40087, "$split requires a non-empty separator"));
    }
    Ok(Bson::Array(text.split(by.as_str()).map(|part| Bson::String(part.to_owned())).collect()))
}

fn length(name: &str, value: &Bson) -> Result<Bson> {
    match value {
        Bson::String(text) if name == "$strLenBytes" => Ok(Bson::Int32(text.len() as i32)),
        Bson::String(text) => Ok(Bson::Int32(text.chars().count() as i32)),
        other => Err(Failure::coded(
            if name == "$strLenCP" { 34471 } else { 34473 },
            format!("{name} requires a string argument, found: {}", kind(other)),
        )),
    }
}

/// A value as the older string operators read it.
fn coerced(name: &str, value: &Bson) -> Result<String> {
    Ok(match value {
        value if is_nullish(value) => String::new(),
        Bson::String(text) | Bson::Symbol(text) => text.clone(),
        Bson::Int32(n) => n.to_string(),
        Bson::Int64(n) => n.to_string(),
        Bson::Double(n) => super::convert::double_text(*n),
        Bson::Decimal128(n) => n.to_string(),
        Bson::DateTime(date) => super::calendar::iso(date.timestamp_millis()),
        Bson::Timestamp(at) => format!("Timestamp({}, {})", at.time, at.increment),
        Bson::JavaScriptCode(code) => code.clone(),
        other => {
            return Err(Failure::coded(
                16007,
                format!("{name}: can't convert from BSON type {} to String", kind(other)),
            ));
        }
    })
}

fn compare(values: &[Bson]) -> Result<Bson> {
    let fold = |value| coerced("$strcasecmp", value).map(|text| text.to_uppercase());
    Ok(Bson::Int32(fold(&values[0])?.cmp(&fold(&values[1])?) as i32))
}

fn numeric(name: &str, code: i32, which: &str, value: &Bson) -> Result<i64> {
    Number::of_bson(value).map(Number::to_i64_clamped).ok_or_else(|| {
        Failure::coded(
            code,
            format!("{name}:  {which} must be a numeric type (is BSON type {})", kind(value)),
        )
    })
}

fn bytes(name: &str, values: &[Bson]) -> Result<Bson> {
    let text = coerced(name, &values[0])?;
    let start = numeric(name, 16034, "starting index", &values[1])?;
    let length = numeric(name, 16035, "length", &values[2])?;
    let Ok(start) = usize::try_from(start) else {
        return Err(Failure::coded(
            50752,
            format!("{name}:  starting index must be non-negative (got: {start})"),
        ));
    };
    if start >= text.len() {
        return Ok(Bson::String(String::new()));
    }
    let end = usize::try_from(length)
        .map_or(text.len(), |length| start.saturating_add(length).min(text.len()));
    if !text.is_char_boundary(start) {
        return Err(Failure::coded(
            28656,
            format!("{name}:  Invalid range, starting index is a UTF-8 continuation byte."),
        ));
    }
    if !text.is_char_boundary(end) {
        return Err(Failure::coded(
            28657,
            format!("{name}:  Invalid range, ending index is in the middle of a UTF-8 character."),
        ));
    }
    Ok(Bson::String(text[start..end].to_owned()))
}

fn chars(values: &[Bson]) -> Result<Bson> {
    let text = coerced("$substrCP", &values[0])?;
    let part = |at: usize, code: i32, which: &str| -> Result<usize> {
        let value = &values[at];
        let number = Number::of_bson(value).ok_or_else(|| {
            Failure::coded(
                code,
                format!("$substrCP: {which} must be a numeric type (is BSON type {})", kind(value)),
            )
        })?;
        let number = number.to_i64_exact().ok_or_else(|| {
            Failure::coded(
                code + 1,
                format!(
                    "$substrCP: {which} cannot be represented as a 32-bit integral value: {}",
                    shown(value)
                ),
            )
        })?;
        usize::try_from(number).map_err(|_| {
            Failure::coded(
                if at == 1 { 34455 } else { 34454 },
                format!(
                    "$substrCP: {} must be a nonnegative integer.",
                    if at == 1 { "the starting index" } else { "length" }
                ),
            )
        })
    };
    let (start, length) = (part(1, 34450, "starting index")?, part(2, 34452, "length")?);
    Ok(Bson::String(text.chars().skip(start).take(length).collect()))
}

fn trim(name: &str, values: &[Option<Bson>]) -> Result<Bson> {
    let text = match &values[0] {
        Some(Bson::String(text)) => text,
        Some(value) if is_nullish(value) => return Ok(Bson::Null),
        other => {
            let other = other.as_ref().unwrap_or(&Bson::Undefined);
            return Err(Failure::coded(
                50699,
                format!(
                    "{name} requires its input to be a string, got {} (of type {}) instead.",
                    shown(other),
                    kind(other)
                ),
            ));
        }
    };
    let is_trimmed: Box<dyn Fn(char) -> bool> = match &values[1] {
        None => Box::new(|c| c.is_whitespace() || c == '\0'),
        Some(Bson::String(chars)) => {
            let chars: Vec<char> = chars.chars().collect();
            Box::new(move |c| chars.contains(&c))
        }
        Some(value) if is_nullish(value) => return Ok(Bson::Null),
        Some(other) => {
            return Err(Failure::coded(
                50700,
                format!(
                    "{name} requires 'chars' to be a string, got {} (of type {}) instead.",
                    shown(other),
                    kind(other)
                ),
            ));
        }
    };
    let trimmed = match name {
        "$ltrim" => text.trim_start_matches(is_trimmed),
        "$rtrim" => text.trim_end_matches(is_trimmed),
        _ => text.trim_matches(is_trimmed),
    };
    Ok(Bson::String(trimmed.to_owned()))
}

fn replace(name: &str, values: &[Option<Bson>]) -> Result<Bson> {
    let mut texts = Vec::new();
    let mut is_null = false;
    for (at, which, code) in [(0, "input", 51746), (1, "find", 51745), (2, "replacement", 51744)] {
        match &values[at] {
            Some(Bson::String(text)) => texts.push(text.as_str()),
            Some(value) if is_nullish(value) => is_null = true,
            other => {
                let other = other.as_ref().unwrap_or(&Bson::Undefined);
                return Err(Failure::coded(
                    code,
                    format!("{name} requires that '{which}' be a string, found: {}", shown(other)),
                ));
            }
        }
    }
    match &texts[..] {
        [input, find, replacement] if !is_null => Ok(Bson::String(if name == "$replaceOne" {
            input.replacen(find, replacement, 1)
        } else {
            input.replace(find, replacement)
        })),
        _ => Ok(Bson::Null),
    }
}

thread_local! {
    /// The patterns used last: most expressions ask every document for the same one.
    static COMPILED: RefCell<Vec<Pattern>> = const { RefCell::new(Vec::new()) };
}

/// How many patterns a thread keeps.
const COMPILED_MAX: usize = 16;

fn compiled(source: &str, options: &str, name: &str) -> Result<Pattern> {
    let is_it = |each: &Pattern| each.source == source && each.options == options;
    let known = COMPILED.with_borrow(|all| all.iter().find(|each| is_it(each)).cloned());
    if let Some(known) = known {
        return Ok(known);
    }
    let pattern = Pattern::compile(source, options, name)?;
    COMPILED.with_borrow_mut(|all| {
        if all.len() == COMPILED_MAX {
            all.remove(0);
        }
        all.push(pattern.clone());
    });
    Ok(pattern)
}

/// The text and the pattern; none if one is null.
fn searched(name: &str, values: &[Option<Bson>]) -> Result<Option<(String, Pattern)>> {
    let text = match &values[0] {
        Some(Bson::String(text) | Bson::Symbol(text)) => Some(text.clone()),
        Some(value) if is_nullish(value) => None,
        _ => {
            return Err(Failure::coded(
                51104,
                format!("{name} needs 'input' to be of type string"),
            ));
        }
    };
    let options = match &values[2] {
        None => None,
        Some(value) if is_nullish(value) => None,
        Some(Bson::String(options)) => Some(options.as_str()),
        Some(_) => {
            return Err(Failure::coded(
                51106,
                format!("{name} needs 'options' to be of type string"),
            ));
        }
    };
    let pattern = match &values[1] {
        Some(Bson::String(source)) => compiled(source, options.unwrap_or(""), name)?,
        Some(Bson::RegularExpression(regex)) => {
            let own = regex.options.as_str();
            if options.is_some() && !own.is_empty() {
                return Err(Failure::coded(
                    51107,
                    format!(
                        "{name}: found regex option(s) specified in both 'regex' and 'option' fields"
                    ),
                ));
            }
            compiled(regex.pattern.as_str(), options.unwrap_or(own), name)?
        }
        Some(value) if is_nullish(value) => return Ok(None),
        _ => {
            return Err(Failure::coded(
                51105,
                format!("{name} needs 'regex' to be of type string or regex"),
            ));
        }
    };
    Ok(text.map(|text| (text, pattern)))
}

fn regex_match(values: &[Option<Bson>], _: &Scope<'_>) -> Result<Bson> {
    Ok(Bson::Boolean(match searched("$regexMatch", values)? {
        Some((text, pattern)) => pattern.is_match(&text)?,
        None => false,
    }))
}

fn described(text: &str, found: Match) -> Bson {
    let captures: Vec<Bson> =
        found.groups.into_iter().map(|group| group.map_or(Bson::Null, Bson::String)).collect();
    Bson::Document(doc! {
        "match": &text[found.start..found.end],
        "idx": text[..found.start].chars().count() as i32,
        "captures": captures,
    })
}

fn regex_find(values: &[Option<Bson>], _: &Scope<'_>) -> Result<Bson> {
    let Some((text, pattern)) = searched("$regexFind", values)? else { return Ok(Bson::Null) };
    Ok(pattern.find_at(&text, 0)?.map_or(Bson::Null, |found| described(&text, found)))
}

fn regex_find_all(values: &[Option<Bson>], _: &Scope<'_>) -> Result<Bson> {
    let mut out = Vec::new();
    let Some((text, pattern)) = searched("$regexFindAll", values)? else {
        return Ok(Bson::Array(out));
    };
    let mut from = 0;
    while from <= text.len() {
        let Some(found) = pattern.find_at(&text, from)? else { break };
        // An empty match moves on by one character.
        from = if found.end > found.start {
            found.end
        } else {
            found.end + text[found.end..].chars().next().map_or(1, char::len_utf8)
        };
        out.push(described(&text, found));
    }
    Ok(Bson::Array(out))
}
