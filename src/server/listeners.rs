//! The listeners of a node, from the names of its configuration to addresses.

use std::net::{SocketAddr, ToSocketAddrs};

use config::{BrokerConfig, Listener, SecurityProtocol};
use node::ListenerSetup;

/// The listeners that clients connect to.
///
/// # Errors
/// A sentence, for a protocol that is not spoken yet or a host that is not found.
pub(crate) fn listeners(config: &BrokerConfig) -> Result<Vec<ListenerSetup>, String> {
    let for_clients = config
        .listeners
        .iter()
        .filter(|listener| !config.controller_listener_names.contains(&listener.name));
    for_clients.map(|listener| setup(config, listener)).collect()
}

fn setup(config: &BrokerConfig, listener: &Listener) -> Result<ListenerSetup, String> {
    if listener.protocol != SecurityProtocol::Plaintext {
        return Err(format!(
            "listener {}: {} is not available yet, only PLAINTEXT is: see \
             listener.security.protocol.map",
            listener.name,
            listener.protocol.name()
        ));
    }
    let address = resolve(listener)?;
    let advertised =
        config.advertised_listeners.iter().find(|advertised| advertised.name == listener.name);
    let (host, port) = match advertised {
        Some(advertised) => (advertised.host.clone(), advertised.port),
        None => (listener.host.clone(), listener.port),
    };
    let host = if host.is_empty() { host_name() } else { host };
    Ok(ListenerSetup {
        name: listener.name.as_str().into(),
        address,
        advertised_host: host.into(),
        advertised_port: (port != 0).then_some(port),
        security_protocol: node::SecurityProtocol(listener.protocol.protocol_number()),
    })
}

fn resolve(listener: &Listener) -> Result<SocketAddr, String> {
    let host = match listener.host.as_str() {
        "" => every_address(),
        host => host,
    };
    let found = (host, listener.port).to_socket_addrs().map(|mut addresses| addresses.next());
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(format!("listener {}: {host} has no address", listener.name)),
        Err(error) => Err(format!("listener {}: cannot find {host}: {error}", listener.name)),
    }
}

/// Every address of this machine, as an empty host means it: an IPv6 socket takes IPv4 connections
/// too, where the kernel has IPv6 at all.
fn every_address() -> &'static str {
    #[allow(clippy::disallowed_methods)] // Before the machines start there is nobody to do it.
    let has_ipv6 = std::fs::exists("/proc/net/if_inet6").unwrap_or(false);
    if has_ipv6 { "::" } else { "0.0.0.0" }
}

/// What clients are told where no host is configured: the name of this machine.
fn host_name() -> String {
    #[allow(clippy::disallowed_methods)] // Before the machines start there is nobody to do it.
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "localhost".to_owned(), |name| name.trim().to_owned())
}
