//! Pages: figures as words, charts as SVG, and plans as one HTML file without anything from
//! elsewhere.

pub mod chart;
mod html;
mod simulated;
pub mod words;

pub use html::page;
