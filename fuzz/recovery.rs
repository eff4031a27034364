//! Recovery of a folder that was damaged in a few places.

use base::{Offset, Random};
use bytes::Bytes;
use commitlog::Checkpoints;
use records::Batches;

use crate::logs::{Files, Report, Run, run, some_batches};

/// Endings that a file of a segment can get from a process that was broken off.
const ENDINGS: [&str; 6] =
    [".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".log.deleted"];

/// Damages the folder of a log and opens it. Says whether it could be opened.
///
/// # Panics
/// If opening does not end; if it loses a batch that stands before all that was damaged; if what
/// cannot be opened was changed; or if what was repaired is not in order afterwards.
pub fn damaged_log(random: &mut Random) -> bool {
    let seed = random.next_u64();
    // Whatever comes from below, the largest batch fits a segment.
    let segment_bytes = 1_500 + random.below(4_000) as u32;
    let whole = whole_log(random, seed, segment_bytes);
    let mut files = whole.clone();
    for _ in 0..=random.below(3) {
        damage(random, &mut files);
    }
    // Whoever stopped in order is believed: then only what is no record may be damaged.
    let clean_shutdown = random.chance(30) && logs(&whole).eq(logs(&files));
    let checkpoints = Checkpoints { clean_shutdown, ..Checkpoints::default() };
    let opening = Run { files: files.clone(), checkpoints, segment_bytes, ..Run::default() };
    let (report, found) = run(seed, Run { closes: true, ..opening });
    let Report { opened: Some((start, end, cases)), .. } = report else {
        for (name, bytes) in logs(&files) {
            assert!(found.get(name) == Some(bytes), "{report:?}, and {name} was touched");
        }
        return false;
    };
    let kept = batches(&found);
    for (offset, bytes) in undamaged(&whole, &files) {
        if offset >= start {
            assert!(kept.contains(&(offset, bytes)), "{cases:?}: the batch at {offset} is lost");
        }
    }
    // What was repaired is in order.
    let checkpoints = Checkpoints { clean_shutdown: true, log_start_offset: start, ..checkpoints };
    let mut more = some_batches(random);
    more.truncate(3);
    let count: i64 = more.iter().map(|batch| i64::from(batch.header().record_count)).sum();
    let batches = more.into_iter().collect();
    let again = Run { files: found, checkpoints, segment_bytes, batches, closes: true };
    let (report, found) = run(seed, again);
    let (again_start, again_end, cases) = report.opened.expect("what was repaired can be opened");
    assert_eq!((again_start, again_end), (start, end), "{cases:?}");
    let ends = self::batches(&found).pop().map(|(offset, bytes)| (offset, Bytes::from(bytes)));
    let last = ends.map(|(_, bytes)| Batches::new(bytes).next().expect("one").expect("whole"));
    assert_eq!(last.map(|batch| batch.header().next_offset()), Some(Offset(end.0 + count)));
    true
}

fn whole_log(random: &mut Random, seed: u64, segment_bytes: u32) -> Files {
    let batches = some_batches(random);
    let closes = random.chance(50);
    let (report, files) = run(seed, Run { segment_bytes, batches, closes, ..Run::default() });
    assert!(report.opened.is_some(), "a new log can be made: {report:?}");
    files
}

fn logs(files: &Files) -> impl Iterator<Item = (&String, &Vec<u8>)> {
    files.iter().filter(|(name, _)| name.ends_with(".log"))
}

/// Every batch that can be read from the first segment on, up to the first place that holds none.
fn batches(files: &Files) -> Vec<(Offset, Vec<u8>)> {
    let mut all = Vec::new();
    for (_, bytes) in logs(files) {
        let found = Batches::new(Bytes::copy_from_slice(bytes)).map_while(Result::ok);
        all.extend(found.map(|batch| (batch.header().base_offset, batch.bytes().to_vec())));
    }
    all
}

/// The batches that stand before the first byte of records that was damaged.
fn undamaged(whole: &Files, damaged: &Files) -> Vec<(Offset, Vec<u8>)> {
    let mut before = Files::new();
    for (name, bytes) in logs(whole) {
        let none = Vec::new();
        let now = damaged.get(name).unwrap_or(&none);
        let same = bytes.iter().zip(now).take_while(|(a, b)| a == b).count();
        before.insert(name.clone(), bytes[..same].to_vec());
        // Bytes behind the last batch end a log, too, as in Kafka.
        if now != bytes {
            break;
        }
    }
    batches(&before)
}

fn damage(random: &mut Random, files: &mut Files) {
    let index = random.below(files.len() as u64) as usize;
    let name = files.keys().nth(index).expect("it is below the count").clone();
    let bytes = files.get_mut(&name).expect("it was named");
    let at = random.below(bytes.len() as u64 + 1) as usize;
    match random.below(8) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, random.next_u64() as u8),
        2 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
        3 => bytes[at..].fill(0),
        4 => {
            let mut tail = vec![0; random.below(300) as usize];
            random.fill(&mut tail);
            bytes.extend(tail);
        }
        5 if !name.ends_with(".log") => drop(files.remove(&name)),
        6 => {
            // A file under a name that could be another's.
            let ending = ENDINGS[random.below(ENDINGS.len() as u64) as usize];
            let copy = format!("{:020}{ending}", random.below(200));
            let bytes = bytes.clone();
            if ending != ".log" {
                files.insert(copy, bytes);
            }
        }
        _ if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_damage_loses_what_stands_before_it() {
        let mut random = Random::new(31);
        let mut opened = 0;
        for _ in 0..300 {
            opened += i32::from(damaged_log(&mut random));
        }
        // Both ends are reached, or the test shows little.
        assert!((100..300).contains(&opened), "{opened} were opened");
    }
}
