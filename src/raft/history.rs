//! Who votes by which record of the log (`KRaftControlRecordStateMachine`, `VoterSetHistory`).
//!
//! A set of voters holds from the moment when its record is appended, not when it is committed; if
//! the record is cut off again, the set before it holds again.

use base::Offset;

use crate::control::ControlRecord;
use crate::voters::VoterSet;

/// What holds after one record.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    /// The record; in front of the log where a snapshot says so.
    offset: Offset,
    kraft_version: i16,
    /// The voters, and the record that names them; none where only the configuration does.
    voters: Option<(Offset, VoterSet)>,
}

/// The voters by offsets.
#[derive(Clone, Debug)]
pub(crate) struct VoterHistory {
    /// Those of `controller.quorum.voters`.
    configured: VoterSet,
    /// In order of their offsets; never empty.
    entries: Vec<Entry>,
}

impl VoterHistory {
    /// `configured` are the voters while no record names any.
    pub(crate) fn new(configured: &VoterSet) -> Self {
        let first = Entry { offset: Offset(-1), kraft_version: 0, voters: None };
        Self { configured: configured.without_directories(), entries: vec![first] }
    }

    /// What a snapshot says that ends at `end_offset` replaces everything.
    pub(crate) fn reset(&mut self, end: Offset, kraft_version: i16, voters: Option<VoterSet>) {
        let offset = end.plus(-1);
        let voters = voters.map(|voters| (offset, voters));
        self.entries = vec![Entry { offset, kraft_version, voters }];
    }

    /// A control record was appended.
    pub(crate) fn append(&mut self, offset: Offset, record: &ControlRecord) {
        let Entry { mut kraft_version, mut voters, .. } = self.last().clone();
        match record {
            ControlRecord::KraftVersion(version) => kraft_version = *version,
            ControlRecord::Voters(set) => voters = Some((offset, set.clone())),
            _ => return,
        }
        self.entries.push(Entry { offset, kraft_version, voters });
    }

    /// The records from `offset` on are gone.
    pub(crate) fn truncate(&mut self, offset: Offset) {
        let kept = self.entries.partition_point(|entry| entry.offset < offset);
        self.entries.truncate(kept.max(1));
    }

    /// What lies below `offset` is committed: of that only the newest is needed.
    pub(crate) fn forget_before(&mut self, offset: Offset) {
        let old = self.entries.partition_point(|entry| entry.offset < offset);
        self.entries.drain(..old.saturating_sub(1));
    }

    /// The version and the voters by what lies below `offset`.
    pub(crate) fn before(&self, offset: Offset) -> (i16, Option<&VoterSet>) {
        let behind = self.entries.partition_point(|entry| entry.offset < offset);
        let entry = &self.entries[behind.saturating_sub(1)];
        (entry.kraft_version, entry.voters.as_ref().map(|(_, voters)| voters))
    }

    pub(crate) fn kraft_version(&self) -> i16 {
        self.last().kraft_version
    }

    pub(crate) fn voters(&self) -> &VoterSet {
        self.last().voters.as_ref().map_or(&self.configured, |(_, voters)| voters)
    }

    /// The offset of the record that names the voters: −1 if that is the snapshot of the
    /// formatting, none if it is the configuration.
    pub(crate) fn voters_offset(&self) -> Option<Offset> {
        self.last().voters.as_ref().map(|(offset, _)| *offset)
    }

    fn last(&self) -> &Entry {
        self.entries.last().expect("there is always an entry")
    }
}

#[cfg(test)]
mod tests {
    use base::{NodeId, Uuid};

    use super::*;
    use crate::{ReplicaKey, Voter};

    fn voters(ids: &[i32]) -> VoterSet {
        let voter = |id: &i32| Voter {
            key: ReplicaKey { id: NodeId(*id), directory: Uuid([7; 16]) },
            endpoints: Vec::new(),
            kraft_versions: (0, 1),
        };
        VoterSet::new(ids.iter().map(voter).collect())
    }

    #[test]
    fn a_truncation_brings_back_the_voters_before_it() {
        let mut history = VoterHistory::new(&voters(&[1]));
        assert_eq!((history.kraft_version(), history.voters_offset()), (0, None));
        assert!(history.voters().contains(ReplicaKey { id: NodeId(1), directory: Uuid([9; 16]) }));
        history.append(Offset(5), &ControlRecord::KraftVersion(1));
        history.append(Offset(6), &ControlRecord::Voters(voters(&[1, 2])));
        history.append(Offset(9), &ControlRecord::Voters(voters(&[1, 2, 3])));
        assert_eq!((history.voters().len(), history.voters_offset()), (3, Some(Offset(9))));
        history.truncate(Offset(9));
        assert_eq!((history.voters().len(), history.voters_offset()), (2, Some(Offset(6))));
        assert_eq!(history.before(Offset(6)), (1, None));
        assert_eq!(history.before(Offset(7)), (1, Some(&voters(&[1, 2]))));
        history.forget_before(Offset(8));
        history.truncate(Offset(8));
        assert_eq!((history.kraft_version(), history.voters().len()), (1, 2));
        history.reset(Offset(0), 1, Some(voters(&[4])));
        assert_eq!(history.voters_offset(), Some(Offset(-1)));
    }
}
