//! The plot: a burst of waiters, by their number.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::cell::{Cell, Contender, Shape};
use super::measured::Measured;
use super::sample::Sample;
use crate::Failure;

const SIZE: (u32, u32) = (1_080, 460);
const WAITERS: [f64; 4] = [2.0, 10.0, 100.0, 1_000.0];
const INK: RGBColor = RGBColor(40, 44, 52);
const GRID: RGBColor = RGBColor(228, 230, 234);
const CONTENDERS: [(Contender, &str, RGBColor); 4] = [
    (Contender::Lockmacro, "lockmacro", RGBColor(13, 110, 180)),
    (Contender::Rslock, "rslock", RGBColor(214, 93, 14)),
    (Contender::Poll, "poll every 10 ms", RGBColor(128, 134, 139)),
    (Contender::Mutex, "Mutex, then poll", RGBColor(66, 133, 88)),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub fn plot(path: &Path, measured: &[Measured]) -> Result<(), Failure> {
    let burst = |cell: &Cell| cell.shape == Shape::Burst && cell.processes == 1 && cell.hold == 0;
    let rows: Vec<&Measured> = measured.iter().filter(|row| burst(&row.cell)).collect();
    draw(path, &rows).map_err(|error| error.to_string().into())
}

fn draw(path: &Path, rows: &[&Measured]) -> Result<(), Box<dyn Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let heading = ("sans-serif", 20).into_font().color(&INK);
    let title = "One hot key: waiters of one process request it at once, each of them once";
    let (left, right) = root.titled(title, heading)?.split_horizontally(SIZE.0 / 2);
    let time = |y: &f64| match *y {
        y if y >= 1_000.0 => format!("{:.0} s", y / 1_000.0),
        y => format!("{y} ms"),
    };
    // The legend is above the lines.
    panel(&left, "acquisitions per second", 5.0..5e6, &count, |sample| sample.per_second, rows)?;
    panel(&right, "time of waiting, p99", 0.05..5e5, &time, |sample| sample.wait_99, rows)?;
    root.present()?;
    Ok(())
}

fn count(number: &f64) -> String {
    match *number {
        number if number >= 1e6 => format!("{:.0} million", number / 1e6),
        number if number >= 1_000.0 => format!("{:.0},000", number / 1_000.0),
        number => format!("{number:.0}"),
    }
}

fn panel(
    area: &Area<'_>,
    title: &str,
    values: std::ops::Range<f64>,
    label: &dyn Fn(&f64) -> String,
    of: fn(&Sample) -> f64,
    rows: &[&Measured],
) -> Result<(), Box<dyn Error>> {
    let font = ("sans-serif", 14).into_font().color(&INK);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .caption(title, ("sans-serif", 16).into_font().color(&INK))
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(
            (1.7..1_300.0).log_scale().with_key_points(WAITERS.to_vec()),
            values.log_scale(),
        )?;
    chart
        .configure_mesh()
        .bold_line_style(GRID)
        .light_line_style(WHITE)
        .axis_style(INK)
        .x_desc("waiters")
        .y_labels(6)
        .x_label_formatter(&count)
        .y_label_formatter(&label)
        .label_style(font.clone())
        .draw()?;
    for (contender, name, color) in CONTENDERS {
        let at = |row: &&Measured| f64::from(row.cell.waiters);
        let spreads = rows.iter().map(|row| (at(row), row.spread(contender, of)));
        let points: Vec<(f64, f64)> = spreads.clone().map(|(x, y)| (x, y.median)).collect();
        let style = color.stroke_width(2);
        let drawn = chart.draw_series(LineSeries::new(points.clone(), style))?.label(name);
        drawn.legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 22, y)], style));
        // The quartiles.
        let bars = spreads.map(|(x, y)| PathElement::new(vec![(x, y.low), (x, y.high)], color));
        chart.draw_series(bars)?;
        chart.draw_series(points.iter().map(|at| Circle::new(*at, 3, color.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .label_font(font)
        .draw()?;
    Ok(())
}
