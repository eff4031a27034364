//! A sentence on each key, made of the facts that the tables hold.

use crate::key::{BROKER, CLIENT_METRICS, Default, GROUP, Key, Rule, TOPIC};

/// What is known of a key of topics, brokers, groups or client metrics, for a person: its type,
/// what it may be, its default, and the keys that stand in for it. Nothing for a key that is not
/// known.
pub fn documentation(name: &str) -> Option<String> {
    let tables = [&TOPIC, &BROKER, &GROUP, &CLIENT_METRICS];
    tables.into_iter().find_map(|table| table.get(name)).map(sentence)
}

fn sentence(key: &Key) -> String {
    let mut parts = vec![format!("{} of type {}", key.name, key.kind.name())];
    parts.extend(allowed(&key.rule));
    parts.push(match key.default {
        Default::Required => "must be set".to_owned(),
        Default::Null => "unset by default".to_owned(),
        Default::Text("") => "empty by default".to_owned(),
        Default::Text(text) => format!("{text} by default"),
    });
    let synonyms: Vec<&str> = key.synonyms.iter().map(|(name, _)| *name).collect();
    if !synonyms.is_empty() {
        parts.push(format!("where it is not set: {}", synonyms.join(", ")));
    }
    parts.join("; ") + "."
}

fn allowed(rule: &Rule) -> Option<String> {
    match rule {
        Rule::Range { min: Some(min), max: Some(max) } => {
            Some(format!("{} to {}", min.text, max.text))
        }
        Rule::Range { min: Some(min), max: None } => Some(format!("at least {}", min.text)),
        Rule::Range { min: None, max: Some(max) } => Some(format!("at most {}", max.text)),
        Rule::OneOf(words) | Rule::OneOfAnyCase(words) => {
            Some(format!("one of {}", words.join(", ")))
        }
        Rule::List { values, .. } if !values.is_empty() => {
            Some(format!("a list of {}", values.join(", ")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_what_it_may_be() {
        let said = documentation("cleanup.policy").expect("known");
        assert!(said.contains("LIST") && said.contains("compact, delete"), "{said}");
        let said = documentation("retention.ms").expect("known");
        assert!(said.contains("604800000") && said.contains("log.retention.ms"), "{said}");
        assert_eq!(documentation("no.such.key"), None);
    }
}
