//! When a load is in steady state: SNIA's Solid State Storage Performance Test Specification.
//!
//! Five rounds in a row are steady if the largest and the smallest differ by at most 20 % of their
//! mean, and the line of least squares through them rises or falls by at most 10 % of it from the
//! first round to the last.

/// Rounds that are looked at.
pub const WINDOW: usize = 5;
/// The largest minus the smallest, as a share of the mean.
const EXCURSION: f64 = 0.20;
/// The line's rise over the window, as a share of the mean.
const SLOPE: f64 = 0.10;

/// Whether the last rounds are steady.
pub fn is_steady(rounds: &[f64]) -> bool {
    let Some(window) = rounds.len().checked_sub(WINDOW).map(|from| &rounds[from..]) else {
        return false;
    };
    let count = WINDOW as f64;
    let mean = window.iter().sum::<f64>() / count;
    if mean <= 0.0 {
        return false;
    }
    let most = window.iter().copied().fold(f64::MIN, f64::max);
    let least = window.iter().copied().fold(f64::MAX, f64::min);
    let middle = (count - 1.0) / 2.0;
    let (mut across, mut along) = (0.0, 0.0);
    for (at, value) in window.iter().enumerate() {
        let x = at as f64 - middle;
        across += x * (value - mean);
        along += x * x;
    }
    let rise = (across / along).abs() * (count - 1.0);
    most - least <= EXCURSION * mean && rise <= SLOPE * mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_rounds_within_the_rule_are_steady_and_others_are_not() {
        assert!(!is_steady(&[100.0; 4]));
        assert!(is_steady(&[100.0; 5]));
        // What was before the window does not count.
        assert!(is_steady(&[900.0, 100.0, 101.0, 99.0, 100.0, 100.0]));
        // 21 % apart, without a slope.
        assert!(!is_steady(&[100.0, 90.0, 111.0, 90.0, 100.0]));
        // 12 % apart, all of it slope.
        assert!(!is_steady(&[94.0, 97.0, 100.0, 103.0, 106.0]));
        assert!(is_steady(&[96.0, 98.0, 100.0, 102.0, 104.0]));
        assert!(!is_steady(&[0.0; 5]));
    }
}
