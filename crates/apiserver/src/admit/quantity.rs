//! Resource quantities: `500m`, `1Gi`, `1e3`.

use std::cmp::Ordering;

/// An exact quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quantity {
    /// In units of 10⁻⁹.
    nanos: i128,
}

/// Which suffixes a quantity is written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notation {
    /// `m`, `k`, `M`
    Decimal,
    /// `Ki`, `Mi`
    Binary,
}

impl Quantity {
    /// Reads a quantity; nothing when it is none. Rounds up below 10⁻⁹, as Kubernetes does.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || number.len() > 30 {
            return None;
        }
        let (factor, exponent) = unit(suffix)?;
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        // value = digits × 10^(9 + exponent − fraction) × factor, in nanos
        let power = 9 + exponent - i32::try_from(fraction.len()).ok()?;
        let scaled = digits.checked_mul(factor)?;
        let nanos = match u32::try_from(power) {
            Ok(power) => scaled.checked_mul(10i128.checked_pow(power)?)?,
            Err(_) => {
                let divisor = 10i128.checked_pow(power.unsigned_abs())?;
                scaled / divisor + i128::from(scaled % divisor != 0)
            }
        };
        Some(Self { nanos: if negative { -nanos } else { nanos } })
    }

    /// How it is written.
    pub(crate) fn text(self, notation: Notation) -> String {
        let bytes = self.nanos / UNIT;
        let text = match notation {
            Notation::Binary if self.nanos % UNIT == 0 && bytes % 1024 == 0 => format!("{}Ki", bytes / 1024),
            _ => format!("{}n", self.nanos),
        };
        crate::schema::canonical_quantity(&text).unwrap_or(text)
    }

    /// The number, where it is a whole one that fits.
    pub(crate) fn whole(self) -> Option<i64> {
        (self.nanos % UNIT == 0).then(|| i64::try_from(self.nanos / UNIT).ok()).flatten()
    }

    /// About what number it is.
    pub(crate) fn approximate(self) -> f64 {
        self.nanos as f64 / UNIT as f64
    }

    /// The sum, as large as it can be.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_add(other.nanos) }
    }

    /// The difference, as large as it can be.
    pub(crate) fn minus(self, other: Self) -> Self {
        Self { nanos: self.nanos.saturating_sub(other.nanos) }
    }

    /// Compares with zero.
    pub(crate) fn sign(self) -> Ordering {
        self.nanos.cmp(&0)
    }
}

/// One, in units of 10⁻⁹.
const UNIT: i128 = 1_000_000_000;

impl From<i64> for Quantity {
    fn from(number: i64) -> Self {
        Self { nanos: i128::from(number) * UNIT }
    }
}

/// Factor and power of ten of a suffix.
fn unit(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let exponent: i32 = exponent.strip_prefix('+').unwrap_or(exponent).parse().ok()?;
            (1, (-30..=18).contains(&exponent).then_some(exponent)?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_the_same_size_are_equal() {
        for (one, other) in [
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1000", "1k"),
            ("0.0", "0"),
            ("1E3", "1e3"),
            ("1.5Gi", "1536Mi"),
            ("0.1n", "1n"),
        ] {
            assert_eq!(Quantity::parse(one), Quantity::parse(other), "{one} {other}");
        }
        for bad in ["", "lots", "1.2.3", "1GiB", "1 Gi", ".", "--1", "1e99"] {
            assert_eq!(Quantity::parse(bad), None, "{bad}");
        }
        let sum = |text: &str, notation| Quantity::parse(text).map(|quantity| quantity.text(notation));
        for (given, binary, decimal) in [("1536Mi", "1536Mi", "1610612736"), ("1.5", "1500m", "1500m")] {
            assert_eq!(sum(given, Notation::Binary).as_deref(), Some(binary));
            assert_eq!(sum(given, Notation::Decimal).as_deref(), Some(decimal));
        }
        assert!(Quantity::parse("-1").is_some_and(|quantity| quantity.sign().is_lt()));
    }
}
