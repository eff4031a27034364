//! Logs that are cleaned while the node runs.

use base::{Duration, Offset};
use bytes::Bytes;
use fakeworld::FaultPlan;
use protocol::ErrorCode;
use protocol::ProduceRequest;
use records::{BatchBuilder, Compression, NewRecord};

use crate::client::{self, DIRECTORY, World};

fn keyed(timestamp: i64, key: &str, value: &str) -> Bytes {
    let mut builder = BatchBuilder::new(Offset(0), Compression::None);
    let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
    builder.append(&NewRecord { timestamp, key, value, ..Default::default() });
    builder.build().bytes().clone()
}

/// Of what is clean a crash within the interval of the checkpoints, a minute, must not take the
/// knowledge.
#[test]
fn soon_after_a_cleaning_the_checkpoint_says_so() {
    let settings = "log.cleanup.policy=compact
log.cleaner.min.cleanable.ratio=0.01
                    log.cleaner.backoff.ms=100
log.roll.ms=50
";
    let mut world = World::with_settings(1, FaultPlan::calm(), &[DIRECTORY], settings);
    world.create_topic("orders", 1);
    for (timestamp, value) in [(1_000, "old"), (2_000, "new"), (3_000, "newest")] {
        let request = client::produce("orders", 0, keyed(timestamp, "a", value));
        let response = world.call::<ProduceRequest>(9, &request);
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!(partition.error_code, ErrorCode::NONE);
    }
    let until = world.now() + Duration::from_secs(30);
    let path = std::path::Path::new(DIRECTORY).join("cleaner-offset-checkpoint");
    loop {
        let contents = world.contents();
        let text = contents.get(&path).map(|text| String::from_utf8_lossy(text).into_owned());
        if text.is_some_and(|text| text.contains("orders 0 2")) {
            return;
        }
        assert!(world.now() < until, "nothing is said of the cleaning: {contents:?}");
        for _ in 0..10 {
            world.pause();
        }
    }
}
