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
    /// What went wrong, in words.
    pub message: String,
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
    /// A refusal with this number.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// 2: a value that the operator cannot take.
    pub fn bad_value(message: impl Into<String>) -> Self {
        Self::new(2, message)
    }

    /// 9: words that make no sense where they stand.
    pub fn parse(message: impl Into<String>) -> Self {
        Self::new(9, message)
    }

    /// 14: a value of the wrong type.
    pub fn type_mismatch(message: impl Into<String>) -> Self {
        Self::new(14, message)
    }

    /// MongoDB's name of the number, `Location…` for those without one.
    pub fn name(&self) -> Cow<'static, str> {
        match NAMES.iter().find(|(code, _)| *code == self.code) {
            Some((_, name)) => Cow::Borrowed(name),
            None => Cow::Owned(format!("Location{}", self.code)),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.name(), self.code, self.message)
    }
}

impl std::error::Error for Failure {}

impl From<bson::error::Error> for Failure {
    fn from(error: bson::error::Error) -> Self {
        Self::new(22, format!("invalid BSON: {error}"))
    }
}
