//! A type for every number that could be mistaken for another.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(formatter)
            }
        }
    };
}

number! {
    /// The position of a record in a partition, from 0. Negative values have a meaning of their
    /// own in some requests (ListOffsets) and are never the position of a record.
    Offset(i64)
}
number! {
    /// Counts the leaders that a partition or the quorum has had; −1 where there is none.
    LeaderEpoch(i32)
}
number! {
    /// A broker or controller, as `node.id` names it; −1 where there is none.
    NodeId(i32)
}
number! {
    /// Which partition of its topic, from 0.
    PartitionIndex(i32)
}
number! {
    /// Names an idempotent or transactional producer; −1 where there is none.
    ProducerId(i64)
}
number! {
    /// Fences earlier incarnations of a producer; −1 where there is none.
    ProducerEpoch(i16)
}
number! {
    /// One machine of a node: a data shard, or the quorum shard. Dense, from 0.
    ShardId(u16)
}

impl Offset {
    /// The offset `records` further on.
    #[must_use]
    pub fn plus(self, records: i64) -> Offset {
        Offset(self.0 + records)
    }
}

impl LeaderEpoch {
    /// "No epoch", as the protocol writes it.
    pub const NONE: LeaderEpoch = LeaderEpoch(-1);
}

impl NodeId {
    /// "No node", as the protocol writes it.
    pub const NONE: NodeId = NodeId(-1);
}

impl ProducerId {
    /// "No producer id", as the protocol and the batch header write it.
    pub const NONE: ProducerId = ProducerId(-1);
}

impl ProducerEpoch {
    /// "No producer epoch", as the protocol and the batch header write it.
    pub const NONE: ProducerEpoch = ProducerEpoch(-1);
}

/// A 128-bit identifier, written as Kafka writes it: base64 for URLs, 22 characters, unpadded
/// (`org.apache.kafka.common.Uuid`).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// Names a topic for its whole life, unlike its name, which can be used again.
pub type TopicId = Uuid;

impl Uuid {
    /// All zeros: "no id".
    pub const ZERO: Uuid = Uuid([0; 16]);
    /// The id of the topic `__cluster_metadata` (`Uuid.METADATA_TOPIC_ID`).
    pub const METADATA_TOPIC: Uuid = Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

    /// A random (version 4) id made from 16 random bytes.
    ///
    /// The result can equal a reserved one or begin with a dash, both of which Kafka avoids in
    /// `Uuid.randomUuid`: draw again while [`Uuid::is_awkward`].
    pub fn from_random_bytes(bytes: [u8; 16]) -> Self {
        Self(uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes())
    }

    /// Draws ids from `random` until one is neither reserved nor begins with a dash.
    pub fn random(random: &mut crate::Random) -> Self {
        loop {
            let mut bytes = [0; 16];
            random.fill(&mut bytes);
            let id = Self::from_random_bytes(bytes);
            if !id.is_awkward() {
                return id;
            }
        }
    }

    /// Whether it is reserved, or begins with a dash so that a command line takes it for an option.
    pub fn is_awkward(self) -> bool {
        self == Self::ZERO || self == Self::METADATA_TOPIC || self.to_string().starts_with('-')
    }

    /// Whether it is all zeros.
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// A text that is no [`Uuid`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAUuid(pub String);

impl fmt::Display for NotAUuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "'{}' is not 16 bytes in unpadded base64url", self.0)
    }
}

impl std::error::Error for NotAUuid {}

impl FromStr for Uuid {
    type Err = NotAUuid;

    /// Reads base64url; padding is accepted as Java's decoder accepts it.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || NotAUuid(text.chars().take(64).collect());
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_| refuse())?;
        Ok(Self(bytes.try_into().map_err(|_| refuse())?))
    }
}

/// A partition by the name of its topic. Cheap to clone: the name is shared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The name of the topic.
    pub topic: Arc<str>,
    /// Which of its partitions.
    pub partition: PartitionIndex,
}

impl fmt::Display for TopicPartition {
    /// As Kafka names it, and the folder of its log: `topic-3`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.topic, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_read_and_write_as_kafka_does() {
        assert_eq!(Uuid::METADATA_TOPIC.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!("AAAAAAAAAAAAAAAAAAAAAQ".parse(), Ok(Uuid::METADATA_TOPIC));
        assert_eq!("AAAAAAAAAAAAAAAAAAAAAQ==".parse(), Ok(Uuid::METADATA_TOPIC));
        assert!("AAAA".parse::<Uuid>().is_err());
        assert!("not base64 at all!!!!!".parse::<Uuid>().is_err());
        let mut random = crate::Random::new(3);
        for _ in 0..100 {
            let id = Uuid::random(&mut random);
            assert_eq!(id.to_string().parse(), Ok(id));
            assert!(!id.to_string().starts_with('-'));
        }
    }
}
