//! Amounts of a resource as Kubernetes writes them: `100m`, `1.5`, `128Mi`, `2e3`.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// An amount in thousandths, the finest step a scheduler needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Milli(pub(crate) i128);

impl std::ops::AddAssign for Milli {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.saturating_add(other.0);
    }
}

/// Reads a quantity. What is no quantity is `None`; the API server lets none of those in.
pub(crate) fn milli(quantity: &Quantity) -> Option<Milli> {
    let text = quantity.0.trim();
    let digits =
        text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let (numerator, denominator): (i128, i128) = match suffix {
        "n" => (1, 1_000_000),
        "u" => (1, 1_000),
        "m" => (1, 1),
        "" => (1_000, 1),
        "k" => (1_000_000, 1),
        "M" => (1_000_000_000, 1),
        "G" => (1_000_000_000_000, 1),
        "T" => (1_000_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000_000, 1),
        "Ki" => (1_000 << 10, 1),
        "Mi" => (1_000 << 20, 1),
        "Gi" => (1_000 << 30, 1),
        "Ti" => (1_000 << 40, 1),
        "Pi" => (1_000 << 50, 1),
        "Ei" => (1_000 << 60, 1),
        exponent => {
            let power: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let scale = 10_i128.checked_pow(power.unsigned_abs().min(30))?;
            if power < 0 { (1_000, scale) } else { (1_000_i128.checked_mul(scale)?, 1) }
        }
    };
    let (sign, number) = match number.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction = &fraction[..fraction.len().min(9)];
    let places = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    let fraction: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let scaled = whole.checked_mul(places)?.checked_add(fraction)?.checked_mul(numerator)?;
    let divisor = places.checked_mul(denominator)?;
    // Requests round up: half a unit wanted is a unit taken.
    Some(Milli(sign * scaled.checked_add(divisor - 1)?.div_euclid(divisor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_every_notation() {
        let cases = [
            ("100m", Some(100)),
            ("1", Some(1_000)),
            ("1.5", Some(1_500)),
            (".5", Some(500)),
            ("-1", Some(-1_000)),
            ("128Mi", Some(128 * 1024 * 1024 * 1_000)),
            ("2k", Some(2_000_000)),
            ("2e3", Some(2_000_000)),
            ("2E-3", Some(2)),
            ("1u", Some(1)),
            ("", None),
            ("Mi", None),
            ("1x", None),
            ("1.2.3", None),
        ];
        for (text, expected) in cases {
            assert_eq!(milli(&Quantity(text.into())).map(|m| m.0), expected, "{text}");
        }
    }
}
