//! LIKE: `%` for any text, `_` for one character, `[a-f]` and `[^a-f]` for one of several.

use super::Host;
use crate::value::Value;

/// Whether text matches a LIKE pattern; undefined unless all are strings.
pub fn matches<'a>(
    host: &Host,
    value: &Value<'a>,
    pattern: &Value<'a>,
    escape: Option<&Value<'a>>,
) -> Value<'a> {
    let (Some(value), Some(pattern)) = (value.as_str(), pattern.as_str()) else {
        return Value::Undefined;
    };
    let escape = match escape {
        None => None,
        Some(escape) => {
            let mut chars = escape.as_str().unwrap_or_default().chars();
            match (chars.next(), chars.next()) {
                (Some(escape), None) => Some(escape),
                _ => return Value::Undefined,
            }
        }
    };
    let regex = host.pattern(&to_regex(pattern, escape));
    regex.map(|regex| regex.is_match(value)).into()
}

/// The text that every match begins with, and whether anything may follow it (a lone `%`).
pub fn prefix(pattern: &str, escape: Option<char>) -> (String, bool) {
    let mut prefix = String::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            c if Some(c) == escape => prefix.extend(chars.next()),
            '%' => return (prefix, chars.as_str().is_empty()),
            '_' | '[' => return (prefix, false),
            c => prefix.push(c),
        }
    }
    (prefix, false)
}

fn to_regex(pattern: &str, escape: Option<char>) -> String {
    let mut regex = String::from("(?s)^");
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            c if Some(c) == escape => push_plain(&mut regex, chars.next().unwrap_or(c)),
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '[' => match chars.as_str().find(']') {
                Some(end) if end > 0 => {
                    push_class(&mut regex, &chars.as_str()[..end]);
                    chars = chars.as_str()[end + 1..].chars();
                }
                _ => push_plain(&mut regex, '['),
            },
            c => push_plain(&mut regex, c),
        }
    }
    regex.push('$');
    regex
}

/// One of several characters; inside, only `^` at the start and `-` in the middle mean something.
fn push_class(regex: &mut String, class: &str) {
    regex.push('[');
    let members = match class.strip_prefix('^') {
        Some(members) => {
            regex.push('^');
            members
        }
        None => class,
    };
    for c in members.chars() {
        if c == '-' { regex.push('-') } else { push_plain(regex, c) }
    }
    regex.push(']');
}

fn push_plain(regex: &mut String, c: char) {
    regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
}
