use std::fmt;

/// An error code of the protocol (Kafka's `Errors`). Every int16 is one, since newer brokers may
/// send newer codes; the constants are those of 4.4.0.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i16);

struct ErrorFacts {
    code: ErrorCode,
    name: &'static str,
    retriable: bool,
    message: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/errors.rs"));

impl ErrorCode {
    /// Whether it stands for an error at all.
    pub const fn is_error(self) -> bool {
        self.0 != ErrorCode::NONE.0
    }

    /// Kafka's name, or `UNKNOWN` for a code that 4.4.0 does not have.
    pub fn name(self) -> &'static str {
        self.facts().map_or("UNKNOWN", |facts| facts.name)
    }

    /// What Kafka writes into `ErrorMessage` fields when there is nothing more to say; empty for
    /// [`ErrorCode::NONE`] and codes that 4.4.0 does not have.
    pub fn message(self) -> &'static str {
        self.facts().map_or("", |facts| facts.message)
    }

    /// Whether clients try again.
    pub fn is_retriable(self) -> bool {
        self.facts().is_some_and(|facts| facts.retriable)
    }

    /// All codes of 4.4.0, ascending.
    pub fn all() -> impl Iterator<Item = ErrorCode> {
        ERRORS.iter().map(|facts| facts.code)
    }

    fn facts(self) -> Option<&'static ErrorFacts> {
        let index = ERRORS.binary_search_by_key(&self, |facts| facts.code).ok()?;
        ERRORS.get(index)
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ordered_and_found() {
        let codes: Vec<_> = ErrorCode::all().collect();
        assert!(codes.is_sorted());
        assert_eq!(codes.first(), Some(&ErrorCode::UNKNOWN_SERVER_ERROR));
        assert_eq!(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0, 3);
        assert!(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.is_retriable());
        assert!(!ErrorCode::UNSUPPORTED_VERSION.is_retriable());
        assert_eq!(ErrorCode(35).message(), "The version of API is not supported.");
        assert_eq!(format!("{:?}", ErrorCode(9_999)), "UNKNOWN(9999)");
        assert!(!ErrorCode::default().is_error());
    }
}
