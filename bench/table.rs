//! Medians as Markdown.

use std::fmt::Write;

use crate::measure::Measured;
use crate::scenario::{Aim, Bound, Figure, Scenario};
use crate::servers::Target;

/// What stands where nothing was measured.
const NOTHING: &str = "–";

/// The rounds of one scenario, by server.
#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    /// The scenario.
    pub(crate) scenario: Scenario,
    /// What was measured, in the order of the rounds.
    pub(crate) measured: Vec<(Target, Measured)>,
    /// What went wrong.
    pub(crate) failures: Vec<String>,
}

impl Rounds {
    /// The median of a figure over all rounds.
    pub(crate) fn median(&self, target: Target, figure: Figure) -> Option<f64> {
        let of_target = self.measured.iter().filter(|(whose, _)| *whose == target);
        median(of_target.filter_map(|(_, measured)| figure.of(measured)).collect())
    }
}

/// A table for each scenario, under a heading, with what was done.
pub(crate) fn markdown(all: &[Rounds]) -> String {
    let mut text = String::new();
    for rounds in all {
        let Scenario { name, what, .. } = rounds.scenario;
        // Writing to a string cannot fail.
        let _ = write!(text, "### {name}\n\n{what}\n\n{}\n", table(rounds));
        for failure in &rounds.failures {
            let _ = writeln!(text, "- failed: {failure}");
        }
        if !rounds.failures.is_empty() {
            text.push('\n');
        }
    }
    text
}

fn table(rounds: &Rounds) -> String {
    let mut text = String::from(
        "| | bare | Corelane | Kafka | Corelane/bare | Corelane/Kafka | to reach |\n\
         |---|---:|---:|---:|---:|---:|---|\n",
    );
    for figure in rounds.scenario.figures {
        let [bare, corelane, kafka] = Target::ALL.map(|target| rounds.median(target, *figure));
        let aims: Vec<String> = rounds
            .scenario
            .aims
            .iter()
            .filter(|aim| aim.figure == *figure)
            .map(|aim| judged(aim, rounds))
            .collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            figure.name(),
            number(bare),
            number(corelane),
            number(kafka),
            number(ratio(corelane, bare)),
            number(ratio(corelane, kafka)),
            aims.join("; ")
        );
    }
    text
}

fn judged(aim: &Aim, rounds: &Rounds) -> String {
    let own = rounds.median(Target::Corelane, aim.figure);
    let (found, of) = match aim.against {
        Some(target) => {
            (ratio(own, rounds.median(target, aim.figure)), format!(" of {}", target.name()))
        }
        None => (own, String::new()),
    };
    let (words, limit, reached) = match aim.bound {
        Bound::AtMost(limit) => ("at most", limit, found.map(|found| found <= limit)),
        Bound::AtLeast(limit) => ("at least", limit, found.map(|found| found >= limit)),
    };
    let reached = match reached {
        Some(true) => ": reached",
        Some(false) => ": **missed**",
        None => "",
    };
    format!("{words} {}{of}{reached}", number(Some(limit)))
}

fn ratio(left: Option<f64>, right: Option<f64>) -> Option<f64> {
    right.filter(|right| *right > 0.0).and_then(|right| left.map(|left| left / right))
}

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        1 => values.get(middle).copied(),
        _ => Some((values.get(middle.checked_sub(1)?)? + values.get(middle)?) / 2.0),
    }
}

/// Three digits that count, without an exponent.
fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return NOTHING.to_owned() };
    let digits = match value.abs() {
        size if size == 0.0 || size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.995 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::SCENARIOS;

    #[test]
    fn medians() {
        let check = |values: &[f64], expected| assert_eq!(median(values.to_vec()), expected);
        check(&[], None);
        check(&[3.0], Some(3.0));
        check(&[9.0, 1.0, 2.0], Some(2.0));
        check(&[9.0, 1.0, 2.0, 4.0], Some(3.0));
    }

    #[test]
    fn numbers() {
        let check = |value, expected| assert_eq!(number(Some(value)), expected);
        check(0.0, "0");
        check(0.123_45, "0.123");
        check(1.0 / 6.0, "0.167");
        check(1.234, "1.23");
        check(12.34, "12.3");
        check(123.4, "123");
        check(123_456.0, "123456");
        assert_eq!(number(None), "–");
    }

    #[test]
    fn a_table_has_medians_ratios_and_what_was_reached() {
        let of = |cpu| Measured { cpu_per_gigabyte: Some(cpu), ..Measured::default() };
        let rounds = Rounds {
            scenario: SCENARIOS[0],
            measured: vec![
                (Target::Bare, of(0.7)),
                (Target::Corelane, of(0.9)),
                (Target::Kafka, of(6.0)),
                (Target::Bare, of(0.9)),
                (Target::Corelane, of(0.7)),
                (Target::Kafka, of(4.0)),
            ],
            failures: vec!["round 3 of Kafka: it ended".to_owned()],
        };
        let text = markdown(&[rounds]);
        let row = "| server CPU, s per GB | 0.800 | 0.800 | 5.00 | 1.00 | 0.160 | at most 1.20 of \
                   bare: reached; at most 0.167 of Kafka: reached |\n";
        assert!(text.starts_with("### produce-16k-1-partition\n\n"), "{text}");
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| latency p50, ms | – | – | – | – | – |  |\n"), "{text}");
        assert!(text.contains("- failed: round 3 of Kafka"), "{text}");
    }

    #[test]
    fn an_aim_that_is_missed_is_said() {
        let aims: &[Aim] = &[
            Aim { figure: Figure::Throughput, against: None, bound: Bound::AtLeast(80.0) },
            Aim { figure: Figure::P999, against: None, bound: Bound::AtMost(1.0) },
        ];
        let measured = Measured {
            megabytes_per_second: Some(79.0),
            p999_ms: Some(0.5),
            ..Measured::default()
        };
        let rounds = Rounds {
            scenario: Scenario { aims, ..SCENARIOS[0] },
            measured: vec![(Target::Corelane, measured)],
            failures: Vec::new(),
        };
        assert_eq!(judged(&aims[0], &rounds), "at least 80.0: **missed**");
        assert_eq!(judged(&aims[1], &rounds), "at most 1.00: reached");
    }
}
