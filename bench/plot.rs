//! Percentiles as a picture.

use plotters::prelude::*;
use plotters::style::FontTransform;

use crate::latency::Latencies;
use crate::servers::Target;

const WIDTH: u32 = 800;
const HEIGHT: u32 = 420;
/// The horizontal axis counts nines: 1 is the 90th percentile, 4 the 99.99th.
const NINES_MAX: f64 = 4.0;
const STEPS: u32 = 160;
const MARGIN: u32 = 12;
const LABELS_WIDTH: u32 = 60;
const LABELS_HEIGHT: u32 = 36;

/// An SVG of latency over percentile, both in orders of magnitude, a line for each server.
///
/// # Errors
/// A sentence: it cannot be drawn.
pub(crate) fn percentiles(title: &str, lines: &[(Target, Latencies)]) -> Result<String, String> {
    let mut text = String::new();
    draw(&mut text, title, lines).map_err(|error| format!("drawing {title}: {error}"))?;
    Ok(text)
}

fn draw(
    text: &mut String,
    title: &str,
    lines: &[(Target, Latencies)],
) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(text, (WIDTH, HEIGHT)).into_drawing_area();
    area.fill(&WHITE)?;
    let all = || lines.iter().flat_map(|(_, latencies)| points(latencies)).map(|(_, ms)| ms);
    let lowest = all().fold(f64::INFINITY, f64::min).clamp(0.001, 1_000.0);
    let highest = all().fold(lowest * 10.0, f64::max);
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(MARGIN)
        .x_label_area_size(LABELS_HEIGHT)
        .y_label_area_size(LABELS_WIDTH)
        .build_cartesian_2d(0.0..NINES_MAX, (lowest..highest).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("percentile")
        .y_desc("latency, ms")
        .x_labels(5)
        .x_label_formatter(&|nines| percentile_name(*nines))
        .y_label_formatter(&|ms| format!("{ms}"))
        .draw()?;
    for (target, latencies) in lines {
        let color = color(*target);
        chart.draw_series(LineSeries::new(points(latencies), color.stroke_width(2)))?;
    }
    let font = ("sans-serif", 14).into_font().transform(FontTransform::None);
    for (row, (target, _)) in (0..).zip(lines) {
        let place = (LABELS_WIDTH as i32 + 30, 50 + row * 18);
        area.draw(&Text::new(target.name(), place, font.clone().color(&color(*target))))?;
    }
    area.present()?;
    drop(chart);
    Ok(())
}

fn points(latencies: &Latencies) -> Vec<(f64, f64)> {
    let point = |step: u32| {
        let nines = NINES_MAX * f64::from(step) / f64::from(STEPS);
        let percent = 100.0 * (1.0 - 10_f64.powf(-nines));
        (nines, latencies.percentile_ms(percent).max(0.001))
    };
    (0..=STEPS).map(point).collect()
}

fn percentile_name(nines: f64) -> String {
    let percent = 100.0 * (1.0 - 10_f64.powf(-nines));
    let digits = (nines.round() as usize).saturating_sub(2);
    format!("{percent:.digits$} %")
}

fn color(target: Target) -> RGBColor {
    match target {
        Target::Bare => RGBColor(130, 130, 130),
        Target::Corelane => RGBColor(200, 60, 30),
        Target::Kafka => RGBColor(40, 90, 180),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_picture_has_a_line_and_a_name_for_each_server() {
        let mut latencies = Latencies::default();
        (1..1_000).for_each(|value| latencies.record(Duration::from_micros(value)));
        let lines = [(Target::Bare, latencies.clone()), (Target::Kafka, latencies)];
        let picture = percentiles("produce", &lines).expect("is drawn");
        assert!(picture.starts_with("<svg") && picture.contains("</svg>"), "{picture}");
        for word in ["produce", "bare", "Kafka", "99.99 %", "90 %"] {
            assert!(picture.contains(word), "{word}: {picture}");
        }
        assert!(!picture.contains("Corelane"));
    }

    #[test]
    fn nothing_measured_is_drawn_as_well() {
        percentiles("empty", &[(Target::Bare, Latencies::default())]).expect("is drawn");
    }
}
