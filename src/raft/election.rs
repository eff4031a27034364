//! What a voter remembers of elections: the file `quorum-state` (`ElectionState`,
//! `FileQuorumStateStore`).

use std::fmt::Write;

use base::{LeaderEpoch, NodeId, Uuid};
use serde_json::Value;

/// The longest text that is read as a state, in bytes.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// A replica of the metadata log: a node, and the directory that holds it. A node whose disk was
/// replaced is another replica (KIP-853).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplicaKey {
    /// The node.
    pub id: NodeId,
    /// The id of its directory; zero where it is not known.
    pub directory: Uuid,
}

/// The newest epoch that is known, with its leader or the vote that was given in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElectionState {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Its leader, or [`NodeId::NONE`].
    pub leader: NodeId,
    /// For whom this voter has voted in the epoch.
    pub voted: Option<ReplicaKey>,
}

/// A `quorum-state` that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no quorum state: {0}")]
pub struct BadElectionState(String);

impl ElectionState {
    /// The state of a voter that has seen nothing yet.
    pub const NONE: ElectionState =
        ElectionState { epoch: LeaderEpoch(0), leader: NodeId::NONE, voted: None };

    /// The content of the file. With `kraft.version` 0 it names the voters and no directories.
    pub fn to_text(self, kraft_version: i16, voters: &[NodeId]) -> String {
        let (leader, epoch) = (self.leader, self.epoch);
        let voted_id = self.voted.map_or(NodeId::NONE, |voted| voted.id);
        if kraft_version == 0 {
            let mut names = String::new();
            for (index, voter) in voters.iter().enumerate() {
                let comma = if index == 0 { "" } else { "," };
                write!(names, "{comma}{{\"voterId\":{voter}}}").expect("a String takes all");
            }
            return format!(
                "{{\"clusterId\":\"\",\"leaderId\":{leader},\"leaderEpoch\":{epoch},\
                 \"votedId\":{voted_id},\"appliedOffset\":0,\"currentVoters\":[{names}],\
                 \"data_version\":0}}"
            );
        }
        let voted_directory = self.voted.map_or(Uuid::ZERO, |voted| voted.directory);
        format!(
            "{{\"leaderId\":{leader},\"leaderEpoch\":{epoch},\"votedId\":{voted_id},\
             \"votedDirectoryId\":\"{voted_directory}\",\"data_version\":1}}"
        )
    }

    /// Reads the content of the file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of_text(text: &[u8]) -> Result<Self, BadElectionState> {
        let bad = |message: String| BadElectionState(message);
        if text.len() > TEXT_BYTES_MAX {
            return Err(bad(format!("{} bytes are too many", text.len())));
        }
        let state: Value = serde_json::from_slice(text).map_err(|error| bad(error.to_string()))?;
        let number = |name: &str| {
            let found = state.get(name).and_then(Value::as_i64);
            let narrow = found.and_then(|number| i32::try_from(number).ok());
            narrow.ok_or_else(|| bad(format!("{name} is missing or no number")))
        };
        match number("data_version")? {
            0 | 1 => {}
            other => return Err(bad(format!("data_version {other} is unknown"))),
        }
        let voted_id = NodeId(number("votedId")?);
        let directory = match state.get("votedDirectoryId").map(|id| id.as_str()) {
            None => Uuid::ZERO,
            Some(id) => id
                .and_then(|id| id.parse().ok())
                .ok_or_else(|| bad("votedDirectoryId is no id".to_owned()))?,
        };
        let voted = (voted_id != NodeId::NONE).then_some(ReplicaKey { id: voted_id, directory });
        Ok(Self {
            epoch: LeaderEpoch(number("leaderEpoch")?),
            leader: NodeId(number("leaderId")?),
            voted,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_written_as_kafka_writes_them() {
        let leads = ElectionState { epoch: LeaderEpoch(1), leader: NodeId(1), voted: None };
        let directory: Uuid = "4rrYtq7BToiZRRu0fVVEog".parse().expect("is an id");
        let voted = Some(ReplicaKey { id: NodeId(2), directory });
        let votes = ElectionState { epoch: LeaderEpoch(7), leader: NodeId::NONE, voted };
        let cases = [
            (
                leads,
                1,
                "{\"leaderId\":1,\"leaderEpoch\":1,\"votedId\":-1,\
                 \"votedDirectoryId\":\"AAAAAAAAAAAAAAAAAAAAAA\",\"data_version\":1}",
            ),
            (
                votes,
                1,
                "{\"leaderId\":-1,\"leaderEpoch\":7,\"votedId\":2,\
                 \"votedDirectoryId\":\"4rrYtq7BToiZRRu0fVVEog\",\"data_version\":1}",
            ),
            (
                leads,
                0,
                "{\"clusterId\":\"\",\"leaderId\":1,\"leaderEpoch\":1,\"votedId\":-1,\
                 \"appliedOffset\":0,\"currentVoters\":[{\"voterId\":1},{\"voterId\":2}],\
                 \"data_version\":0}",
            ),
        ];
        for (state, version, text) in cases {
            assert_eq!(state.to_text(version, &[NodeId(1), NodeId(2)]), text);
            assert_eq!(ElectionState::of_text(text.as_bytes()), Ok(state));
        }
    }

    #[test]
    fn what_is_no_state_is_refused() {
        let cases = [
            "",
            "{",
            "[]",
            "{\"leaderId\":1}",
            "{\"leaderId\":1,\"leaderEpoch\":1,\"votedId\":-1,\"data_version\":2}",
            "{\"leaderId\":1,\"leaderEpoch\":99999999999,\"votedId\":-1,\"data_version\":0}",
            "{\"leaderId\":1,\"leaderEpoch\":1,\"votedId\":1,\"votedDirectoryId\":\"?\",\
             \"data_version\":1}",
        ];
        for text in cases {
            assert!(ElectionState::of_text(text.as_bytes()).is_err(), "{text}");
        }
    }
}
