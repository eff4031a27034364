//! `kafka-configs`: settings of topics and brokers, as Kafka prints them.

use blackbox::Broker;

#[test]
fn settings_of_a_topic_change() {
    let broker = Broker::shared();
    broker.kafka("topics --create --topic configs-topic").ok();
    let alter = "configs --entity-type topics --entity-name configs-topic --alter";
    let describe = "configs --entity-type topics --entity-name configs-topic --describe";
    broker
        .kafka(&format!("{alter} --add-config retention.ms=1000,cleanup.policy=compact"))
        .ok()
        .prints("Completed updating config for topic configs-topic.");
    broker.kafka(describe).ok().prints(
        "Dynamic configs for topic configs-topic are:\n  \
         cleanup.policy=compact sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:\
         cleanup.policy=compact, DEFAULT_CONFIG:log.cleanup.policy=delete}\n  \
         retention.ms=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1000}",
    );
    broker.kafka(&format!("{alter} --delete-config retention.ms")).ok();
    broker.kafka(describe).ok().prints(
        "Dynamic configs for topic configs-topic are:\n  \
         cleanup.policy=compact sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:\
         cleanup.policy=compact, DEFAULT_CONFIG:log.cleanup.policy=delete}",
    );
    broker
        .kafka(&format!("{alter} --add-config retention.ms=abc"))
        .fails()
        .says("Invalid value abc for configuration retention.ms: Not a number of type LONG");
    broker
        .kafka(&format!("{alter} --add-config nonsense=abc"))
        .fails()
        .says("Unknown topic config name: nonsense");
}

#[test]
fn all_settings_of_a_topic_are_shown_as_kafka_shows_them() {
    let broker = Broker::shared();
    broker.kafka("topics --create --topic configs-all").ok();
    broker
        .kafka("configs --entity-type topics --entity-name configs-all --describe --all")
        .ok()
        .prints(include_str!("../golden/topic_configs.txt"));
}

#[test]
fn all_settings_of_a_broker_are_shown_as_kafka_shows_them() {
    let broker = Broker::start(&[]);
    broker
        .kafka("configs --entity-type brokers --entity-name 1 --describe --all")
        .ok()
        .prints(include_str!("../golden/broker_configs.txt"));
}

#[test]
fn settings_of_a_broker_change() {
    let broker = Broker::start(&[]);
    let of_one = "configs --entity-type brokers --entity-name 1";
    broker
        .kafka(&format!("{of_one} --alter --add-config log.cleaner.threads=2"))
        .ok()
        .prints("Completed updating config for broker 1.");
    broker.kafka(&format!("{of_one} --describe")).ok().prints(
        "Dynamic configs for broker 1 are:\n  \
         log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:\
         log.cleaner.threads=2, DEFAULT_CONFIG:log.cleaner.threads=1}",
    );
    broker.kafka(&format!("{of_one} --alter --delete-config log.cleaner.threads")).ok();
    broker.kafka(&format!("{of_one} --describe")).ok().prints("Dynamic configs for broker 1 are:");
    let of_all = "configs --entity-type brokers --entity-default";
    broker
        .kafka(&format!("{of_all} --alter --add-config message.max.bytes=2000000"))
        .ok()
        .prints("Completed updating default config for brokers in the cluster.");
    broker.kafka(&format!("{of_all} --describe")).ok().prints_in_any_order(&[
        "Default configs for brokers in the cluster are:",
        "  message.max.bytes=2000000 sensitive=false \
         synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2000000}",
        "  min.insync.replicas=1 sensitive=false \
         synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:min.insync.replicas=1}",
    ]);
    broker
        .kafka(&format!("{of_one} --alter --add-config log.dirs=/tmp/other"))
        .fails()
        .says("Cannot update these configs dynamically: [log.dirs]");
    // A name that nobody knows may be a plugin's: it is kept, and its value shown to nobody.
    broker.kafka(&format!("{of_one} --alter --add-config nonsense=1")).ok();
    broker.kafka(&format!("{of_one} --describe")).ok().prints(
        "Dynamic configs for broker 1 are:\n  \
         nonsense=null sensitive=true synonyms={DYNAMIC_BROKER_CONFIG:nonsense=null}",
    );
}
