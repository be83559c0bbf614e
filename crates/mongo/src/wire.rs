//! MongoDB's messages: bytes in, messages out, and back. No I/O.
//!
//! ```text
//! length (i32)  request id (i32)  response to (i32)  opcode (i32)
//! 2013 OP_MSG         flags (u32), sections (kind 0: one document; kind 1: length, name, documents), CRC-32C if flagged
//! 2004 OP_QUERY       flags, namespace, skip, return, one document       only for commands on `db.$cmd`
//! 2012 OP_COMPRESSED  opcode, length, compressor, the other message's body, compressed
//!    1 OP_REPLY       flags, cursor, start, count, documents             the answer to OP_QUERY
//! ```
//! What does not add up is an [`Malformed`] and the end of the connection: nothing behind it can be trusted. A whole message with a document
//! that is none is answered with a [`Refusal`].

use bson::{RawDocument, RawDocumentBuf};
use bytes::{Buf, Bytes};

use crate::error::Refusal;

/// The most bytes of a message.
pub const MESSAGE_BYTES_MAX: usize = 48_000_000;

/// The most bytes of a document.
pub const DOCUMENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How deep documents may be nested.
pub const NESTING_MAX: usize = 200;

/// The length of a message's head.
pub const HEAD_BYTES: usize = 16;

const OP_REPLY: i32 = 1;
const OP_QUERY: i32 = 2004;
const OP_COMPRESSED: i32 = 2012;
const OP_MSG: i32 = 2013;

const CHECKSUM_PRESENT: u32 = 1;
const MORE_TO_COME: u32 = 1 << 1;
/// Flags that a receiver must understand.
const REQUIRED_FLAGS: u32 = 0xFFFF;

/// Bytes that are no message. The text is for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

fn malformed(text: impl Into<String>) -> Malformed {
    Malformed(text.into())
}

/// A command as it came.
#[derive(Clone, Debug)]
pub struct Request {
    /// What the answer refers to.
    pub id: i32,
    /// The command's document.
    pub body: Bytes,
    /// Lists of documents that belong into the body, by name.
    pub sequences: Vec<(String, Vec<Bytes>)>,
    /// The database that the namespace of an OP_QUERY names.
    pub namespace: Option<String>,
    /// Whether the client does not want an answer.
    pub silent: bool,
    /// How the answer may be compressed: as the question was.
    pub compressor: Option<Compressor>,
    /// Whether the answer is an OP_REPLY.
    pub legacy: bool,
    /// What is wrong with its documents: then it is answered with this, and nothing is done.
    pub broken: Option<Refusal>,
}

impl Request {
    /// The command's document, which was checked when it was read.
    pub fn document(&self) -> &RawDocument {
        RawDocument::from_bytes(&self.body).expect("checked when it was read")
    }
}

/// How messages are made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    /// snappy
    Snappy = 1,
    /// zlib
    Zlib = 2,
    /// zstd
    Zstd = 3,
}

impl Compressor {
    /// By its name in `hello`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "snappy" => Some(Self::Snappy),
            "zlib" => Some(Self::Zlib),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Its name in `hello`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    pub(crate) fn compress(self, bytes: &[u8]) -> Option<Vec<u8>> {
        use std::io::Write;
        match self {
            Self::Snappy => snap::raw::Encoder::new().compress_vec(bytes).ok(),
            Self::Zlib => {
                let level = flate2::Compression::fast();
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(bytes).ok()?;
                encoder.finish().ok()
            }
            Self::Zstd => zstd::bulk::compress(bytes, 1).ok(),
        }
    }

    pub(crate) fn decompress(self, bytes: &[u8], length: usize) -> Option<Vec<u8>> {
        use std::io::Read;
        let out = match self {
            Self::Snappy => {
                // The text says how long it is before anything is taken for it.
                if snap::raw::decompress_len(bytes).ok()? != length {
                    return None;
                }
                snap::raw::Decoder::new().decompress_vec(bytes).ok()?
            }
            Self::Zlib => {
                let mut out = Vec::new();
                let decoder = flate2::read::ZlibDecoder::new(bytes);
                decoder.take(length as u64 + 1).read_to_end(&mut out).ok()?;
                out
            }
            Self::Zstd => zstd::bulk::decompress(bytes, length).ok()?,
        };
        (out.len() == length).then_some(out)
    }
}

/// The length of the message that begins with this head.
pub fn message_length(head: &[u8; HEAD_BYTES]) -> Result<usize, Malformed> {
    let length = i32::from_le_bytes([head[0], head[1], head[2], head[3]]);
    match usize::try_from(length) {
        Ok(length) if (HEAD_BYTES..=MESSAGE_BYTES_MAX).contains(&length) => Ok(length),
        _ => Err(malformed(format!(
            "a message of {length} bytes, where {HEAD_BYTES} to {MESSAGE_BYTES_MAX} are allowed"
        ))),
    }
}

/// Reads a whole message.
pub fn read(message: Bytes) -> Result<Request, Malformed> {
    let mut rest = message.clone();
    let _length = int(&mut rest)?;
    let id = int(&mut rest)?;
    let _response_to = int(&mut rest)?;
    let opcode = int(&mut rest)?;
    match opcode {
        OP_COMPRESSED => {
            let opcode = int(&mut rest)?;
            let length = int(&mut rest)?;
            let length = usize::try_from(length)
                .ok()
                .filter(|length| *length <= MESSAGE_BYTES_MAX)
                .ok_or_else(|| malformed(format!("{length} bytes to decompress")))?;
            let kind = byte(&mut rest)?;
            let (body, compressor) = match kind {
                0 if rest.len() == length => (rest, None),
                1..=3 => {
                    let compressor = [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd]
                        [usize::from(kind) - 1];
                    let body = compressor.decompress(&rest, length).ok_or_else(|| {
                        malformed(format!("bytes that {} cannot read", compressor.name()))
                    })?;
                    (body.into(), Some(compressor))
                }
                _ => return Err(malformed(format!("compressor {kind} is unknown"))),
            };
            let mut request = body_of(opcode, id, body, None)?;
            request.compressor = compressor;
            Ok(request)
        }
        opcode => body_of(opcode, id, rest, Some(&message)),
    }
}

fn body_of(
    opcode: i32,
    id: i32,
    body: Bytes,
    message: Option<&Bytes>,
) -> Result<Request, Malformed> {
    match opcode {
        OP_MSG => op_msg(id, body, message),
        OP_QUERY => op_query(id, body),
        other => Err(malformed(format!("opcode {other} is not spoken here"))),
    }
}

fn op_msg(id: i32, mut rest: Bytes, message: Option<&Bytes>) -> Result<Request, Malformed> {
    let flags = int(&mut rest)?.cast_unsigned();
    if flags & REQUIRED_FLAGS & !(CHECKSUM_PRESENT | MORE_TO_COME) != 0 {
        return Err(malformed(format!("flags {flags:#x} are unknown")));
    }
    if flags & CHECKSUM_PRESENT != 0 {
        let at = rest.len().checked_sub(4).ok_or_else(|| malformed("no room for a checksum"))?;
        let mut sum = rest.split_off(at);
        let sum = int(&mut sum)?.cast_unsigned();
        // Of a compressed message the sum is of what was before.
        if let Some(message) = message
            && crc32c::crc32c(&message[..message.len() - 4]) != sum
        {
            return Err(malformed("the checksum is wrong"));
        }
    }
    let (mut body, mut sequences, mut broken) = (None, Vec::new(), None);
    while rest.has_remaining() {
        match byte(&mut rest)? {
            0 if body.is_none() => body = Some(document(&mut rest, &mut broken)?),
            0 => return Err(malformed("two bodies in one message")),
            1 => {
                let length = int(&mut rest)?;
                let length = usize::try_from(length)
                    .ok()
                    .and_then(|length| length.checked_sub(4))
                    .filter(|length| *length <= rest.len())
                    .ok_or_else(|| malformed("a section that is longer than its message"))?;
                let mut section = rest.split_to(length);
                let name = cstring(&mut section)?;
                let mut documents = Vec::new();
                while section.has_remaining() {
                    documents.push(document(&mut section, &mut broken)?);
                }
                sequences.push((name, documents));
            }
            other => return Err(malformed(format!("section of kind {other}"))),
        }
    }
    Ok(Request {
        id,
        body: body.ok_or_else(|| malformed("a message without a body"))?,
        sequences,
        namespace: None,
        silent: flags & MORE_TO_COME != 0,
        compressor: None,
        legacy: false,
        broken,
    })
}

fn op_query(id: i32, mut rest: Bytes) -> Result<Request, Malformed> {
    let _flags = int(&mut rest)?;
    let namespace = cstring(&mut rest)?;
    let _skip = int(&mut rest)?;
    let _return = int(&mut rest)?;
    let mut broken = None;
    let body = document(&mut rest, &mut broken)?;
    let database = namespace
        .strip_suffix(".$cmd")
        .ok_or_else(|| malformed(format!("OP_QUERY on {namespace}: only commands are spoken")))?
        .to_owned();
    // `{$query: {…}}` is how old drivers send options beside a command.
    let inner = RawDocument::from_bytes(&body).ok().and_then(|body| {
        let query = body.get_document("$query").ok()?;
        Some(Bytes::copy_from_slice(query.as_bytes()))
    });
    Ok(Request {
        id,
        body: inner.unwrap_or(body),
        sequences: Vec::new(),
        namespace: Some(database),
        silent: false,
        compressor: None,
        legacy: true,
        broken,
    })
}

fn byte(rest: &mut Bytes) -> Result<u8, Malformed> {
    rest.try_get_u8().map_err(|_| malformed("a message that is cut short"))
}

fn int(rest: &mut Bytes) -> Result<i32, Malformed> {
    rest.try_get_i32_le().map_err(|_| malformed("a message that is cut short"))
}

fn cstring(rest: &mut Bytes) -> Result<String, Malformed> {
    let end = rest.iter().position(|byte| *byte == 0);
    let text = rest.split_to(end.ok_or_else(|| malformed("a name without end"))?);
    rest.advance(1);
    String::from_utf8(text.into()).map_err(|_| malformed("a name that is not UTF-8"))
}

/// Takes a document; an empty one stands for one that is none, and what is wrong with it is told.
fn document(rest: &mut Bytes, broken: &mut Option<Refusal>) -> Result<Bytes, Malformed> {
    let length = rest.first_chunk::<4>().map(|length| i32::from_le_bytes(*length));
    let length = length.and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
    if length < 5 || length > rest.len() {
        return Err(malformed("a document whose length does not add up"));
    }
    let bytes = rest.split_to(length);
    match check_whole(&bytes) {
        Ok(()) => Ok(bytes),
        Err(refusal) => {
            broken.get_or_insert(refusal);
            Ok(Bytes::from_static(&[5, 0, 0, 0, 0]))
        }
    }
}

fn check_whole(bytes: &[u8]) -> Result<(), Refusal> {
    let most = DOCUMENT_BYTES_MAX + 16 * 1024;
    if bytes.len() > most {
        let text = format!("BSONObj size: {} is invalid. Size must be at most {most}", bytes.len());
        return Err(Refusal::new(10334, text));
    }
    check(RawDocument::from_bytes(bytes)?, 0)
}

fn check(document: &RawDocument, depth: usize) -> Result<(), Refusal> {
    if depth > NESTING_MAX {
        let text = format!("a document nested deeper than {NESTING_MAX} levels");
        return Err(Refusal::new(15, text));
    }
    for element in document.iter_elements() {
        match element.and_then(|element| element.value())? {
            bson::RawBsonRef::Document(inner) => check(inner, depth + 1)?,
            bson::RawBsonRef::Array(inner) => {
                check(RawDocument::from_bytes(inner.as_bytes())?, depth + 1)?
            }
            bson::RawBsonRef::JavaScriptCodeWithScope(code) => check(code.scope, depth + 1)?,
            _ => {}
        }
    }
    Ok(())
}

/// The bytes of an answer.
pub fn answer(request: &Request, id: i32, body: &RawDocumentBuf) -> Vec<u8> {
    let document = body.as_bytes();
    let mut payload = Vec::with_capacity(HEAD_BYTES + document.len() + 24);
    payload.extend_from_slice(&[0; HEAD_BYTES]);
    let opcode = if request.legacy {
        payload.extend_from_slice(&8i32.to_le_bytes());
        payload.extend_from_slice(&[0; 12]);
        payload.extend_from_slice(&1i32.to_le_bytes());
        OP_REPLY
    } else {
        payload.extend_from_slice(&[0; 5]);
        OP_MSG
    };
    payload.extend_from_slice(document);
    if let Some(compressor) = request.compressor
        && let Some(small) = compressor.compress(&payload[HEAD_BYTES..])
    {
        let length = (payload.len() - HEAD_BYTES) as i32;
        payload.truncate(HEAD_BYTES);
        payload.extend_from_slice(&opcode.to_le_bytes());
        payload.extend_from_slice(&length.to_le_bytes());
        payload.push(compressor as u8);
        payload.extend_from_slice(&small);
        return headed(payload, id, request.id, OP_COMPRESSED);
    }
    headed(payload, id, request.id, opcode)
}

fn headed(mut message: Vec<u8>, id: i32, response_to: i32, opcode: i32) -> Vec<u8> {
    let length = message.len() as i32;
    for (at, field) in [length, id, response_to, opcode].into_iter().enumerate() {
        message[at * 4..at * 4 + 4].copy_from_slice(&field.to_le_bytes());
    }
    message
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn message(opcode: i32, body: &[u8]) -> Bytes {
        let mut bytes = vec![0; HEAD_BYTES];
        bytes.extend_from_slice(body);
        headed(bytes, 7, 0, opcode).into()
    }

    fn sections(flags: u32, parts: &[&[u8]]) -> Vec<u8> {
        [&flags.to_le_bytes()[..], &parts.concat()].concat()
    }

    fn sequence(name: &str, documents: &[&[u8]]) -> Vec<u8> {
        let rest = [name.as_bytes(), &[0], &documents.concat()].concat();
        [&[1][..], &(rest.len() as i32 + 4).to_le_bytes(), &rest].concat()
    }

    #[test]
    fn a_message_with_sequences_is_read() {
        let (ping, a, b) = (rawdoc! {"insert": "c"}, rawdoc! {"a": 1}, rawdoc! {"b": 2});
        let list = sequence("documents", &[a.as_bytes(), b.as_bytes()]);
        let body = sections(MORE_TO_COME, &[&[0], ping.as_bytes(), &list]);
        let request = read(message(OP_MSG, &body)).unwrap();
        assert_eq!((request.id, request.silent), (7, true));
        assert_eq!(request.sequences[0].0, "documents");
        assert_eq!(request.sequences[0].1, [a.as_bytes(), b.as_bytes()]);
    }

    #[test]
    fn checksums_are_checked() {
        let ping = rawdoc! {"ping": 1};
        let body = sections(CHECKSUM_PRESENT, &[&[0], ping.as_bytes(), &[0; 4]]);
        let mut good = message(OP_MSG, &body).to_vec();
        let sum = crc32c::crc32c(&good[..good.len() - 4]);
        let at = good.len() - 4;
        good[at..].copy_from_slice(&sum.to_le_bytes());
        assert!(read(good.clone().into()).is_ok());
        good[HEAD_BYTES + 9] ^= 1;
        assert!(read(good.into()).is_err());
    }

    #[test]
    fn compressed_messages_are_read_and_answered() {
        let ping = rawdoc! {"ping": 1, "filler": "x".repeat(500)};
        let body = sections(0, &[&[0], ping.as_bytes()]);
        for compressor in [Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
            let small = compressor.compress(&body).unwrap();
            let head = [&OP_MSG.to_le_bytes()[..], &(body.len() as i32).to_le_bytes()].concat();
            let bytes = [&head[..], &[compressor as u8], &small].concat();
            let request = read(message(OP_COMPRESSED, &bytes)).unwrap();
            assert_eq!(request.body, ping.as_bytes());
            let answered = answer(&request, 1, &ping);
            let again = read(answered.into()).unwrap();
            assert_eq!(again.body, ping.as_bytes());
            // A lie about the length is not believed.
            let lie = [&OP_MSG.to_le_bytes()[..], &9i32.to_le_bytes(), &[compressor as u8], &small];
            assert!(read(message(OP_COMPRESSED, &lie.concat())).is_err());
        }
    }

    #[test]
    fn what_does_not_add_up_is_refused_and_never_a_panic() {
        let ping = rawdoc! {"ping": 1, "list": [1, {"a": "b"}]};
        let good = message(OP_MSG, &sections(0, &[&[0], ping.as_bytes()]));
        for length in 0..good.len() {
            assert!(read(good.slice(..length)).is_err(), "cut to {length}");
        }
        assert_eq!(read(good.clone()).unwrap().broken, None);
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let mut bad = good.to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(HEAD_BYTES..bad.len());
                bad[at] = random.u8(..);
            }
            // Whatever it is, it is an answer.
            drop(read(bad.into()));
        }
        let mut deep = rawdoc! {};
        for _ in 0..NESTING_MAX + 2 {
            let mut outer = RawDocumentBuf::new();
            outer.append(bson::cstr!("a"), deep);
            deep = outer;
        }
        let code = |document: &[u8]| {
            let request = read(message(OP_MSG, &sections(0, &[&[0], document]))).unwrap();
            request.broken.map(|refusal| refusal.code)
        };
        assert_eq!(code(deep.as_bytes()), Some(15));
        let long = rawdoc! {"a": "x".repeat(DOCUMENT_BYTES_MAX + 16 * 1024)};
        assert_eq!(code(long.as_bytes()), Some(10334));
    }

    #[test]
    fn lengths_are_bounded() {
        let head = |length: i32| {
            let mut head = [0; HEAD_BYTES];
            head[..4].copy_from_slice(&length.to_le_bytes());
            head
        };
        assert_eq!(message_length(&head(16)), Ok(16));
        for bad in [i32::MIN, -1, 0, 15, MESSAGE_BYTES_MAX as i32 + 1, i32::MAX] {
            assert!(message_length(&head(bad)).is_err(), "{bad}");
        }
    }
}
