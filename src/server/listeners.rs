//! The listeners of a node, from the names of its configuration to addresses.

use std::net::{SocketAddr, ToSocketAddrs};

use config::{BrokerConfig, Listener, SecurityProtocol};
use node::ListenerSetup;

/// The listeners of a node.
pub(crate) struct Listeners {
    pub(crate) of_broker: Vec<ListenerSetup>,
    pub(crate) of_controller: Vec<ListenerSetup>,
}

/// Finds the addresses of all listeners.
///
/// # Errors
/// A sentence, for a protocol that is not spoken yet or a host that is not found.
pub(crate) fn listeners(config: &BrokerConfig) -> Result<Listeners, String> {
    let is_controllers =
        |listener: &&Listener| config.controller_listener_names.contains(&listener.name);
    let (of_controller, of_broker): (Vec<_>, Vec<_>) =
        config.listeners.iter().partition(is_controllers);
    let set_up = |listeners: Vec<&Listener>| -> Result<Vec<ListenerSetup>, String> {
        listeners.into_iter().map(|listener| setup(config, listener)).collect()
    };
    Ok(Listeners { of_broker: set_up(of_broker)?, of_controller: set_up(of_controller)? })
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
    let advertised = config.advertised_listeners.iter();
    let advertised = advertised.chain(&config.advertised_controller_listeners);
    let advertised = advertised.clone().find(|advertised| advertised.name == listener.name);
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
