//! ApiVersions: what this broker speaks, and the features of its cluster.

use base::Token;
use metadata::Answerer;
use protocol::{ApiVersionsRequest, DecodeError, RequestFrame};

use crate::shard::{Io, Shard};

pub(crate) fn start(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let view = shard.view.as_ref();
    let answerer = Answerer {
        cluster_id: &shard.setup.cluster_id,
        node: shard.setup.node,
        image: view.map(|view| &*view.image),
        kraft_version: view.map_or(0, |view| view.kraft_version),
    };
    let (version, response) = metadata::api_versions(frame, answerer, super::handled())?;
    shard.answer_in_version(call, version);
    shard.respond::<ApiVersionsRequest>(io, call, &response);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn apis_are_in_order() {
        assert!(super::super::handled().is_sorted_by_key(protocol::ApiKey::code));
    }
}
