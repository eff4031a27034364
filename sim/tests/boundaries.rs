//! Every boundary between two changes of the disk, once as a kill and once as a loss of power.
//! `cargo xtask campaign boundaries` leaves all that may be left, and crashes within changes too.

use sim::boundaries::{Course, changes, crash_at, points};
use sim::node::RealNode;
use sim::simulation::Options;

fn crash_everywhere(course: Course) {
    let changes = changes(RealNode::new, course, Options::default()).expect("without a crash");
    assert!(changes.len() > 20, "{course:?} changes little: {changes:?}");
    for point in points(&changes, false) {
        let report = crash_at(RealNode::new, course, point, Options::default());
        if let Err(violation) = report.outcome {
            panic!("{course:?}, {point:?}: {violation}");
        }
    }
}

#[test]
fn a_crash_while_segments_are_rolled_loses_nothing() {
    crash_everywhere(Course::Roll);
}

#[test]
fn a_crash_while_a_log_is_cleaned_loses_nothing() {
    crash_everywhere(Course::Cleaning);
}

#[test]
fn a_crash_while_the_metadata_have_a_snapshot_loses_nothing() {
    crash_everywhere(Course::Metadata);
}

#[test]
fn a_crash_while_segments_are_deleted_loses_nothing_else() {
    crash_everywhere(Course::Retention);
    crash_everywhere(Course::DeleteRecords);
}

#[test]
fn a_crash_while_a_log_moves_loses_nothing() {
    crash_everywhere(Course::Move);
}

#[test]
fn a_crash_while_a_topic_is_deleted_and_made_again_mixes_nothing_up() {
    crash_everywhere(Course::Deletion);
}
