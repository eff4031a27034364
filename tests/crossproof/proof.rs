//! Runs the proof with one seed.

#[test]
fn both_sides_encode_alike() {
    let report = crossproof::prove(44).unwrap_or_else(|error| panic!("{error}"));
    let faults = report.faults.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(report.faults.is_empty(), "{} differences:\n{faults}", report.faults.len());
    assert!(report.ours > 5_000 && report.theirs > 5_000 && report.refused > 100, "{report:?}");
    println!("{} of ours, {} of theirs, {} refused", report.ours, report.theirs, report.refused);
}
