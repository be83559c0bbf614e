//! Collations: comparing strings as people do, in the part of MongoDB's options that needs no tables of languages.
//!
//! A string becomes a key of up to three levels. The first holds letters without case and accents, punctuation before digits before
//! letters; the second the accents; the third the case, small before large. `strength` says how many levels count; `caseLevel` adds
//! the case to the first; `numericOrdering` compares runs of digits as numbers. Rules of single languages are not here: every
//! locale but `simple` sorts by these.

use std::cmp::Ordering;

use bson::{RawBsonRef, RawDocument};
use unicode_normalization::UnicodeNormalization;

use super::failure::{Failure, Result};
use super::number::Number;

/// How strings are compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collation {
    locale: String,
    strength: u8,
    case_level: bool,
    upper_first: bool,
    numeric: bool,
    backwards: bool,
    shifted: bool,
}

impl Collation {
    /// Reads a `collation` option; none for the simple one, which compares bytes, and for the empty one.
    pub fn parse(spec: &RawDocument) -> Result<Option<Self>> {
        if spec.is_empty() {
            return Ok(None);
        }
        let mut found = Self {
            locale: String::new(),
            strength: 3,
            case_level: false,
            upper_first: false,
            numeric: false,
            backwards: false,
            shifted: false,
        };
        for element in spec.iter() {
            let (name, value) = element?;
            let name = name.as_str();
            let wrong = || {
                Failure::type_mismatch(format!("BSON field 'collation.{name}' is the wrong type"))
            };
            let flag = || value.as_bool().ok_or_else(wrong);
            let text = || value.as_str().ok_or_else(wrong);
            match name {
                "locale" => found.locale = text()?.to_owned(),
                "strength" => {
                    let level =
                        Number::of(value).and_then(Number::to_i64_exact).ok_or_else(wrong)?;
                    found.strength = u8::try_from(level).ok().filter(|n| (1..=5).contains(n)).ok_or_else(
                        || Failure::failed_to_parse(format!("Enumeration value '{level}' for field 'collation.strength' is not a valid value.")),
                    )?;
                }
                "caseLevel" => found.case_level = flag()?,
                "caseFirst" => found.upper_first = text()? == "upper",
                "numericOrdering" => found.numeric = flag()?,
                "backwards" => found.backwards = flag()?,
                "alternate" => found.shifted = text()? == "shifted",
                "maxVariable" | "normalization" | "version" => {}
                _ => {
                    return Err(Failure::coded(
                        40415,
                        format!("BSON field 'collation.{name}' is an unknown field."),
                    ));
                }
            }
        }
        if !matches!(spec.get("locale")?, Some(RawBsonRef::String(_))) {
            return Err(Failure::coded(
                40414,
                "BSON field 'collation.locale' is missing but a required field",
            ));
        }
        let language = found.locale.split(['_', '@', '-']).next().unwrap_or_default();
        if found.locale != "simple"
            && (!(2..=3).contains(&language.len())
                || !language.bytes().all(|b| b.is_ascii_lowercase()))
        {
            return Err(Failure::bad_value(format!(
                "Field 'locale' is invalid in: {}",
                super::value::shown_raw(spec.into())
            )));
        }
        Ok((found.locale != "simple").then_some(found))
    }

    /// The order of two strings.
    pub fn order(&self, a: &str, b: &str) -> Ordering {
        if a == b { Ordering::Equal } else { self.key(a).cmp(&self.key(b)) }
    }

    /// Bytes that sort as the strings do; strings that count as equal have the same.
    pub fn key(&self, text: &str) -> Vec<u8> {
        let (mut letters, mut accents, mut cases) = (Vec::new(), Vec::new(), Vec::new());
        let mut chars = text.nfd().peekable();
        while let Some(char) = chars.next() {
            if is_accent(char) {
                // An accent belongs to the letter before it.
                accents.pop();
                accents.extend((char as u32).to_be_bytes());
                accents.push(0);
                continue;
            }
            if self.shifted && class(char) <= 1 {
                continue;
            }
            if self.numeric && char.is_ascii_digit() {
                let mut run = vec![char as u8];
                while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                    run.push(digit as u8);
                }
                let zeros = run.iter().take_while(|digit| **digit == b'0').count();
                let run = &run[zeros.min(run.len() - 1)..];
                letters.push(CLASS_DIGIT);
                letters.extend((run.len() as u32).to_be_bytes());
                letters.extend(run);
                accents.push(0);
                cases.push(0);
                continue;
            }
            for folded in char.to_lowercase() {
                letters.push(class(folded));
                letters.extend((folded as u32).to_be_bytes());
            }
            accents.push(0);
            cases.push(u8::from(char.is_uppercase() != self.upper_first) + 1);
        }
        if self.backwards {
            accents.reverse();
        }
        let mut key = letters;
        key.push(0);
        if self.strength >= 2 {
            key.extend(accents.iter().map(|byte| byte.saturating_add(1)));
            key.push(0);
        }
        if self.strength >= 3 || self.case_level {
            key.extend(cases);
        }
        if self.strength >= 5 {
            key.push(0);
            key.extend(text.bytes());
        }
        key
    }
}

const CLASS_DIGIT: u8 = 4;

fn is_accent(char: char) -> bool {
    matches!(char as u32, 0x300..=0x36F | 0x1AB0..=0x1AFF | 0x1DC0..=0x1DFF | 0x20D0..=0x20FF)
}

/// Spaces, punctuation, signs, digits, letters.
fn class(char: char) -> u8 {
    match char {
        _ if char.is_whitespace() || char.is_control() => 1,
        '_' | '-' | ',' | ';' | ':' | '!' | '?' | '.' | '\'' | '"' | '(' | ')' | '[' | ']'
        | '{' | '}' | '@' | '*' | '/' | '\\' | '&' | '#' | '%' => 2,
        _ if char.is_numeric() => CLASS_DIGIT,
        _ if char.is_alphabetic() => 5,
        _ => 3,
    }
}
