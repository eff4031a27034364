//! Hash maps whose order of iteration is the same in every run.

use foldhash::fast::FixedState;

/// A hash map with a fixed seed: two runs of one simulation iterate it in the same order.
///
/// Keys that a client chooses could be made to collide; a map that holds such keys without a bound
/// on their number is a `BTreeMap` instead.
#[allow(clippy::disallowed_types)] // This is the replacement that the lint names.
pub type Map<K, V> = std::collections::HashMap<K, V, FixedState>;

/// A hash set with a fixed seed; see [`Map`].
#[allow(clippy::disallowed_types)] // This is the replacement that the lint names.
pub type Set<K> = std::collections::HashSet<K, FixedState>;
