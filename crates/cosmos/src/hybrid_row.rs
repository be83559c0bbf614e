//! Batches as the .NET SDK writes them: rows of HybridRow in a RecordIO stream (wire document, section 5.3).
//!
//! Both ways the rows are translated to the JSON form that all other SDKs use, so that there is one reading of operations and one of results.
//!
//! ```text
//! stream = segment record*        segment = 81 F0D8FF7F 01 <u32 length>
//! record = 81 F1D8FF7F <i32 length> <u32 crc32 of the row> row
//! row    = 81 <i32 schema> presence  fixed columns  variable columns  sparse columns
//! ```

use serde_json::{Map, Value};

use crate::binary_json;

/// The first byte of a stream.
pub(crate) const VERSION: u8 = 0x81;

const SEGMENT: u32 = 0x7FFF_D8F0;
const RECORD: u32 = 0x7FFF_D8F1;
const OPERATION: u32 = 0x7FE1_5470;
const RESULT: u32 = 0x7FE1_5471;

/// The operations of a stream, in the JSON form. The error is what is wrong with it.
pub(crate) fn operations(stream: &[u8]) -> Result<Vec<Value>, &'static str> {
    let mut rest = Reader(stream);
    rest.header(SEGMENT)?;
    // A segment's header has a length and perhaps more; its own length says where it ends.
    let presence = rest.u8()?;
    if presence & 1 == 0 {
        return Err("a segment without a length");
    }
    let length = rest.u32()? as usize;
    rest = Reader(stream.get(length..).ok_or("a segment that is cut short")?);
    let mut operations = Vec::new();
    while !rest.0.is_empty() {
        rest.header(RECORD)?;
        let (length, sum) = (rest.u32()? as usize, rest.u32()?);
        let row = rest.take(length)?;
        if crc32(row) != sum {
            return Err("a row whose checksum is wrong");
        }
        operations.push(operation(row)?);
    }
    Ok(operations)
}

pub(crate) fn operation(row: &[u8]) -> Result<Value, &'static str> {
    let mut rest = Reader(row);
    rest.header(OPERATION)?;
    let presence = rest.u8()?;
    let has = |column: u8| presence >> column & 1 == 1;
    let (kind, _resource) = (rest.u32()?, rest.u32()?);
    let verb = match kind {
        0 => "Create",
        1 => "Patch",
        2 => "Read",
        4 => "Delete",
        5 => "Replace",
        20 => "Upsert",
        _ => return Err("an operation of an unknown kind"),
    };
    let mut json = Map::new();
    json.insert("operationType".into(), verb.into());
    for (column, name) in [(2, "partitionKey"), (3, ""), (4, "id"), (5, ""), (6, "resourceBody")] {
        if !has(column) {
            continue;
        }
        let bytes = rest.sized()?;
        match name {
            "" => {}
            "resourceBody" => drop(json.insert(name.into(), body(bytes)?)),
            name => drop(json.insert(name.into(), text(bytes)?.into())),
        }
    }
    while !rest.0.is_empty() {
        let (code, token) = (rest.u8()?, rest.varuint()?);
        let value = match code {
            2 | 3 => Value::Bool(code == 3),
            7 | 11 => rest.u32()?.into(),
            16 => {
                rest.take(8)?;
                Value::Null
            }
            20 => text(rest.sized()?)?.into(),
            21 => {
                rest.sized()?;
                Value::Null
            }
            _ => return Err("a column of an unknown type"),
        };
        let name = match token {
            9 => "ifMatch",
            10 => "ifNoneMatch",
            12 => "minimalReturnPreference",
            0..=12 => continue,
            // A path of its own: that many bytes, of which nothing is known here.
            other => {
                rest.take(other as usize - 13)?;
                continue;
            }
        };
        json.insert(name.into(), value);
    }
    Ok(Value::Object(json))
}

fn text(bytes: &[u8]) -> Result<String, &'static str> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a text that is not UTF-8")
}

fn body(bytes: &[u8]) -> Result<Value, &'static str> {
    let read = match bytes.first() {
        Some(&binary_json::PREAMBLE) => {
            let text = binary_json::to_text(bytes).map_err(|_| "a body that cannot be read")?;
            serde_json::from_slice(&text)
        }
        _ => serde_json::from_slice(bytes),
    };
    read.map_err(|_| "a body that is not JSON")
}

/// The stream of results, from their JSON form.
pub(crate) fn results(results: &[Value]) -> Vec<u8> {
    let mut out = vec![VERSION];
    out.extend(SEGMENT.to_le_bytes());
    out.push(1);
    out.extend(10u32.to_le_bytes());
    for result in results {
        let row = result_row(result);
        out.push(VERSION);
        out.extend(RECORD.to_le_bytes());
        out.extend((row.len() as u32).to_le_bytes());
        out.extend(crc32(&row).to_le_bytes());
        out.extend(row);
    }
    out
}

fn result_row(result: &Value) -> Vec<u8> {
    let number = |name: &str| result[name].as_u64().unwrap_or(0) as u32;
    let etag = result["eTag"].as_str();
    let body = result.get("resourceBody").map(Value::to_string);
    let mut row = vec![VERSION];
    row.extend(RESULT.to_le_bytes());
    row.push(0b11 | u8::from(etag.is_some()) << 2 | u8::from(body.is_some()) << 3);
    row.extend(number("statusCode").to_le_bytes());
    row.extend(number("subStatusCode").to_le_bytes());
    for bytes in
        [etag.map(str::as_bytes), body.as_ref().map(String::as_bytes)].into_iter().flatten()
    {
        push_varuint(&mut row, bytes.len() as u64);
        row.extend(bytes);
    }
    if result.get("retryAfterMilliseconds").is_some() {
        row.extend([11, 5]);
        row.extend(number("retryAfterMilliseconds").to_le_bytes());
    }
    row.extend([16, 6]);
    row.extend(result["requestCharge"].as_f64().unwrap_or(0.0).to_le_bytes());
    row
}

fn push_varuint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("a stream that is cut short")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u8(&mut self) -> Result<u8, &'static str> {
        Ok(self.take(1)?[0])
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn header(&mut self, schema: u32) -> Result<(), &'static str> {
        match self.u8()? == VERSION && self.u32()? == schema {
            true => Ok(()),
            false => Err("a row of another version or schema"),
        }
    }

    fn varuint(&mut self) -> Result<u64, &'static str> {
        let mut value = 0;
        for place in 0..5 {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7F) << (7 * place);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a length that is too long")
    }

    fn sized(&mut self) -> Result<&'a [u8], &'static str> {
        let length = self.varuint()?;
        self.take(length as usize)
    }
}

/// The checksum of zlib.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            if sum & 1 == 1 { sum >> 1 ^ 0xEDB8_8320 } else { sum >> 1 }
        })
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(byte).collect()
    }

    const SEGMENT_BYTES: &str = "81 F0D8FF7F 01 0A000000";

    #[test]
    fn an_operation_is_read() {
        let record =
            "81F1D8FF7F 19000000 832FCDF9 817054E17F 43 00000000 02000000 0A 7B226964223A2231227D";
        let stream = bytes(&format!("{SEGMENT_BYTES} {record}"));
        let expected = json!([{"operationType": "Create", "resourceBody": {"id": "1"}}]);
        assert_eq!(Value::Array(operations(&stream).unwrap()), expected);
        // Cut anywhere but between records, or with a byte changed, it is refused.
        for end in 0..stream.len() {
            let whole = end == bytes(SEGMENT_BYTES).len();
            assert_eq!(operations(&stream[..end]).is_ok(), whole, "{end}");
        }
        let mut torn = stream;
        *torn.last_mut().unwrap() ^= 1;
        assert_eq!(operations(&torn), Err("a row whose checksum is wrong"));
    }

    #[test]
    fn a_result_is_written() {
        let result = json!({"statusCode": 201, "eTag": "\"e\"", "resourceBody": {"id": "1"}, "requestCharge": 5.5});
        let record = "81F1D8FF7F 27000000 F6B50D59 817154E17F 0F C9000000 00000000 03 226522 0A 7B226964223A2231227D 1006 0000000000001640";
        assert_eq!(results(&[result]), bytes(&format!("{SEGMENT_BYTES} {record}")));
    }

    /// Whatever comes, the answer is a list of operations or an error.
    #[test]
    fn random_bytes_never_panic() {
        let mut random = fastrand::Rng::with_seed(0x51DE);
        let good = bytes("817054E17F 43 00000000 02000000 0A 7B226964223A2231227D");
        for _ in 0..100_000 {
            let mut row = good.clone();
            for _ in 0..random.usize(0..4) {
                let place = random.usize(5..row.len());
                row[place] = random.u8(..);
            }
            row.truncate(random.usize(5..=row.len()));
            drop(operation(&row));
        }
    }
}
