//! Text out of values, and formats that text can be checked against.

use super::error::EvalError;
use super::strings::shown;
use super::value::Value;

/// Fills `%s`, `%d`, `%f`, `%e`, `%x`, `%X`, `%o` and `%b` of a text.
pub(super) fn text(pattern: &str, values: &[Value<'_>]) -> Result<String, EvalError> {
    let mut out = String::new();
    let mut characters = pattern.chars().peekable();
    let mut values = values.iter();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        let mut precision = None;
        if characters.peek() == Some(&'.') {
            characters.next();
            let mut digits = String::new();
            while let Some(digit) = characters.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            precision = digits.parse::<usize>().ok().filter(|precision| *precision <= 100);
        }
        let Some(verb) = characters.next() else {
            return EvalError::failed("unexpected end of format string");
        };
        if verb == '%' {
            out.push('%');
            continue;
        }
        let Some(value) = values.next() else {
            return EvalError::failed("index out of range: too few arguments");
        };
        out.push_str(&verb_text(verb, precision, value)?);
    }
    Ok(out)
}

fn verb_text(verb: char, precision: Option<usize>, value: &Value<'_>) -> Result<String, EvalError> {
    let number = match value {
        Value::Int(number) => Some(i128::from(*number)),
        Value::Uint(number) => Some(i128::from(*number)),
        _ => None,
    };
    let float = match value {
        Value::Double(number) => Some(*number),
        Value::Int(number) => Some(*number as f64),
        Value::Uint(number) => Some(*number as f64),
        _ => None,
    };
    let signed = |number: i128, digits: String| if number < 0 { format!("-{digits}") } else { digits };
    Ok(match (verb, number, float, value) {
        ('s', _, _, value) => shown(value),
        ('d', Some(number), _, _) => number.to_string(),
        ('d', None, Some(float), _) => double(float),
        ('f', _, Some(float), _) => format!("{float:.*}", precision.unwrap_or(6)),
        ('e', _, Some(float), _) => exponent(float, precision.unwrap_or(6)),
        ('b', _, _, Value::Bool(flag)) => u8::from(*flag).to_string(),
        ('b', Some(number), _, _) => signed(number, format!("{:b}", number.unsigned_abs())),
        ('o', Some(number), _, _) => signed(number, format!("{:o}", number.unsigned_abs())),
        ('x', Some(number), _, _) => signed(number, format!("{:x}", number.unsigned_abs())),
        ('X', Some(number), _, _) => signed(number, format!("{:X}", number.unsigned_abs())),
        ('x', _, _, Value::String(text)) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
        ('X', _, _, Value::String(text)) => text.bytes().map(|byte| format!("{byte:02X}")).collect(),
        ('x', _, _, Value::Bytes(bytes)) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        _ => {
            return EvalError::failed(format!(
                "could not parse formatting clause: unrecognized formatting clause {verb:?}"
            ));
        }
    })
}

fn exponent(number: f64, precision: usize) -> String {
    let plain = format!("{number:.precision$e}");
    match plain.split_once('e') {
        Some((mantissa, power)) => {
            let (sign, digits) = power.strip_prefix('-').map_or(('+', power), |digits| ('-', digits));
            format!("{mantissa}e{sign}{digits:0>2}")
        }
        None => plain,
    }
}

/// A double as text: whole ones without a fraction.
pub(super) fn double(number: f64) -> String {
    if number.is_nan() {
        "NaN".to_owned()
    } else if number.is_infinite() {
        if number > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() }
    } else if number != 0.0 && (number.abs() >= 1e21 || number.abs() < 1e-6) {
        let shortest = format!("{number:e}");
        match shortest.split_once('e') {
            Some((mantissa, power)) => {
                let (sign, digits) = power.strip_prefix('-').map_or(('+', power), |digits| ('-', digits));
                format!("{mantissa}e{sign}{digits:0>2}")
            }
            None => shortest,
        }
    } else {
        number.to_string()
    }
}

/// A format that Kubernetes has a name for.
pub(super) fn named(name: &str) -> Option<&'static str> {
    const NAMES: [&str; 10] = [
        "dns1123Label",
        "dns1123Subdomain",
        "dns1035Label",
        "qualifiedName",
        "labelValue",
        "uri",
        "uuid",
        "byte",
        "date",
        "datetime",
    ];
    NAMES.into_iter().find(|known| *known == name)
}

/// What is wrong with a text that should have a format.
pub(super) fn validate(format: &str, text: &str) -> Vec<String> {
    let fits = |pattern: &str, longest: usize| {
        text.len() <= longest && regex::Regex::new(pattern).is_ok_and(|regex| regex.is_match(text))
    };
    let label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
    let value = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
    let fine = match format {
        "dns1123Label" => fits(&format!("^{label}$"), 63),
        "dns1123Subdomain" => fits(&format!(r"^{label}(\.{label})*$"), 253),
        "dns1035Label" => fits("^[a-z]([-a-z0-9]*[a-z0-9])?$", 63),
        "labelValue" => fits(&format!("^{value}$"), 63),
        "qualifiedName" => {
            let (prefix, name) =
                text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
            let name_fits = !name.is_empty()
                && name.len() <= 63
                && regex::Regex::new(&format!("^{value}$")).is_ok_and(|regex| regex.is_match(name));
            name_fits && prefix.is_none_or(|prefix| validate("dns1123Subdomain", prefix).is_empty())
        }
        "uri" => super::network::Url::parse(text).is_some(),
        other => crate::schema::has_format(other, text),
    };
    if fine { Vec::new() } else { vec![format!("must be a valid {format}")] }
}
