//! Which names a topic can have (`org.apache.kafka.common.internals.Topic`).

/// The topic of the metadata log, which nobody can create.
pub const METADATA_TOPIC: &str = "__cluster_metadata";
/// The most characters of a name, so that `name-partition` and a suffix fit a file name.
pub const TOPIC_NAME_LENGTH_MAX: usize = 249;

/// What is wrong with `name`, in Kafka's words; nothing if it can be a topic's.
pub fn topic_name_error(name: &str) -> Option<String> {
    let is_legal =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    // Java counts UTF-16 units; names of legal characters have one each.
    let length = name.encode_utf16().count();
    let reason = if name.is_empty() {
        "the empty string is not allowed".to_owned()
    } else if name == "." || name == ".." {
        format!("'{name}' is not allowed")
    } else if length > TOPIC_NAME_LENGTH_MAX {
        format!(
            "the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
        )
    } else if !name.chars().all(is_legal) {
        format!(
            "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' \
             and '-'"
        )
    } else {
        return None;
    };
    Some(format!("Topic name is invalid: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_in_the_words_of_kafka() {
        let long = "a".repeat(250);
        let long_message =
            format!("the length of '{long}' is longer than the max allowed length 249");
        let other = |name: &str| {
            format!(
                "'{name}' contains one or more characters other than ASCII alphanumerics, '.', \
                 '_' and '-'"
            )
        };
        let cases = [
            ("orders", None),
            ("a.b_c-D9", None),
            ("...", None),
            ("", Some("the empty string is not allowed".to_owned())),
            (".", Some("'.' is not allowed".to_owned())),
            ("..", Some("'..' is not allowed".to_owned())),
            (long.as_str(), Some(long_message)),
            ("a b", Some(other("a b"))),
            ("größe", Some(other("größe"))),
        ];
        for (name, reason) in cases {
            let expected = reason.map(|reason| format!("Topic name is invalid: {reason}"));
            assert_eq!(topic_name_error(name), expected, "{name}");
        }
    }
}
