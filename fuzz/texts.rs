//! The small files of a node: checkpoints, `meta.properties`, `quorum-state`, metadata snapshots.

use std::sync::Arc;

use base::{LeaderEpoch, NodeId, Offset, PartitionIndex, Random, TopicPartition, Uuid};
use bytes::Bytes;
use commitlog::{
    MetaProperties, format_clean_shutdown, format_offsets, parse_clean_shutdown, parse_offsets,
};
use raft::snapshot::Snapshot;
use raft::{ElectionState, ReplicaKey};

use crate::mutate;

/// Writes one of the small files, changes it in a place or more, and reads it. Says whether it
/// could be read.
///
/// # Panics
/// If a reader is wrong: what it has read does not survive writing and reading again.
pub fn damaged_file(random: &mut Random) -> bool {
    match random.below(5) {
        0 => offsets(random),
        1 => clean_shutdown(random),
        2 => meta_properties(random),
        3 => election(random),
        _ => snapshot(random),
    }
}

fn damaged_text(random: &mut Random, text: String) -> String {
    let mut bytes = text.into_bytes();
    mutate(random, &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn offsets(random: &mut Random) -> bool {
    let entries: Vec<(TopicPartition, Offset)> = (0..random.below(5))
        .map(|number| {
            let topic = Arc::from(format!("t-{number}"));
            let partition = PartitionIndex(random.below(9) as i32);
            (TopicPartition { topic, partition }, Offset(random.next_u64() as i64 >> 1))
        })
        .collect();
    let text = damaged_text(random, format_offsets(&entries));
    let Ok(read) = parse_offsets(&text) else { return false };
    assert_eq!(parse_offsets(&format_offsets(&read)).as_ref(), Ok(&read), "{text}");
    true
}

fn clean_shutdown(random: &mut Random) -> bool {
    let epoch = random.next_u64() as i64;
    let text = damaged_text(random, format_clean_shutdown(epoch));
    let Some(epoch) = parse_clean_shutdown(&text) else { return false };
    assert_eq!(parse_clean_shutdown(&format_clean_shutdown(epoch)), Some(epoch), "{text}");
    true
}

fn meta_properties(random: &mut Random) -> bool {
    let directory = Uuid::random(random);
    let text = format!(
        "#\n#Mon Nov 30 23:56:08 UTC 2026\ncluster.id=4L6g3nShT-eMCtK--X86sw\nversion=1\n\
         directory.id={directory}\nnode.id={}\n",
        random.below(1000)
    );
    let text = damaged_text(random, text);
    let Ok(read) = MetaProperties::parse(&text) else { return false };
    assert!(read.node_id.0.to_string().parse() == Ok(read.node_id.0), "{text}");
    true
}

fn election(random: &mut Random) -> bool {
    let voted = ReplicaKey { id: NodeId(random.below(9) as i32), directory: Uuid::random(random) };
    let state = ElectionState {
        epoch: LeaderEpoch(random.below(1 << 31) as i32),
        leader: if random.chance(50) { NodeId::NONE } else { NodeId(random.below(9) as i32) },
        voted: random.chance(50).then_some(voted),
    };
    let version = random.below(2) as i16;
    let text = damaged_text(random, state.to_text(version, &[NodeId(1), NodeId(2)]));
    let Ok(read) = ElectionState::of_text(text.as_bytes()) else { return false };
    let again = ElectionState::of_text(read.to_text(1, &[]).as_bytes());
    assert_eq!(again.as_ref(), Ok(&read), "{text}");
    true
}

fn snapshot(random: &mut Random) -> bool {
    let values = (0..random.below(9)).map(|_| {
        let mut value = vec![0; random.below(100) as usize];
        random.fill(&mut value);
        Bytes::from(value)
    });
    let snapshot = Snapshot { values: values.collect(), ..Snapshot::default() };
    let mut bytes = snapshot.to_bytes(LeaderEpoch(3), 5).to_vec();
    mutate(random, &mut bytes);
    let bytes = Bytes::from(bytes);
    let _ = Snapshot::last_contained_ms_of(bytes.clone());
    let Ok(read) = Snapshot::of_bytes(bytes) else { return false };
    let again = Snapshot::of_bytes(read.to_bytes(LeaderEpoch(3), 5));
    assert_eq!(again.expect("it was just written").values, read.values);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_make_a_reader_panic() {
        let mut random = Random::new(41);
        let (mut read, mut refused) = (0, 0);
        for _ in 0..20_000 {
            if damaged_file(&mut random) { read += 1 } else { refused += 1 }
        }
        // Both sides are reached, or the test shows nothing.
        assert!(read > 2_000 && refused > 2_000, "{read} were read and {refused} refused");
    }
}
