"""What docs/data_format.md says of the files of a log, done by hand: no code of a broker is used,
and where a field lies in a file is read from the tables of the page itself.

    rebuild.py PAGE rebuild FROM TO [index.interval.bytes]
        writes into TO what the `.log` files of each folder of FROM tell, as if Corelane had opened
        the logs after a crash and closed them in order, and prints where each log ends
    rebuild.py PAGE check DATA
        reads every file of a data directory, and ends with an error at the first thing that the
        page does not say
"""

import json
import re
import struct
import sys
import zlib
from pathlib import Path

NONE = -1
DIGITS = 20
SNAPSHOT_VERSION = 1
UNIT = {1: "b", 2: "h", 4: "i", 8: "q"}


class Page:
    """The tables of the page: for each heading, the fixed fields of what stands in the file."""

    def __init__(self, path):
        self.text = Path(path).read_text(encoding="utf-8")
        self.tables = {}
        heading = None
        for line in self.text.splitlines():
            if line.startswith("#"):
                heading = line.strip("# `")
            row = re.fullmatch(r"\| (\d+) \| (\d+) \| (.*) \|", line)
            if row:
                at, size, field = int(row[1]), int(row[2]), row[3]
                layouts = self.tables.setdefault(heading, [])
                # A second record begins at 0 again.
                if at == 0:
                    layouts.append([])
                assert at == sum(size for size, _ in layouts[-1]), f"{heading}: a gap at {at}"
                layouts[-1].append((size, field))

    def layout(self, heading, index=0):
        return Layout(self.tables[heading][index])

    def names(self):
        """The names of files and folders that the page lists, as patterns."""
        listing = self.text.split("```")[1].splitlines()[2:]
        rows = [re.match(r" {2,4}(\S.*?)(?:  |$)", line) for line in listing]
        names = [row[1].strip("/") for row in rows if row]
        names += re.findall(r"^### `(<.*>\.checkpoint|quorum-state)`$", self.text, re.MULTILINE)
        for name in names:
            name = re.sub(r"\d{20}", "<number>", name).replace(".", r"\.")
            for words, pattern in [("<topic>-<partition>", r".+-\d+"), ("<number>", r"\d{20}"),
                                   ("<32 hex digits>", "[0-9a-f]{32}"),
                                   ("<end offset>-<epoch>", r"\d{20}-\d{10}")]:
                name = name.replace(words, pattern)
            yield name


class Layout:
    """Fields of fixed size, one behind the other."""

    def __init__(self, fields):
        codes = (UNIT[size].upper() if "(unsigned)" in text else UNIT[size]
                 for size, text in fields)
        self.struct = struct.Struct(">" + "".join(codes))
        self.size = self.struct.size

    def read(self, data, at=0):
        return self.struct.unpack_from(data, at)

    def all(self, data):
        assert len(data) % self.size == 0, "the file ends within an entry"
        return list(self.struct.iter_unpack(data))

    def write(self, *values):
        return self.struct.pack(*values)


def crc_tables():
    tables = [[0] * 256 for _ in range(8)]
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        tables[0][byte] = crc
    for byte in range(256):
        for table in range(1, 8):
            before = tables[table - 1][byte]
            tables[table][byte] = before >> 8 ^ tables[0][before & 0xFF]
    return tables


CRC = crc_tables()


def crc32c(data):
    t0, t1, t2, t3, t4, t5, t6, t7 = CRC
    crc = 0xFFFFFFFF
    whole = len(data) & ~7
    for (word,) in struct.iter_unpack("<Q", data[:whole]):
        word ^= crc
        crc = (t7[word & 0xFF] ^ t6[word >> 8 & 0xFF] ^ t5[word >> 16 & 0xFF]
               ^ t4[word >> 24 & 0xFF] ^ t3[word >> 32 & 0xFF] ^ t2[word >> 40 & 0xFF]
               ^ t1[word >> 48 & 0xFF] ^ t0[word >> 56])
    for byte in data[whole:]:
        crc = t0[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


class Batch:
    def __init__(self, position, data, fields):
        (self.base_offset, self.length, self.leader_epoch, self.magic, self.crc, self.attributes,
         self.last_offset_delta, self.base_timestamp, self.max_timestamp, self.producer_id,
         self.producer_epoch, self.base_sequence, self.count) = fields
        self.position = position
        self.size = len(data)
        self.data = data
        self.last_offset = self.base_offset + self.last_offset_delta
        self.codec = self.attributes & 7
        self.is_append_time = bool(self.attributes >> 3 & 1)
        self.is_transactional = bool(self.attributes >> 4 & 1)
        self.is_control = bool(self.attributes >> 5 & 1)

    def records(self, header_size):
        """Timestamp, offset, key and value of each record; of codecs that Python has."""
        body = self.data[header_size:]
        if self.codec == 1:
            body = zlib.decompress(body, wbits=31)
        elif self.codec:
            return None
        reader, records = Varints(body), []
        for _ in range(self.count):
            end = reader.number() + reader.at
            reader.at += 1
            timestamp = self.base_timestamp + reader.number()
            offset = self.base_offset + reader.number()
            key, value = reader.bytes(), reader.bytes()
            for _ in range(reader.number()):
                reader.bytes(), reader.bytes()
            assert reader.at == end, f"the record at {offset} is not as long as it says"
            timestamp = self.max_timestamp if self.is_append_time else timestamp
            records.append((timestamp, offset, key, value))
        assert reader.at == len(body), "there is something behind the records"
        return records


class Varints:
    def __init__(self, data):
        self.data, self.at = data, 0

    def unsigned(self):
        number = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def number(self):
        number = self.unsigned()
        return number >> 1 ^ -(number & 1)

    def bytes(self):
        length = self.number()
        if length < 0:
            return None
        self.at += length
        return self.data[self.at - length:self.at]


class Producer:
    def __init__(self):
        self.epoch = self.last_sequence = self.last_offset = self.timestamp = NONE
        self.coordinator_epoch = self.transaction = NONE
        self.delta = 0

    def enter(self, epoch):
        if epoch != self.epoch:
            self.epoch, self.last_sequence, self.last_offset, self.delta = epoch, NONE, NONE, 0


class Log:
    """One log, gone over from its start to its end."""

    def __init__(self, page, interval, start):
        self.batch, self.index = page.layout(".log"), page.layout(".index")
        self.time, self.aborted = page.layout(".timeindex"), page.layout(".txnindex")
        self.head, self.entry = page.layout(".snapshot"), page.layout(".snapshot", 1)
        self.interval, self.start = interval, start
        self.producers, self.epochs, self.files = {}, [], {}

    def batches(self, data, base):
        """The batches of a segment, up to the first that is not whole and right."""
        at, end = 0, base
        while at + self.batch.size <= len(data):
            fields = self.batch.read(data, at)
            base_offset, length, _, magic, crc = fields[:5]
            size = length + 12
            body = data[at:at + size]
            right = (magic == 2 and size >= self.batch.size and len(body) == size
                     and base_offset >= end and fields[6] >= 0 and crc32c(body[21:]) == crc)
            if not right:
                return
            batch = Batch(at, body, fields)
            yield batch
            at, end = at + size, batch.last_offset + 1

    def rebuild(self, segments):
        """What follows from the segments; `segments` are pairs of base offset and content."""
        end = self.start = max(self.start, segments[0][0])
        for number, (base, data) in enumerate(segments):
            name = str(base).zfill(DIGITS)
            if number:
                self.snapshot(base)
            end, size = self.segment(name, base, data)
            self.files[name + ".log"] = data[:size]
            if size < len(data):
                break
        self.snapshot(max(end, self.start))
        self.epochs = [(epoch, max(at, self.start)) for place, (epoch, at) in enumerate(self.epochs)
                       if place + 1 == len(self.epochs) or self.epochs[place + 1][1] > self.start]
        lines = ["0", str(len(self.epochs))] + [f"{epoch} {at}" for epoch, at in self.epochs]
        self.files["leader-epoch-checkpoint"] = "".join(line + "\n" for line in lines).encode()
        return end

    def segment(self, name, base, data):
        index, times, aborted = b"", b"", b""
        largest, in_index, since, size = (NONE, 0), NONE, 0, 0
        end = base
        for batch in self.batches(data, base):
            relative = batch.last_offset - base
            if batch.max_timestamp > largest[0]:
                largest = batch.max_timestamp, relative
            if since > self.interval:
                since = 0
                index += self.index.write(relative, batch.position)
                if largest[0] > in_index:
                    times, in_index = times + self.time.write(*largest), largest[0]
            since += batch.size
            if not self.epochs or batch.leader_epoch > self.epochs[-1][0]:
                self.epochs.append((batch.leader_epoch, batch.base_offset))
            if batch.last_offset >= self.start:
                aborted += self.take(batch)
            end, size = batch.last_offset + 1, batch.position + batch.size
        if largest[0] > in_index:
            times += self.time.write(*largest)
        self.files[name + ".index"], self.files[name + ".timeindex"] = index, times
        if aborted:
            self.files[name + ".txnindex"] = aborted
        return end, size

    def take(self, batch):
        """What a batch changes of its producer; the transaction that it aborts."""
        if batch.producer_id < 0:
            return b""
        producer = self.producers.setdefault(batch.producer_id, Producer())
        if not batch.is_control:
            producer.enter(batch.producer_epoch)
            producer.last_sequence = (batch.base_sequence + batch.last_offset_delta) % (1 << 31)
            producer.last_offset, producer.delta = batch.last_offset, batch.last_offset_delta
            producer.timestamp = batch.max_timestamp
            if batch.is_transactional and producer.transaction < 0:
                producer.transaction = batch.base_offset
            return b""
        # Compaction may have taken the marker itself.
        for timestamp, offset, key, value in batch.records(self.batch.size):
            _, kind = struct.unpack_from(">hh", key)
            _, coordinator_epoch = struct.unpack_from(">hi", value)
            producer.enter(batch.producer_epoch)
            producer.coordinator_epoch, producer.timestamp = coordinator_epoch, timestamp
            first, producer.transaction = producer.transaction, NONE
            if kind == 0 and first >= 0:
                open_ones = [it.transaction for it in self.producers.values()
                             if it.transaction >= 0]
                stable = min(open_ones, default=offset + 1)
                return self.aborted.write(0, batch.producer_id, first, offset, stable)
        return b""

    def snapshot(self, offset):
        if offset <= self.start:
            return
        buckets = 16
        while len(self.producers) > buckets * 3 // 4:
            buckets *= 2

        def place(producer_id):
            folded = (producer_id ^ producer_id >> 32) & 0xFFFFFFFF
            return (folded ^ folded >> 16) & buckets - 1, producer_id

        body = b"".join(
            self.entry.write(producer_id, it.epoch, it.last_sequence, it.last_offset, it.delta,
                             it.timestamp, it.coordinator_epoch, it.transaction)
            for producer_id, it in sorted(self.producers.items(), key=lambda it: place(it[0])))
        count = struct.pack(">i", len(self.producers))
        head = self.head.write(SNAPSHOT_VERSION, crc32c(count + body), len(self.producers))
        self.files[str(offset).zfill(DIGITS) + ".snapshot"] = head + body


def checkpoint(path):
    """The offsets of a checkpoint of a directory, by folder; none where it is not there."""
    if not path.exists() or not path.read_bytes():
        return {}
    version, count, *lines = path.read_text().splitlines()
    assert (version, int(count)) == ("0", len(lines)), path
    rows = (line.rsplit(" ", 2) for line in lines)
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in rows}


def segments(folder):
    names = sorted(path for path in folder.glob("*.log") if re.fullmatch(r"\d{20}", path.stem))
    return [(int(path.stem), path.read_bytes()) for path in names]


def folders(data):
    return sorted(path for path in data.iterdir() if path.is_dir() and segments(path))


def rebuild(page, source, target, interval=4096):
    starts = checkpoint(source / "log-start-offset-checkpoint")
    for folder in folders(source):
        log = Log(page, interval, starts.get(folder.name, 0))
        end = log.rebuild(segments(folder))
        made = target / folder.name
        made.mkdir(parents=True)
        for name, content in log.files.items():
            (made / name).write_bytes(content)
        print(folder.name, end)


def check(page, data):
    patterns = [re.compile(name) for name in page.names()]
    seen = set()
    ends = {}
    for path in sorted(data.rglob("*")):
        name = path.name.removesuffix(".deleted")
        fits = [pattern.pattern for pattern in patterns if pattern.fullmatch(name)]
        assert fits, f"{path.name} is not on the page"
        seen.update(fits)
        if path.is_file() and name == path.name:
            kind = path.suffix if path.suffix and path.name[0] != "." else path.name
            READERS[kind](page, path)
    for folder in folders(data):
        last_base, last = segments(folder)[-1]
        found = list(Log(page, 0, 0).batches(last, last_base))
        ends[folder.name] = found[-1].last_offset + 1 if found else last_base
    for name in ("recovery-point", "log-start", "replication", "cleaner"):
        for folder, offset in checkpoint(data / f"{name}-offset-checkpoint").items():
            assert 0 <= offset <= ends[folder], f"{name} of {folder}: {offset}"
    print("\n".join(sorted(seen)))


def check_log(page, path):
    log, data = Log(page, 0, 0), path.read_bytes()
    end = 0
    for batch in log.batches(data, int(path.name[:DIGITS]) if path.suffix == ".log" else 0):
        end = batch.position + batch.size
        assert batch.codec <= 4 and batch.attributes >> 7 == 0, f"{path}: {batch.attributes:#x}"
        is_metadata = path.parent.name == "__cluster_metadata-0"
        for _, offset, key, value in batch.records(log.batch.size) or []:
            assert batch.base_offset <= offset <= batch.last_offset, f"{path}: {offset}"
            if batch.is_control:
                version, kind = struct.unpack_from(">hh", key)
                assert version == 0 and kind in range(7), f"{path}: {key!r}"
                assert (kind > 1) == is_metadata, f"{path}: a marker {kind}"
            elif is_metadata:
                frame = Varints(value)
                assert key is None and frame.unsigned() == 1, f"{path}: no metadata at {offset}"
    assert end == len(data), f"{path}: no batch at {end}"


def check_index(page, path):
    layout, entries = page.layout(path.suffix), []
    data = path.read_bytes()
    for entry in layout.all(data):
        # Entries end where they stop rising: what is behind them is nothing.
        if entry[0] <= (entries[-1][0] if entries else 0):
            assert not any(data[len(entries) * layout.size:]), f"{path}: {entry}"
            break
        entries.append(entry)
    log = path.with_suffix(".log").read_bytes()
    batches = list(Log(page, 0, 0).batches(log, int(path.stem)))
    if path.suffix == ".index":
        there = {(it.last_offset - int(path.stem), it.position) for it in batches}
    else:
        there = {(it.max_timestamp, it.last_offset - int(path.stem)) for it in batches}
    assert there.issuperset(entries), f"{path}: {set(entries) - there}"


def check_aborted(page, path):
    markers = [entry[3] for entry in page.layout(".txnindex").all(path.read_bytes())
               if entry[0] == 0]
    assert markers and markers == sorted(markers) and markers[0] >= int(path.stem), path


def check_snapshot(page, path):
    data, head = path.read_bytes(), page.layout(".snapshot")
    version, crc, count = head.read(data)
    entries = page.layout(".snapshot", 1).all(data[head.size:])
    assert (version, count) == (SNAPSHOT_VERSION, len(entries)), path
    assert crc == crc32c(data[6:]), path


def check_epochs(_, path):
    version, count, *lines = path.read_text().splitlines()
    rows = [tuple(map(int, line.split())) for line in lines]
    assert (version, int(count)) == ("0", len(rows)) and rows == sorted(rows), path


def check_topic_id(_, path):
    assert re.fullmatch(r"version: 0\ntopic_id: [\w-]{22}", path.read_text()), path


def check_properties(_, path):
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    keys = {line.split("=", 1)[0] for line in lines}
    assert keys == {"version", "cluster.id", "node.id", "directory.id"}, path


def check_quorum_state(_, path):
    fields = {"leaderId", "leaderEpoch", "votedId", "data_version"}
    fields |= {"votedDirectoryId"} if json.loads(path.read_text())["data_version"] else set()
    known = set(json.loads(path.read_text())) - {"currentVoters", "clusterId", "appliedOffset"}
    assert known == fields, f"{path}: {known}"


def check_clean(_, path):
    assert set(json.loads(path.read_text())) == {"version", "brokerEpoch"}, path


READERS = {
    ".log": check_log, ".checkpoint": check_log, ".index": check_index, ".timeindex": check_index,
    ".txnindex": check_aborted, ".snapshot": check_snapshot, ".metadata": check_topic_id,
    ".properties": check_properties, "leader-epoch-checkpoint": check_epochs,
    "quorum-state": check_quorum_state, ".kafka_cleanshutdown": check_clean,
    ".lock": lambda _, path: path.stat().st_size and sys.exit(f"{path} is not empty"),
    "recovery-point-offset-checkpoint": lambda _, path: checkpoint(path),
    "log-start-offset-checkpoint": lambda _, path: checkpoint(path),
    "replication-offset-checkpoint": lambda _, path: checkpoint(path),
    "cleaner-offset-checkpoint": lambda _, path: checkpoint(path),
}


if __name__ == "__main__":
    words = sys.argv[1:]
    if len(words) == 3 and words[1] == "check":
        check(Page(words[0]), Path(words[2]))
    elif len(words) in (4, 5) and words[1] == "rebuild":
        rebuild(Page(words[0]), Path(words[2]), Path(words[3]), *map(int, words[4:]))
    else:
        sys.exit(__doc__)
