//! Which machine runs on which core.

use config::{CountOrAuto, SimpleSettings};

/// From this many cores on the quorum shard has one of its own, unless the settings say otherwise.
const DEDICATED_QUORUM_CORES_MIN: usize = 4;

/// The cores of a node: one data shard on each of `data`, the quorum shard on `quorum`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The core of each data shard.
    pub(crate) data: Vec<usize>,
    /// The core of the quorum shard; it may be one of `data`.
    pub(crate) quorum: usize,
}

/// Distributes the machines over the cores that the process may use (`corelane.cores`,
/// `corelane.quorum.cores`).
///
/// # Errors
/// A sentence, if the settings ask for cores that are not there.
pub(crate) fn layout(cores: &[usize], settings: &SimpleSettings) -> Result<Layout, String> {
    let wanted = match settings.corelane_cores {
        CountOrAuto::Auto => cores.len(),
        CountOrAuto::Count(count) => usize::from(count),
    };
    if wanted == 0 || wanted > cores.len() {
        return Err(format!(
            "corelane.cores={wanted}, but this process may run on {} cores. Give a number from 1 \
             to {}, or auto",
            cores.len(),
            cores.len()
        ));
    }
    let dedicated = match settings.corelane_quorum_cores {
        CountOrAuto::Auto => wanted >= DEDICATED_QUORUM_CORES_MIN,
        CountOrAuto::Count(1) if wanted > 1 => true,
        CountOrAuto::Count(count) => {
            return Err(format!(
                "corelane.quorum.cores={count} of {wanted} cores: the quorum takes one core for \
                 itself and leaves at least one for data. Give 1 (from two cores on) or auto"
            ));
        }
    };
    let (data, quorum) = if dedicated {
        (&cores[..wanted - 1], cores[wanted - 1])
    } else {
        (&cores[..wanted], cores[wanted - 1])
    };
    Ok(Layout { data: data.to_vec(), quorum })
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::BrokerConfig;

    fn settings(text: &str) -> SimpleSettings {
        let file = format!(
            "process.roles=controller\nnode.id=1\ncontroller.listener.names=C\n\
             listeners=C://127.0.0.1:2\nlistener.security.protocol.map=C:PLAINTEXT\n\
             controller.quorum.voters=1@127.0.0.1:2\n{text}"
        );
        BrokerConfig::parse(file.as_bytes()).expect("valid").simple
    }

    #[test]
    fn the_quorum_has_a_core_of_its_own_from_four_on() {
        let cases = [
            (1, "", Ok((1, 0))),
            (2, "", Ok((2, 1))),
            (4, "", Ok((3, 3))),
            (8, "corelane.cores=3", Ok((3, 2))),
            (8, "corelane.cores=2\ncorelane.quorum.cores=1", Ok((1, 1))),
            (3, "corelane.quorum.cores=1", Ok((2, 2))),
            (2, "corelane.cores=3", Err("corelane.cores=3")),
            (1, "corelane.quorum.cores=1", Err("corelane.quorum.cores=1")),
        ];
        for (cores, text, expected) in cases {
            let cores: Vec<usize> = (0..cores).collect();
            match (layout(&cores, &settings(text)), expected) {
                (Ok(layout), Ok((data, quorum))) => {
                    assert_eq!((layout.data.len(), layout.quorum), (data, quorum), "{text}");
                }
                (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
    }
}
