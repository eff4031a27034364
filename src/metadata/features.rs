//! What a metadata.version allows, and the features that this software knows.

use std::fmt;

use crate::VersionRange;

/// The name of the feature that decides which records are written.
pub const METADATA_VERSION: &str = "metadata.version";

/// One metadata.version (`MetadataVersion`), which decides the records that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetadataVersion(i16);

/// The names of the levels from [`MetadataVersion::MINIMUM`] on, with whether the records of the
/// level differ from those of the one below.
const LEVELS: [(&str, bool); 27] = [
    ("3.3-IV3", true),
    ("3.4-IV0", true),
    ("3.5-IV0", false),
    ("3.5-IV1", false),
    ("3.5-IV2", true),
    ("3.6-IV0", false),
    ("3.6-IV1", true),
    ("3.6-IV2", true),
    ("3.7-IV0", true),
    ("3.7-IV1", false),
    ("3.7-IV2", true),
    ("3.7-IV3", false),
    ("3.7-IV4", false),
    ("3.8-IV0", false),
    ("3.9-IV0", false),
    ("4.0-IV0", false),
    ("4.0-IV1", true),
    ("4.0-IV2", false),
    ("4.0-IV3", false),
    ("4.1-IV0", false),
    ("4.1-IV1", false),
    ("4.2-IV0", false),
    ("4.2-IV1", false),
    ("4.3-IV0", true),
    ("4.4-IV0", false),
    ("4.4-IV1", true),
    ("4.4-IV2", true),
];

impl MetadataVersion {
    /// 3.3-IV3, the first of KRaft.
    pub const MINIMUM: MetadataVersion = MetadataVersion(7);
    /// 4.4-IV2, that of Apache Kafka 4.4.0.
    pub const LATEST: MetadataVersion = MetadataVersion(33);

    /// The version of a feature level, if this software knows it.
    pub fn of_level(level: i16) -> Option<Self> {
        let known = Self::MINIMUM.0..=Self::LATEST.0;
        known.contains(&level).then_some(Self(level))
    }

    /// The version called `name`: `4.4-IV2`, or `4.4` for the last of a release (also `4.4.0`).
    pub fn of_name(name: &str) -> Option<Self> {
        let levels = (Self::MINIMUM.0..).zip(LEVELS);
        if let Some((level, _)) = levels.clone().find(|(_, (full, _))| *full == name) {
            return Some(Self(level));
        }
        let release = |text: &str| -> Option<(u32, u32)> {
            let mut parts = text.split(['.', '-']);
            Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
        };
        if name.contains("-IV") {
            return None;
        }
        let wanted = release(name)?;
        let of_release = levels.filter(|(_, (full, _))| release(full) == Some(wanted));
        of_release.last().map(|(level, _)| Self(level))
    }

    /// Its feature level.
    pub fn level(self) -> i16 {
        self.0
    }

    /// The range of levels that this software can do.
    pub fn range() -> VersionRange {
        VersionRange { min: Self::MINIMUM.0, max: Self::LATEST.0 }
    }

    /// Its name: `4.4-IV2`.
    pub fn name(self) -> &'static str {
        LEVELS[usize::from((self.0 - Self::MINIMUM.0).unsigned_abs())].0
    }

    /// Whether going to or coming from `other` changes what records can say: a downgrade across
    /// such a level loses something (`MetadataVersion.checkIfMetadataChanged`).
    pub fn changes_metadata(self, other: MetadataVersion) -> bool {
        let (low, high) = (self.0.min(other.0), self.0.max(other.0));
        (low + 1..=high)
            .any(|level| LEVELS[usize::from((level - Self::MINIMUM.0).unsigned_abs())].1)
    }

    /// The version in which a RegisterBrokerRecord is written.
    pub fn register_broker_record(self) -> i16 {
        match self.0 {
            30.. => 4,
            17.. => 3,
            8.. => 2,
            _ => 1,
        }
    }

    /// The version in which a PartitionRecord is written.
    pub fn partition_record(self) -> i16 {
        match self.0 {
            23.. => 2,
            17.. => 1,
            _ => 0,
        }
    }

    /// The version in which a PartitionChangeRecord is written.
    pub fn partition_change_record(self) -> i16 {
        self.partition_record()
    }

    /// Whether SCRAM credentials can be written (KIP-900).
    pub fn has_scram(self) -> bool {
        self.0 >= 11
    }

    /// Whether several batches can be one transaction (KIP-868).
    pub fn has_metadata_transactions(self) -> bool {
        self.0 >= 13
    }

    /// Whether controllers register (KIP-919).
    pub fn has_controller_registration(self) -> bool {
        self.0 >= 15
    }

    /// Whether log directories have ids (KIP-858).
    pub fn has_directories(self) -> bool {
        self.0 >= 17
    }

    /// Whether the record that cordons log directories can be written.
    pub fn has_cordoned_directories(self) -> bool {
        self.0 >= 30
    }

    /// Whether eligible leader replicas can be written (KIP-966).
    pub fn has_elr(self) -> bool {
        self.0 >= 23
    }

    /// Whether shrinking the ISR must raise the leader epoch (KAFKA-15021).
    pub fn bumps_epoch_on_isr_shrink(self) -> bool {
        self.0 < 12
    }
}

impl fmt::Display for MetadataVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// One feature beside metadata.version (`Feature`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Its name.
    pub name: &'static str,
    /// For each level from 1 on, the metadata.version from which a new cluster has it.
    since: &'static [i16],
    /// For each level from 1 on, the metadata.version that it needs; 0 for none.
    needs: &'static [i16],
}

/// The feature whose level stands in control records of the quorum, not in a FeatureLevelRecord.
pub const KRAFT_VERSION: Feature = Feature { name: "kraft.version", since: &[21], needs: &[0] };

/// The features beside metadata.version and kraft.version, in order of their names.
pub const FEATURES: [Feature; 5] = [
    Feature { name: "eligible.leader.replicas.version", since: &[26], needs: &[23] },
    Feature { name: "group.version", since: &[22], needs: &[0] },
    Feature { name: "share.version", since: &[28, 31], needs: &[0, 0] },
    Feature { name: "streams.version", since: &[29], needs: &[0] },
    Feature { name: "transaction.version", since: &[24, 24], needs: &[0, 0] },
];

impl Feature {
    /// The feature called `name`, without metadata.version.
    pub fn named(name: &str) -> Option<Feature> {
        let all = FEATURES.into_iter().chain([KRAFT_VERSION]);
        all.into_iter().find(|feature| feature.name == name)
    }

    /// The highest level that this software knows.
    pub fn latest(&self) -> i16 {
        i16::try_from(self.since.len()).expect("a feature has few levels")
    }

    /// The levels that this software knows.
    pub fn range(&self) -> VersionRange {
        VersionRange { min: 0, max: self.latest() }
    }

    /// The level that a cluster formatted at `version` gets.
    pub fn default_level(&self, version: MetadataVersion) -> i16 {
        let levels = self.since.iter().take_while(|since| **since <= version.level()).count();
        i16::try_from(levels).expect("a feature has few levels")
    }

    /// The metadata.version without which `level` cannot be.
    pub fn needs(&self, level: i16) -> Option<MetadataVersion> {
        let position = usize::try_from(level).ok()?.checked_sub(1)?;
        MetadataVersion::of_level(*self.needs.get(position)?)
    }
}

/// Every feature that this software knows, with its levels, in order of the names: what a broker
/// or controller registers with and what ApiVersions lists.
pub fn supported_features() -> Vec<(&'static str, VersionRange)> {
    let mut all: Vec<_> = FEATURES
        .iter()
        .chain([&KRAFT_VERSION])
        .map(|feature| (feature.name, feature.range()))
        .collect();
    all.push((METADATA_VERSION, MetadataVersion::range()));
    all.sort_unstable_by_key(|(name, _)| *name);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_the_names_of_kafka() {
        let cases = [
            ("3.3-IV3", Some(7)),
            ("3.3", Some(7)),
            ("3.5", Some(11)),
            ("4.0", Some(25)),
            ("4.4-IV2", Some(33)),
            ("4.4", Some(33)),
            ("4.4.0", Some(33)),
            ("4.4-IV9", None),
            ("4.5", None),
            ("", None),
            ("four", None),
        ];
        for (name, level) in cases {
            assert_eq!(MetadataVersion::of_name(name).map(MetadataVersion::level), level, "{name}");
        }
        for level in 7..=33 {
            let version = MetadataVersion::of_level(level).expect("is known");
            assert_eq!(MetadataVersion::of_name(version.name()), Some(version));
        }
        assert_eq!(MetadataVersion::of_level(6), None);
        assert_eq!(MetadataVersion::of_level(34), None);
    }

    #[test]
    fn a_new_cluster_gets_the_levels_of_kafka() {
        let levels =
            |version: MetadataVersion| FEATURES.map(|feature| feature.default_level(version));
        assert_eq!(levels(MetadataVersion::LATEST), [1, 1, 2, 1, 2]);
        assert_eq!(levels(MetadataVersion(25)), [0, 1, 0, 0, 2]);
        assert_eq!(levels(MetadataVersion(28)), [1, 1, 1, 0, 2]);
        assert_eq!(levels(MetadataVersion::MINIMUM), [0, 0, 0, 0, 0]);
    }

    #[test]
    fn some_levels_change_the_records() {
        let version = |level| MetadataVersion::of_level(level).expect("is known");
        assert!(version(33).changes_metadata(version(32)));
        assert!(!version(31).changes_metadata(version(30)));
        assert!(version(30).changes_metadata(version(22)));
        assert!(!version(33).changes_metadata(version(33)));
    }
}
