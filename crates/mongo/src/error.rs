//! What clients are told when they do not get what they asked for: one number for each cause, and MongoDB's names of the numbers.

use std::borrow::Cow;

use bson::{RawArrayBuf, RawDocumentBuf, rawdoc};

use crate::language::Failure;

/// The result of a command.
pub type Result<T> = std::result::Result<T, Refusal>;

/// A refusal, as it goes to the client.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// MongoDB's number.
    pub code: i32,
    /// What is wrong and what to do.
    pub message: String,
    /// Labels that tell drivers whether to try again.
    pub labels: Vec<&'static str>,
    /// More about it, such as the key of a duplicate.
    pub details: Option<RawDocumentBuf>,
}

/// The label of what drivers repeat: nothing was changed.
const RETRYABLE: &str = "RetryableWriteError";

/// Names of the numbers.
const NAMES: [(i32, &str); 60] = [
    (1, "InternalError"),
    (2, "BadValue"),
    (5, "GraphContainsCycle"),
    (8, "UnknownError"),
    (9, "FailedToParse"),
    (11, "UserNotFound"),
    (13, "Unauthorized"),
    (14, "TypeMismatch"),
    (15, "Overflow"),
    (16, "InvalidLength"),
    (18, "AuthenticationFailed"),
    (20, "IllegalOperation"),
    (22, "InvalidBSON"),
    (26, "NamespaceNotFound"),
    (27, "IndexNotFound"),
    (28, "PathNotViable"),
    (40, "ConflictingUpdateOperators"),
    (43, "CursorNotFound"),
    (48, "NamespaceExists"),
    (50, "MaxTimeMSExpired"),
    (52, "DollarPrefixedFieldName"),
    (53, "InvalidIdField"),
    (54, "NotSingleValueField"),
    (55, "InvalidDBRef"),
    (56, "EmptyFieldName"),
    (57, "DottedFieldName"),
    (59, "CommandNotFound"),
    (61, "ShardKeyNotFound"),
    (66, "ImmutableField"),
    (67, "CannotCreateIndex"),
    (68, "IndexAlreadyExists"),
    (72, "InvalidOptions"),
    (73, "InvalidNamespace"),
    (85, "IndexOptionsConflict"),
    (86, "IndexKeySpecsConflict"),
    (91, "ShutdownInProgress"),
    (112, "WriteConflict"),
    (115, "CommandNotSupported"),
    (121, "DocumentValidationFailure"),
    (146, "ExceededMemoryLimit"),
    (166, "CommandNotSupportedOnView"),
    (168, "InvalidPipelineOperator"),
    (171, "CannotIndexParallelArrays"),
    (189, "PrimarySteppedDown"),
    (197, "InvalidIndexSpecificationOption"),
    (206, "NoSuchSession"),
    (224, "QueryFeatureNotAllowed"),
    (225, "TransactionTooOld"),
    (238, "NotImplemented"),
    (241, "ConversionFailure"),
    (251, "NoSuchTransaction"),
    (256, "TransactionCommitted"),
    (263, "OperationNotSupportedInTransaction"),
    (280, "ChangeStreamFatalError"),
    (286, "ChangeStreamHistoryLost"),
    (292, "QueryExceededMemoryLimitNoDiskUseAllowed"),
    (323, "APIStrictError"),
    (10334, "BSONObjectTooLarge"),
    (11000, "DuplicateKey"),
    (16500, "RequestRateTooLarge"),
];

impl Refusal {
    /// A refusal with this number.
    pub fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), labels: Vec::new(), details: None }
    }

    /// 2: a value that is not allowed.
    pub fn bad_value(message: impl Into<String>) -> Self {
        Self::new(2, message)
    }

    /// 9: a command that cannot be read.
    pub fn parse(message: impl Into<String>) -> Self {
        Self::new(9, message)
    }

    /// 14: a value of the wrong type.
    pub fn type_mismatch(message: impl Into<String>) -> Self {
        Self::new(14, message)
    }

    /// The same with a label.
    pub fn labelled(mut self, label: &'static str) -> Self {
        self.labels.push(label);
        self
    }

    /// Whether the store is why, and not what was asked: it may be repeated, or nobody knows what became of it.
    pub fn is_of_the_store(&self) -> bool {
        self.labels.contains(&RETRYABLE) || self.code == 50
    }

    /// The same, with the label that lets drivers send it again.
    pub fn retryable(self) -> Self {
        match self.labels.contains(&RETRYABLE) {
            true => self,
            false => self.labelled(RETRYABLE),
        }
    }

    /// MongoDB's name of the number.
    pub fn name(&self) -> Cow<'static, str> {
        match NAMES.iter().find(|(code, _)| *code == self.code) {
            Some((_, name)) => Cow::Borrowed(name),
            None => Cow::Owned(format!("Location{}", self.code)),
        }
    }

    /// As the answer to a command.
    pub fn to_reply(&self) -> RawDocumentBuf {
        let mut reply = rawdoc! {
            "ok": 0.0,
            "errmsg": self.message.as_str(),
            "code": self.code,
            "codeName": &*self.name(),
        };
        if !self.labels.is_empty() {
            let mut labels = RawArrayBuf::new();
            self.labels.iter().for_each(|label| labels.push(*label));
            reply.append(bson::cstr!("errorLabels"), labels);
        }
        self.append_details(&mut reply);
        reply
    }

    /// As an entry of `writeErrors`.
    pub fn to_write_error(&self, index: usize) -> RawDocumentBuf {
        let mut error = rawdoc! {"index": index as i32, "code": self.code};
        self.append_details(&mut error);
        error.append(bson::cstr!("errmsg"), self.message.as_str());
        error
    }

    fn append_details(&self, to: &mut RawDocumentBuf) {
        for element in self.details.iter().flat_map(|details| details.iter().flatten()) {
            let (name, value) = element;
            to.append(name, value);
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.name(), self.code, self.message)
    }
}

impl std::error::Error for Refusal {}

/// TransactionTooOld: of a write that was made already, or that was followed by another.
const REPEATED: i32 = 225;

impl Refusal {
    /// Whether it is a write that was made already.
    pub fn is_repeated(&self) -> bool {
        self.code == REPEATED
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::new(failure.code, failure.message)
    }
}

impl From<bson::error::Error> for Refusal {
    fn from(error: bson::error::Error) -> Self {
        Self::new(22, format!("The document cannot be read: {error}"))
    }
}

/// Every outcome of the database has its number here; there is no other place.
impl From<db::Error> for Refusal {
    fn from(error: db::Error) -> Self {
        use db::Error as E;
        let text = error.to_string();
        match error {
            E::Invalid(_)
            | E::InvalidQuery(_)
            | E::PartitionKeyMismatch
            | E::BadPartitionKey(_)
            | E::PatchConditionFailed => Self::new(2, text),
            E::NotFound | E::OwnerNotFound => Self::new(26, "ns not found"),
            E::Exists => Self::new(48, text),
            E::UniqueKeyViolation { .. } => Self::new(11000, format!("E11000 {text}")),
            E::PreconditionFailed | E::FailedDependency => {
                Self::new(112, text).labelled("TransientTransactionError")
            }
            E::TooLarge(_) => Self::new(10334, text),
            E::Throttled { retry_after_ms } => Self::new(
                16500,
                format!(
                    "Error=16500, RetryAfterMs={retry_after_ms}, Details='Response status code does not indicate success: \
                     TooManyRequests (429); Substatus: 3200; Reason: ({text})"
                ),
            ),
            E::Overloaded => {
                Self::new(16500, format!("Error=16500, RetryAfterMs=10, Details='{text}'"))
            }
            E::SessionNotAvailable | E::PartitionGone | E::DiskFull(_) | E::Storage(_) => {
                Self::new(1, text)
            }
            // This protocol has no scripts, so it is never told these.
            E::Script { .. } => Self::new(2, text),
            // Without a label: a driver must not repeat what may have been made.
            E::ScriptTime | E::Unknown(_) => Self::new(50, text),
            E::Repeated => Self::new(REPEATED, text),
            // Nothing was changed, so whoever asked may ask again.
            E::Contention => Self::new(112, text).labelled(RETRYABLE),
            E::Unavailable(_) => Self::new(189, text).labelled(RETRYABLE),
            E::Stopping => Self::new(91, text).labelled(RETRYABLE),
        }
    }
}
