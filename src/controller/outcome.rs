//! What a request leads to.

use metadata::{Record, VersionedRecord};
use protocol::{ErrorCode, Str};

/// What a handler proposes: records to write, and what to answer once they are committed
/// (`ControllerResult`). The records of one proposal are one batch: all of them or none.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal<R> {
    /// To be appended, applied and committed before the response leaves; may be none.
    pub records: Vec<VersionedRecord>,
    /// The answer.
    pub response: R,
}

impl<R> Proposal<R> {
    /// A proposal of `records` with its answer.
    pub fn new(records: Vec<VersionedRecord>, response: R) -> Self {
        Self { records, response }
    }

    /// An answer that changes nothing.
    pub fn nothing(response: R) -> Self {
        Self::new(Vec::new(), response)
    }

    /// The same records with another answer.
    pub fn map<S>(self, change: impl FnOnce(R) -> S) -> Proposal<S> {
        Proposal { records: self.records, response: change(self.response) }
    }
}

/// Why a client does not get what it asked for (`ApiError`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The code.
    pub code: ErrorCode,
    /// A sentence, where there is more to say than the code does.
    pub message: Option<String>,
}

impl ApiError {
    /// An error with a sentence of its own.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: Some(message.into()) }
    }

    /// An error whose code says it all, with the sentence that Kafka has for the code.
    pub fn plain(code: ErrorCode) -> Self {
        Self { code, message: Some(code.message().to_owned()) }
    }

    /// An error without a sentence (one of Kafka's exceptions that carried none).
    pub fn silent(code: ErrorCode) -> Self {
        Self { code, message: None }
    }
}

/// The code and the sentence of a result, as responses have them.
pub(crate) fn code_and_message(result: Result<(), ApiError>) -> (ErrorCode, Option<Str>) {
    match result {
        Ok(()) => (ErrorCode::NONE, None),
        Err(error) => (error.code, error.message.map(Into::into)),
    }
}

/// The answer where a request would lead to more records than one batch may have.
pub(crate) fn too_many_records() -> ApiError {
    let message = "Unable to perform excessively large batch operation.";
    ApiError::new(ErrorCode::POLICY_VIOLATION, message)
}

/// A record in the first version of its schema.
pub(crate) fn v0(record: impl Into<Record>) -> VersionedRecord {
    versioned(record, 0)
}

/// A record to be written in `version`.
pub(crate) fn versioned(record: impl Into<Record>, version: i16) -> VersionedRecord {
    VersionedRecord { record: record.into(), version }
}
