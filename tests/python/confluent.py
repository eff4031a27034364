"""What programs do with confluent-kafka: produce, consume, groups, administration.

Usage: confluent.py ADDRESS. Ends with an error at the first thing that is not as it should be.
"""

import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

TOPIC = "confluent"
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
WAIT_SECONDS = 30


def result(futures):
    """The only result of an administrative call."""
    (future,) = futures.values()
    return future.result(timeout=WAIT_SECONDS)


def fails(code, futures):
    try:
        result(futures)
    except KafkaException as error:
        assert error.args[0].code() == code, error
    else:
        raise AssertionError(f"expected the error {code}")


def eventually(holds):
    """A change is seen a little after it was acknowledged."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def topic_listed(admin):
    return admin.list_topics(TOPIC, timeout=WAIT_SECONDS)


def administration(address):
    admin = AdminClient({"bootstrap.servers": address})
    result(admin.create_topics([NewTopic(TOPIC, 2, 1, config={"retention.ms": "9000000"})]))
    fails(KafkaError.TOPIC_ALREADY_EXISTS, admin.create_topics([NewTopic(TOPIC, 2, 1)]))
    fails(KafkaError.TOPIC_EXCEPTION, admin.create_topics([NewTopic("a b", 2, 1)]))
    result(admin.create_partitions([NewPartitions(TOPIC, 3)]))
    eventually(lambda: len(topic_listed(admin).topics[TOPIC].partitions) == 3)
    listed = topic_listed(admin)
    assert listed.cluster_id and listed.controller_id == 1, listed
    topic = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    entries = result(admin.describe_configs([topic]))
    assert entries["retention.ms"].value == "9000000", entries["retention.ms"]
    change = ConfigEntry(
        "retention.ms", "8000000", incremental_operation=AlterConfigOpType.SET
    )
    changed = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[change])
    result(admin.incremental_alter_configs([changed]))
    cluster = admin.describe_cluster().result(timeout=WAIT_SECONDS)
    assert len(cluster.nodes) == 1, cluster.nodes
    result(admin.create_topics([NewTopic("confluent-gone", 1, 1)]))
    result(admin.delete_topics(["confluent-gone"]))
    fails(KafkaError.UNKNOWN_TOPIC_OR_PART, admin.delete_topics(["confluent-nowhere"]))
    return admin


def produce(address):
    delivered = []

    def on_delivery(error, message):
        assert error is None, error
        delivered.append(message.offset())

    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": address,
                "compression.type": codec,
                "enable.idempotence": True,
                "linger.ms": 10,
            }
        )
        for index in range(200):
            producer.produce(
                TOPIC,
                key=f"key-{index}",
                value=f"{codec}-{index}",
                headers={"codec": codec},
                partition=index % 3,
                on_delivery=on_delivery,
            )
        assert producer.flush(WAIT_SECONDS) == 0
    assert len(delivered) == 200 * len(CODECS), len(delivered)


def consume(address, strategy, group):
    count = 200 * len(CODECS)
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": strategy,
        }
    )
    consumer.subscribe([TOPIC])
    ends = {}
    for _ in range(count):
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None and message.error() is None, message and message.error()
        assert message.offset() == ends.get(message.partition(), 0), message.offset()
        ends[message.partition()] = message.offset() + 1
        assert message.value().startswith(message.headers()[0][1] + b"-"), message.value()
    consumer.commit(asynchronous=False)
    partitions = [TopicPartition(TOPIC, partition) for partition in range(3)]
    committed = consumer.committed(partitions, timeout=WAIT_SECONDS)
    assert sum(partition.offset for partition in committed) == count, committed
    low, high = consumer.get_watermark_offsets(partitions[0], timeout=WAIT_SECONDS)
    assert (low, high) == (0, ends[0]), (low, high)
    times = consumer.offsets_for_times([TopicPartition(TOPIC, 0, 1)], timeout=WAIT_SECONDS)
    assert times[0].offset == 0, times
    consumer.close()


def groups(admin):
    listed = admin.list_consumer_groups().result(timeout=WAIT_SECONDS)
    names = {group.group_id for group in listed.valid}
    assert {"confluent-range", "confluent-sticky"} <= names, names
    described = result(admin.describe_consumer_groups(["confluent-range"]))
    assert described.state.name == "EMPTY", described.state
    offsets = admin.list_offsets({TopicPartition(TOPIC, 0): OffsetSpec.latest()})
    assert result(offsets).offset > 0
    result(admin.delete_consumer_groups(["confluent-range"]))
    fails(KafkaError.GROUP_ID_NOT_FOUND, admin.delete_consumer_groups(["confluent-range"]))


def main():
    address = sys.argv[1]
    admin = administration(address)
    produce(address)
    consume(address, "range", "confluent-range")
    consume(address, "cooperative-sticky", "confluent-sticky")
    groups(admin)
    print("ok")


main()
