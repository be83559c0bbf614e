//! Cosmos binary JSON, read and written down as text.
//!
//! The Rust SDK sends items in this form by default, .NET when asked to. A value is a marker byte and what the marker says
//! follows; a body begins with [`PREAMBLE`]. Answers are always text, which both accept.
//!
//! | marker | value |
//! |---|---|
//! | 00–1F | the number itself |
//! | 20–3F | a string that both sides know |
//! | 71–74 | the base64 text of bytes: groups of three, padding, bytes |
//! | 75–77 | a GUID as text: lower case, upper case, lower case in quotes |
//! | 78–7A | characters of four bits: hex, upper-case hex, dates |
//! | 7B–7F | characters of 4 to 7 bits, counted from a base |
//! | 80–BF, C0–C2 | UTF-8 with its length in the marker, or in 1, 2, 4 bytes |
//! | C3–C6 | the string at an offset of 1 to 4 bytes from the start |
//! | C7–CF, D7–DC | numbers, little-endian |
//! | D0–D3, DD–DF | null, false, true, a GUID, bytes |
//! | E0–E7, E8–EF | arrays, objects: empty, of one, by length, by length and count |
//! | F0–F3 | numbers of one type, and arrays of such arrays |
//!
//! Nothing in a body is believed: lengths are checked against what is there, nesting and the size of the text are bounded.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// The first byte of a body in this form. No JSON text begins with it.
pub(crate) const PREAMBLE: u8 = 0x80;

/// The most arrays and objects within each other: what can be read of a text.
const DEPTH_MAX: usize = 127;

/// The longest text: repeated references could otherwise make a short body long.
const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The strings that both sides know.
const KNOWN_STRINGS: [&str; 32] = [
    "$s",
    "$t",
    "$v",
    "_attachments",
    "_etag",
    "_rid",
    "_self",
    "_ts",
    "attachments/",
    "coordinates",
    "geometry",
    "GeometryCollection",
    "id",
    "url",
    "Value",
    "label",
    "LineString",
    "link",
    "MultiLineString",
    "MultiPoint",
    "MultiPolygon",
    "name",
    "Name",
    "Type",
    "Point",
    "Polygon",
    "properties",
    "type",
    "value",
    "Feature",
    "FeatureCollection",
    "_id",
];

/// Why a body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// It ends too early, or a length inside it is wrong.
    Truncated,
    /// More follows the value.
    Trailing,
    /// No value has this marker.
    Marker(u8),
    /// A string is not UTF-8, or not of the characters that its form allows.
    Text,
    /// JSON has no such number.
    Number,
    /// A name that is not a string.
    Name,
    /// Nested too deeply.
    Depth,
    /// The text would be too long.
    Size,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Truncated => f.write_str("it ends too early"),
            Self::Trailing => f.write_str("something follows the value"),
            Self::Marker(marker) => write!(f, "unknown marker {marker:#04x}"),
            Self::Text => f.write_str("a string is malformed"),
            Self::Number => f.write_str("a number is not finite"),
            Self::Name => f.write_str("a property name is not a string"),
            Self::Depth => f.write_str("nested too deeply"),
            Self::Size => f.write_str("too large"),
        }
    }
}

type Result<T> = std::result::Result<T, Error>;

/// The text of a body, preamble included.
pub(crate) fn to_text(body: &[u8]) -> Result<Vec<u8>> {
    if body.first() != Some(&PREAMBLE) {
        return Err(Error::Truncated);
    }
    let mut out = Vec::with_capacity(body.len() * 2);
    let mut reader = Reader { body, at: 1, end: body.len() };
    reader.value(0, &mut out)?;
    if reader.at == reader.end { Ok(out) } else { Err(Error::Trailing) }
}

/// A place in the body, and where the value around it ends.
struct Reader<'b> {
    body: &'b [u8],
    at: usize,
    end: usize,
}

impl<'b> Reader<'b> {
    fn value(&mut self, depth: usize, out: &mut Vec<u8>) -> Result<()> {
        if out.len() > TEXT_BYTES_MAX {
            return Err(Error::Size);
        }
        let marker = self.byte()?;
        match marker {
            0x00..=0x1F => push_number(i64::from(marker), out),
            0x20..=0x3F | 0x71..=0xC6 => {
                let text = self.string(marker)?;
                push_string(&text, out);
            }
            0xC7 | 0xC8..=0xCF | 0xD7..=0xDC => self.number(marker, out)?,
            0xD0 => out.extend_from_slice(b"null"),
            0xD1 => out.extend_from_slice(b"false"),
            0xD2 => out.extend_from_slice(b"true"),
            0xD3 => {
                let text = guid_of_fields(self.array()?);
                push_string(&text, out);
            }
            0xDD..=0xDF => {
                let length = self.length(marker - 0xDD)?;
                push_string(&STANDARD.encode(self.take(length)?), out);
            }
            0xE0..=0xE7 => self.array_value(marker - 0xE0, depth, out)?,
            0xE8..=0xEF => self.object_value(marker - 0xE8, depth, out)?,
            0xF0..=0xF3 => self.uniform(marker, depth, out)?,
            _ => return Err(Error::Marker(marker)),
        }
        Ok(())
    }

    fn array_value(&mut self, form: u8, depth: usize, out: &mut Vec<u8>) -> Result<()> {
        out.push(b'[');
        let mut first = true;
        self.members(form, depth, |reader, depth| {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            reader.value(depth, out)
        })?;
        out.push(b']');
        Ok(())
    }

    fn object_value(&mut self, form: u8, depth: usize, out: &mut Vec<u8>) -> Result<()> {
        out.push(b'{');
        let mut first = true;
        self.members(form, depth, |reader, depth| {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            let marker = reader.byte()?;
            if !matches!(marker, 0x20..=0x3F | 0x71..=0xC6) {
                return Err(Error::Name);
            }
            let name = reader.string(marker)?;
            push_string(&name, out);
            out.push(b':');
            reader.value(depth, out)
        })?;
        out.push(b'}');
        Ok(())
    }

    /// Calls `member` for each member of an array or object in one of its eight forms.
    fn members(
        &mut self,
        form: u8,
        depth: usize,
        mut member: impl FnMut(&mut Self, usize) -> Result<()>,
    ) -> Result<()> {
        let depth = deeper(depth, 1)?;
        let (length, count) = match form {
            0 => return Ok(()),
            1 => return member(self, depth),
            2..=4 => (self.length(form - 2)?, None),
            _ => (self.length(form - 5)?, Some(self.length(form - 5)?)),
        };
        let outer = self.end;
        let end =
            self.at.checked_add(length).filter(|end| *end <= outer).ok_or(Error::Truncated)?;
        self.end = end;
        let mut seen = 0;
        while self.at < end {
            member(self, depth)?;
            seen += 1;
        }
        self.end = outer;
        if count.is_none_or(|count| count == seen) { Ok(()) } else { Err(Error::Truncated) }
    }

    /// Arrays of numbers that share one marker, and arrays of such arrays that share their length.
    fn uniform(&mut self, marker: u8, depth: usize, out: &mut Vec<u8>) -> Result<()> {
        let width = (marker - 0xF0) % 2;
        let nested = marker >= 0xF2;
        deeper(depth, if nested { 2 } else { 1 })?;
        if nested && self.byte()? != marker - 2 {
            return Err(Error::Truncated);
        }
        let item = self.byte()?;
        let inner = self.length(width)?;
        let outer = if nested { self.length(width)? } else { 1 };
        if nested {
            out.push(b'[');
        }
        for place in 0..outer {
            if place > 0 {
                out.push(b',');
            }
            self.uniform_row(item, inner, out)?;
        }
        if nested {
            out.push(b']');
        }
        Ok(())
    }

    fn uniform_row(&mut self, item: u8, count: usize, out: &mut Vec<u8>) -> Result<()> {
        if out.len() > TEXT_BYTES_MAX {
            return Err(Error::Size);
        }
        out.push(b'[');
        for place in 0..count {
            if place > 0 {
                out.push(b',');
            }
            self.number(item, out)?;
        }
        out.push(b']');
        Ok(())
    }

    fn number(&mut self, marker: u8, out: &mut Vec<u8>) -> Result<()> {
        match marker {
            0xC7 => push_number(u64::from_le_bytes(self.array()?), out),
            0xC8 | 0xD7 => push_number(self.byte()?, out),
            0xD8 => push_number(self.byte()? as i8, out),
            0xC9 | 0xD9 => push_number(i16::from_le_bytes(self.array()?), out),
            0xCA | 0xDA => push_number(i32::from_le_bytes(self.array()?), out),
            0xCB | 0xDB => push_number(i64::from_le_bytes(self.array()?), out),
            0xDC => push_number(u32::from_le_bytes(self.array()?), out),
            0xCC | 0xCE => push_float(f64::from_le_bytes(self.array()?), out)?,
            0xCD => push_float(f64::from(f32::from_le_bytes(self.array()?)), out)?,
            0xCF => push_float(half(u16::from_le_bytes(self.array()?)), out)?,
            _ => return Err(Error::Marker(marker)),
        }
        Ok(())
    }

    fn string(&mut self, marker: u8) -> Result<String> {
        match marker {
            0x71..=0x74 => self.base64(marker),
            0x75 => Ok(guid_of_digits(self.array()?, LOWER_HEX)),
            0x76 => Ok(guid_of_digits(self.array()?, UPPER_HEX)),
            0x77 => Ok(format!("\"{}\"", guid_of_digits(self.array()?, LOWER_HEX))),
            0x78..=0x7A => {
                let alphabet = [LOWER_HEX, UPPER_HEX, DATES][usize::from(marker - 0x78)];
                let count = usize::from(self.byte()?);
                let nibbles = self.packed(4, count)?;
                Ok(nibbles
                    .iter()
                    .map(|nibble| char::from(alphabet[usize::from(*nibble)]))
                    .collect())
            }
            0x7B..=0x7F => {
                let count = self.length(u8::from(marker == 0x7F))?;
                let bits = [4, 5, 6, 7, 7][usize::from(marker - 0x7B)];
                let base = if bits < 7 { self.byte()? } else { 0 };
                let letter = |code: u8| base.checked_add(code).filter(u8::is_ascii).map(char::from);
                self.packed(bits, count)?
                    .into_iter()
                    .map(|code| letter(code).ok_or(Error::Text))
                    .collect()
            }
            0xC3..=0xC6 => {
                let offset = self.take(usize::from(marker - 0xC2))?;
                let offset = offset.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
                let mut there = Reader { body: self.body, at: offset, end: self.body.len() };
                match there.byte()? {
                    // Only plain strings are referred to, so a reference never leads to another.
                    target @ (0x20..=0x3F | 0x80..=0xC2) => there.string(target),
                    target => Err(Error::Marker(target)),
                }
            }
            0x20..=0x3F => Ok(KNOWN_STRINGS[usize::from(marker - 0x20)].to_owned()),
            0x80..=0xBF => self.utf8(usize::from(marker & 0x7F)),
            0xC0..=0xC2 => {
                let length = self.length(marker - 0xC0)?;
                self.utf8(length)
            }
            _ => Err(Error::Marker(marker)),
        }
    }

    fn utf8(&mut self, length: usize) -> Result<String> {
        std::str::from_utf8(self.take(length)?).map(str::to_owned).map_err(|_| Error::Text)
    }

    /// Groups of three bytes, how many bytes the last lacks, and the bytes. The complement of that number says that the text has no
    /// padding.
    fn base64(&mut self, marker: u8) -> Result<String> {
        let groups = self.length((marker - 0x71) % 2)?;
        let padding = self.byte()?;
        let (padded, missing) = if padding <= 2 { (true, padding) } else { (false, !padding) };
        let length = (groups * 3)
            .checked_sub(usize::from(missing))
            .filter(|_| missing <= 2)
            .ok_or(Error::Text)?;
        let bytes = self.take(length)?;
        let mut text = if marker < 0x73 { STANDARD.encode(bytes) } else { URL_SAFE.encode(bytes) };
        if !padded {
            text.truncate(text.trim_end_matches('=').len());
        }
        Ok(text)
    }

    /// `count` groups of `bits` bits, the lowest first.
    fn packed(&mut self, bits: usize, count: usize) -> Result<Vec<u8>> {
        let bytes = self.take((bits * count).div_ceil(8))?;
        let group = |place: usize| {
            let (byte, shift) = (place * bits / 8, place * bits % 8);
            let next = bytes.get(byte + 1).copied().unwrap_or(0);
            let pair = u16::from_le_bytes([bytes[byte], next]);
            (pair >> shift) as u8 & ((1 << bits) - 1)
        };
        Ok((0..count).map(group).collect())
    }

    /// A length of 1, 2 or 4 bytes.
    fn length(&mut self, width: u8) -> Result<usize> {
        Ok(match width {
            0 => usize::from(self.byte()?),
            1 => usize::from(u16::from_le_bytes(self.array()?)),
            _ => u32::from_le_bytes(self.array()?) as usize,
        })
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many bytes as were asked for"))
    }

    fn take(&mut self, count: usize) -> Result<&'b [u8]> {
        let end =
            self.at.checked_add(count).filter(|end| *end <= self.end).ok_or(Error::Truncated)?;
        let bytes = &self.body[self.at..end];
        self.at = end;
        Ok(bytes)
    }
}

const LOWER_HEX: &[u8; 16] = b"0123456789abcdef";
const UPPER_HEX: &[u8; 16] = b"0123456789ABCDEF";
const DATES: &[u8; 16] = b" 0123456789:-.TZ";

/// A GUID whose digits are stored as text order, the first of each pair in the low half.
fn guid_of_digits(bytes: [u8; 16], alphabet: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (place, byte) in bytes.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push(char::from(alphabet[usize::from(byte & 15)]));
        text.push(char::from(alphabet[usize::from(byte >> 4)]));
    }
    text
}

/// A GUID stored as a number: its first three fields are little-endian.
fn guid_of_fields(mut bytes: [u8; 16]) -> String {
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    guid_of_digits(bytes.map(|byte| byte.rotate_left(4)), LOWER_HEX)
}

/// A 16-bit float.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

fn push_number(number: impl Into<serde_json::Number>, out: &mut Vec<u8>) {
    out.extend_from_slice(number.into().to_string().as_bytes());
}

/// The depth of what is so many levels further in.
fn deeper(depth: usize, levels: usize) -> Result<usize> {
    Some(depth + levels).filter(|depth| *depth <= DEPTH_MAX).ok_or(Error::Depth)
}

fn push_float(number: f64, out: &mut Vec<u8>) -> Result<()> {
    let number = serde_json::Number::from_f64(number).ok_or(Error::Number)?;
    push_number(number, out);
    Ok(())
}

fn push_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("writing to memory cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    // Bodies in hex, without their preamble, and their texts. The mutations below begin with them, too.

    const NUMBERS: &[(&str, &str)] = &[
        ("00", "0"),
        ("1F", "31"),
        ("C7 FFFFFFFFFFFFFFFF", "18446744073709551615"),
        ("C8 FF", "255"),
        ("D7 FF", "255"),
        ("D8 FF", "-1"),
        ("C9 00FF", "-256"),
        ("D9 00FF", "-256"),
        ("CA FFFFFF7F", "2147483647"),
        ("DA 00000080", "-2147483648"),
        ("CB 0000000000000080", "-9223372036854775808"),
        ("DB FFFFFFFFFFFFFFFF", "-1"),
        ("DC FFFFFFFF", "4294967295"),
        ("CC 000000000000F83F", "1.5"),
        ("CE 000000000000F83F", "1.5"),
        ("CD 0000C03F", "1.5"),
        ("CF 003E", "1.5"),
        ("CF 0100", "5.960464477539063e-8"),
        ("CF 00C0", "-2.0"),
    ];

    const STRINGS: &[(&str, &str)] = &[
        ("2C", r#""id""#),
        ("3F", r#""_id""#),
        ("80", r#""""#),
        ("82 6869", r#""hi""#),
        ("C0 02 6869", r#""hi""#),
        ("C1 0200 6869", r#""hi""#),
        ("C2 02000000 6869", r#""hi""#),
        ("82 220A", r#""\"\n""#),
        // The same string twice, the second time by its place.
        ("E2 05 82 6869 C3 03", r#"["hi","hi"]"#),
        ("E2 06 82 6869 C4 0300", r#"["hi","hi"]"#),
        ("E2 07 82 6869 C5 030000", r#"["hi","hi"]"#),
        ("E2 08 82 6869 C6 03000000", r#"["hi","hi"]"#),
        ("71 01 00 666F6F", r#""Zm9v""#),
        ("71 01 01 666F", r#""Zm8=""#),
        ("72 0100 02 41", r#""QQ==""#),
        ("71 01 FD 41", r#""QQ""#),
        ("73 01 00 FFEFFF", r#""_-__""#),
        ("74 0100 01 FFEF", r#""_-8=""#),
        ("75 10325476 98BA DCFE 1032 547698BADCFE", r#""01234567-89ab-cdef-0123-456789abcdef""#),
        ("76 10325476 98BA DCFE 1032 547698BADCFE", r#""01234567-89AB-CDEF-0123-456789ABCDEF""#),
        (
            "77 10325476 98BA DCFE 1032 547698BADCFE",
            r#""\"01234567-89ab-cdef-0123-456789abcdef\"""#,
        ),
        ("D3 67452301 AB89 EFCD 0123 456789ABCDEF", r#""01234567-89ab-cdef-0123-456789abcdef""#),
        ("78 03 BA0C", r#""abc""#),
        ("79 03 BA0C", r#""ABC""#),
        ("7A 13 13 62 1C C7 14 30 B4 65 2B 04", r#""2015-06-30 23:45:13""#),
        ("7B 03 61 1002", r#""abc""#),
        ("7C 03 61 2008", r#""abc""#),
        ("7D 03 61 4020 00", r#""abc""#),
        ("7E 03 61F118", r#""abc""#),
        ("7F 0300 61F118", r#""abc""#),
        ("DD 03 666F6F", r#""Zm9v""#),
        ("DE 0300 666F6F", r#""Zm9v""#),
        ("DF 03000000 666F6F", r#""Zm9v""#),
    ];

    const NESTED: &[(&str, &str)] = &[
        ("E0", "[]"),
        ("E1 D0", "[null]"),
        ("E2 02 D1 D2", "[false,true]"),
        ("E3 0200 D1 D2", "[false,true]"),
        ("E4 02000000 D1 D2", "[false,true]"),
        ("E5 02 02 D1 D2", "[false,true]"),
        ("E6 0200 0200 D1 D2", "[false,true]"),
        ("E7 02000000 02000000 D1 D2", "[false,true]"),
        ("E8", "{}"),
        ("E9 2C 01", r#"{"id":1}"#),
        ("EA 02 2C 01", r#"{"id":1}"#),
        ("EB 0200 2C 01", r#"{"id":1}"#),
        ("EC 02000000 2C 01", r#"{"id":1}"#),
        ("ED 02 01 2C 01", r#"{"id":1}"#),
        ("EE 0200 0100 2C 01", r#"{"id":1}"#),
        ("EF 02000000 01000000 2C 01", r#"{"id":1}"#),
        ("F0 D8 03 01 02 FF", "[1,2,-1]"),
        ("F1 D8 0300 01 02 FF", "[1,2,-1]"),
        ("F2 F0 D8 02 02 01 02 03 04", "[[1,2],[3,4]]"),
        ("F3 F1 D8 0200 0200 01 02 03 04", "[[1,2],[3,4]]"),
        // What the Rust SDK sends.
        ("ED 13 02 81 61 E5 03 03 01 02 03 81 66 CC 000000000000F83F", r#"{"a":[1,2,3],"f":1.5}"#),
    ];

    /// A body that is written in hex.
    fn body(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        std::iter::once(PREAMBLE).chain(digits.chunks(2).map(byte)).collect()
    }

    fn text(hex: &str) -> std::result::Result<String, Error> {
        to_text(&body(hex)).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn numbers_of_every_marker() {
        for &(hex, expected) in NUMBERS {
            assert_eq!(text(hex).as_deref(), Ok(expected), "{hex}");
        }
        for not_finite in ["CC 000000000000F07F", "CD 0000C07F", "CF 007C", "CF 007E"] {
            assert_eq!(text(not_finite), Err(Error::Number));
        }
    }

    #[test]
    fn strings_of_every_marker() {
        for &(hex, expected) in STRINGS {
            assert_eq!(text(hex).as_deref(), Ok(expected), "{hex}");
        }
    }

    #[test]
    fn arrays_and_objects_of_every_marker() {
        for &(hex, expected) in NESTED {
            assert_eq!(text(hex).as_deref(), Ok(expected), "{hex}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (hex, error) in [
            ("", Error::Truncated),
            ("00 00", Error::Trailing),
            ("40", Error::Marker(0x40)),
            ("FF", Error::Marker(0xFF)),
            ("82 68", Error::Truncated),
            ("82 C328", Error::Text),
            ("E2 05 D0", Error::Truncated),
            ("E2 01 82 68 69", Error::Truncated),
            ("E5 02 03 D1 D2", Error::Truncated),
            ("E9 01 01", Error::Name),
            ("C3 01", Error::Marker(0xC3)),
            ("C3 F0", Error::Truncated),
            ("71 01 05 41", Error::Text),
            ("71 00 01", Error::Text),
            ("7B 01 7F 01", Error::Text),
            ("F0 D0 01 00", Error::Marker(0xD0)),
            ("F2 F1 D8 01 01 01", Error::Truncated),
        ] {
            assert_eq!(text(hex), Err(error), "{hex}");
        }
    }

    /// What is read here can be read as text, too: no deeper, whatever is innermost.
    #[test]
    fn nesting_ends_where_that_of_texts_does() {
        let innermost =
            [("00", 0), ("E0", 1), ("E8", 1), ("F0 D8 01 01", 1), ("F2 F0 D8 01 01 01", 2)];
        for (hex, levels) in innermost {
            let nested = |depth: usize| text(&("E1".repeat(depth - levels) + hex));
            let deepest = nested(DEPTH_MAX).unwrap();
            serde_json::from_str::<serde_json::Value>(&deepest).expect("a text that can be read");
            assert_eq!(nested(DEPTH_MAX + 1), Err(Error::Depth), "{hex}");
        }
    }

    #[test]
    fn a_short_body_cannot_become_a_long_text() {
        let mut body = vec![PREAMBLE, 0xE4];
        let string = [0xC1, 0x00, 0xFF].into_iter().chain(std::iter::repeat_n(b'x', 0xFF00));
        let rest: Vec<u8> = string.chain([0xC3, 0x06].repeat(0xFFFF)).collect();
        body.extend((rest.len() as u32).to_le_bytes());
        body.extend(rest);
        assert_eq!(to_text(&body), Err(Error::Size));
    }

    /// Whatever comes, the answer is a text that is JSON, or an error.
    #[test]
    fn random_bytes_never_panic() {
        let mut random = fastrand::Rng::with_seed(0x51DE);
        let mut read = 0;
        for round in 0..200_000 {
            let length = random.usize(0..40);
            let mut body: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
            if round % 2 == 0 {
                // Likelier to be something: markers with forms and lengths, small lengths.
                let markers = [
                    0xE2, 0xE5, 0xEA, 0xED, 0xF0, 0xF2, 0xC3, 0x71, 0x78, 0x7B, 0x7E, 0x2C, 0x83,
                    0xC0,
                ];
                for byte in &mut body {
                    *byte = match random.u8(0..3) {
                        0 => markers[random.usize(0..markers.len())],
                        1 => random.u8(0..8),
                        _ => *byte,
                    };
                }
            }
            body.insert(0, PREAMBLE);
            if let Ok(text) = to_text(&body) {
                serde_json::from_slice::<serde_json::Value>(&text).expect("the text is JSON");
                read += 1;
            }
        }
        assert!(read > 1_000, "only {read} bodies could be read: the test tests nothing");
    }

    /// The same for bodies that are almost right: good ones, one within another, with some bytes changed, taken out, repeated or
    /// moved. `crates/cosmos/fuzz` goes on from here, for as long as one likes.
    #[test]
    fn mutations_of_good_bodies_never_panic() {
        let mut random = fastrand::Rng::with_seed(0xB1A5);
        let mut corpus: Vec<Vec<u8>> =
            [NUMBERS, STRINGS, NESTED].concat().iter().map(|(hex, _)| body(hex)).collect();
        let (mut read, mut refused) = (0, 0);
        for _ in 0..100_000 {
            let mut bytes = random.choice(&corpus).unwrap().clone();
            for _ in 0..random.usize(0..4) {
                let at = random.usize(1..=bytes.len());
                match random.u8(0..6) {
                    0 if at < bytes.len() => bytes[at] ^= 1 << random.u8(0..8),
                    1 if at < bytes.len() => bytes[at] = random.u8(..),
                    2 if at < bytes.len() => drop(bytes.remove(at)),
                    3 => bytes.truncate(at),
                    4 => bytes.insert(at, *random.choice(&[0, 1, 2, 0x7F, 0x80, 0xFF]).unwrap()),
                    _ => {
                        let other = &random.choice(&corpus).unwrap()[1..];
                        bytes.splice(at..at, other.iter().copied());
                    }
                }
            }
            match to_text(&bytes) {
                Err(_) => refused += 1,
                Ok(text) => {
                    serde_json::from_slice::<serde_json::Value>(&text).expect("the text is JSON");
                    read += 1;
                    if bytes.len() < 100 && corpus.len() < 2_000 {
                        corpus.push(bytes);
                    }
                }
            }
        }
        assert!(read > 10_000 && refused > 10_000, "{read} read, {refused} refused: a poor test");
    }
}
