//! Names of topics, and the topics that the broker itself keeps something in.

/// The name in the folder of the metadata log, which is no partition of the broker's.
pub(crate) const METADATA_TOPIC: &str = "__cluster_metadata";
/// Committed offsets and groups.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";
/// Transactions.
pub(crate) const TRANSACTIONS_TOPIC: &str = "__transaction_state";
/// Share groups.
pub(crate) const SHARE_TOPIC: &str = "__share_group_state";

/// Whether the topic is the broker's own (`Topic.isInternal`).
pub(crate) fn is_internal(name: &str) -> bool {
    [OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_TOPIC].contains(&name)
}

/// Whether a topic may have this name (`Topic.isValid`).
pub(crate) fn is_valid_name(name: &str) -> bool {
    metadata::topic_name_error(name).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kafkas() {
        let longest = "a".repeat(metadata::TOPIC_NAME_LENGTH_MAX);
        for valid in ["a", "a.b_c-9", "...", longest.as_str()] {
            assert!(is_valid_name(valid), "{valid}");
        }
        let too_long = "a".repeat(metadata::TOPIC_NAME_LENGTH_MAX + 1);
        for invalid in ["", ".", "..", "a b", "a/b", "ä", too_long.as_str()] {
            assert!(!is_valid_name(invalid), "{invalid}");
        }
        assert!(is_internal("__consumer_offsets") && !is_internal("orders"));
    }
}
