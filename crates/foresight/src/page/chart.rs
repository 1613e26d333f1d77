//! Charts as SVG that stands in a page: lines, points, ranges, bars.
//!
//! Text and axes have the colour of the text around them (`currentColor`), so that a chart is
//! readable on light and on dark ground. No file and no font is read.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;

/// Colours of series that are told apart on light and on dark ground, and by eyes that see no red.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
];
const INK: RGBColor = RGBColor(0, 0, 0);
const SIZE: (u32, u32) = (720, 380);
const FONT: (&str, i32) = ("sans-serif", 14);

/// How an axis divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps add.
    Linear,
    /// Equal steps multiply: all values are above 0.
    Log,
}

/// An axis: what it shows, with its unit.
#[derive(Clone, Debug)]
pub struct Axis {
    /// As `time to rebuild, hours`.
    pub label: String,
    /// How it divides.
    pub scale: Scale,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: &str) -> Axis {
        Axis {
            label: label.to_owned(),
            scale: Scale::Linear,
        }
    }

    /// A logarithmic one.
    pub fn log(label: &str) -> Axis {
        Axis {
            scale: Scale::Log,
            ..Axis::linear(label)
        }
    }
}

/// How points of a series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Joined by a line.
    Line,
    /// Each for itself: what was measured.
    Points,
}

/// Points of one kind.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its line in the legend.
    pub label: String,
    /// How it is drawn.
    pub kind: Kind,
    /// x and y.
    pub points: Vec<(f64, f64)>,
}

/// Lines and points over two axes.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Its accessible name: what a screen reader says.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Up to six are told apart by colour.
    pub series: Vec<Series>,
}

/// One group of bars.
#[derive(Clone, Debug)]
pub struct Group {
    /// Under it.
    pub label: String,
    /// For each series the range that its bar shows; `None` where there is none.
    pub bars: Vec<Option<(f64, f64)>>,
}

/// Bars in groups: the full bar is the least, the pale part of it what it may be at most.
#[derive(Clone, Debug)]
pub struct Bars {
    /// Its accessible name: what a screen reader says.
    pub title: String,
    /// Upwards, with the unit.
    pub y: String,
    /// Lines of the legend.
    pub series: Vec<String>,
    /// From left to right.
    pub groups: Vec<Group>,
}

/// A chart as SVG; the title is its accessible name.
pub fn chart(of: &Chart) -> String {
    let drawn: Vec<Series> = of.series.iter().map(|s| fitting(s, of)).collect();
    let all = || drawn.iter().flat_map(|s| &s.points);
    let x = bounds(all().map(|p| p.0), of.x.scale);
    let y = bounds(all().map(|p| p.1), of.y.scale);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let x = Axial {
            of: of.x.scale,
            range: x,
        };
        let y = Axial {
            of: of.y.scale,
            range: y,
        };
        let mut builder = ChartBuilder::on(&root);
        builder
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(72);
        let done = builder.build_cartesian_2d(x, y).and_then(|mut area| {
            area.configure_mesh()
                .disable_x_mesh()
                .bold_line_style(INK.mix(0.15))
                .light_line_style(TRANSPARENT)
                .axis_style(INK.mix(0.6))
                .label_style(FONT)
                .x_desc(of.x.label.as_str())
                .y_desc(of.y.label.as_str())
                .draw()?;
            for (n, series) in drawn.iter().enumerate() {
                let colour = COLOURS[n % COLOURS.len()];
                let points = series.points.iter().copied();
                let drawn = match series.kind {
                    Kind::Line => {
                        area.draw_series(LineSeries::new(points, colour.stroke_width(2)))?
                    }
                    Kind::Points => area
                        .draw_series(points.map(|point| Circle::new(point, 4, colour.filled())))?,
                };
                drawn.label(series.label.as_str()).legend(move |(x, y)| {
                    Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled())
                });
            }
            if drawn.len() > 1 {
                area.configure_series_labels()
                    .border_style(INK.mix(0.2))
                    .label_font(FONT)
                    .position(free_corner(&drawn))
                    .draw()?;
            }
            root.present()
        });
        done.expect("a string takes everything");
    }
    finished(&svg, &of.title)
}

/// Bars as SVG; the title is its accessible name.
pub fn bars(of: &Bars) -> String {
    let most = of.groups.iter().flat_map(|g| &g.bars).flatten();
    let most = most.map(|b| b.1).fold(0.0, f64::max);
    let most = if most > 0.0 { most * 1.12 } else { 1.0 };
    let groups = of.groups.len().max(1);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let mut builder = ChartBuilder::on(&root);
        builder
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(72);
        let x = 0.0..groups as f64;
        let done = builder
            .build_cartesian_2d(x, 0.0..most)
            .and_then(|mut area| {
                let label = |at: &f64| {
                    let group = of.groups.get(*at as usize);
                    group
                        .filter(|_| (at.fract() - 0.5).abs() < 0.01)
                        .map_or(String::new(), |g| g.label.clone())
                };
                area.configure_mesh()
                    .disable_x_mesh()
                    .bold_line_style(INK.mix(0.15))
                    .light_line_style(TRANSPARENT)
                    .axis_style(INK.mix(0.6))
                    .label_style(FONT)
                    .x_labels(2 * groups + 1)
                    .x_label_formatter(&label)
                    .y_label_formatter(&|v| short(*v))
                    .y_desc(of.y.as_str())
                    .draw()?;
                let width = 0.8 / of.series.len().max(1) as f64;
                for (n, name) in of.series.iter().enumerate() {
                    let colour = COLOURS[n % COLOURS.len()];
                    let mut rectangles = Vec::new();
                    for (at, group) in of.groups.iter().enumerate() {
                        let Some(Some((low, high))) = group.bars.get(n) else {
                            continue;
                        };
                        let left = at as f64 + 0.1 + n as f64 * width;
                        let right = left + width * 0.92;
                        rectangles.push(Rectangle::new(
                            [(left, 0.0), (right, *low)],
                            colour.filled(),
                        ));
                        let pale = colour.mix(0.35).filled();
                        rectangles.push(Rectangle::new([(left, *low), (right, *high)], pale));
                    }
                    area.draw_series(rectangles)?
                        .label(name.as_str())
                        .legend(move |(x, y)| {
                            Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled())
                        });
                }
                if of.series.len() > 1 {
                    area.configure_series_labels()
                        .border_style(INK.mix(0.2))
                        .label_font(FONT)
                        .position(SeriesLabelPosition::UpperRight)
                        .draw()?;
                }
                root.present()
            });
        done.expect("a string takes everything");
    }
    finished(&svg, &of.title)
}

/// Where lines leave room for the legend: above their end if they fall, above their start if they
/// rise.
fn free_corner(series: &[Series]) -> SeriesLabelPosition {
    let rise = |s: &Series| Some(s.points.last()?.1 - s.points.first()?.1);
    match series.iter().filter_map(rise).sum::<f64>() > 0.0 {
        true => SeriesLabelPosition::UpperLeft,
        false => SeriesLabelPosition::UpperRight,
    }
}

/// Only points that the axes have a place for.
fn fitting(series: &Series, of: &Chart) -> Series {
    let fits =
        |value: f64, axis: &Axis| value.is_finite() && (axis.scale == Scale::Linear || value > 0.0);
    Series {
        points: series
            .points
            .iter()
            .copied()
            .filter(|(x, y)| fits(*x, &of.x) && fits(*y, &of.y))
            .collect(),
        ..series.clone()
    }
}

/// Room for all values, and never none.
fn bounds(values: impl Iterator<Item = f64>, scale: Scale) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
        (low.min(v), high.max(v))
    });
    match scale {
        _ if low > high => (0.1, 1.0),
        Scale::Linear if low == high => (0.0, if high > 0.0 { high * 1.2 } else { 1.0 }),
        Scale::Linear => (low.min(0.0), high + (high - low.min(0.0)) * 0.08),
        Scale::Log => (low / 1.3, high * 1.3),
    }
}

/// An axis of plotters, linear or logarithmic.
struct Axial {
    of: Scale,
    range: (f64, f64),
}

impl Ranged for Axial {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let (low, high) = self.range;
        let share = match self.of {
            Scale::Linear => (value - low) / (high - low),
            Scale::Log => (value / low).ln() / (high / low).ln(),
        };
        limit.0 + ((f64::from(limit.1 - limit.0)) * share).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        ticks(self.of, self.range, hint.max_num_points().min(9))
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.range.0..self.range.1
    }
}

impl ValueFormatter<f64> for Axial {
    fn format_ext(&self, value: &f64) -> String {
        short(*value)
    }
}

/// Round values within a range: steps of 1, 2 or 5, or powers of ten.
fn ticks(of: Scale, (low, high): (f64, f64), most: usize) -> Vec<f64> {
    match of {
        Scale::Linear => {
            let rough = (high - low) / most.max(1) as f64;
            let power = 10f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * power);
            let step = step.into_iter().find(|s| *s >= rough).unwrap_or(rough);
            let first = (low / step).ceil() as i64;
            let last = (high / step).floor() as i64;
            (first..=last).map(|n| n as f64 * step).collect()
        }
        Scale::Log => {
            let decades = (high / low).log10();
            let parts: &[f64] = match decades {
                few if few < 1.5 => &[1.0, 2.0, 3.0, 5.0, 7.0],
                few if few < 3.0 => &[1.0, 3.0],
                _ => &[1.0],
            };
            let skip = (decades / most.max(1) as f64).ceil().max(1.0) as usize;
            let first = low.log10().floor() as i32;
            let powers = (first..=high.log10().ceil() as i32).step_by(skip);
            let all = powers.flat_map(|p| parts.iter().map(move |n| n * 10f64.powi(p)));
            all.filter(|v| (low..=high).contains(v)).collect()
        }
    }
}

/// A number with a prefix: 1.5 k, 20 M, 3e-9.
fn short(value: f64) -> String {
    let size = value.abs();
    let (scaled, prefix) = match size {
        0.0 => return "0".to_owned(),
        s if !(1e-3..1e15).contains(&s) => return format!("{value:.0e}"),
        s if s >= 1e12 => (value / 1e12, " T"),
        s if s >= 1e9 => (value / 1e9, " G"),
        s if s >= 1e6 => (value / 1e6, " M"),
        s if s >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let digits = format!("{scaled:.3}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}{prefix}")
}

/// Ink becomes the colour of the text around it, and the picture gets a name.
fn finished(svg: &str, title: &str) -> String {
    let name = escaped(title);
    let svg = svg.replace("#000000", "currentColor");
    let (width, height) = SIZE;
    svg.replacen(
        &format!("<svg width=\"{width}\" height=\"{height}\""),
        &format!("<svg role=\"img\" aria-label=\"{name}\""),
        1,
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(points: Vec<(f64, f64)>, scale: Scale) -> Chart {
        Chart {
            title: "a \"b\" & <c>".to_owned(),
            x: Axis {
                label: "hours".to_owned(),
                scale,
            },
            y: Axis::linear("nines"),
            series: vec![
                Series {
                    label: "RAID 5".to_owned(),
                    kind: Kind::Line,
                    points: points.clone(),
                },
                Series {
                    label: "measured".to_owned(),
                    kind: Kind::Points,
                    points,
                },
            ],
        }
    }

    #[test]
    fn a_chart_has_name_labels_and_the_ink_of_the_page() {
        let svg = chart(&lines(
            vec![(1.0, 2.0), (10.0, 4.0), (f64::NAN, 1.0)],
            Scale::Log,
        ));
        for part in [
            "role=\"img\"",
            "a &quot;b&quot; &amp; &lt;c>",
            "hours",
            "nines",
            "RAID 5",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        assert!(svg.contains("currentColor") && !svg.contains("#000000"));
        assert!(svg.contains("<polyline") && svg.matches("<circle").count() == 2);
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn a_chart_of_nothing_and_of_one_value_is_drawn() {
        for points in [vec![], vec![(5.0, 5.0)], vec![(0.0, 0.0), (-1.0, 3.0)]] {
            for scale in [Scale::Linear, Scale::Log] {
                assert!(chart(&lines(points.clone(), scale)).contains("</svg>"));
            }
        }
    }

    #[test]
    fn bars_show_least_and_most() {
        let group = |label: &str, bars: Vec<Option<(f64, f64)>>| Group {
            label: label.to_owned(),
            bars,
        };
        let svg = bars(&Bars {
            title: "rates".to_owned(),
            y: "GB/s".to_owned(),
            series: vec!["optimal".to_owned(), "degraded".to_owned()],
            groups: vec![
                group("seq-read", vec![Some((1.0, 2.0)), Some((0.5, 1.0))]),
                group("seq-write", vec![Some((1.0, 1.0)), None]),
            ],
        });
        for part in [
            "seq-read",
            "seq-write",
            "degraded",
            "GB/s",
            "opacity=\"0.35\"",
        ] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (12.5, "12.5"),
            (25_000.0, "25 k"),
            (1.5e9, "1.5 G"),
            (3e-9, "3e-9"),
        ] {
            assert_eq!(short(value), text);
        }
        assert_eq!(
            ticks(Scale::Linear, (0.0, 10.0), 5),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        );
        assert_eq!(ticks(Scale::Log, (0.5, 5e6), 9).len(), 7);
    }
}
