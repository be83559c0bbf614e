//! Between text and other values: TOSTRING, STRINGTOARRAY and its kin, STRINGJOIN, STRINGSPLIT.

use serde_json::Value as Json;

use super::{Function, Host, pure};
use crate::value::Value;

/// The family's table.
pub const FUNCTIONS: &[Function] = &[
    pure("STRINGJOIN", (2, 2), join),
    pure("STRINGSPLIT", (2, 2), split),
    pure("STRINGTOARRAY", (1, 1), |_, args| parse(args, Json::is_array)),
    pure("STRINGTOBOOLEAN", (1, 1), |_, args| parse(args, Json::is_boolean)),
    pure("STRINGTONULL", (1, 1), |_, args| parse(args, Json::is_null)),
    pure("STRINGTONUMBER", (1, 1), |_, args| parse(args, Json::is_number)),
    pure("STRINGTOOBJECT", (1, 1), |_, args| parse(args, Json::is_object)),
    pure("TOSTRING", (1, 1), to_string),
];

/// The value that JSON text stands for, if it is of the wanted type.
fn parse<'a>(args: &[Value<'a>], wanted: fn(&Json) -> bool) -> Value<'a> {
    let json = args[0].as_str().and_then(|text| serde_json::from_str::<Json>(text.trim()).ok());
    json.filter(wanted).map_or(Value::Undefined, Value::built)
}

/// Text as it is, anything else as JSON.
fn to_string<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    match &args[0] {
        Value::Undefined | Value::String(_) => args[0].clone(),
        other => {
            let mut text = Vec::new();
            other.write(&mut text);
            String::from_utf8(text).ok().into()
        }
    }
}

fn join<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    let (Some(elements), Some(separator)) = (args[0].elements(), args[1].as_str()) else {
        return Value::Undefined;
    };
    let texts: Option<Vec<String>> =
        elements.map(|element| element.as_str().map(str::to_owned)).collect();
    texts.map(|texts| texts.join(separator)).into()
}

fn split<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    match (args[0].as_str(), args[1].as_str()) {
        (Some(text), Some("")) => Value::array([Value::from(text.to_owned())]),
        (Some(text), Some(separator)) => {
            Value::array(text.split(separator).map(|part| Value::from(part.to_owned())))
        }
        _ => Value::Undefined,
    }
}
