//! IS_ARRAY and its kin: questions about the type of a value. They are never undefined.

use model::value::Kind;

use super::{Function, Host, pure};
use crate::value::Value;

/// The family's table.
pub const FUNCTIONS: &[Function] = &[
    pure("IS_ARRAY", (1, 1), |_, args| is(&args[0], Kind::Array)),
    pure("IS_BOOL", (1, 1), |_, args| is(&args[0], Kind::Boolean)),
    // Nowhere documented, and sent by the .NET and Java SDKs when they resume an ORDER BY.
    pure("IS_BOOLEAN", (1, 1), |_, args| is(&args[0], Kind::Boolean)),
    pure("IS_DEFINED", (1, 1), |_, args| (!args[0].is_undefined()).into()),
    pure("IS_FINITE_NUMBER", (1, 1), |_, args| is(&args[0], Kind::Number)),
    pure("IS_INTEGER", (1, 1), is_integer),
    pure("IS_NULL", (1, 1), |_, args| is(&args[0], Kind::Null)),
    pure("IS_NUMBER", (1, 1), |_, args| is(&args[0], Kind::Number)),
    pure("IS_OBJECT", (1, 1), |_, args| is(&args[0], Kind::Object)),
    pure("IS_PRIMITIVE", (1, 1), |_, args| args[0].kind().is_primitive().into()),
    pure("IS_STRING", (1, 1), |_, args| is(&args[0], Kind::String)),
];

fn is<'a>(value: &Value<'a>, kind: Kind) -> Value<'a> {
    (value.kind() == kind).into()
}

fn is_integer<'a>(_: &Host, args: &[Value<'a>]) -> Value<'a> {
    args[0].as_i64().is_some().into()
}
