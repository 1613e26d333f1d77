//! Write amplification of greedy collection under uniform random writes, in closed form.

/// a / (a + W0(−a·e^−a)) with a = 1 + over-provisioning (Xiang and Kurkoski, 2011; Desnoyers, 2012,
/// has the same limit for large blocks). Infinite without over-provisioning.
pub fn collection_waf(over_provisioning: f64) -> f64 {
    let a = 1.0 + over_provisioning;
    a / (a + lambert(-a * (-a).exp()))
}

/// The principal branch of w·e^w = z for −1/e ≤ z ≤ 0, by Halley's method.
fn lambert(z: f64) -> f64 {
    // The series around the branch point is a good start where the method is slow.
    let p = (2.0 * (1.0 + std::f64::consts::E * z)).max(0.0).sqrt();
    let mut w = -1.0 + p - p * p / 3.0;
    for _ in 0..40 {
        let e = w.exp();
        let f = w * e - z;
        let step = f / (e * (w + 1.0) - (w + 2.0) * f / (2.0 * w + 2.0));
        if !step.is_finite() {
            break;
        }
        w -= step;
        if step.abs() < 1e-15 {
            break;
        }
    }
    w
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_by_hand() {
        for (percent, waf) in [
            (7.0, 7.82),
            (10.0, 5.68),
            (12.6, 4.65),
            (13.0, 4.53),
            (14.0, 4.25),
            (16.7, 3.68),
            (28.0, 2.48),
        ] {
            let ours = collection_waf(percent / 100.0);
            assert!((ours / waf - 1.0).abs() < 0.005, "{percent} %: {ours}");
        }
    }

    #[test]
    fn more_room_wears_less_and_endless_room_not_at_all() {
        let mut before = f64::INFINITY;
        for percent in 1..300 {
            let now = collection_waf(f64::from(percent) / 100.0);
            assert!(now < before && now > 1.0);
            before = now;
        }
        assert!(collection_waf(20.0) < 1.0001);
    }

    #[test]
    fn lambert_solves_its_equation() {
        for x in [-0.36787, -0.35, -0.3, -0.2, -0.1, -0.01, 0.0] {
            let w = lambert(x);
            assert!((w * w.exp() - x).abs() < 1e-10, "{x}: {w}");
            assert!(w >= -1.0);
        }
    }
}
