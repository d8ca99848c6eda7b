//! What the functions do.

use std::net::IpAddr;
use std::rc::Rc;

use jiff::Timestamp;
use regex::Regex;

use super::error::EvalError;
use super::network::{Cidr, Url, ip};
use super::value::{List, Map, Value};
use super::{format, strings, time};
use crate::admit::quantity::Quantity;

type Outcome<'a> = Result<Value<'a>, EvalError>;

/// What a call costs.
pub(super) fn cost(function: &str, values: &[Value<'_>]) -> u64 {
    let size = |at: usize| values.get(at).map_or(1, Value::size);
    let text = |size: u64| (size / 10).max(1);
    match function {
        "_==_" | "_!=_" => text(size(0).min(size(1))),
        "_+_" => match values.first() {
            Some(Value::String(_) | Value::Bytes(_)) => text(size(0).saturating_add(size(1))),
            _ => 1,
        },
        "@in" => match values.get(1) {
            Some(Value::List(list)) => list.len() as u64,
            _ => 1,
        },
        "contains" | "indexOf" | "lastIndexOf" => text(size(0)).saturating_mul(text(size(1))),
        "matches" | "find" | "findAll" => text(size(0)).saturating_mul((size(1) / 4).max(1)),
        "startsWith" | "endsWith" => text(size(1)),
        "sets.contains" | "sets.intersects" | "sets.equivalent" => size(0).saturating_mul(size(1)).max(1),
        "isSorted" | "sum" | "min" | "max" | "distinct" | "sort" | "flatten" | "slice" => size(0).max(1),
        "size" | "hasValue" | "value" | "orValue" | "or" => 1,
        _ => text(size(0)),
    }
}

/// A value as text, for messages.
pub(super) fn show(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => format::double(*number),
        Value::String(text) => text.to_string(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Duration(duration) => time::show(*duration),
        Value::Timestamp(time) => time.to_string(),
        Value::List(list) => {
            let elements: Vec<String> = list.iter().map(|element| show(&element)).collect();
            format!("[{}]", elements.join(", "))
        }
        Value::Map(map) => {
            let mut entries: Vec<String> =
                map.entries().iter().map(|(key, value)| format!("{}: {}", show(key), show(value))).collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Optional(_) => "optional".to_owned(),
        Value::Type(name) | Value::Format(name) => (*name).to_owned(),
        Value::Url(url) => url.text.clone(),
        Value::Ip(address) => address.to_string(),
        Value::Cidr(network) => format!("{}/{}", network.address, network.prefix),
        Value::Quantity(quantity) => format!("{quantity:?}"),
    }
}

/// A function or an operator.
pub(super) fn function<'a>(name: &str, values: &[Value<'a>], pattern: Option<&Regex>) -> Outcome<'a> {
    use Value::{Bool, Double, Int, List, Map, String};
    Ok(match (name, values) {
        ("_==_", [left, right]) => Bool(left.equals(right)),
        ("_!=_", [left, right]) => Bool(!left.equals(right)),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [left, right]) => match left.order(right) {
            Some(order) => Bool(match name {
                "_<_" => order.is_lt(),
                "_<=_" => order.is_le(),
                "_>_" => order.is_gt(),
                _ => order.is_ge(),
            }),
            None if matches!((left, right), (Double(_), _) | (_, Double(_))) => Bool(false),
            None => return EvalError::overload(name),
        },
        ("@in", [element, List(list)]) => Bool(list.has(element)),
        ("@in", [key, Map(map)]) => Bool(map.get(key).is_some()),
        ("!_", [Bool(value)]) => Bool(!value),
        ("-_", [Int(number)]) => Int(number.checked_neg().ok_or_else(overflow)?),
        ("-_", [Double(number)]) => Double(-number),
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [left, right]) => return arithmetic(name, left, right),
        ("size", [value]) => return size(value),
        ("int" | "uint" | "double" | "string" | "bytes" | "bool" | "timestamp" | "duration", [value]) => {
            return convert(name, value);
        }
        ("dyn", [value]) => value.clone(),
        ("type", [value]) => Value::Type(value.type_name()),
        ("matches", [String(_), String(_)]) => return method(name, values, pattern),
        ("url", [String(text)]) => match Url::parse(text) {
            Some(url) => Value::Url(Rc::new(url)),
            None => {
                return EvalError::failed(format!("URL parse error during conversion from string: {text}"));
            }
        },
        ("isURL", [String(text)]) => Bool(Url::parse(text).is_some()),
        ("ip", [String(text)]) => match ip(text) {
            Some(address) => Value::Ip(address),
            None => {
                return EvalError::failed(format!(
                    "IP Address {text:?} parse error during conversion from string"
                ));
            }
        },
        ("isIP", [String(text)]) => Bool(ip(text).is_some()),
        ("ip.isCanonical", [String(text)]) => match ip(text) {
            Some(address) => Bool(address.to_string() == **text),
            None => {
                return EvalError::failed(format!(
                    "IP Address {text:?} parse error during conversion from string"
                ));
            }
        },
        ("cidr", [String(text)]) => match Cidr::parse(text) {
            Some(network) => Value::Cidr(network),
            None => {
                return EvalError::failed(format!(
                    "network address parse error during conversion from string: {text}"
                ));
            }
        },
        ("isCIDR", [String(text)]) => Bool(Cidr::parse(text).is_some()),
        ("quantity", [String(text)]) => match Quantity::parse(text) {
            Some(quantity) => Value::Quantity(quantity),
            None => return EvalError::failed(crate::schema::QUANTITY_RULE),
        },
        ("isQuantity", [String(text)]) => Bool(Quantity::parse(text).is_some()),
        ("sets.contains", [List(list), List(part)]) => Bool(part.iter().all(|element| list.has(&element))),
        ("sets.intersects", [List(list), List(other)]) => {
            Bool(other.iter().any(|element| list.has(&element)))
        }
        ("sets.equivalent", [List(list), List(other)]) => Bool(
            other.iter().all(|element| list.has(&element)) && list.iter().all(|element| other.has(&element)),
        ),
        ("optional.of", [value]) => Value::some(value.clone()),
        ("optional.ofNonZeroValue", [value]) => {
            if is_zero(value) {
                Value::Optional(None)
            } else {
                Value::some(value.clone())
            }
        }
        ("optional.none", []) => Value::Optional(None),
        ("@optMap", [List(list)]) => Value::Optional(list.get(0).map(Rc::new)),
        ("@optFlatMap", [List(list)]) => list.get(0).unwrap_or(Value::Optional(None)),
        ("format.named", [String(name)]) => match format::named(name) {
            Some(known) => Value::some(Value::Format(known)),
            None => Value::Optional(None),
        },
        (name, []) if name.starts_with("format.") => match format::named(&name["format.".len()..]) {
            Some(known) => Value::Format(known),
            None => return EvalError::overload(name),
        },
        ("strings.quote", [String(text)]) => Value::string(crate::schema::quote(text)),
        ("math.abs", [Int(number)]) => Int(number.checked_abs().ok_or_else(overflow)?),
        ("math.abs", [Double(number)]) => Double(number.abs()),
        ("math.greatest" | "math.least", [List(list)]) => {
            let elements: Vec<Value<'a>> = list.iter().collect();
            return extreme(name, &elements);
        }
        ("math.greatest" | "math.least", all) => return extreme(name, all),
        _ => return EvalError::overload(name),
    })
}

fn extreme<'a>(name: &str, values: &[Value<'a>]) -> Outcome<'a> {
    let mut best: Option<&Value<'a>> = None;
    for value in values {
        let better = match best {
            None => true,
            Some(best) => match value.order(best) {
                Some(order) => {
                    if name == "math.greatest" || name == "max" {
                        order.is_gt()
                    } else {
                        order.is_lt()
                    }
                }
                None => return EvalError::overload(name),
            },
        };
        if better {
            best = Some(value);
        }
    }
    best.cloned().map_or_else(|| EvalError::failed(format!("{name} called on empty list")), Ok)
}

fn overflow() -> EvalError {
    EvalError::Failed("integer overflow".to_owned())
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Optional(None) => true,
        Value::Double(number) => *number == 0.0,
        Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_) => value.size() == 0,
        _ => false,
    }
}

fn size<'a>(value: &Value<'a>) -> Outcome<'a> {
    Ok(Value::Int(match value {
        Value::String(text) => text.chars().count() as i64,
        Value::Bytes(_) | Value::List(_) | Value::Map(_) => value.size() as i64,
        _ => return EvalError::overload("size"),
    }))
}

fn arithmetic<'a>(name: &str, left: &Value<'a>, right: &Value<'a>) -> Outcome<'a> {
    use Value::{Bytes, Double, Duration, Int, List, String, Timestamp, Uint};
    let time = || EvalError::Failed("timestamp overflow".to_owned());
    Ok(match (name, left, right) {
        ("_/_", Int(_), Int(0)) | ("_/_", Uint(_), Uint(0)) => return EvalError::failed("division by zero"),
        ("_%_", Int(_), Int(0)) | ("_%_", Uint(_), Uint(0)) => return EvalError::failed("modulus by zero"),
        (_, Int(one), Int(other)) => Int(match name {
            "_+_" => one.checked_add(*other),
            "_-_" => one.checked_sub(*other),
            "_*_" => one.checked_mul(*other),
            "_/_" => one.checked_div(*other),
            _ => one.checked_rem(*other),
        }
        .ok_or_else(overflow)?),
        (_, Uint(one), Uint(other)) => Uint(
            match name {
                "_+_" => one.checked_add(*other),
                "_-_" => one.checked_sub(*other),
                "_*_" => one.checked_mul(*other),
                "_/_" => one.checked_div(*other),
                _ => one.checked_rem(*other),
            }
            .ok_or_else(overflow)?,
        ),
        ("_+_", Double(one), Double(other)) => Double(one + other),
        ("_-_", Double(one), Double(other)) => Double(one - other),
        ("_*_", Double(one), Double(other)) => Double(one * other),
        ("_/_", Double(one), Double(other)) => Double(one / other),
        ("_+_", String(one), String(other)) => Value::string(format!("{one}{other}")),
        ("_+_", Bytes(one), Bytes(other)) => Bytes([&**one, &**other].concat().into()),
        ("_+_", List(one), List(other)) => Value::list(one.iter().chain(other.iter()).collect()),
        ("_+_", Duration(one), Duration(other)) => Duration(one.checked_add(*other).ok_or_else(overflow)?),
        ("_-_", Duration(one), Duration(other)) => Duration(one.checked_sub(*other).ok_or_else(overflow)?),
        ("_+_", Timestamp(at), Duration(span)) | ("_+_", Duration(span), Timestamp(at)) => {
            Timestamp(at.checked_add(*span).map_err(|_| time())?)
        }
        ("_-_", Timestamp(at), Duration(span)) => Timestamp(at.checked_sub(*span).map_err(|_| time())?),
        ("_-_", Timestamp(one), Timestamp(other)) => Duration(one.duration_since(*other)),
        _ => return EvalError::overload(name),
    })
}

fn convert<'a>(name: &str, value: &Value<'a>) -> Outcome<'a> {
    use Value::{Bool, Bytes, Double, Duration, Int, String, Uint};
    let wrong =
        |text: &str| EvalError::Failed(format!("type conversion error from 'string' to '{name}': {text}"));
    Ok(match (name, value) {
        ("int", Int(_))
        | ("uint", Uint(_))
        | ("double", Double(_))
        | ("string", String(_))
        | ("bool", Bool(_))
        | ("bytes", Bytes(_))
        | ("duration", Duration(_))
        | ("timestamp", Value::Timestamp(_)) => value.clone(),
        ("int", Uint(number)) => Int(i64::try_from(*number).map_err(|_| overflow())?),
        ("int", Double(number)) if number.abs() < 9.2e18 => Int(*number as i64),
        ("int", Double(_)) => return Err(overflow()),
        ("int", String(text)) => Int(text.parse().map_err(|_| wrong(text))?),
        ("int", Value::Timestamp(time)) => Int(time.as_second()),
        ("uint", Int(number)) => Uint(
            u64::try_from(*number).map_err(|_| EvalError::Failed("unsigned integer overflow".to_owned()))?,
        ),
        ("uint", Double(number)) if (0.0..1.8e19).contains(number) => Uint(*number as u64),
        ("uint", String(text)) => Uint(text.parse().map_err(|_| wrong(text))?),
        ("double", Int(number)) => Double(*number as f64),
        ("double", Uint(number)) => Double(*number as f64),
        ("double", String(text)) => Double(text.parse().map_err(|_| wrong(text))?),
        ("bool", String(text)) => Bool(match &**text {
            "true" | "TRUE" | "True" | "t" | "1" => true,
            "false" | "FALSE" | "False" | "f" | "0" => false,
            _ => return Err(wrong(text)),
        }),
        ("string", Bytes(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::string(text),
            Err(_) => return EvalError::failed("invalid UTF-8 in bytes, cannot convert to string"),
        },
        (
            "string",
            Int(_)
            | Uint(_)
            | Double(_)
            | Bool(_)
            | Duration(_)
            | Value::Timestamp(_)
            | Value::Ip(_)
            | Value::Cidr(_)
            | Value::Url(_),
        ) => Value::string(show(value)),
        ("bytes", String(text)) => Bytes(text.as_bytes().into()),
        ("timestamp", String(text)) => Value::Timestamp(text.parse::<Timestamp>().map_err(|_| wrong(text))?),
        ("timestamp", Int(seconds)) => {
            Value::Timestamp(Timestamp::from_second(*seconds).map_err(|_| overflow())?)
        }
        ("duration", String(text)) => Duration(time::duration(text).ok_or_else(|| wrong(text))?),
        ("duration", Int(nanos)) => Duration(jiff::SignedDuration::from_nanos(*nanos)),
        _ => return EvalError::overload(name),
    })
}

/// A method; the first value is what it is called on.
pub(super) fn method<'a>(name: &str, values: &[Value<'a>], pattern: Option<&Regex>) -> Outcome<'a> {
    let Some((target, arguments)) = values.split_first() else { return EvalError::overload(name) };
    match target {
        Value::String(text) => strings::method(name, text, arguments, pattern),
        Value::List(list) => list_method(name, list, arguments),
        Value::Optional(value) => Ok(match (name, value, arguments) {
            ("hasValue", value, []) => Value::Bool(value.is_some()),
            ("value", Some(value), []) => (**value).clone(),
            ("value", None, []) => return EvalError::failed("optional.none() dereference"),
            ("orValue" | "or", Some(value), [_]) => {
                if name == "or" {
                    target.clone()
                } else {
                    (**value).clone()
                }
            }
            ("orValue" | "or", None, [other]) => other.clone(),
            _ => return EvalError::overload(name),
        }),
        Value::Bytes(_) | Value::Map(_) if name == "size" => size(target),
        Value::Timestamp(at) => {
            let zone = match arguments {
                [] => None,
                [Value::String(zone)] => Some(&**zone),
                _ => return EvalError::overload(name),
            };
            time::part(name, *at, zone).map_or_else(
                || EvalError::failed("no such overload or time zone"),
                |part| Ok(Value::Int(part)),
            )
        }
        Value::Duration(span) => Ok(Value::Int(match name {
            "getHours" => span.as_hours(),
            "getMinutes" => span.as_mins(),
            "getSeconds" => span.as_secs(),
            "getMilliseconds" => i64::from(span.subsec_millis()),
            _ => return EvalError::overload(name),
        })),
        Value::Url(url) => Ok(match name {
            "getScheme" => Value::string(url.scheme.as_str()),
            "getHost" => Value::string(url.host.as_str()),
            "getHostname" => Value::string(url.hostname()),
            "getPort" => Value::string(url.port()),
            "getEscapedPath" => Value::string(url.path.as_str()),
            "getQuery" => Value::Map(Map::Made(Rc::new(
                url.parameters()
                    .into_iter()
                    .map(|(name, values)| {
                        (Value::string(name), Value::list(values.into_iter().map(Value::string).collect()))
                    })
                    .collect(),
            ))),
            _ => return EvalError::overload(name),
        }),
        Value::Quantity(quantity) => quantity_method(name, *quantity, arguments),
        Value::Ip(address) => ip_method(name, *address),
        Value::Cidr(network) => cidr_method(name, *network, arguments),
        Value::Format(known) => match (name, arguments) {
            ("validate", [Value::String(text)]) => {
                let errors = format::validate(known, text);
                Ok(if errors.is_empty() {
                    Value::Optional(None)
                } else {
                    Value::some(Value::list(errors.into_iter().map(Value::string).collect()))
                })
            }
            _ => EvalError::overload(name),
        },
        _ => EvalError::overload(name),
    }
}

fn list_method<'a>(name: &str, list: &List<'a>, arguments: &[Value<'a>]) -> Outcome<'a> {
    let elements: Vec<Value<'a>> = list.iter().collect();
    Ok(match (name, arguments) {
        ("size", []) => Value::Int(elements.len() as i64),
        ("isSorted", []) => {
            Value::Bool(elements.windows(2).all(|pair| pair[0].order(&pair[1]).is_some_and(|o| o.is_le())))
        }
        ("sum", []) => {
            let mut sum: Option<Value<'a>> = None;
            for element in &elements {
                sum = Some(match &sum {
                    None => element.clone(),
                    Some(sum) => arithmetic("_+_", sum, element)?,
                });
            }
            sum.unwrap_or(Value::Int(0))
        }
        ("min" | "max", []) => return extreme(name, &elements),
        ("indexOf", [wanted]) => position(elements.iter().position(|element| element.equals(wanted))),
        ("lastIndexOf", [wanted]) => position(elements.iter().rposition(|element| element.equals(wanted))),
        ("join", []) => return strings::join(&elements, ""),
        ("join", [Value::String(between)]) => return strings::join(&elements, between),
        ("first", []) => Value::Optional(elements.first().cloned().map(Rc::new)),
        ("last", []) => Value::Optional(elements.last().cloned().map(Rc::new)),
        ("reverse", []) => Value::list(elements.into_iter().rev().collect()),
        ("distinct", []) => {
            let mut distinct: Vec<Value<'a>> = Vec::new();
            for element in elements {
                if !distinct.iter().any(|known| known.equals(&element)) {
                    distinct.push(element);
                }
            }
            Value::list(distinct)
        }
        ("sort", []) => {
            let mut sorted = elements;
            sorted.sort_by(|one, other| one.order(other).unwrap_or(std::cmp::Ordering::Equal));
            Value::list(sorted)
        }
        ("flatten", []) => {
            let mut flat = Vec::new();
            for element in elements {
                match element {
                    Value::List(inner) => flat.extend(inner.iter()),
                    other => flat.push(other),
                }
            }
            Value::list(flat)
        }
        ("slice", [Value::Int(start), Value::Int(end)]) => {
            let range = usize::try_from(*start).ok().zip(usize::try_from(*end).ok());
            match range.and_then(|(start, end)| elements.get(start..end)) {
                Some(part) => Value::list(part.to_vec()),
                None => {
                    return EvalError::failed(format!(
                        "cannot slice({start}, {end}), list has {} elements",
                        elements.len()
                    ));
                }
            }
        }
        _ => return EvalError::overload(name),
    })
}

fn position<'a>(found: Option<usize>) -> Value<'a> {
    Value::Int(found.map_or(-1, |at| at as i64))
}

fn quantity_method<'a>(name: &str, quantity: Quantity, arguments: &[Value<'a>]) -> Outcome<'a> {
    let too_large = || EvalError::Failed("cannot convert value to integer".to_owned());
    Ok(match (name, arguments) {
        ("isInteger", []) => Value::Bool(quantity.whole().is_some()),
        ("asInteger", []) => Value::Int(quantity.whole().ok_or_else(too_large)?),
        ("asApproximateFloat", []) => Value::Double(quantity.approximate()),
        ("sign", []) => Value::Int(quantity.sign() as i64),
        ("add" | "sub", [other]) => {
            let other = match other {
                Value::Quantity(other) => *other,
                Value::Int(number) => Quantity::from(*number),
                _ => return EvalError::overload(name),
            };
            Value::Quantity(if name == "add" { quantity.plus(other) } else { quantity.minus(other) })
        }
        ("isLessThan", [Value::Quantity(other)]) => Value::Bool(quantity < *other),
        ("isGreaterThan", [Value::Quantity(other)]) => Value::Bool(quantity > *other),
        ("compareTo", [Value::Quantity(other)]) => Value::Int(quantity.cmp(other) as i64),
        _ => return EvalError::overload(name),
    })
}

fn ip_method<'a>(name: &str, address: IpAddr) -> Outcome<'a> {
    let link_local = |six: std::net::Ipv6Addr| six.segments()[0] & 0xffc0 == 0xfe80;
    Ok(match name {
        "family" => Value::Int(if address.is_ipv4() { 4 } else { 6 }),
        "isLoopback" => Value::Bool(address.is_loopback()),
        "isUnspecified" => Value::Bool(address.is_unspecified()),
        "isLinkLocalUnicast" => Value::Bool(match address {
            IpAddr::V4(four) => four.is_link_local(),
            IpAddr::V6(six) => link_local(six),
        }),
        "isLinkLocalMulticast" => Value::Bool(match address {
            IpAddr::V4(four) => four.octets()[..3] == [224, 0, 0],
            IpAddr::V6(six) => six.segments()[0] & 0xff0f == 0xff02,
        }),
        "isGlobalUnicast" => Value::Bool(match address {
            IpAddr::V4(four) => {
                !(four.is_unspecified()
                    || four.is_loopback()
                    || four.is_multicast()
                    || four.is_link_local()
                    || four.is_broadcast())
            }
            IpAddr::V6(six) => {
                !(six.is_unspecified() || six.is_loopback() || six.is_multicast() || link_local(six))
            }
        }),
        _ => return EvalError::overload(name),
    })
}

fn cidr_method<'a>(name: &str, network: Cidr, arguments: &[Value<'a>]) -> Outcome<'a> {
    let unreadable =
        |text: &str| EvalError::Failed(format!("parse error during conversion from string: {text}"));
    Ok(match (name, arguments) {
        ("ip", []) => Value::Ip(network.address),
        ("masked", []) => Value::Cidr(network.masked()),
        ("prefixLength", []) => Value::Int(i64::from(network.prefix)),
        ("containsIP", [Value::Ip(address)]) => Value::Bool(network.contains(*address)),
        ("containsIP", [Value::String(text)]) => {
            Value::Bool(network.contains(ip(text).ok_or_else(|| unreadable(text))?))
        }
        ("containsCIDR", [Value::Cidr(other)]) => Value::Bool(network.contains_network(*other)),
        ("containsCIDR", [Value::String(text)]) => {
            Value::Bool(network.contains_network(Cidr::parse(text).ok_or_else(|| unreadable(text))?))
        }
        _ => return EvalError::overload(name),
    })
}
