"""What programs do with kafka-python: produce, consume, groups, administration.

Usage: kafka_python.py ADDRESS. Ends with an error at the first thing that is not as it should be.
"""

import sys
import time

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewPartitions, NewTopic
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

TOPIC = "kafka-python"
# The others need libraries besides kafka-python: kcat and Java cover them.
CODECS = [None, "gzip"]
WAIT_MS = 30_000


def eventually(holds):
    """A change is seen a little after it was acknowledged."""
    deadline = time.monotonic() + WAIT_MS / 1000
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def administration(address):
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=1)])
    try:
        admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=1)])
        raise AssertionError("the topic was made twice")
    except TopicAlreadyExistsError:
        pass
    assert TOPIC in admin.list_topics()
    admin.create_partitions({TOPIC: NewPartitions(3)})
    eventually(lambda: len(admin.describe_topics([TOPIC])[0]["partitions"]) == 3)
    admin.create_topics([NewTopic("kafka-python-gone", num_partitions=1, replication_factor=1)])
    admin.delete_topics(["kafka-python-gone"])
    try:
        admin.delete_topics(["kafka-python-nowhere"])
        raise AssertionError("a topic that isn't there was deleted")
    except UnknownTopicOrPartitionError:
        pass
    admin.close()


def produce(address):
    for codec in CODECS:
        producer = KafkaProducer(bootstrap_servers=address, compression_type=codec, acks="all")
        for index in range(100):
            sent = producer.send(
                TOPIC,
                key=b"key-%d" % index,
                value=b"%s-%d" % (str(codec).encode(), index),
                headers=[("codec", str(codec).encode())],
                partition=index % 3,
            )
        assert sent.get(timeout=WAIT_MS / 1000).offset >= 0
        producer.flush()
        producer.close()


def consume(address):
    count = 100 * len(CODECS)
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=address,
        group_id="kafka-python",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=WAIT_MS,
    )
    ends = {}
    for _ in range(count):
        record = next(consumer)
        assert record.offset == ends.get(record.partition, 0), record
        ends[record.partition] = record.offset + 1
        assert record.value.startswith(record.headers[0][1] + b"-"), record
    consumer.commit()
    partitions = [TopicPartition(TOPIC, partition) for partition in range(3)]
    assert sum(consumer.committed(partition) for partition in partitions) == count
    assert sum(consumer.end_offsets(partitions).values()) == count
    assert sum(consumer.beginning_offsets(partitions).values()) == 0
    times = consumer.offsets_for_times({partitions[0]: 1})
    assert times[partitions[0]].offset == 0, times
    consumer.close()


def main():
    address = sys.argv[1]
    administration(address)
    produce(address)
    consume(address)
    print("ok")


main()
