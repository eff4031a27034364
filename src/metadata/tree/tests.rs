//! What is hard to get from a running cluster; the black-box tests compare whole trees.

use bytes::Bytes;

use super::*;
use crate::{
    Acl, Broker, DelegationToken, Endpoint, Partition, Provenance, QuotaEntity, Resource,
    ResourceType, ScramCredential, SecurityProtocol, VersionRange,
};

const SOFTWARE: Software<'static> = Software { version: "1", commit: "2" };

fn names(image: &Image, path: &str) -> Vec<String> {
    let found = Directory::root(image, SOFTWARE).look_up("/", path);
    match found.first().map(|found| found.node) {
        Some(Node::Directory(directory)) => directory.names(),
        other => panic!("{path} is no directory: {other:?}"),
    }
}

fn text(image: &Image, path: &str) -> String {
    let found = Directory::root(image, SOFTWARE).look_up("/", path);
    match found.first().map(|found| found.node) {
        Some(Node::File(file)) => file.text(),
        other => panic!("{path} is no file: {other:?}"),
    }
}

fn is_nothing(image: &Image, path: &str) -> bool {
    Directory::root(image, SOFTWARE).look_up("/", path).is_empty()
}

fn entity(parts: &[(&str, Option<&str>)]) -> QuotaEntity {
    let parts = parts.iter().map(|(kind, name)| ((*kind).into(), name.map(Into::into)));
    QuotaEntity(parts.collect())
}

#[test]
fn an_empty_image_has_its_directories() {
    let image = Image::default();
    assert_eq!(names(&image, "/"), ["image", "local"]);
    let all = "acls clientQuotas cluster configs delegationToken features producerIds provenance \
               scram topics";
    assert_eq!(names(&image, "/image").join(" "), all);
    assert_eq!(names(&image, "/image/features"), ["metadataVersion"]);
    assert_eq!(text(&image, "/image/features/metadataVersion"), "Optional.empty");
    assert_eq!(text(&image, "/image/producerIds/nextProducerId"), "-1");
    let before = "offset -1, epoch -1, time 1969-12-31T23:59:59.999Z[UTC]";
    assert_eq!(text(&image, "/image/provenance"), before);
    assert_eq!(text(&image, "/local/version"), "1");
    assert_eq!(text(&image, "/local/commitId"), "2");
}

#[test]
fn times_are_as_short_as_java_prints_them() {
    for (milliseconds, shown) in [
        (0, "1970-01-01T00:00:00Z[UTC]"),
        (1_764_609_020_100, "2025-12-01T17:10:20.1Z[UTC]"),
        (1_764_609_020_120, "2025-12-01T17:10:20.12Z[UTC]"),
        (-62_167_219_200_001, "-0001-12-31T23:59:59.999Z[UTC]"),
        (i64::MAX, "9223372036854775807 ms after 1970"),
    ] {
        let mut image = Image::default();
        image.set_provenance(Provenance { last_timestamp_ms: milliseconds, ..image.provenance() });
        assert_eq!(text(&image, "/image/provenance"), format!("offset -1, epoch -1, time {shown}"));
    }
}

#[test]
fn names_are_in_javas_order_and_dots_are_taken_away() {
    let mut image = Image::default();
    for name in ["\u{ff5a}", "b", "\u{1f600}", "B", "a.b"] {
        let user = ScramUser { mechanism: 1, name: name.into() };
        let bytes = || Bytes::from_static(&[0, 0xab]);
        let credential = ScramCredential {
            salt: bytes(),
            stored_key: bytes(),
            server_key: bytes(),
            iterations: 4096,
        };
        image.credentials.insert(user, Arc::new(credential));
    }
    let path = "/image/./topics/../scram//SCRAM-SHA-256/";
    assert_eq!(names(&image, path), ["B", "a.b", "b", "\u{1f600}", "\u{ff5a}"]);
    assert_eq!(
        text(&image, &format!("{path}/b")),
        "ScramCredentialData(salt=00ab, storedKey=00ab, serverKey=00ab, iterations=4096)"
    );
    assert_eq!(names(&image, "/image/scram/SCRAM-SHA-512"), Vec::<String>::new());
    assert!(is_nothing(&image, "/image/scram/SCRAM-SHA-1"));
    assert!(is_nothing(&image, &format!("{path}/b/c")));
    assert_eq!(names(&image, "/../../.."), ["image", "local"]);
}

#[test]
fn of_a_default_entity_the_other_parts_are_shown() {
    let mut image = Image::default();
    for (parts, value) in [
        (&[("user", None)][..], 1.0),
        (&[("client-id", Some("c")), ("user", None)], 2.0),
        (&[("client-id", Some("a(b)\\")), ("user", Some("_u"))], 2e7),
        (&[("ip", Some("10.0.0.1"))], 0.5),
    ] {
        let quotas = Quotas::from([(Arc::from("rate"), value)]);
        image.quotas.insert(entity(parts), Arc::new(quotas));
    }
    let escaped = r"clientId(a\(b\)\\)_user(_u)";
    assert_eq!(
        names(&image, "/image/clientQuotas"),
        ["", escaped, "clientId(c)", "ip(10.0.0.1)"].map(str::to_owned)
    );
    assert_eq!(text(&image, &format!("/image/clientQuotas/{escaped}/rate")), "2.0E7");
    assert_eq!(text(&image, "/image/clientQuotas/ip*/rate"), "0.5");
    let nothing = ["clientId(c)", "user()", "ip(10.0.0.1", "ip(10.0.0.1)_", "ip(1)user(2)", "x(1)"];
    for name in nothing {
        assert!(is_nothing(&image, &format!("/image/clientQuotas/{name}")), "{name}");
    }
}

#[test]
fn resources_have_their_type_in_their_name() {
    let mut image = Image::default();
    let configs = Arc::new(Configs::from([(Arc::from("key"), Arc::from("value"))]));
    for resource in [
        Resource::all_brokers(),
        Resource::new(ResourceType::Broker, "1"),
        Resource::new(ResourceType::ClientMetrics, "m:n"),
        Resource::new(ResourceType::Group, "g"),
        Resource::topic("t"),
    ] {
        image.configs.insert(resource, Arc::clone(&configs));
    }
    let all = names(&image, "/image/configs");
    assert_eq!(all, ["BROKER", "BROKER:1", "CLIENT_METRICS:m:n", "GROUP:g", "TOPIC:t"]);
    for name in all {
        assert_eq!(text(&image, &format!("/image/configs/{name}/key")), "value");
    }
    for name in ["BROKER:2", "BROKER_LOGGER", "TOPIC", "nothing:t"] {
        assert!(is_nothing(&image, &format!("/image/configs/{name}")), "{name}");
    }
}

#[test]
fn features_are_the_finalised_ones() {
    let mut image = Image::default();
    let levels = [("metadata.version", 33), ("kraft.version", 1), ("group.version", 1)];
    let levels = levels.map(|(name, level)| (Arc::from(name), level));
    image.features = Arc::new(levels.into());
    let all = names(&image, "/image/features");
    assert_eq!(all, ["finalized_group.version", "metadataVersion"]);
    assert_eq!(text(&image, "/image/features/metadataVersion"), "Optional[4.4-IV2]");
    assert_eq!(text(&image, "/image/features/finalized_group.version"), "1");
    for name in ["finalized_kraft.version", "finalized_metadata.version", "finalized_"] {
        assert_eq!(text(&image, &format!("/image/features/{name}")), "0");
    }
}

#[test]
fn registrations_are_shown_as_kafka_prints_them() {
    let id = |last| Uuid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    let endpoint = |name: &str, protocol| Endpoint {
        name: name.into(),
        host: "h".into(),
        port: 9,
        security_protocol: SecurityProtocol(protocol),
    };
    let range = |name: &str, min, max| (Arc::from(name), VersionRange { min, max });
    let mut broker = Broker {
        id: NodeId(7),
        epoch: 5,
        incarnation: id(1),
        endpoints: vec![endpoint("Z", 3), endpoint("A", 9)],
        features: [range("a", 1, 1), range("b", 0, i16::MAX), range("c", 0, 2)].into(),
        rack: Some("r".into()),
        fenced: true,
        in_controlled_shutdown: false,
        is_migrating: false,
        directories: vec![id(2), id(3)],
        cordoned_directories: None,
    };
    let mut image = Image::default();
    image.brokers.insert(broker.id, Arc::new(broker.clone()));
    assert_eq!(
        text(&image, "/image/cluster/brokers/7"),
        "BrokerRegistration(id=7, epoch=5, incarnationId=AAAAAAAAAAAAAAAAAAAAAQ, \
         listeners=[Endpoint(listenerName='A', securityProtocol=null, host='h', port=9), \
         Endpoint(listenerName='Z', securityProtocol=SASL_SSL, host='h', port=9)], \
         supportedFeatures={a: 1, b: 0+, c: 0-2}, rack=Optional[r], fenced=true, \
         inControlledShutdown=false, isMigratingZkBroker=false, \
         directories=[AAAAAAAAAAAAAAAAAAAAAg, AAAAAAAAAAAAAAAAAAAAAw], cordonedDirectories=null)"
    );
    broker.cordoned_directories = Some(vec![id(2)]);
    image.brokers.insert(broker.id, Arc::new(broker));
    let shown = text(&image, "/image/cluster/brokers/7");
    assert!(shown.ends_with("cordonedDirectories=[AAAAAAAAAAAAAAAAAAAAAg])"), "{shown}");
    assert!(is_nothing(&image, "/image/cluster/brokers/8"));
    assert!(is_nothing(&image, "/image/cluster/brokers/x"));
}

#[test]
fn partitions_are_found_by_name_and_by_id() {
    let mut image = Image::default();
    let id = Uuid([1; 16]);
    let mut topic = Topic::new(id, "t".into());
    for index in [0, 2, 10] {
        let record = protocol::PartitionRecord {
            replicas: vec![1, 2],
            isr: vec![1],
            adding_replicas: vec![2],
            leader: 1,
            ..protocol::PartitionRecord::default()
        };
        let partition = Arc::new(Partition::of_record(&record));
        topic.partitions.insert(PartitionIndex(index), partition);
    }
    image.topic_ids.insert(Arc::clone(&topic.name), id);
    image.topics.insert(id, Arc::new(topic));
    for path in ["/image/topics/byName/t".to_owned(), format!("/image/topics/byId/{id}")] {
        assert_eq!(names(&image, &path), ["0", "10", "2", "id", "name"]);
        assert_eq!(text(&image, &format!("{path}/id")), id.to_string());
        assert_eq!(text(&image, &format!("{path}/name")), "t");
        assert_eq!(
            text(&image, &format!("{path}/10")),
            "PartitionRegistration(replicas=[1, 2], directories=[AAAAAAAAAAAAAAAAAAAAAg, \
             AAAAAAAAAAAAAAAAAAAAAg], isr=[1], removingReplicas=[], addingReplicas=[2], elr=[], \
             lastKnownElr=[], leader=1, leaderRecoveryState=RECOVERED, leaderEpoch=-1, \
             partitionEpoch=-1)"
        );
        assert!(is_nothing(&image, &format!("{path}/1")));
    }
}

#[test]
fn rules_and_tokens_are_shown_as_kafka_prints_them() {
    let mut image = Image::default();
    let mut acl = Acl {
        id: Uuid([1; 16]),
        resource_type: 2,
        resource_name: "r".into(),
        pattern_type: 4,
        principal: "User:p".into(),
        host: "*".into(),
        operation: 15,
        permission_type: 3,
    };
    image.acls.insert(acl.id, Arc::new(acl.clone()));
    acl.id = Uuid([2; 16]);
    (acl.resource_type, acl.pattern_type, acl.operation, acl.permission_type) = (99, -1, 16, 4);
    image.acls.insert(acl.id, Arc::new(acl));
    let path = format!("/image/acls/byId/{}", Uuid([1; 16]));
    assert_eq!(
        text(&image, &path),
        "StandardAcl[resourceType=TOPIC, resourceName=r, patternType=PREFIXED, principal=User:p, \
         host=*, operation=TWO_PHASE_COMMIT, permissionType=ALLOW]"
    );
    assert_eq!(
        text(&image, &format!("/image/acls/byId/{}", Uuid([2; 16]))),
        "StandardAcl[resourceType=UNKNOWN, resourceName=r, patternType=UNKNOWN, principal=User:p, \
         host=*, operation=UNKNOWN, permissionType=UNKNOWN]"
    );
    let token = DelegationToken {
        token_id: "id".into(),
        owner: "User:o".into(),
        requester: "User:q".into(),
        renewers: vec!["User:a".into(), "User:b".into()],
        issue_timestamp: 1,
        max_timestamp: 3,
        expiration_timestamp: 2,
    };
    image.tokens.insert(Arc::clone(&token.token_id), Arc::new(token));
    assert_eq!(
        text(&image, "/image/delegationToken/id"),
        "DelegationTokenDatatokenId=id(owner=User:o(tokenRequester=User:q(renewers=User:a User:b, \
         issueTimestamp=1, maxTimestamp=3), expiryTimestamp=2"
    );
}
