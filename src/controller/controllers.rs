//! Controllers: how they register (KIP-919, `ClusterControlManager.registerController`).

use metadata::{Controller, Image};

use crate::Proposal;
use crate::outcome::v0;

/// What the registration of a controller leads to: nothing where the metadata.version does not
/// have it.
pub fn register_controller(image: &Image, controller: &Controller) -> Proposal<()> {
    if !image.metadata_version().has_controller_registration() {
        return Proposal::nothing(());
    }
    Proposal::new(vec![v0(controller.to_record())], ())
}
