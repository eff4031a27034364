//! The rules that span several keys of the group coordinator (`GroupCoordinatorConfig`,
//! `ShareGroupConfig`).

use crate::settings::Settings;
use crate::value::invalid;

/// How one key must stand to another.
#[derive(Clone, Copy)]
enum Order {
    AtLeast,
    AtMost,
    Below,
}

use Order::{AtLeast, AtMost, Below};

/// `group.` goes before each name.
const ORDERS: &[(&str, Order, &str)] = &[
    ("consumer.max.heartbeat.interval.ms", AtLeast, "consumer.min.heartbeat.interval.ms"),
    ("consumer.heartbeat.interval.ms", AtLeast, "consumer.min.heartbeat.interval.ms"),
    ("consumer.heartbeat.interval.ms", AtMost, "consumer.max.heartbeat.interval.ms"),
    ("consumer.max.session.timeout.ms", AtLeast, "consumer.min.session.timeout.ms"),
    ("consumer.session.timeout.ms", AtLeast, "consumer.min.session.timeout.ms"),
    ("consumer.session.timeout.ms", AtMost, "consumer.max.session.timeout.ms"),
    ("consumer.heartbeat.interval.ms", Below, "consumer.session.timeout.ms"),
    ("consumer.max.assignment.interval.ms", AtLeast, "consumer.min.assignment.interval.ms"),
    ("consumer.assignment.interval.ms", AtLeast, "consumer.min.assignment.interval.ms"),
    ("consumer.assignment.interval.ms", AtMost, "consumer.max.assignment.interval.ms"),
    ("share.max.heartbeat.interval.ms", AtLeast, "share.min.heartbeat.interval.ms"),
    ("share.heartbeat.interval.ms", AtLeast, "share.min.heartbeat.interval.ms"),
    ("share.heartbeat.interval.ms", AtMost, "share.max.heartbeat.interval.ms"),
    ("share.max.session.timeout.ms", AtLeast, "share.min.session.timeout.ms"),
    ("share.session.timeout.ms", AtLeast, "share.min.session.timeout.ms"),
    ("share.session.timeout.ms", AtMost, "share.max.session.timeout.ms"),
    ("share.heartbeat.interval.ms", Below, "share.session.timeout.ms"),
    ("share.max.assignment.interval.ms", AtLeast, "share.min.assignment.interval.ms"),
    ("share.assignment.interval.ms", AtLeast, "share.min.assignment.interval.ms"),
    ("share.assignment.interval.ms", AtMost, "share.max.assignment.interval.ms"),
    ("share.delivery.count.limit", AtLeast, "share.min.delivery.count.limit"),
    ("share.max.delivery.count.limit", AtLeast, "share.delivery.count.limit"),
    ("share.record.lock.duration.ms", AtLeast, "share.min.record.lock.duration.ms"),
    ("share.max.record.lock.duration.ms", AtLeast, "share.record.lock.duration.ms"),
    ("share.partition.max.record.locks", AtLeast, "share.min.partition.max.record.locks"),
    ("share.max.partition.max.record.locks", AtLeast, "share.partition.max.record.locks"),
    ("streams.max.heartbeat.interval.ms", AtLeast, "streams.min.heartbeat.interval.ms"),
    ("streams.heartbeat.interval.ms", AtLeast, "streams.min.heartbeat.interval.ms"),
    ("streams.heartbeat.interval.ms", AtMost, "streams.max.heartbeat.interval.ms"),
    ("streams.max.session.timeout.ms", AtLeast, "streams.min.session.timeout.ms"),
    ("streams.session.timeout.ms", AtLeast, "streams.min.session.timeout.ms"),
    ("streams.session.timeout.ms", AtMost, "streams.max.session.timeout.ms"),
    ("streams.heartbeat.interval.ms", Below, "streams.session.timeout.ms"),
    ("streams.num.standby.replicas", AtMost, "streams.max.standby.replicas"),
    ("streams.num.warmup.replicas", AtMost, "streams.max.warmup.replicas"),
    ("streams.max.assignment.interval.ms", AtLeast, "streams.min.assignment.interval.ms"),
    ("streams.assignment.interval.ms", AtLeast, "streams.min.assignment.interval.ms"),
    ("streams.assignment.interval.ms", AtMost, "streams.max.assignment.interval.ms"),
    ("streams.task.offset.interval.ms", AtLeast, "streams.min.task.offset.interval.ms"),
];

/// The assignors that are built in. Any other would be a Java class.
const ASSIGNORS: [(&str, &[&str]); 3] = [
    ("group.consumer.assignors", &["uniform", "range"]),
    ("group.share.assignors", &["simple"]),
    ("group.streams.assignors", &["sticky"]),
];

/// The number of the last codec of records, zstd.
const CODEC_MAX: i64 = 4;

/// Checks all rules.
pub(crate) fn check(settings: &Settings) -> Result<(), String> {
    for name in
        ["offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"]
    {
        let codec = settings.integer(name);
        if !(0..=CODEC_MAX).contains(&codec) {
            return Err(format!("Unknown compression type id: {codec}"));
        }
    }
    for (key, known) in ASSIGNORS {
        let mut names = settings.list(key).unwrap_or(&[]).iter();
        if let Some(name) = names.find(|name| !known.contains(&name.as_str())) {
            return Err(invalid(key, name, "Class cannot be found"));
        }
    }
    for &(left, order, right) in ORDERS {
        let of = |name: &str| settings.integer(&format!("group.{name}"));
        let (holds, words) = match order {
            AtLeast => (of(left) >= of(right), "greater than or equal to"),
            AtMost => (of(left) <= of(right), "less than or equal to"),
            Below => (of(left) < of(right), "less than"),
        };
        if !holds {
            return Err(format!("group.{left} must be {words} group.{right}"));
        }
    }
    let protocols = settings.list("group.coordinator.rebalance.protocols").unwrap_or(&[]);
    if !protocols.iter().any(|protocol| protocol == "classic") {
        return Err("Disabling the 'classic' protocol is not supported.".to_owned());
    }
    Ok(())
}
