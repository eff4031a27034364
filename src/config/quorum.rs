//! Who the controllers are: `controller.quorum.voters` and `controller.quorum.bootstrap.servers`
//! (`QuorumConfig`).

use base::NodeId;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A name or an address, without the brackets of IPv6.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

/// A controller that votes, as the file names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Voter {
    /// Its `node.id`.
    pub id: NodeId,
    /// Where it listens.
    pub endpoint: HostPort,
}

/// Reads entries `id@host:port`. Of two with one id the last counts, as in Kafka.
pub(crate) fn parse_voters(entries: &[String]) -> Result<Vec<Voter>, String> {
    const FORM: &str = "Each entry should be in the form `{id}@{host}:{port}`.";
    const KEY: &str = "controller.quorum.voters";
    let mut voters: Vec<Voter> = Vec::with_capacity(entries.len());
    for entry in entries {
        let mut parts = entry.split('@');
        let (Some(id), Some(address), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(format!("Invalid configuration value for {KEY}. {FORM}"));
        };
        let id: i32 =
            id.parse().map_err(|_| format!("Failed to parse voter ID as an integer from {id}"))?;
        let (host, port) = split_address(address).ok_or_else(|| {
            format!(
                "Failed to parse host name from entry {entry} for the configuration {KEY}. {FORM}"
            )
        })?;
        let endpoint = HostPort { host: host.to_owned(), port: parse_port(port)? };
        voters.retain(|voter| voter.id != NodeId(id));
        voters.push(Voter { id: NodeId(id), endpoint });
    }
    Ok(voters)
}

/// Reads entries `host:port`.
pub(crate) fn parse_bootstrap_servers(entries: &[String]) -> Result<Vec<HostPort>, String> {
    let parse = |entry: &String| {
        let (host, port) = split_address(entry).ok_or_else(|| {
            format!(
                "Failed to parse host name from {entry} for the configuration \
                 controller.quorum.bootstrap.servers. Each entry should be in the form \
                 \"{{host}}:{{port}}\""
            )
        })?;
        Ok(HostPort { host: host.to_owned(), port: parse_port(port)? })
    };
    entries.iter().map(parse).collect()
}

/// Parts `host:port`, with or without a scheme before and brackets around the host.
fn split_address(address: &str) -> Option<(&str, &str)> {
    let is_part_of_host =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'%' | b'.' | b'_');
    let address = match address.split_once("://") {
        Some((scheme, rest)) if scheme.bytes().all(is_part_of_host) => rest,
        _ => address,
    };
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').unwrap_or(host);
    let host = host.strip_suffix(']').unwrap_or(host);
    let whole = host.bytes().all(|byte| is_part_of_host(byte) || byte == b':')
        && !port.is_empty()
        && port.bytes().all(|byte| byte.is_ascii_digit());
    whole.then_some((host, port))
}

fn parse_port(port: &str) -> Result<u16, String> {
    port.parse().map_err(|_| format!("port out of range:{port}"))
}
