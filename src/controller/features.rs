//! UpdateFeatures (`FeatureControlManager`).

use std::collections::BTreeMap;

use metadata::{
    Feature, Image, KRAFT_VERSION, METADATA_VERSION, MetadataVersion, Resource, ResourceType,
    VersionRange, VersionedRecord,
};
use protocol::update_features_request::FeatureUpdateKey;
use protocol::update_features_response::UpdatableFeatureResult;
use protocol::{
    ConfigRecord, ErrorCode, FeatureLevelRecord, UpdateFeaturesRequest, UpdateFeaturesResponse,
};

use crate::outcome::v0;
use crate::params::Params;
use crate::{ApiError, Proposal};

/// The feature of eligible leader replicas.
const ELR: &str = "eligible.leader.replicas.version";

/// How a level may move (`FeatureUpdate.UpgradeType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Upgrade,
    SafeDowngrade,
    UnsafeDowngrade,
}

/// What UpdateFeatures leads to: all updates or none. `kraft_version` is the level of the quorum.
pub fn update_features(
    params: &Params,
    image: &Image,
    kraft_version: i16,
    request: &UpdateFeaturesRequest,
) -> Proposal<UpdateFeaturesResponse> {
    let mut proposed: BTreeMap<String, i16> =
        image.features().iter().map(|(name, level)| (name.to_string(), *level)).collect();
    for update in &request.feature_updates {
        proposed.insert(update.feature.to_string(), update.max_version_level);
    }
    let mut records = elr_safety_records(params, image, request);
    // A feature that is named twice gets what is said last.
    let updates = request.feature_updates.iter().enumerate().filter(|(index, update)| {
        let mut later = request.feature_updates.iter().skip(index + 1);
        later.all(|other| other.feature != update.feature)
    });
    for (_, update) in updates {
        match update_one(params, image, kraft_version, update, &proposed) {
            Ok(record) => records.extend(record),
            Err(error) => {
                let message = format!(
                    "The update failed for all features since the following feature had an \
                     error: {}",
                    error.message.unwrap_or_default()
                );
                return Proposal::nothing(UpdateFeaturesResponse {
                    error_code: error.code,
                    error_message: Some(message.into()),
                    ..UpdateFeaturesResponse::default()
                });
            }
        }
    }
    let results = request.feature_updates.iter().map(|update| UpdatableFeatureResult {
        feature: update.feature.clone(),
        // What Kafka has in the place of a sentence.
        error_message: Some("NONE".into()),
        ..UpdatableFeatureResult::default()
    });
    let response = UpdateFeaturesResponse {
        error_message: None,
        results: results.collect(),
        ..UpdateFeaturesResponse::default()
    };
    if request.validate_only {
        Proposal::nothing(response)
    } else {
        Proposal::new(records, response)
    }
}

fn update_one(
    params: &Params,
    image: &Image,
    kraft_version: i16,
    update: &FeatureUpdateKey,
    proposed: &BTreeMap<String, i16>,
) -> Result<Option<VersionedRecord>, ApiError> {
    let (name, level) = (&*update.feature, update.max_version_level);
    let refuse = |message: String| {
        let message = format!("Invalid update version {level} for feature {name}. {message}");
        Err(ApiError::new(ErrorCode::INVALID_UPDATE_VERSION, message))
    };
    let direction = match (update.allow_downgrade, update.upgrade_type) {
        (true, _) | (_, 2) => Direction::SafeDowngrade,
        (_, 1) => Direction::Upgrade,
        (_, 3) => Direction::UnsafeDowngrade,
        _ => {
            return refuse("The controller does not support the given upgrade type.".to_owned());
        }
    };
    let current = match name {
        METADATA_VERSION => image.metadata_version().level(),
        _ if name == KRAFT_VERSION.name => kraft_version,
        _ => image.feature_level(name),
    };
    if level < 0 {
        return refuse("A feature version cannot be less than 0.".to_owned());
    }
    if let Some(reason) = not_supported(params, image, name, level) {
        return refuse(reason);
    }
    if level < current && direction == Direction::Upgrade {
        return refuse(
            "Can't downgrade the version of this feature without setting the upgrade type to \
             either safe or unsafe downgrade."
                .to_owned(),
        );
    }
    if level > current && direction != Direction::Upgrade {
        return refuse("Can't downgrade to a newer version.".to_owned());
    }
    if name == METADATA_VERSION {
        return update_metadata_version(image, level, direction).map(Some);
    }
    if name == KRAFT_VERSION.name {
        return match level {
            level if level == current => Ok(None),
            level if level < current => {
                refuse("Can't downgrade the version of this feature.".to_owned())
            }
            _ => refuse("This quorum cannot change its kraft.version yet.".to_owned()),
        };
    }
    let Some(feature) = Feature::named(name) else {
        return refuse(format!("Feature {name} not found."));
    };
    if let Some(needed) = feature.needs(level)
        && proposed.get(METADATA_VERSION).is_none_or(|version| *version < needed.level())
    {
        return refuse(format!(
            "{name} could not be set to {level} because it depends on metadata.version={} \
             ({needed})",
            needed.level()
        ));
    }
    Ok(Some(level_record(name, level)))
}

/// Why a node of the cluster cannot do a level of a feature, if one cannot.
fn not_supported(params: &Params, image: &Image, name: &str, level: i16) -> Option<String> {
    let check = |who: String, range: Option<VersionRange>| match range {
        None | Some(VersionRange { min: 0, max: 0 }) => {
            (level != 0).then(|| format!("{who} does not support this feature."))
        }
        Some(range) if level != 0 && !(range.min..=range.max).contains(&level) => {
            let VersionRange { min, max } = range;
            Some(format!("{who} only supports versions {min}-{max}"))
        }
        Some(_) => None,
    };
    let supported = metadata::supported_features();
    let own = supported.iter().find(|(feature, _)| *feature == name).map(|(_, range)| *range);
    let local = check(format!("Local controller {}", params.node), own);
    local.or_else(|| {
        let mut brokers = image.brokers().values();
        let of_broker = brokers.find_map(|broker| {
            check(format!("Broker {}", broker.id), broker.features.get(name).copied())
        });
        let others = image.controllers().values().filter(|other| other.id != params.node);
        let of_controllers = || {
            others.clone().find_map(|other| {
                check(format!("Controller {}", other.id), other.features.get(name).copied())
            })
        };
        of_broker.or_else(of_controllers)
    })
}

fn update_metadata_version(
    image: &Image,
    level: i16,
    direction: Direction,
) -> Result<VersionedRecord, ApiError> {
    let refuse = |message: String| Err(ApiError::new(ErrorCode::INVALID_UPDATE_VERSION, message));
    let current = image.metadata_version();
    let Some(new) = MetadataVersion::of_level(level) else {
        let VersionRange { min, max } = MetadataVersion::range();
        return refuse(format!(
            "Invalid metadata.version {level}. Valid versions are from {min} to {max}."
        ));
    };
    if new < current && new.changes_metadata(current) {
        let reason = if direction == Direction::UnsafeDowngrade {
            "Unsafe metadata downgrade is not supported in this version."
        } else {
            "Refusing to perform the requested downgrade because it might delete metadata \
             information."
        };
        return refuse(format!(
            "Unsupported metadata.version downgrade from {} to {}. {reason}",
            current.level(),
            new.level()
        ));
    }
    Ok(level_record(METADATA_VERSION, level))
}

/// Before replicas can be eligible, the minimum of in-sync replicas must be one for all brokers.
fn elr_safety_records(
    params: &Params,
    image: &Image,
    request: &UpdateFeaturesRequest,
) -> Vec<VersionedRecord> {
    let enables =
        |update: &FeatureUpdateKey| &*update.feature == ELR && update.max_version_level > 0;
    if image.has_elr() || !request.feature_updates.iter().any(enables) {
        return Vec::new();
    }
    let set = |broker: &str, value: Option<String>| {
        v0(ConfigRecord {
            resource_type: ResourceType::Broker.code(),
            resource_name: broker.into(),
            name: crate::configs::MIN_ISR.into(),
            value: value.map(Into::into),
            ..ConfigRecord::default()
        })
    };
    let mut records = Vec::new();
    if image.config(&Resource::all_brokers(), crate::configs::MIN_ISR).is_none() {
        let of_file = params.config.settings().get(crate::configs::MIN_ISR);
        records.push(set("", Some(of_file.and_then(config::Value::to_text).unwrap_or_default())));
    }
    for (resource, configs) in image.all_configs().iter() {
        let is_broker = resource.resource_type == ResourceType::Broker && !resource.name.is_empty();
        if is_broker && configs.contains_key(crate::configs::MIN_ISR) {
            records.push(set(&resource.name, None));
        }
    }
    records
}

fn level_record(name: &str, feature_level: i16) -> VersionedRecord {
    v0(FeatureLevelRecord { name: name.into(), feature_level, ..FeatureLevelRecord::default() })
}
