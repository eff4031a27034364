//! The node as it ships: the machines that the server starts, made by the same builder.

use std::path::Path;
use std::sync::Arc;

use base::Random;
use commitlog::MetaProperties;
use config::{BrokerConfig, Pairs};
use fakeworld::{Disk, Seat, World};
use node::format::{Controllers, FormatRequest};
use node::{ListenerSetup, LogDirectorySetup, Message, NodePlan, SecurityProtocol};

use crate::scenario::Scenario;
use crate::simulation::{Node, PORT};
use crate::terms::{FIRST_DIRECTORY, SECOND_DIRECTORY};

/// Where its controller listens.
const CONTROLLER_PORT: u16 = 9093;
const LOG_DIRECTORIES: [&str; 2] = [FIRST_DIRECTORY, SECOND_DIRECTORY];
const CLUSTER_ID: &str = "c2ltdWxhdGVkLWNsdXN0ZQ";
/// The date of formatting, in milliseconds since 1970, and as `meta.properties` has it.
const FORMATTED_AT_MS: i64 = 1_767_225_600_000;
const FORMATTED_AT: &str = "Thu Jan 01 00:00:00 UTC 2026";

/// One combined node.
#[derive(Debug)]
pub struct RealNode {
    config: Arc<BrokerConfig>,
    directories: &'static [&'static str],
    data_shards: u16,
    cores: usize,
}

impl RealNode {
    /// The node of a scenario.
    ///
    /// # Panics
    /// If the settings of all simulated nodes are refused.
    pub fn new(scenario: &Scenario) -> Self {
        let directories = match scenario.has_second_directory {
            true => &LOG_DIRECTORIES[..],
            false => &LOG_DIRECTORIES[..1],
        };
        let ip = World::<Message>::address(0, PORT).ip();
        let settings = [
            ("process.roles", "broker,controller".to_owned()),
            ("node.id", "1".to_owned()),
            ("controller.quorum.voters", format!("1@{ip}:{CONTROLLER_PORT}")),
            ("controller.listener.names", "CONTROLLER".to_owned()),
            ("listeners", format!("PLAINTEXT://{ip}:{PORT},CONTROLLER://{ip}:{CONTROLLER_PORT}")),
            ("log.dirs", directories.join(",")),
            ("auto.create.topics.enable", "false".to_owned()),
        ];
        let settings = settings.into_iter().chain(scenario.settings.iter().cloned());
        let pairs: Pairs = settings.map(|(key, value)| (key.to_owned(), value)).collect();
        let config = BrokerConfig::from_pairs(pairs).expect("these settings are valid");
        let (data_shards, cores) = (scenario.data_shards, scenario.cores);
        Self { config: Arc::new(config), directories, data_shards, cores }
    }
}

impl Node for RealNode {
    type Message = Message;
    const LANE_SLOTS: usize = 1_024;

    fn format(&mut self, disk: &mut Disk, random: &mut Random) {
        let request = FormatRequest {
            config: &self.config,
            cluster_id: CLUSTER_ID,
            controllers: Controllers::Configured,
            release_version: None,
            features: &[],
            ignore_formatted: false,
            formatted: &[],
            now_ms: FORMATTED_AT_MS,
            date: FORMATTED_AT,
        };
        let plan = node::format::plan(&request, random).expect("a new disk can be formatted");
        for file in plan.files {
            disk.install(&file.path, &file.contents);
        }
    }

    fn seats(
        &mut self,
        disk: &mut Disk,
        random: &mut Random,
    ) -> Result<Vec<Seat<Message>>, String> {
        let directories = self.directories.iter().map(|path| log_directory(disk, path));
        let log_directories = directories.collect::<Result<Arc<[LogDirectorySetup]>, String>>()?;
        let setup = |port| {
            let listeners = self.config.listeners.iter().filter(move |it| it.port == port);
            let listeners = listeners.map(move |listener| ListenerSetup {
                name: listener.name.as_str().into(),
                address: World::<Message>::address(0, port),
                advertised_host: World::<Message>::address(0, port).ip().to_string().into(),
                advertised_port: None,
                security_protocol: SecurityProtocol::PLAINTEXT,
            });
            listeners.collect::<Arc<[ListenerSetup]>>()
        };
        let plan = NodePlan {
            config: Arc::clone(&self.config),
            cluster_id: CLUSTER_ID.into(),
            dirty_bytes_max: 256 << 20,
            metadata_directory: log_directories[0].path.clone(),
            metadata_directory_id: log_directories[0].id,
            log_directories,
            listeners: setup(PORT),
            controller_listeners: setup(CONTROLLER_PORT),
            data_shards: self.data_shards,
            lane_slots: Self::LANE_SLOTS as u32,
            seed: random.next_u64(),
        };
        let machines = node::machines(&plan)?;
        let seat = |(index, machine): (usize, node::NodeMachine)| Seat {
            core: index % self.cores,
            machine: (machine.build)(),
        };
        Ok(machines.into_iter().enumerate().map(seat).collect())
    }
}

fn log_directory(disk: &Disk, path: &str) -> Result<LogDirectorySetup, String> {
    let path = Path::new(path);
    let text = disk.peek(&path.join("meta.properties")).ok_or("meta.properties is gone")?;
    let properties = MetaProperties::parse(&String::from_utf8_lossy(text))
        .map_err(|error| format!("meta.properties: {error}"))?;
    let id = properties.directory_id.ok_or("meta.properties has no directory id")?;
    Ok(LogDirectorySetup { path: path.to_owned(), id, offline: None })
}
