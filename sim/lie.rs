//! Answers that are falsified before they are judged, as if the broker had lied. A checker that
//! has never found anything proves nothing: each of these must be found.

/// In which way an answer is falsified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// A log begins at 0 again.
    StartGoesBack,
    /// A deleted topic is listed instead of the one that has its name now.
    TopicComesBack,
    /// An incremental fetch keeps quiet about a partition that has records.
    SessionIsSilent,
    /// A group is told an older commit than the newest.
    CommitGoesBack,
    /// A partition is assigned to every member of a generation.
    AssignedTwice,
    /// Compaction took the newest record of a key.
    NewestIsGone,
    /// Compaction took tombstones before their time.
    TombstoneIsGone,
    /// A tombstone is gone, and a record that it deleted is back.
    OldComesBack,
}
