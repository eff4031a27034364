//! One value: from text to its type, checked by its key's rule, and back to text as Java prints it.

use std::fmt;

use base::java_double;

use crate::key::{Bound, Default, Key, Rule, Type};
use crate::quorum;

/// A value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Unset, without a default.
    Null,
    /// Of [`Type::Boolean`].
    Boolean(bool),
    /// Of [`Type::Short`], [`Type::Int`] or [`Type::Long`].
    Integer(i64),
    /// Of [`Type::Double`].
    Double(f64),
    /// Of [`Type::String`], [`Type::Class`] or [`Type::Password`].
    Text(String),
    /// Of [`Type::List`].
    List(Vec<String>),
}

impl Value {
    /// As DescribeConfigs shows it (`ConfigDef.convertToString`); nothing for [`Value::Null`].
    pub fn to_text(&self) -> Option<String> {
        match self {
            Value::Null => None,
            Value::Boolean(value) => Some(value.to_string()),
            Value::Integer(value) => Some(value.to_string()),
            Value::Double(value) => Some(java_double(*value)),
            Value::Text(value) => Some(value.clone()),
            Value::List(values) => Some(values.join(",")),
        }
    }
}

impl fmt::Display for Value {
    /// As a message shows it: a list in brackets.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::List(values) => write!(formatter, "[{}]", values.join(", ")),
            other => formatter.write_str(other.to_text().as_deref().unwrap_or("null")),
        }
    }
}

/// Parses and checks the value that a key has when `text` stands for it (`None`: when unset).
/// The error is Kafka's message.
pub(crate) fn read(key: &Key, text: Option<&str>) -> Result<Value, String> {
    let value = match (text, key.default) {
        (Some(text), _) => parse(key.name, key.kind, text)?,
        (None, Default::Text(default)) => parse(key.name, key.kind, default)?,
        (None, Default::Null) => Value::Null,
        (None, Default::Required) => {
            let name = key.name;
            return Err(format!(
                "Missing required configuration \"{name}\" which has no default value."
            ));
        }
    };
    let value = match (key.rule, value) {
        (Rule::List { .. }, Value::List(values)) => Value::List(without_duplicates(values)),
        (_, value) => value,
    };
    check(key.name, key.rule, &value)?;
    Ok(value)
}

/// Kafka's `ConfigException` on a value.
pub(crate) fn invalid(name: &str, value: impl fmt::Display, why: &str) -> String {
    format!("Invalid value {value} for configuration {name}: {why}")
}

/// Gives text its type (`ConfigDef.parseType`).
pub(crate) fn parse(name: &str, kind: Type, text: &str) -> Result<Value, String> {
    let trimmed = java_trim(text);
    let number = |range: std::ops::RangeInclusive<i64>| match trimmed.parse::<i64>() {
        Ok(number) if range.contains(&number) => Ok(Value::Integer(number)),
        _ => Err(invalid(name, text, &format!("Not a number of type {}", kind.name()))),
    };
    match kind {
        Type::Boolean if trimmed.eq_ignore_ascii_case("true") => Ok(Value::Boolean(true)),
        Type::Boolean if trimmed.eq_ignore_ascii_case("false") => Ok(Value::Boolean(false)),
        Type::Boolean => Err(invalid(name, text, "Expected value to be either true or false")),
        Type::Short => number(i64::from(i16::MIN)..=i64::from(i16::MAX)),
        Type::Int => number(i64::from(i32::MIN)..=i64::from(i32::MAX)),
        Type::Long => number(i64::MIN..=i64::MAX),
        Type::Double => parse_java_double(trimmed)
            .map(Value::Double)
            .ok_or_else(|| invalid(name, text, "Not a number of type DOUBLE")),
        Type::String | Type::Password => Ok(Value::Text(trimmed.to_owned())),
        Type::Class if is_known_class(trimmed) => Ok(Value::Text(trimmed.to_owned())),
        Type::Class => Err(invalid(name, text, &format!("Class {text} could not be found."))),
        Type::List if trimmed.is_empty() => Ok(Value::List(Vec::new())),
        Type::List => {
            let elements = trimmed.split(',').enumerate();
            let last = trimmed.matches(',').count();
            Ok(Value::List(
                elements.map(|(index, element)| trim_element(element, index, last)).collect(),
            ))
        }
    }
}

/// No Java class can be loaded here. Those of Apache Kafka itself are let through, so that their
/// keys are named as not used; any other is not found.
fn is_known_class(name: &str) -> bool {
    name.starts_with("org.apache.kafka.")
}

/// White space goes where it touches a comma; elsewhere `java_trim` has been already.
fn trim_element(element: &str, index: usize, last: usize) -> String {
    let is_space = |c: char| matches!(c, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r');
    let mut element = element;
    if index > 0 {
        element = element.trim_start_matches(is_space);
    }
    if index < last {
        element = element.trim_end_matches(is_space);
    }
    element.to_owned()
}

/// `String.trim`: control characters and spaces go, other white space stays.
pub(crate) fn java_trim(text: &str) -> &str {
    text.trim_matches(|c: char| c <= ' ')
}

fn without_duplicates(values: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::with_capacity(values.len());
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}

pub(crate) fn check(name: &str, rule: Rule, value: &Value) -> Result<(), String> {
    match rule {
        Rule::Any => Ok(()),
        Rule::Range { min, max } => check_range(name, min, max, value),
        Rule::List { may_be_empty, may_be_null, values } => {
            check_list(name, may_be_empty, may_be_null, values, value)
        }
        Rule::OneOf(words) => match value {
            Value::Text(text) if words.contains(&text.as_str()) => Ok(()),
            other => Err(not_one_of(name, other, words)),
        },
        Rule::OneOfAnyCase(words) => match value {
            Value::Text(text) if words.iter().any(|word| word.eq_ignore_ascii_case(text)) => Ok(()),
            other => {
                let words = words.join(", ");
                let why = format!("String must be one of (case insensitive): {words}");
                Err(invalid(name, other, &why))
            }
        },
        Rule::NonEmpty => match value {
            Value::Text(text) if text.is_empty() => {
                Err(invalid(name, value, "String must be non-empty"))
            }
            _ => Ok(()),
        },
        Rule::NonNull => match value {
            Value::Null => Err(invalid(name, "null", "entry must be non null")),
            _ => Ok(()),
        },
        Rule::GzipLevel => match value {
            Value::Integer(-1 | 1..=9) => Ok(()),
            other => Err(invalid(name, other, "Value must be between 1 and 9 or equal to -1")),
        },
        Rule::ThrottledReplicas => check_throttled_replicas(name, value),
        Rule::QuorumVoters => quorum::parse_voters(list(value)).map(|_| ()),
        Rule::QuorumBootstrapServers => quorum::parse_bootstrap_servers(list(value)).map(|_| ()),
        Rule::ShareAutoOffsetReset => check_share_auto_offset_reset(name, value),
        Rule::CountOrAuto => match value {
            Value::Text(text) if text == "auto" => Ok(()),
            Value::Text(text) if text.parse::<u16>().is_ok_and(|count| count > 0) => Ok(()),
            other => Err(invalid(name, other, "Value must be a number of at least 1, or auto")),
        },
    }
}

fn list(value: &Value) -> &[String] {
    match value {
        Value::List(values) => values,
        _ => &[],
    }
}

fn not_one_of(name: &str, value: impl fmt::Display, words: &[&str]) -> String {
    invalid(name, value, &format!("String must be one of: {}", words.join(", ")))
}

fn check_range(
    name: &str,
    min: Option<Bound>,
    max: Option<Bound>,
    value: &Value,
) -> Result<(), String> {
    let number = match value {
        // A double holds these as exactly as Kafka, which compares doubles too.
        Value::Integer(number) => *number as f64,
        Value::Double(number) => *number,
        other => return Err(invalid(name, other, "Value must be non-null")),
    };
    if let Some(min) = min.filter(|min| number < min.value) {
        return Err(invalid(name, value, &format!("Value must be at least {}", min.text)));
    }
    if let Some(max) = max.filter(|max| number > max.value) {
        return Err(invalid(name, value, &format!("Value must be no more than {}", max.text)));
    }
    Ok(())
}

fn check_list(
    name: &str,
    may_be_empty: bool,
    may_be_null: bool,
    words: &[&str],
    value: &Value,
) -> Result<(), String> {
    let Value::List(values) = value else {
        return match may_be_null {
            true => Ok(()),
            false => Err(format!("Configuration '{name}' values must not be null.")),
        };
    };
    if values.is_empty() && !may_be_empty {
        let valid = match words {
            [] => "any non-empty value".to_owned(),
            words => format!("[{}]", words.join(", ")),
        };
        return Err(format!(
            "Configuration '{name}' must not be empty. Valid values include: {valid}"
        ));
    }
    for one in values {
        if one.is_empty() {
            return Err(format!("Configuration '{name}' values must not be empty."));
        }
        if !words.is_empty() && !words.contains(&one.as_str()) {
            return Err(not_one_of(name, one, words));
        }
    }
    Ok(())
}

fn check_throttled_replicas(name: &str, value: &Value) -> Result<(), String> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_replica = |one: &String| {
        one.split_once(':').is_some_and(|(partition, broker)| digits(partition) && digits(broker))
    };
    let values = list(value);
    if matches!(values, [star] if star == "*") || values.iter().all(is_replica) {
        return Ok(());
    }
    let why = format!(
        "{name} must be the literal '*' or a list of replicas in the following format: \
         [partitionId]:[brokerId],[partitionId]:[brokerId],..."
    );
    Err(invalid(name, value, &why))
}

fn check_share_auto_offset_reset(name: &str, value: &Value) -> Result<(), String> {
    let Value::Text(text) = value else { return Ok(()) };
    let known = matches!(text.as_str(), "earliest" | "latest");
    if known || text.strip_prefix("by_duration:").is_some_and(is_iso_duration) {
        return Ok(());
    }
    let why = format!(
        "Invalid value `{text}` for configuration {name}. The value must be either 'earliest', \
         'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
    );
    Err(invalid(name, text, &why))
}

/// Whether it is a duration that is not negative, of days, hours, minutes and seconds, in this
/// order (`java.time.Duration.parse`).
fn is_iso_duration(text: &str) -> bool {
    let upper = text.to_ascii_uppercase();
    let Some(rest) = upper.strip_prefix('P') else { return false };
    let (days, time) = match rest.split_once('T') {
        Some((days, time)) => (days, Some(time)),
        None => (rest, None),
    };
    let mut parts = 0;
    let mut take = |text: &mut &str, unit: char| {
        let Some((number, rest)) = text.split_once(unit) else { return true };
        parts += 1;
        *text = rest;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let may_have_fraction = unit == 'S' || !number.contains('.');
        !whole.is_empty() && digits(whole) && digits(fraction) && may_have_fraction
    };
    let mut days = days;
    let mut whole = take(&mut days, 'D') && days.is_empty();
    if let Some(mut time) = time {
        whole &= !time.is_empty();
        whole &= take(&mut time, 'H') && take(&mut time, 'M') && take(&mut time, 'S');
        whole &= time.is_empty();
    }
    whole && parts > 0
}

/// `Double.parseDouble`, but for hexadecimal numbers.
fn parse_java_double(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, "NaN" | "Infinity") {
        return text.parse().ok();
    }
    let number = text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text);
    let plain =
        |byte: u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
    if !number.bytes().all(plain) {
        return None;
    }
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_print_as_java_prints_them() {
        for (text, printed) in [
            ("0.5", "0.5"),
            (".25", "0.25"),
            ("1", "1.0"),
            ("-0", "-0.0"),
            ("1e7", "1.0E7"),
            ("9999999", "9999999.0"),
            ("0.001", "0.001"),
            ("0.0001", "1.0E-4"),
            ("1.7976931348623157e308", "1.7976931348623157E308"),
            ("2147483647", "2.147483647E9"),
            ("5f", "5.0"),
            ("Infinity", "Infinity"),
        ] {
            assert_eq!(parse_java_double(text).map(java_double).as_deref(), Some(printed));
        }
        for text in ["", "f", "inf", "nan", "1_0", "0x", "1e", "."] {
            assert_eq!(parse_java_double(text), None, "{text}");
        }
    }

    #[test]
    fn durations_are_iso_8601() {
        for text in ["P1D", "PT1H", "pt5m", "P1DT2H3M4.5S", "PT0S"] {
            assert!(is_iso_duration(text), "{text}");
        }
        for text in ["", "P", "PT", "1D", "PTS", "P1H", "PT1S1H", "PT1.5H", "P1DT", "PT-1S"] {
            assert!(!is_iso_duration(text), "{text}");
        }
    }
}
