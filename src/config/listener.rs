//! Where a node listens: `listeners`, `advertised.listeners` and the protocol of each
//! (`AbstractKafkaConfig`, `SocketServerConfigs`).

use std::net::IpAddr;

/// What is spoken on a connection below Kafka's own protocol (`SecurityProtocol`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityProtocol {
    /// Nothing.
    Plaintext,
    /// TLS.
    Ssl,
    /// SASL.
    SaslPlaintext,
    /// SASL in TLS.
    SaslSsl,
}

impl SecurityProtocol {
    /// As files write it, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_uppercase().as_str() {
            "PLAINTEXT" => Some(Self::Plaintext),
            "SSL" => Some(Self::Ssl),
            "SASL_PLAINTEXT" => Some(Self::SaslPlaintext),
            "SASL_SSL" => Some(Self::SaslSsl),
            _ => None,
        }
    }

    /// As files write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Ssl => "SSL",
            Self::SaslPlaintext => "SASL_PLAINTEXT",
            Self::SaslSsl => "SASL_SSL",
        }
    }

    /// The number in registrations (`BrokerRegistrationRequest`, `RegisterBrokerRecord`).
    pub fn protocol_number(self) -> i16 {
        match self {
            Self::Plaintext => 0,
            Self::Ssl => 1,
            Self::SaslPlaintext => 2,
            Self::SaslSsl => 3,
        }
    }
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// In upper case.
    pub name: String,
    /// What is spoken there.
    pub protocol: SecurityProtocol,
    /// A name or an address, without the brackets of IPv6; empty stands for every interface.
    pub host: String,
    /// The TCP port; 0 stands for any that is free.
    pub port: u16,
}

/// The protocol of each listener's name, as `listener.security.protocol.map` and its rules for
/// controllers give it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtocolMap(Vec<(String, SecurityProtocol)>);

impl ProtocolMap {
    /// Reads `NAME:PROTOCOL,…`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const KEY: &str = "listener.security.protocol.map";
        let mut map = Self::default();
        for (name, protocol) in parse_map(KEY, text)? {
            let protocol = SecurityProtocol::from_name(protocol).ok_or_else(|| {
                format!("Invalid security protocol `{protocol}` defined in {KEY}")
            })?;
            map.insert(name, protocol);
        }
        Ok(map)
    }

    /// Adds a listener's protocol, in the place of an earlier one.
    pub(crate) fn insert(&mut self, name: &str, protocol: SecurityProtocol) {
        let name = name.to_uppercase();
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, protocol));
    }

    /// The protocol of a listener, whose name is in upper case.
    pub fn get(&self, name: &str) -> Option<SecurityProtocol> {
        self.0.iter().find(|(known, _)| known == name).map(|&(_, protocol)| protocol)
    }
}

/// Reads `key:value,…`; a value may not hold a colon, a key may (`Csv.parseCsvMap`).
pub(crate) fn parse_map<'a>(key: &str, text: &'a str) -> Result<Vec<(&'a str, &'a str)>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(',')
        .map(|entry| {
            let entry = entry.trim();
            let (name, value) = entry.rsplit_once(':').ok_or_else(|| {
                // The text of the exception of Java's substring.
                let length = entry.chars().count();
                format!(
                    "Error parsing configuration property '{key}': begin 0, end -1, length {length}"
                )
            })?;
            Ok((name.trim(), value.trim()))
        })
        .collect()
}

/// The name before `://`, in upper case, without looking at the rest.
pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    match text.find(':') {
        Some(end) if end > 0 => Ok(text[..end].to_uppercase()),
        _ => Err(format!("Unable to parse a listener name from {text}")),
    }
}

/// Reads listeners `NAME://host:port`, whose names differ, and whose ports too where
/// `ports_differ`, but for IPv4 beside IPv6.
pub(crate) fn parse_listeners(
    entries: &[String],
    protocols: &ProtocolMap,
    ports_differ: bool,
) -> Result<Vec<Listener>, String> {
    let shown = format!("[{}]", entries.join(", "));
    let listeners: Result<Vec<Listener>, String> =
        entries.iter().map(|entry| parse_listener(entry, protocols)).collect();
    listeners
        .and_then(|listeners| check_differ(listeners, &shown, ports_differ))
        .map_err(|why| format!("Error creating broker listeners from '{shown}': {why}"))
}

fn parse_listener(entry: &str, protocols: &ProtocolMap) -> Result<Listener, String> {
    let refuse = || format!("Unable to parse {entry} to a broker endpoint");
    let (name, address) = entry.rsplit_once("://").ok_or_else(refuse)?;
    let (host, port) = address.rsplit_once(':').ok_or_else(refuse)?;
    let host = host.strip_prefix('[').unwrap_or(host);
    let host = host.strip_suffix(']').unwrap_or(host);
    let is_part_of_host =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'%' | b'.' | b'_' | b':');
    let digits = port.strip_prefix('-').unwrap_or(port);
    let digits_only = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !host.bytes().all(is_part_of_host) || !digits_only {
        return Err(refuse());
    }
    let name = name.to_uppercase();
    let protocol = protocols
        .get(&name)
        .ok_or_else(|| format!("No security protocol defined for listener {name}"))?;
    // Kafka lets a port out of range pass here, and fails with these words when it binds it.
    let port = port.parse().map_err(|_| format!("port out of range:{port}"))?;
    Ok(Listener { name, protocol, host: host.to_owned(), port })
}

fn check_differ(
    listeners: Vec<Listener>,
    shown: &str,
    ports_differ: bool,
) -> Result<Vec<Listener>, String> {
    let is_repeated =
        |index: usize, same: &dyn Fn(&Listener) -> bool| listeners[..index].iter().any(same);
    for (index, listener) in listeners.iter().enumerate() {
        if is_repeated(index, &|other| other.name == listener.name) {
            return Err(format!("Each listener must have a different name, listeners: {shown}"));
        }
    }
    if !ports_differ {
        return Ok(listeners);
    }
    for (index, listener) in listeners.iter().enumerate() {
        let first = !is_repeated(index, &|other| other.port == listener.port);
        if listener.port != 0 && first {
            check_one_port(&listeners, listener.port, shown)?;
        }
    }
    Ok(listeners)
}

/// Two may share a port if one has an IPv4 address and the other an IPv6 address.
fn check_one_port(listeners: &[Listener], port: u16, shown: &str) -> Result<(), String> {
    let same: Vec<&Listener> = listeners.iter().filter(|other| other.port == port).collect();
    let addresses: Vec<IpAddr> = same.iter().filter_map(|one| one.host.parse().ok()).collect();
    let without_address = same.len() - addresses.len();
    if same.len() < 2 {
        return Ok(());
    }
    if without_address > 1 {
        return Err(format!("Each listener must have a different port, listeners: {shown}"));
    }
    match addresses[..] {
        [one, other] if one.is_ipv4() != other.is_ipv4() && without_address == 0 => Ok(()),
        [_, _] => Err(format!(
            "If you have two listeners on the same port then one needs to be IPv4 and the other \
             IPv6, listeners: {shown}, port: {port}"
        )),
        _ => Err(format!(
            "Each listener must have a different port unless exactly one listener has an IPv4 \
             address and the other IPv6 address, listeners: {shown}, port: {port}"
        )),
    }
}
