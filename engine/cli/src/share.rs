//! Shares that were counted, and what they are worth.

/// A count out of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) count: u64,
    pub(crate) of: u64,
}

/// The quantile of the normal distribution that leaves 2.5 % on each side.
const Z: f64 = 1.959_963_984_540_054;
/// More sessions than anybody tests with.
const SESSIONS_MAX: u64 = 1_000_000;

impl Share {
    pub(crate) fn new(count: u64, of: u64) -> Share {
        Share { count, of }
    }

    /// The share; 0 of nothing.
    pub(crate) fn value(self) -> f64 {
        if self.of == 0 { 0.0 } else { self.count as f64 / self.of as f64 }
    }

    /// Wilson's score interval at 95 %.
    pub(crate) fn interval(self) -> (f64, f64) {
        if self.of == 0 {
            return (0.0, 1.0);
        }
        let (n, p) = (self.of as f64, self.value());
        let middle = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        let low = if self.count == 0 { 0.0 } else { (middle - half) / scale };
        let high = if self.count == self.of { 1.0 } else { (middle + half) / scale };
        (low.max(0.0), high.min(1.0))
    }

    /// Sessions that show it with 95 % probability, if each is hit by itself; `None` where no number up to a million does.
    pub(crate) fn sessions_to_see(self) -> Option<u64> {
        let mut unseen = 1.0;
        (1..=SESSIONS_MAX).find(|_| {
            unseen *= 1.0 - self.value();
            unseen <= 0.05
        })
    }

    /// `12 of 80, 8.8-24.3 %`, or `0 of 0`.
    pub(crate) fn text(self) -> String {
        let (low, high) = self.interval();
        match self.of {
            0 => "0 of 0".to_owned(),
            _ => format!("{} of {}, {:.1}-{:.1} %", self.count, self.of, low * 100.0, high * 100.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_wilson() {
        // Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        let table = [
            ((81, 263), (0.2553, 0.3662)),
            ((15, 148), (0.0624, 0.1605)),
            ((0, 20), (0.0, 0.1611)),
            ((1, 29), (0.0061, 0.1718)),
        ];
        for ((count, of), (low, high)) in table {
            let found = Share::new(count, of).interval();
            assert!((found.0 - low).abs() < 5e-5 && (found.1 - high).abs() < 5e-5, "{count} of {of}: {found:?}");
        }
        assert_eq!(Share::new(20, 20).interval().1, 1.0);
        assert_eq!(Share::new(0, 0).interval(), (0.0, 1.0));
    }

    #[test]
    fn a_rare_thing_is_seen_in_enough_sessions() {
        assert_eq!(Share::new(1, 1).sessions_to_see(), Some(1));
        assert_eq!(Share::new(1, 2).sessions_to_see(), Some(5));
        assert_eq!(Share::new(0, 9).sessions_to_see(), None);
        let share = Share::new(3, 100);
        let sessions = share.sessions_to_see().expect("some number does");
        // The least n with 0.97^n <= 0.05.
        assert_eq!(sessions, 99);
    }
}
