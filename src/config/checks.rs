//! The rules that span several keys of a node, in the order and with the words of Kafka
//! (`KafkaConfig.validateValues`, `GroupCoordinatorConfig`, `ShareGroupConfig`).

use base::NodeId;

use crate::group_checks;
use crate::listener::{self, Listener, ProtocolMap, SecurityProtocol};
use crate::quorum::{self, HostPort, Voter};
use crate::settings::Settings;

/// What a process does in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessRoles {
    /// It holds partitions and serves clients.
    pub broker: bool,
    /// It is one of the controllers.
    pub controller: bool,
}

/// Another number of connections for some address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimit {
    /// A name or an address.
    pub host: String,
    /// The greatest number of its connections.
    pub connections_max: i32,
}

/// What the checks find out on their way.
pub(crate) struct Parts {
    pub(crate) node_id: NodeId,
    pub(crate) roles: ProcessRoles,
    pub(crate) listeners: Listeners,
    pub(crate) inter_broker_listener: (String, SecurityProtocol),
    pub(crate) voters: Vec<Voter>,
    pub(crate) bootstrap_servers: Vec<HostPort>,
    pub(crate) connection_limits: Vec<ConnectionLimit>,
}

/// A node's listeners, sorted out.
pub(crate) struct Listeners {
    pub(crate) all: Vec<Listener>,
    pub(crate) advertised: Vec<Listener>,
    pub(crate) advertised_controllers: Vec<Listener>,
    pub(crate) controller_names: Vec<String>,
    protocols: ProtocolMap,
}

/// Checks all rules.
pub(crate) fn check(settings: &Settings) -> Result<Parts, String> {
    group_checks::check(settings)?;
    let node_id = check_node_id(settings)?;
    check_logs(settings)?;
    check_replication(settings)?;
    let roles = process_roles(settings);
    let listeners = listeners(settings)?;
    let inter_broker_listener = inter_broker_listener(settings, &listeners.protocols)?;
    check_early_start(settings, &listeners)?;
    let voters = quorum::parse_voters(settings.list("controller.quorum.voters").unwrap_or(&[]))?;
    let bootstrap_servers = quorum::parse_bootstrap_servers(
        settings.list("controller.quorum.bootstrap.servers").unwrap_or(&[]),
    )?;
    if voters.is_empty() && bootstrap_servers.is_empty() {
        return Err("If using process.roles, either controller.quorum.bootstrap.servers must \
                    contain the set of bootstrap controllers or controller.quorum.voters must \
                    contain a parseable set of controllers."
            .to_owned());
    }
    if roles.controller {
        check_controller(settings, node_id, roles, &voters, &listeners)?;
    } else {
        check_broker_only(settings, node_id, &voters, &listeners)?;
    }
    if roles.broker {
        check_broker_listeners(&listeners, &inter_broker_listener.0)?;
    }
    let mut advertised = listeners.advertised.iter().chain(&listeners.advertised_controllers);
    require(
        !advertised.any(|listener| listener.host == "0.0.0.0"),
        "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP \
         address.",
    )?;
    check_sasl(settings, &inter_broker_listener)?;
    let connection_limits = check_connections(settings)?;
    Ok(Parts {
        node_id,
        roles,
        listeners,
        inter_broker_listener,
        voters,
        bootstrap_servers,
        connection_limits,
    })
}

/// `log.dirs`, or else `log.dir`.
pub(crate) fn log_dirs(settings: &Settings) -> &[String] {
    settings.list("log.dirs").or(settings.list("log.dir")).unwrap_or(&[])
}

/// Kafka marks most of these errors so, for they come from Scala's `require`.
fn require(holds: bool, message: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("requirement failed: {message}")) }
}

fn check_node_id(settings: &Settings) -> Result<NodeId, String> {
    let id = settings.integer("node.id");
    if id != settings.integer("broker.id") {
        return Err("`node.id` and `broker.id` must be set to the same value. `broker.id` is \
                    deprecated, please use `node.id` instead."
            .to_owned());
    }
    Ok(NodeId(i32::try_from(id).expect("its type is INT")))
}

fn process_roles(settings: &Settings) -> ProcessRoles {
    let roles = settings.list("process.roles").unwrap_or(&[]);
    let has = |name: &str| roles.iter().any(|role| role == name);
    ProcessRoles { broker: has("broker"), controller: has("controller") }
}

fn check_logs(settings: &Settings) -> Result<(), String> {
    let dirs = log_dirs(settings);
    let cordoned = settings.list("cordoned.log.dirs").unwrap_or(&[]);
    if cordoned.iter().any(|dir| dir == "*") {
        require(
            cordoned.len() == 1,
            "When cordoned.log.dirs is set to *, it must not contain other values",
        )?;
    } else {
        let missing: Vec<&str> =
            cordoned.iter().filter(|dir| !dirs.contains(dir)).map(String::as_str).collect();
        require(
            missing.is_empty(),
            &format!(
                "All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing \
                 entries : {}",
                missing.join(",")
            ),
        )?;
    }
    let topic_value = |name: &str| {
        let key = crate::key::TOPIC.get(name).expect("it is a key of a topic");
        match settings.by_synonyms(key) {
            Some(crate::value::Value::Integer(value)) => value,
            other => panic!("{name} is {other:?}, and no integer"),
        }
    };
    require(topic_value("segment.ms") >= 1, "log.roll.ms must be greater than or equal to 1")?;
    require(
        topic_value("segment.jitter.ms") >= 0,
        "log.roll.jitter.ms must be greater than or equal to 0",
    )?;
    require(
        topic_value("retention.ms") != 0,
        "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    )?;
    require(
        !dirs.is_empty(),
        "At least one log directory must be defined via log.dirs or log.dir.",
    )?;
    let per_cleaner = settings
        .integer("log.cleaner.dedupe.buffer.size")
        .checked_div(settings.integer("log.cleaner.threads"))
        .ok_or("/ by zero")?;
    require(
        per_cleaner > 1024 * 1024,
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    )
}

fn check_replication(settings: &Settings) -> Result<(), String> {
    let wait_max_ms = settings.integer("replica.fetch.wait.max.ms");
    require(
        wait_max_ms <= settings.integer("replica.socket.timeout.ms"),
        "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent \
         unnecessary socket timeouts",
    )?;
    require(
        wait_max_ms <= settings.integer("replica.lag.time.max.ms"),
        "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms \
         to prevent frequent changes in ISR",
    )
}

fn listeners(settings: &Settings) -> Result<Listeners, String> {
    let names = settings.list("controller.listener.names").unwrap_or(&[]);
    let protocols = protocol_map(settings, names)?;
    let entries = settings.list("listeners").unwrap_or(&[]);
    let all = listener::parse_listeners(entries, &protocols, true)?;
    let is_controller = |listener: &&Listener| names.contains(&listener.name);
    let explicit = match settings.list("advertised.listeners") {
        Some(entries) => Some(listener::parse_listeners(entries, &protocols, false)?),
        None => None,
    };
    let offered = explicit.as_ref().unwrap_or(&all);
    let advertised = offered.iter().filter(|listener| !is_controller(listener)).cloned().collect();
    let mut advertised_controllers = Vec::with_capacity(names.len());
    for name in names {
        let name = name.to_uppercase();
        let of_name = |listener: &&Listener| is_controller(listener) && listener.name == name;
        if let Some(listener) = explicit.iter().flatten().find(of_name) {
            advertised_controllers.push(listener.clone());
        } else if let Some(listener) = all.iter().find(of_name) {
            // Nobody can connect to "every interface": the name of the machine stands for it.
            let mut listener = listener.clone();
            if listener.host == "0.0.0.0" {
                listener.host.clear();
            }
            advertised_controllers.push(listener);
        }
    }
    let controller_names = names.to_vec();
    Ok(Listeners { all, advertised, advertised_controllers, controller_names, protocols })
}

/// The map that is set, or else the default one with the controllers' listeners as PLAINTEXT, if
/// nothing speaks TLS or SASL.
fn protocol_map(settings: &Settings, controller_names: &[String]) -> Result<ProtocolMap, String> {
    const KEY: &str = "listener.security.protocol.map";
    let mut map = ProtocolMap::parse(settings.text(KEY).unwrap_or(""))?;
    if settings.originals().contains_key(KEY) {
        return Ok(map);
    }
    let is_secure = |name: &str| matches!(name, "SSL" | "SASL_SSL" | "SASL_PLAINTEXT");
    if controller_names.iter().any(|name| is_secure(name)) {
        return Ok(map);
    }
    for entry in settings.list("listeners").unwrap_or(&[]) {
        if is_secure(&listener::parse_name(entry)?) {
            return Ok(map);
        }
    }
    for name in controller_names.iter().filter(|name| *name != "PLAINTEXT") {
        map.insert(name, SecurityProtocol::Plaintext);
    }
    Ok(map)
}

fn inter_broker_listener(
    settings: &Settings,
    protocols: &ProtocolMap,
) -> Result<(String, SecurityProtocol), String> {
    let Some(name) = settings.text("inter.broker.listener.name") else {
        let name = settings.text("security.inter.broker.protocol").unwrap_or("PLAINTEXT");
        let protocol = SecurityProtocol::from_name(name).expect("a rule refuses any other");
        return Ok((name.to_owned(), protocol));
    };
    if settings.originals().contains_key("security.inter.broker.protocol") {
        return Err("Only one of inter.broker.listener.name and security.inter.broker.protocol \
                    should be set."
            .to_owned());
    }
    let name = name.to_uppercase();
    let protocol = protocols.get(&name).ok_or_else(|| {
        format!(
            "Listener with name {name} defined in inter.broker.listener.name not found in \
             listener.security.protocol.map."
        )
    })?;
    Ok((name, protocol))
}

fn check_early_start(settings: &Settings, listeners: &Listeners) -> Result<(), String> {
    for name in settings.list("early.start.listeners").unwrap_or(&[]) {
        let known = listeners.controller_names.contains(name)
            || listeners.all.iter().any(|listener| listener.name == name.to_uppercase());
        if !known {
            return Err(format!(
                "early.start.listeners contains listener {name}, but this is not contained in \
                 listeners or controller.listener.names"
            ));
        }
    }
    Ok(())
}

fn voter_ids(voters: &[Voter]) -> String {
    let mut ids: Vec<i32> = voters.iter().map(|voter| voter.id.0).collect();
    ids.sort_unstable();
    let ids: Vec<String> = ids.iter().map(i32::to_string).collect();
    format!("Set({})", ids.join(", "))
}

fn check_controller(
    settings: &Settings,
    node_id: NodeId,
    roles: ProcessRoles,
    voters: &[Voter],
    listeners: &Listeners,
) -> Result<(), String> {
    if !roles.broker {
        require(
            listeners.advertised_controllers.len() == listeners.all.len(),
            "The listeners config must only contain KRaft controller listeners from \
             controller.listener.names when process.roles=controller",
        )?;
        let inter_broker = settings.text("inter.broker.listener.name");
        require(
            !inter_broker.is_some_and(|name| {
                listeners.controller_names.iter().any(|controller| controller == name)
            }),
            "controller.listener.names must not contain an explicitly set \
             inter.broker.listener.name configuration value when process.roles=controller'",
        )?;
    }
    require(
        voters.is_empty() || voters.iter().any(|voter| voter.id == node_id),
        &format!(
            "If process.roles contains the 'controller' role, the node id {node_id} must be \
             included in the set of voters controller.quorum.voters={}",
            voter_ids(voters)
        ),
    )?;
    require(
        !listeners.advertised_controllers.is_empty(),
        "controller.listener.names must contain at least one value appearing in the 'listeners' \
         configuration when running the KRaft controller role",
    )?;
    let is_listened_to =
        |name: &String| listeners.all.iter().any(|listener| listener.name == *name);
    require(
        listeners.controller_names.iter().all(is_listened_to),
        "controller.listener.names must only contain values appearing in the 'listeners' \
         configuration when running the KRaft controller role",
    )
}

fn check_broker_only(
    settings: &Settings,
    node_id: NodeId,
    voters: &[Voter],
    listeners: &Listeners,
) -> Result<(), String> {
    require(
        !voters.iter().any(|voter| voter.id == node_id),
        &format!(
            "If process.roles contains just the 'broker' role, the node id {node_id} must not be \
             included in the set of voters controller.quorum.voters={}",
            voter_ids(voters)
        ),
    )?;
    let names = &listeners.controller_names;
    require(
        !names.is_empty(),
        "controller.listener.names must contain at least one value when running KRaft with just \
         the broker role",
    )?;
    require(
        !listeners.all.iter().any(|listener| names.contains(&listener.name)),
        "controller.listener.names must not contain a value appearing in the 'listeners' \
         configuration when running KRaft with just the broker role",
    )?;
    for name in names {
        let name = name.to_uppercase();
        if listeners.protocols.get(&name).is_none() {
            return Err(format!(
                "Controller listener with name {name} defined in controller.listener.names not \
                 found in listener.security.protocol.map  (an explicit security mapping for each \
                 controller listener is required if listener.security.protocol.map is non-empty, \
                 or if there are security protocols other than PLAINTEXT in use)"
            ));
        }
    }
    require(
        !settings.boolean("controller.quorum.auto.join.enable"),
        "controller.quorum.auto.join.enable is only supported when process.roles contains the \
         'controller' role.",
    )
}

fn check_broker_listeners(listeners: &Listeners, inter_broker: &str) -> Result<(), String> {
    let names = |listeners: &[Listener]| {
        let names: Vec<&str> = listeners.iter().map(|listener| listener.name.as_str()).collect();
        names.join(",")
    };
    require(
        !listeners.advertised.is_empty(),
        "There must be at least one broker advertised listener. Perhaps all listeners appear in \
         controller.listener.names?",
    )?;
    require(
        listeners.advertised.iter().any(|listener| listener.name == inter_broker),
        &format!(
            "inter.broker.listener.name must be a listener name defined in advertised.listeners. \
             The valid options based on currently configured listeners are {}",
            names(&listeners.advertised)
        ),
    )?;
    let is_listened_to =
        |one: &Listener| listeners.all.iter().any(|listener| listener.name == one.name);
    require(
        listeners.advertised.iter().all(is_listened_to),
        &format!(
            "advertised.listeners listener names must be equal to or a subset of the ones defined \
             in listeners. Found {}. The valid options based on the current configuration are {}",
            names(&listeners.advertised),
            names(&listeners.all)
        ),
    )
}

fn check_sasl(
    settings: &Settings,
    (listener, protocol): &(String, SecurityProtocol),
) -> Result<(), String> {
    if !matches!(protocol, SecurityProtocol::SaslPlaintext | SecurityProtocol::SaslSsl) {
        return Ok(());
    }
    let mechanism = settings.text("sasl.mechanism.inter.broker.protocol").unwrap_or_default();
    let own = format!("listener.name.{}.sasl.enabled.mechanisms", listener.to_lowercase());
    let enabled = match settings.originals().get(&own) {
        Some(text) => text.split(',').any(|one| one.trim() == mechanism),
        None => settings
            .list("sasl.enabled.mechanisms")
            .unwrap_or(&[])
            .iter()
            .any(|one| one == mechanism),
    };
    require(
        enabled,
        "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when \
         SASL is used for inter-broker communication",
    )
}

fn check_connections(settings: &Settings) -> Result<Vec<ConnectionLimit>, String> {
    let queued_max_bytes = settings.integer("queued.max.request.bytes");
    require(
        queued_max_bytes <= 0 || queued_max_bytes >= settings.integer("socket.request.max.bytes"),
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    )?;
    let limits = connection_limits(settings)?;
    require(
        settings.integer("max.connections.per.ip") != 0 || !limits.is_empty(),
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides \
         property is set.",
    )?;
    let is_part_of_host =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'%' | b'.' | b'_' | b':');
    let wrong: Vec<&str> = limits
        .iter()
        .map(|limit| limit.host.as_str())
        .filter(|host| !host.bytes().all(is_part_of_host))
        .collect();
    if !wrong.is_empty() {
        let wrong = wrong.join(",");
        return Err(format!(
            "max.connections.per.ip.overrides contains invalid addresses : {wrong}"
        ));
    }
    let delay_ms = settings.integer("connection.failed.authentication.delay.ms");
    let idle_ms = settings.integer("connections.max.idle.ms");
    require(
        idle_ms < 0 || delay_ms < idle_ms,
        &format!(
            "connection.failed.authentication.delay.ms={delay_ms} should always be less than \
             connections.max.idle.ms={idle_ms} to prevent failed authentication responses from \
             timing out"
        ),
    )?;
    Ok(limits)
}

fn connection_limits(settings: &Settings) -> Result<Vec<ConnectionLimit>, String> {
    const KEY: &str = "max.connections.per.ip.overrides";
    let overrides = listener::parse_map(KEY, settings.text(KEY).unwrap_or(""))?;
    let limits = overrides.into_iter().map(|(host, number)| {
        let connections_max =
            number.parse().map_err(|_| format!("For input string: \"{number}\""))?;
        Ok(ConnectionLimit { host: host.to_owned(), connections_max })
    });
    limits.collect()
}
