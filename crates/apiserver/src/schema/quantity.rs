//! Resource quantities: `500m`, `1Gi`, `1e3`.

/// What Kubernetes says of text that is no quantity.
pub(crate) const RULE: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// How the suffix of a quantity is chosen; a quantity keeps the family in which it was written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    /// `m`, `k`, `M`, …
    Decimal,
    /// `Ki`, `Mi`, …
    Binary,
    /// `e3`, …
    Exponent,
}

/// The one way in which Kubernetes writes this quantity: the largest suffix that needs no
/// fraction. `None` where the text is no quantity.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits =
        rest.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(digits);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (family, power) = read_suffix(suffix)?;
    let mantissa: i128 = format!("{whole}{fraction}")
        .trim_start_matches('0')
        .parse()
        .or_else(|_| {
            // Nothing but zeros is left empty by the trimming.
            if format!("{whole}{fraction}").bytes().all(|byte| byte == b'0') { Ok(0) } else { Err(()) }
        })
        .ok()?;
    let scale = u32::try_from(fraction.len()).ok()?;
    // The value in thousand-millionths, rounded up as Kubernetes does.
    let nano = match family {
        Family::Binary => {
            let shifted = mantissa.checked_mul(1_i128.checked_shl(u32::try_from(power).ok()?)?)?;
            divide_up(shifted.checked_mul(1_000_000_000)?, 10_i128.checked_pow(scale)?)
        }
        Family::Decimal | Family::Exponent => {
            let exponent = power + 9 - i32::try_from(scale).ok()?;
            if exponent >= 0 {
                mantissa.checked_mul(10_i128.checked_pow(exponent.unsigned_abs())?)?
            } else {
                divide_up(mantissa, 10_i128.checked_pow(exponent.unsigned_abs())?)
            }
        }
    };
    let sign = if negative && nano != 0 { "-" } else { "" };
    Some(format!("{sign}{}", write(nano, family)))
}

fn read_suffix(suffix: &str) -> Option<(Family, i32)> {
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    if let Some(at) = decimal.iter().position(|name| *name == suffix) {
        return Some((Family::Decimal, i32::try_from(at).ok()? * 3 - 9));
    }
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(at) = binary.iter().position(|name| *name == suffix) {
        return Some((Family::Binary, (i32::try_from(at).ok()? + 1) * 10));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (-30..=30).contains(&exponent).then_some((Family::Exponent, exponent))
}

fn write(nano: i128, family: Family) -> String {
    const ONE: i128 = 1_000_000_000;
    if nano == 0 {
        return "0".to_owned();
    }
    if family == Family::Binary && nano % ONE == 0 {
        let value = nano / ONE;
        // Small values have no binary suffix; larger ones the largest that divides them.
        let mut shifted = value;
        let mut name = "";
        if value >= 1024 {
            for suffix in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
                if shifted % 1024 != 0 {
                    break;
                }
                shifted /= 1024;
                name = suffix;
            }
        }
        return format!("{shifted}{name}");
    }
    let mut value = nano;
    let mut steps = 0;
    while value % 1000 == 0 && steps < 9 {
        value /= 1000;
        steps += 1;
    }
    if family == Family::Exponent {
        let power = steps * 3 - 9;
        return if power == 0 { value.to_string() } else { format!("{value}e{power}") };
    }
    let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][usize::try_from(steps).unwrap_or(3)];
    format!("{value}{suffix}")
}

fn divide_up(value: i128, by: i128) -> i128 {
    value / by + i128::from(value % by != 0)
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn quantities_are_written_in_one_way() {
        for (given, expected) in [
            ("0", "0"),
            ("0.0", "0"),
            ("1", "1"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("500m", "500m"),
            ("1.5", "1500m"),
            ("100m", "100m"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("1024Mi", "1Gi"),
            ("1Gi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("128Mi", "128Mi"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1E", "1E"),
            ("1000k", "1M"),
            ("-1", "-1"),
            ("+5", "5"),
            (".5", "500m"),
            ("5.", "5"),
            ("1n", "1n"),
            ("0.1n", "1n"),
            ("12e6", "12e6"),
            ("1500Ki", "1500Ki"),
            ("007", "7"),
        ] {
            assert_eq!(canonical(given).as_deref(), Some(expected), "{given}");
        }
        for given in [
            "",
            "x",
            "1x",
            "1.2.3",
            "-",
            "1 Gi",
            "1e",
            "Ki",
            "1mm",
            "99999999999999999999999999999999999999999E",
        ] {
            assert_eq!(canonical(given), None, "{given:?}");
        }
    }
}
