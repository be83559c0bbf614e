//! REGEXMATCH and its kin: regular expressions as Perl has them, look-around and back-references too.
//!
//! What the engine must backtrack for has a limit, so a hostile pattern cannot stall the server: past
//! it, as for a pattern that is none, the result is undefined.

use std::borrow::Cow;

use fancy_regex::{NoExpand, Regex};

use super::{Function, Host, pure};
use crate::value::Value;

/// The family's table.
pub const FUNCTIONS: &[Function] = &[
    pure("REGEXEXTRACT", (2, 4), |host, args| match extract(host, args) {
        Some((regex, text, group)) => match regex.captures(text) {
            Ok(found) => found.and_then(|found| Some(found.get(group)?.as_str().to_owned())).into(),
            Err(_) => Value::Undefined,
        },
        None => Value::Undefined,
    }),
    pure("REGEXEXTRACTALL", (2, 4), extract_all),
    pure("REGEXMATCH", (2, 3), |host, args| {
        let found = |(regex, text): (Regex, &str)| regex.is_match(text).ok();
        pattern(host, args, 2).and_then(found).into()
    }),
    pure("REGEXREPLACE", (3, 4), |host, args| replace(host, args, 1)),
    // No limit on the number of matches is written as zero.
    pure("REGEXREPLACEALL", (3, 4), |host, args| replace(host, args, 0)),
];

/// The pattern and the text to search, with the modifiers in the argument of that number: `m` lines,
/// `s` dot matches line ends, `i` blind to case, `x` blanks are ignored.
fn pattern<'t>(host: &Host, args: &'t [Value<'_>], modifiers: usize) -> Option<(Regex, &'t str)> {
    let (text, pattern) = (args[0].as_str()?, args[1].as_str()?);
    let modifiers = args.get(modifiers).map_or(Some(""), Value::as_str)?;
    if !modifiers.chars().all(|c| "msix".contains(c)) {
        return None;
    }
    let source: Cow<'_, str> = match modifiers {
        "" => pattern.into(),
        // The line end keeps a comment in an `x` pattern from swallowing the bracket.
        modifiers if modifiers.contains('x') => format!("(?{modifiers}:{pattern}\n)").into(),
        modifiers => format!("(?{modifiers}:{pattern})").into(),
    };
    Some((host.pattern(&source)?, text))
}

/// The same, and the group that is asked for; 0 is the whole match.
fn extract<'t>(host: &Host, args: &'t [Value<'_>]) -> Option<(Regex, &'t str, usize)> {
    let (regex, text) = pattern(host, args, 2)?;
    let group = args.get(3).map_or(Some(0), Value::as_i64)?;
    Some((regex, text, usize::try_from(group).ok()?))
}

/// All matches, without those in which the group took no part.
fn extract_all<'a>(host: &Host, args: &[Value<'a>]) -> Value<'a> {
    let Some((regex, text, group)) = extract(host, args) else { return Value::Undefined };
    let mut all = Vec::new();
    for found in regex.captures_iter(text) {
        let Ok(found) = found else { return Value::Undefined };
        all.extend(found.get(group).map(|part| Value::from(part.as_str().to_owned())));
    }
    Value::array(all)
}

/// The text with the first so many matches replaced by another text, which is taken as it is.
fn replace<'a>(host: &Host, args: &[Value<'a>], limit: usize) -> Value<'a> {
    let (Some((regex, text)), Some(to)) = (pattern(host, args, 3), args[2].as_str()) else {
        return Value::Undefined;
    };
    // Every match grows the text by so much at most, and there is at most one for each byte and the end.
    if (text.len() + 1).saturating_mul(to.len()) > super::string::REPLACED_BYTES_MAX {
        return Value::Undefined;
    }
    let replaced = regex.try_replacen(text, limit, NoExpand(to)).ok();
    replaced.map(Cow::into_owned).into()
}
