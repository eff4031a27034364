//! What the configuration of a group or of a subscription of client metrics may be (`GroupConfig`,
//! `ClientMetricsConfigs`).

use std::collections::BTreeSet;

use crate::alter::{AlterError, Altered, Change, apply, difference};
use crate::broker::BrokerConfig;
use crate::key::{self, Table};
use crate::properties::Pairs;
use crate::settings::Settings;
use crate::value::{self, Value};

/// Keys of a group that the broker bounds by `group.TYPE.min.…` and `group.TYPE.max.…`, in the
/// order in which Kafka looks at them.
const RANGES: [&str; 11] = [
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
];

/// The parts of a client that a subscription can ask for.
const MATCHERS: [&str; 6] = [
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];

/// The shortest and the longest time between two reports of a client, in milliseconds.
const PUSH_INTERVAL_MS: std::ops::RangeInclusive<i64> = 100..=3_600_000;

fn invalid(message: impl Into<String>) -> AlterError {
    AlterError::InvalidConfig(message.into())
}

/// The values that a group or a subscription has after the changes of IncrementalAlterConfigs, not
/// checked yet. As in Kafka none of their keys takes elements one by one.
pub fn apply_to_values(old: &Pairs, changes: &[Change<'_>]) -> Result<Pairs, AlterError> {
    apply(old, changes, |_| None)
}

/// Gives a group that has the values `old` those of `new` only. What stays as it was is left out of
/// the answer.
pub fn replace_group(
    config: &BrokerConfig,
    old: &Pairs,
    new: &Pairs,
) -> Result<Altered, AlterError> {
    check_group(config, new)?;
    Ok(difference(old, new))
}

/// The same for the subscription of client metrics called `name`.
pub fn replace_client_metrics(name: &str, old: &Pairs, new: &Pairs) -> Result<Altered, AlterError> {
    check_client_metrics(name, new)?;
    Ok(difference(old, new))
}

/// Checks the whole configuration of a group.
fn check_group(config: &BrokerConfig, new: &Pairs) -> Result<(), AlterError> {
    if let Some(name) = new.keys().find(|name| key::GROUP.get(name).is_none()) {
        return Err(invalid(format!("Unknown group config name: {name}")));
    }
    if let Some(tags) = new.get("streams.rack.aware.assignment.tags") {
        let mut seen = BTreeSet::new();
        let mut tags = tags.trim().split(',').map(str::trim);
        if !tags.all(|tag| seen.insert(tag)) {
            return Err(invalid(
                "streams.rack.aware.assignment.tags must not contain duplicate tag keys.",
            ));
        }
    }
    let values = Values::read(&key::GROUP, new)?;
    check_ranges(&values, config.settings())?;
    if let Some(assignor) = values.text("streams.assignor.name") {
        let known = config.settings().list("group.streams.assignors").unwrap_or_default();
        if !known.iter().any(|one| one == assignor) {
            return Err(invalid(format!(
                "streams.assignor.name '{assignor}' is not a registered task assignor. Registered \
                 assignors are: [{}].",
                known.join(", ")
            )));
        }
    }
    for kind in ["consumer", "share", "streams"] {
        check_session(&values, config.settings(), kind)?;
    }
    match values.text("errors.deadletterqueue.topic.name") {
        Some(topic) if topic.starts_with("__") => Err(invalid(
            "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
        )),
        _ => Ok(()),
    }
}

fn check_ranges(values: &Values, broker: &Settings) -> Result<(), AlterError> {
    let bounds = |name: &str| {
        let (kind, rest) = name.split_once('.').expect("a key names its type of group");
        let of = |which| broker.integer(&format!("group.{kind}.{which}.{rest}"));
        (of("min"), of("max"))
    };
    let in_range = |name: &str| match values.integer(name) {
        Some(value) => {
            let (min, max) = bounds(name);
            if (min..=max).contains(&value) {
                return Ok(());
            }
            Err(invalid(format!("{name} must be in the range {min} to {max} inclusive.")))
        }
        None => Ok(()),
    };
    let at_most = |name: &str, bound: &str| match (values.integer(name), broker.integer(bound)) {
        (Some(value), max) if value > max => {
            Err(invalid(format!("{name} must be less than or equal to {max}")))
        }
        _ => Ok(()),
    };
    RANGES.into_iter().try_for_each(in_range)?;
    at_most("streams.num.standby.replicas", "group.streams.max.standby.replicas")?;
    in_range("streams.assignment.interval.ms")?;
    let name = "streams.task.offset.interval.ms";
    let min = broker.integer("group.streams.min.task.offset.interval.ms");
    if values.integer(name).is_some_and(|value| value < min) {
        return Err(invalid(format!("{name} must be greater than or equal to {min}")));
    }
    at_most("streams.num.warmup.replicas", "group.streams.max.warmup.replicas")
}

/// A member must be able to miss a heartbeat.
fn check_session(values: &Values, broker: &Settings, kind: &str) -> Result<(), AlterError> {
    let names = [format!("{kind}.session.timeout.ms"), format!("{kind}.heartbeat.interval.ms")];
    let set = names.each_ref().map(|name| values.integer(name));
    if set == [None, None] {
        return Ok(());
    }
    let [session, heartbeat] = &names;
    let of = |name: &str| {
        values.integer(name).unwrap_or_else(|| broker.integer(&format!("group.{name}")))
    };
    if of(session) <= of(heartbeat) {
        return Err(invalid(format!("{session} must be greater than {heartbeat}")));
    }
    Ok(())
}

/// Checks the whole configuration of a subscription.
fn check_client_metrics(name: &str, new: &Pairs) -> Result<(), AlterError> {
    let wrong = |message: String| Err(AlterError::InvalidRequest(message));
    if name.is_empty() {
        return wrong("Subscription name can't be empty".to_owned());
    }
    if let Some(name) = new.keys().find(|name| key::CLIENT_METRICS.get(name).is_none()) {
        return wrong(format!("Unknown client metrics configuration: {name}"));
    }
    let values = Values::read(&key::CLIENT_METRICS, new)?;
    if let Some(interval) = values.integer("interval.ms")
        && !PUSH_INTERVAL_MS.contains(&interval)
    {
        return wrong(format!(
            "Invalid value {interval} for interval.ms, interval must be between {} and {} (1 hour)",
            PUSH_INTERVAL_MS.start(),
            PUSH_INTERVAL_MS.end()
        ));
    }
    let patterns = new.get("match").map(String::as_str).unwrap_or_default();
    for pattern in patterns.split(',').map(str::trim).filter(|pattern| !pattern.is_empty()) {
        let is_legal = pattern.split_once('=').is_some_and(|(name, regex)| {
            MATCHERS.contains(&name.trim()) && regex::Regex::new(regex.trim()).is_ok()
        });
        if !is_legal {
            return Err(invalid(format!("Illegal client matching pattern: {pattern}")));
        }
    }
    Ok(())
}

/// The values that are set, each of the type of its key.
struct Values(Vec<(String, Value)>);

impl Values {
    fn read(table: &Table, pairs: &Pairs) -> Result<Self, AlterError> {
        let set = table.keys().iter().filter_map(|key| Some((key, pairs.get(key.name)?)));
        let read = |(key, text): (&'static key::Key, &String)| {
            let value = value::read(key, Some(text)).map_err(AlterError::InvalidConfig)?;
            Ok((key.name.to_owned(), value))
        };
        set.map(read).collect::<Result<_, _>>().map(Self)
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(one, _)| one == name).map(|(_, value)| value)
    }

    fn integer(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Some(Value::Integer(value)) => Some(*value),
            _ => None,
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Value::Text(value)) => Some(value),
            _ => None,
        }
    }
}
