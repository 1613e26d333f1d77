//! Pages: charts as SVG, and a plan as one HTML file without anything from elsewhere.

pub mod chart;
