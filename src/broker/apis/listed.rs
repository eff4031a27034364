//! Requests that list what stands in the image and need nothing else.

use base::Token;
use metadata::Image;
use protocol::{
    DecodeError, DescribeClientQuotasRequest, DescribeUserScramCredentialsRequest,
    ListConfigResourcesRequest, Request, RequestFrame,
};

use crate::shard::{Io, Shard};

pub(crate) fn client_quotas(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    listed::<DescribeClientQuotasRequest>(shard, io, call, frame, Image::describe_client_quotas)
}

pub(crate) fn scram_credentials(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let list = Image::describe_scram_credentials;
    listed::<DescribeUserScramCredentialsRequest>(shard, io, call, frame, list)
}

pub(crate) fn config_resources(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
) -> Result<(), DecodeError> {
    let version = frame.version;
    listed::<ListConfigResourcesRequest>(shard, io, call, frame, |image, request| {
        image.list_config_resources(request, version)
    })
}

fn listed<R: Request>(
    shard: &mut Shard,
    io: &mut Io<'_>,
    call: Token,
    frame: &RequestFrame,
    list: impl FnOnce(&Image, &R) -> R::Response,
) -> Result<(), DecodeError> {
    let request: R = frame.body()?;
    // Connections are served from the first image on.
    let view = shard.view.as_ref().expect("there is an image before there are connections");
    let response = list(&view.image, &request);
    shard.respond::<R>(io, call, &response);
    Ok(())
}
