//! Who votes (`VoterSet`).

use std::sync::Arc;

use base::{NodeId, Uuid};
use records::files::VotersRecord;
use records::files::voters_record::{Endpoint, KRaftVersionFeature, Voter as VoterEntry};

use crate::ReplicaKey;

/// Where a voter is reached, by a listener's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoterEndpoint {
    /// The name of the listener.
    pub listener: Arc<str>,
    /// The host.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
}

/// One voter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voter {
    /// Who it is; no directory where the quorum has `kraft.version` 0.
    pub key: ReplicaKey,
    /// Where it is reached.
    pub endpoints: Vec<VoterEndpoint>,
    /// The lowest and highest `kraft.version` that it can do.
    pub kraft_versions: (i16, i16),
}

impl Voter {
    /// Whether `replica` is this voter. One without a directory is meant whatever that is.
    pub(crate) fn is(&self, replica: ReplicaKey) -> bool {
        let own = self.key;
        own.id == replica.id && (own.directory.is_zero() || own.directory == replica.directory)
    }

    /// Whether it can do a version of `kraft.version`.
    pub(crate) fn supports(&self, kraft_version: i16) -> bool {
        (self.kraft_versions.0..=self.kraft_versions.1).contains(&kraft_version)
    }
}

/// The voters of a quorum, in order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VoterSet(Vec<Voter>);

impl VoterSet {
    /// A set of voters.
    pub fn new(mut voters: Vec<Voter>) -> Self {
        voters.sort_by_key(|voter| voter.key);
        Self(voters)
    }

    /// The voters.
    pub fn iter(&self) -> impl Iterator<Item = &Voter> + Clone {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `replica` votes. A voter without a directory is meant whatever its directory is.
    pub fn contains(&self, replica: ReplicaKey) -> bool {
        self.0.iter().any(|voter| voter.is(replica))
    }

    /// The voters' nodes.
    pub fn ids(&self) -> Vec<NodeId> {
        self.0.iter().map(|voter| voter.key.id).collect()
    }

    /// The voter of this number.
    pub fn get(&self, id: NodeId) -> Option<&Voter> {
        self.0.iter().find(|voter| voter.key.id == id)
    }

    /// With one more voter.
    #[must_use]
    pub(crate) fn with(&self, voter: Voter) -> Self {
        assert!(self.get(voter.key.id).is_none(), "{:?} votes already", voter.key);
        Self::new(self.0.iter().cloned().chain([voter]).collect())
    }

    /// Without a voter; none if it does not vote, or if nobody would be left.
    pub(crate) fn without(&self, replica: ReplicaKey) -> Option<Self> {
        let left: Vec<_> = self.0.iter().filter(|voter| voter.key != replica).cloned().collect();
        (left.len() + 1 == self.0.len() && !left.is_empty()).then(|| Self::new(left))
    }

    /// With what a voter says of itself; none if it does not vote.
    pub(crate) fn updated(&self, voter: &Voter) -> Option<Self> {
        let mut voters = self.0.clone();
        let own = voters.iter_mut().find(|own| own.is(voter.key))?;
        own.clone_from(voter);
        Some(Self::new(voters))
    }

    /// The voters that a control record names.
    pub fn of_record(record: &VotersRecord) -> Self {
        let voters = record.voters.iter().map(|voter| Voter {
            key: ReplicaKey { id: NodeId(voter.voter_id), directory: voter.voter_directory_id },
            endpoints: voter
                .endpoints
                .iter()
                .map(|endpoint| VoterEndpoint {
                    listener: Arc::from(&*endpoint.name),
                    host: Arc::from(&*endpoint.host),
                    port: endpoint.port,
                })
                .collect(),
            kraft_versions: (
                voter.k_raft_version_feature.min_supported_version,
                voter.k_raft_version_feature.max_supported_version,
            ),
        });
        Self::new(voters.collect())
    }

    /// The control record that names these voters.
    pub fn to_record(&self) -> VotersRecord {
        let voters = self.0.iter().map(|voter| VoterEntry {
            voter_id: voter.key.id.0,
            voter_directory_id: voter.key.directory,
            endpoints: voter
                .endpoints
                .iter()
                .map(|endpoint| Endpoint {
                    name: (&*endpoint.listener).into(),
                    host: (&*endpoint.host).into(),
                    port: endpoint.port,
                    ..Endpoint::default()
                })
                .collect(),
            k_raft_version_feature: KRaftVersionFeature {
                min_supported_version: voter.kraft_versions.0,
                max_supported_version: voter.kraft_versions.1,
                ..KRaftVersionFeature::default()
            },
            ..VoterEntry::default()
        });
        VotersRecord { voters: voters.collect(), ..VotersRecord::default() }
    }

    /// These voters as a quorum of `kraft.version` 0 knows them: without directories.
    #[must_use]
    pub fn without_directories(&self) -> Self {
        let mut voters = self.0.clone();
        for voter in &mut voters {
            voter.key.directory = Uuid::ZERO;
        }
        Self::new(voters)
    }
}
