//! Every outcome other than success that a client can be told.
//!
//! The enum is closed: each front end has one `match` over it without `_`, so that a new variant does not compile until both
//! protocols have an answer. The text of a variant is for people and says what to do.

/// The result of a database operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What a client is told when it does not get what it asked for.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The request itself is wrong. Nothing was written.
    #[error("{0}")]
    Invalid(String),
    /// A query text is wrong; the text is the list of errors with codes and positions, as JSON.
    #[error("{0}")]
    InvalidQuery(String),
    /// The partition key given does not belong to the item.
    #[error(
        "Partition key provided either doesn't correspond to definition in the collection or doesn't match \
         partition key field values specified in the document."
    )]
    PartitionKeyMismatch,
    /// A partition key with too few or too many components for the container.
    #[error("{0}")]
    BadPartitionKey(&'static str),
    /// The addressed resource does not exist, or has expired.
    #[error(
        "Entity with the specified id does not exist in the system. More info: \
         https://aka.ms/cosmosdb-tsg-not-found"
    )]
    NotFound,
    /// The database or container around the addressed resource does not exist.
    #[error("Owner resource does not exist")]
    OwnerNotFound,
    /// The client has seen a later state than this server has.
    #[error("The read session is not available for the input session token.")]
    SessionNotAvailable,
    /// The name is taken.
    #[error("Resource with specified id or name already exists.")]
    Exists,
    /// Another item of the partition key holds these unique key values.
    #[error("Unique index constraint violation.")]
    UniqueKeyViolation {
        /// The unique entry that both have.
        entry: Vec<u8>,
    },
    /// If-Match named another version.
    #[error("One of the specified pre-condition is not met")]
    PreconditionFailed,
    /// The condition of a patch does not hold for the item.
    #[error("The item does not meet the condition of the patch.")]
    PatchConditionFailed,
    /// Another write of the same transaction was refused, so this one was not made either.
    #[error("Another operation of the same request failed, so this one was not made.")]
    FailedDependency,
    /// The item or request is over a size limit; the text names it.
    #[error("{0}")]
    TooLarge(String),
    /// The partition the client asked for is not there any more; its map is stale.
    #[error("The requested resource is no longer available at the server.")]
    PartitionGone,
    /// A script did not come to its end: it was wrong, threw, or was stopped. Nothing was written.
    #[error("{text}")]
    Script {
        /// What happened.
        text: String,
        /// The status that the script itself named, such as 409; 0 if none.
        number: u16,
    },
    /// A script's time was up. Nothing was written.
    #[error(
        "The script exceeded the time that it may run, so nothing was written. Let it do less at a time, and stop when an \
         operation is not accepted."
    )]
    ScriptTime,
    /// Others kept changing what a script was changing. Nothing was written.
    #[error("Conflicting request to resource has been attempted. Retry to avoid conflicts.")]
    Contention,
    /// A write that its client has sent again was made the first time: there is a memo of it.
    #[error("The write was made already.")]
    Repeated,
    /// Over the provisioned request units.
    #[error(
        "Request rate is large. More Request Units may be needed, so no changes were made. Please retry this \
         request later. Learn more: http://aka.ms/cosmosdb-error-429"
    )]
    Throttled {
        /// When there will be request units again.
        retry_after_ms: u64,
    },
    /// Too much is waiting already. Nothing was written.
    #[error("The server is overloaded: too many writes are waiting. Please retry.")]
    Overloaded,
    /// The disk is full. Nothing was written; reads go on.
    #[error(
        "The server's disk is full, so nothing was written. Free space on it, then retry. ({0})"
    )]
    DiskFull(String),
    /// The store cannot be reached for now. Nothing was written.
    #[error("The store cannot be reached for now, so nothing was changed. Please retry. ({0})")]
    Unavailable(String),
    /// The store was lost during a commit: the write was made as a whole or not at all, and nobody can say which.
    #[error(
        "The store was lost while it was writing: the change was made as a whole or not at all. Read the item to find out before you \
         repeat it. ({0})"
    )]
    Unknown(String),
    /// The store failed or holds corrupt bytes; the text names what.
    #[error("{0}")]
    Storage(String),
    /// The server is stopping.
    #[error("The server is stopping. Please retry.")]
    Stopping,
}

impl From<storage::Error> for Error {
    fn from(error: storage::Error) -> Self {
        match error {
            storage::Error::Full(text) => Self::DiskFull(text),
            storage::Error::Closed => Self::Stopping,
            storage::Error::Conflict => Self::Contention,
            storage::Error::Unavailable(text) => Self::Unavailable(text),
            storage::Error::Unknown(text) => Self::Unknown(text),
            storage::Error::Corrupt(_)
            | storage::Error::Invalid(_)
            | storage::Error::Failed(_)
            | storage::Error::Open(_) => Self::Storage(error.to_string()),
        }
    }
}
