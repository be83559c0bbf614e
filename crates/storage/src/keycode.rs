//! Order-preserving encoding of keys: comparing the bytes compares the fields, one after the other.
//!
//! | field | bytes |
//! |---|---|
//! | `u8` `u16` `u32` `u64` | big endian |
//! | `i64` | big endian, sign bit flipped |
//! | `f64` | big endian, sign bit flipped if positive, all bits if negative; `-0` is written as `0` |
//! | byte string | `00` becomes `00 FF`, and `00 00` ends it |
//! | rest | as it is; only as the last field |
//!
//! A terminated string that is a prefix of another sorts before it, because its end `00 00` is smaller than
//! whatever the other goes on with (`00 FF` or a byte above `00`). Each value has exactly one encoding, and
//! a [`Reader`] refuses all others as [`Error::Corrupt`]. NaN sorts above or below all numbers, by its sign.
//!
//! What the fields mean is not decided here: this module knows no key.

use bytes::{BufMut, Bytes};

use crate::{Error, KEY_BYTES_MAX, Result};

const ESCAPE: u8 = 0x00;
const ESCAPED_ZERO: u8 = 0xFF;
const TERMINATOR: u8 = 0x00;
const SIGN_BIT: u64 = 1 << 63;

/// Appends fields to a key. The buffer is a `Vec<u8>` or a `BytesMut`.
#[derive(Debug, Default)]
pub struct Writer<B> {
    buffer: B,
}

impl Writer<Vec<u8>> {
    /// An empty key.
    pub fn new() -> Self {
        Self::default()
    }

    /// The finished key.
    pub fn finish(self) -> Bytes {
        self.buffer.into()
    }
}

impl<B: BufMut> Writer<B> {
    /// Goes on after what `buffer` already holds.
    pub fn append_to(buffer: B) -> Self {
        Self { buffer }
    }

    /// The buffer with everything written so far.
    pub fn into_inner(self) -> B {
        self.buffer
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.buffer.put_u8(value);
        self
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.buffer.put_u16(value);
        self
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.buffer.put_u32(value);
        self
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.buffer.put_u64(value);
        self
    }

    /// Appends eight bytes that sort negative numbers first.
    pub fn i64(&mut self, value: i64) -> &mut Self {
        self.u64(value.cast_unsigned() ^ SIGN_BIT)
    }

    /// Appends eight bytes that sort as numbers do; `-0.0` and `0.0` are the same key.
    pub fn f64(&mut self, value: f64) -> &mut Self {
        let bits = if value == 0.0 { 0 } else { value.to_bits() };
        self.u64(if bits & SIGN_BIT == 0 { bits ^ SIGN_BIT } else { !bits })
    }

    /// Appends a byte string and its end, so that another field may follow.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.bytes_prefix(value);
        self.buffer.put_slice(&[ESCAPE, TERMINATOR]);
        self
    }

    /// Appends the beginning of a byte string: the key is then a prefix of all keys whose string starts so.
    pub fn bytes_prefix(&mut self, value: &[u8]) -> &mut Self {
        for (i, run) in value.split(|byte| *byte == ESCAPE).enumerate() {
            if i > 0 {
                self.buffer.put_slice(&[ESCAPE, ESCAPED_ZERO]);
            }
            self.buffer.put_slice(run);
        }
        self
    }

    /// Appends bytes as they are. Nothing may follow, for a reader could not tell where they end.
    pub fn rest(&mut self, value: &[u8]) -> &mut Self {
        self.buffer.put_slice(value);
        self
    }
}

/// Takes fields from the front of a key, in the order in which they were written.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    key: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `key`.
    pub fn new(key: &'a [u8]) -> Self {
        Self { key, at: 0 }
    }

    /// Takes one byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    /// Takes two bytes.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    /// Takes four bytes.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Takes eight bytes.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Takes a signed number.
    pub fn i64(&mut self) -> Result<i64> {
        Ok((self.u64()? ^ SIGN_BIT).cast_signed())
    }

    /// Takes a floating-point number.
    pub fn f64(&mut self) -> Result<f64> {
        let bits = self.u64()?;
        let value = f64::from_bits(if bits & SIGN_BIT == 0 { !bits } else { bits ^ SIGN_BIT });
        if value == 0.0 && value.is_sign_negative() {
            return Err(self.corrupt("a negative zero"));
        }
        Ok(value)
    }

    /// Takes a byte string and its end.
    pub fn bytes(&mut self) -> Result<Vec<u8>> {
        let mut value = Vec::new();
        loop {
            let rest = self.remaining();
            let Some(run) = rest.iter().position(|byte| *byte == ESCAPE) else {
                return Err(self.corrupt("a string without end"));
            };
            value.extend_from_slice(&rest[..run]);
            match rest.get(run + 1) {
                Some(&TERMINATOR) => {
                    self.at += run + 2;
                    return Ok(value);
                }
                Some(&ESCAPED_ZERO) => value.push(ESCAPE),
                _ => return Err(self.corrupt("a bad escape")),
            }
            self.at += run + 2;
        }
    }

    /// Takes everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.remaining();
        self.at = self.key.len();
        rest
    }

    /// Says that the key must end here.
    pub fn finish(self) -> Result<()> {
        if self.remaining().is_empty() { Ok(()) } else { Err(self.corrupt("bytes after the end")) }
    }

    fn remaining(&self) -> &'a [u8] {
        &self.key[self.at..]
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let Some(bytes) = self.remaining().first_chunk::<N>() else {
            return Err(self.corrupt("too short"));
        };
        self.at += N;
        Ok(*bytes)
    }

    fn corrupt(&self, what: &str) -> Error {
        Error::Corrupt(format!("key {}: {what} at byte {}", hex(self.key), self.at))
    }
}

/// The smallest key greater than every key that starts with `prefix`, so that `prefix..prefix_end(prefix)` is all of
/// them. For an empty prefix, or one of `FF` only, it is a key greater than all that can be stored.
pub fn prefix_end(prefix: &[u8]) -> Bytes {
    static ABOVE_ALL: [u8; KEY_BYTES_MAX + 1] = [0xFF; KEY_BYTES_MAX + 1];
    let Some(last) = prefix.iter().rposition(|byte| *byte != 0xFF) else {
        return Bytes::from_static(&ABOVE_ALL);
    };
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    end.into()
}

/// A key as people see it in an error: hexadecimal, cut after 64 bytes.
pub(crate) fn hex(key: &[u8]) -> String {
    const BYTES_MAX: usize = 64;
    let mut text: String = key.iter().take(BYTES_MAX).map(|byte| format!("{byte:02x}")).collect();
    if key.len() > BYTES_MAX {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;
    use crate::testing::random_seed;

    /// One field of a random key; the derived order is not used, see [`Field::compare`].
    #[derive(Clone, Debug, PartialEq)]
    enum Field {
        U8(u8),
        U16(u16),
        U32(u32),
        U64(u64),
        I64(i64),
        F64(f64),
        Bytes(Vec<u8>),
    }

    impl Field {
        /// A field of the given kind, from few values, so that equal ones and prefixes are common.
        fn random(kind: u8, random: &mut fastrand::Rng) -> Self {
            const EDGES: [u64; 8] = [0, 1, 2, 0x7F, 0xFF, 1 << 31, 1 << 63, u64::MAX];
            const FLOATS: [f64; 9] = [
                0.0,
                -0.0,
                1.5,
                -1.5,
                1e300,
                -1e300,
                f64::MIN_POSITIVE,
                f64::INFINITY,
                f64::NEG_INFINITY,
            ];
            let edge = EDGES[random.usize(..EDGES.len())];
            match kind {
                0 => Self::U8(edge as u8),
                1 => Self::U16(edge as u16),
                2 => Self::U32(edge as u32),
                3 => Self::U64(edge),
                4 => Self::I64(edge.cast_signed()),
                5 => Self::F64(FLOATS[random.usize(..FLOATS.len())]),
                _ => {
                    let length = random.usize(..4);
                    Self::Bytes(
                        (0..length).map(|_| [0, 1, 0xFE, 0xFF][random.usize(..4)]).collect(),
                    )
                }
            }
        }

        fn write(&self, writer: &mut Writer<Vec<u8>>) {
            match self {
                Self::U8(value) => writer.u8(*value),
                Self::U16(value) => writer.u16(*value),
                Self::U32(value) => writer.u32(*value),
                Self::U64(value) => writer.u64(*value),
                Self::I64(value) => writer.i64(*value),
                Self::F64(value) => writer.f64(*value),
                Self::Bytes(value) => writer.bytes(value),
            };
        }

        fn read_like(&self, reader: &mut Reader) -> Result<Self> {
            Ok(match self {
                Self::U8(_) => Self::U8(reader.u8()?),
                Self::U16(_) => Self::U16(reader.u16()?),
                Self::U32(_) => Self::U32(reader.u32()?),
                Self::U64(_) => Self::U64(reader.u64()?),
                Self::I64(_) => Self::I64(reader.i64()?),
                Self::F64(_) => Self::F64(reader.f64()?),
                Self::Bytes(_) => Self::Bytes(reader.bytes()?),
            })
        }

        fn compare(&self, other: &Self) -> Ordering {
            match (self, other) {
                (Self::U8(a), Self::U8(b)) => a.cmp(b),
                (Self::U16(a), Self::U16(b)) => a.cmp(b),
                (Self::U32(a), Self::U32(b)) => a.cmp(b),
                (Self::U64(a), Self::U64(b)) => a.cmp(b),
                (Self::I64(a), Self::I64(b)) => a.cmp(b),
                (Self::F64(a), Self::F64(b)) => a.partial_cmp(b).unwrap(),
                (Self::Bytes(a), Self::Bytes(b)) => a.cmp(b),
                _ => panic!("fields of different kinds: {self:?} and {other:?}"),
            }
        }
    }

    fn encode(fields: &[Field]) -> Bytes {
        let mut writer = Writer::new();
        fields.iter().for_each(|field| field.write(&mut writer));
        writer.finish()
    }

    #[test]
    fn byte_order_is_field_order_and_every_key_reads_back() {
        let seed = random_seed();
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..50_000 {
            let kinds: Vec<u8> = (0..random.usize(1..5)).map(|_| random.u8(..7)).collect();
            let mut key =
                || kinds.iter().map(|k| Field::random(*k, &mut random)).collect::<Vec<_>>();
            let (a, b) = (key(), key());
            let logical =
                a.iter().zip(&b).map(|(a, b)| a.compare(b)).fold(Ordering::Equal, Ordering::then);
            let (a_bytes, b_bytes) = (encode(&a), encode(&b));
            assert_eq!(a_bytes.cmp(&b_bytes), logical, "seed {seed}: {a:?} and {b:?}");

            let mut reader = Reader::new(&a_bytes);
            for field in &a {
                let read = field.read_like(&mut reader).unwrap();
                assert_eq!(&read, field, "seed {seed}: {a:?}");
            }
            reader.finish().unwrap();
        }
    }

    #[test]
    fn bad_bytes_are_corrupt_and_never_panic() {
        let seed = random_seed();
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..50_000 {
            let length = random.usize(..12);
            let key: Vec<u8> = (0..length).map(|_| [0, 1, 0x7F, 0xFF][random.usize(..4)]).collect();
            let field = Field::random(random.u8(..7), &mut random);
            let mut reader = Reader::new(&key);
            // What does read must be the one encoding of its value.
            if let Ok(read) = field.read_like(&mut reader)
                && !matches!(read, Field::F64(value) if value.is_nan())
            {
                let length = key.len() - reader.rest().len();
                assert_eq!(encode(&[read]), key[..length], "seed {seed}");
            }
        }
        let error = Reader::new(b"ab\0\x01").bytes().unwrap_err();
        assert_eq!(error.to_string(), "corrupt data: key 61620001: a bad escape at byte 0");
        assert!(matches!(Reader::new(b"a").finish(), Err(Error::Corrupt(_))));
    }

    #[test]
    fn zeros_are_one_key() {
        assert_eq!(encode(&[Field::F64(-0.0)]), encode(&[Field::F64(0.0)]));
    }

    #[test]
    fn prefix_end_is_the_end_of_the_prefix() {
        assert_eq!(prefix_end(b"ab"), &b"ac"[..]);
        assert_eq!(prefix_end(b"a\xFF\xFF"), &b"b"[..]);
        for unbounded in [&b""[..], b"\xFF\xFF"] {
            assert!(prefix_end(unbounded) > vec![0xFF; KEY_BYTES_MAX]);
        }
        let prefix = Writer::new().bytes_prefix(b"a\0").buffer.clone();
        let range = Bytes::from(prefix.clone())..prefix_end(&prefix);
        assert!(range.contains(&encode(&[Field::Bytes(b"a\0".into())])));
        assert!(range.contains(&encode(&[Field::Bytes(b"a\0b".into())])));
        assert!(!range.contains(&encode(&[Field::Bytes(b"a".into())])));
        assert!(!range.contains(&encode(&[Field::Bytes(b"a\x01".into())])));
    }
}
