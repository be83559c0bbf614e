//! What a client is told when a filter, an update or a pipeline cannot be understood or carried out.
//!
//! Drivers and their tests look at the number and often at the words, so both are MongoDB's.

use std::borrow::Cow;
use std::fmt;

/// A refusal: MongoDB's error number and a text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// MongoDB's number of the error.
    pub code: i32,
    /// Its name in MongoDB's table; `Location…` for those without one.
    pub name: Cow<'static, str>,
    /// What went wrong and what to do, in words.
    pub message: String,
    /// Labels that tell drivers whether to try again.
    pub labels: Vec<&'static str>,
}

/// What the language's functions return.
pub type Result<T> = std::result::Result<T, Failure>;

/// The numbers that have a name. All others are called `Location` and the number.
const NAMES: [(i32, &str); 31] = [
    (2, "BadValue"),
    (9, "FailedToParse"),
    (14, "TypeMismatch"),
    (15, "Overflow"),
    (16, "InvalidLength"),
    (20, "IllegalOperation"),
    (27, "IndexNotFound"),
    (28, "PathNotViable"),
    (40, "ConflictingUpdateOperators"),
    (50, "MaxTimeMSExpired"),
    (52, "DollarPrefixedFieldName"),
    (53, "InvalidIdField"),
    (54, "NotSingleValueField"),
    (55, "InvalidDBRef"),
    (56, "EmptyFieldName"),
    (57, "DottedFieldName"),
    (66, "ImmutableField"),
    (72, "InvalidOptions"),
    (73, "InvalidNamespace"),
    (115, "CommandNotSupported"),
    (121, "DocumentValidationFailure"),
    (146, "ExceededMemoryLimit"),
    (168, "InvalidPipelineOperator"),
    (224, "QueryFeatureNotAllowed"),
    (238, "NotImplemented"),
    (241, "ConversionFailure"),
    (292, "QueryExceededMemoryLimitNoDiskUseAllowed"),
    (334, "BSONObjectTooLarge"),
    (291, "NoQueryExecutionPlans"),
    (10334, "BSONObjectTooLarge"),
    (17280, "KeyTooLong"),
];

impl Failure {
    /// A refusal with this number and name.
    pub fn new(code: i32, name: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { code, name: name.into(), message: message.into(), labels: Vec::new() }
    }

    /// A refusal with this number and the name that belongs to it.
    pub fn coded(code: i32, message: impl Into<String>) -> Self {
        match NAMES.iter().find(|(known, _)| *known == code) {
            Some((_, name)) => Self::new(code, *name, message),
            None => Self::new(code, format!("Location{code}"), message),
        }
    }

    /// 2: a value that the operator cannot take.
    pub fn bad_value(message: impl Into<String>) -> Self {
        Self::new(2, "BadValue", message)
    }

    /// 9: words that make no sense where they stand.
    pub fn failed_to_parse(message: impl Into<String>) -> Self {
        Self::new(9, "FailedToParse", message)
    }

    /// 14: a value of the wrong type.
    pub fn type_mismatch(message: impl Into<String>) -> Self {
        Self::new(14, "TypeMismatch", message)
    }

    /// 115: `$meta` asks how well a text was found, and texts are not searched.
    pub fn no_scores() -> Self {
        Self::coded(115, "$meta is not supported: there is no text search. Use $regex instead.")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name, self.code, self.message)
    }
}

impl std::error::Error for Failure {}

impl From<bson::error::Error> for Failure {
    fn from(error: bson::error::Error) -> Self {
        Self::new(22, "InvalidBSON", format!("invalid BSON: {error}"))
    }
}
