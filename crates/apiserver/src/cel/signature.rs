//! The functions: which types they take and give, and what they cost at most.

use std::rc::Rc;

use super::types::Type;

/// How a function is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checked {
    /// `function(a, b)`, also operators.
    Function,
    /// `a.function(b)`.
    Method,
}

pub(super) const URL: &str = "kubernetes.URL";
pub(super) const IP: &str = "net.IP";
pub(super) const CIDR: &str = "net.CIDR";
pub(super) const QUANTITY: &str = "kubernetes.Quantity";
pub(super) const FORMAT: &str = "kubernetes.NamedFormat";

/// Every function by name, for errors that tell a wrong argument from an unknown function.
const FUNCTIONS: &str = " _+_ _-_ _*_ _/_ _%_ _==_ _!=_ _<_ _<=_ _>_ _>=_ @in !_ -_ size int uint double string bytes \
    bool dyn type timestamp duration matches url isURL ip isIP cidr isCIDR quantity isQuantity sets.contains \
    sets.intersects sets.equivalent ip.isCanonical optional.of optional.none optional.ofNonZeroValue @optMap \
    @optFlatMap format.named format.dns1123Label format.dns1123Subdomain format.dns1035Label format.qualifiedName \
    format.labelValue format.uri format.uuid format.byte format.date format.datetime strings.quote math.greatest \
    math.least math.abs ";
const METHODS: &str = " size contains startsWith endsWith matches charAt indexOf lastIndexOf lowerAscii upperAscii \
    replace split substring trim join format find findAll isSorted sum min max hasValue value orValue or getScheme \
    getHost getHostname getPort getEscapedPath getQuery isInteger asInteger asApproximateFloat sign add sub \
    isLessThan isGreaterThan compareTo family isLoopback isGlobalUnicast isLinkLocalMulticast isLinkLocalUnicast \
    isUnspecified containsIP containsCIDR ip masked prefixLength validate getFullYear getMonth getDate \
    getDayOfMonth getDayOfWeek getDayOfYear getHours getMinutes getSeconds getMilliseconds slice flatten distinct \
    reverse sort first last ";

/// What can be asked of a time.
const TIME_PARTS: [&str; 10] = [
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
];

pub(super) fn is_known(function: &str, shape: Checked) -> bool {
    let names = match shape {
        Checked::Function => FUNCTIONS,
        Checked::Method => METHODS,
    };
    names.split(' ').any(|known| !known.is_empty() && known == function)
}

/// A tenth of a size, at least one: what it costs to go through text.
fn text(size: u64) -> u64 {
    (size / 10).max(1)
}

fn string<'s>() -> Type<'s> {
    Type::String(3 << 20)
}

fn is_number(kind: &Type<'_>) -> bool {
    matches!(kind, Type::Int | Type::Uint | Type::Double | Type::Dyn)
}

fn optional<'s>(kind: Type<'s>) -> Type<'s> {
    Type::Optional(Rc::new(kind))
}

fn list<'s>(kind: Type<'s>, most: u64) -> Type<'s> {
    Type::List(Rc::new(kind), most)
}

/// The type and the cost of a call; nothing where there is no such function of these types.
pub(super) fn result<'s>(function: &str, shape: Checked, kinds: &[Type<'s>]) -> Option<(Type<'s>, u64)> {
    match shape {
        Checked::Function => function_result(function, kinds),
        Checked::Method => method_result(function, kinds),
    }
}

fn function_result<'s>(function: &str, kinds: &[Type<'s>]) -> Option<(Type<'s>, u64)> {
    use Type::{Bool, Bytes, Double, Duration, Dyn, Int, List, Map, String, Timestamp, Uint};
    Some(match (function, kinds) {
        ("_==_" | "_!=_", [left, right]) if left.fits(right) => (Bool, text(left.size().min(right.size()))),
        ("_<_" | "_<=_" | "_>_" | "_>=_", [left, right]) => match (left, right) {
            (left, right) if is_number(left) && is_number(right) => (Bool, 1),
            (String(_) | Dyn, String(_) | Dyn) | (Bytes(_) | Dyn, Bytes(_) | Dyn) => {
                (Bool, text(left.size().min(right.size())))
            }
            (Bool, Bool | Dyn) | (Dyn, Bool) => (Bool, 1),
            (Duration, Duration | Dyn) | (Timestamp, Timestamp | Dyn) | (Dyn, Duration | Timestamp) => {
                (Bool, 1)
            }
            _ => return None,
        },
        ("@in", [element, List(inner, most)]) if element.fits(inner) => {
            (Bool, most.saturating_mul(text(element.size().min(inner.size()))))
        }
        ("@in", [key, Map(inner, _, _)]) if key.fits(inner) => (Bool, 1),
        ("@in", [_, Dyn]) => (Bool, 1),
        ("_+_", [left, right]) => match (left, right) {
            (Int, Int) | (Uint, Uint) | (Double, Double) | (Duration, Duration) => (left.clone(), 1),
            (Timestamp, Duration) | (Duration, Timestamp) => (Timestamp, 1),
            (String(one), String(other)) => {
                let sum = one.saturating_add(*other);
                (String(sum), text(sum))
            }
            (Bytes(one), Bytes(other)) => {
                let sum = one.saturating_add(*other);
                (Bytes(sum), text(sum))
            }
            (List(element, one), List(other, more)) if element.fits(other) => {
                let element = (**element).clone().join((**other).clone());
                (list(element, one.saturating_add(*more)), 1)
            }
            (Dyn, _) | (_, Dyn) => (Dyn, text(left.size().saturating_add(right.size()))),
            _ => return None,
        },
        ("_-_", [Timestamp, Timestamp]) => (Duration, 1),
        ("_-_", [Timestamp, Duration]) => (Timestamp, 1),
        ("_-_", [Duration, Duration]) => (Duration, 1),
        ("_-_" | "_*_" | "_/_", [Double, Double]) => (Double, 1),
        ("_-_" | "_*_" | "_/_" | "_%_", [Int, Int]) => (Int, 1),
        ("_-_" | "_*_" | "_/_" | "_%_", [Uint, Uint]) => (Uint, 1),
        ("_-_" | "_*_" | "_/_" | "_%_", [Dyn, other] | [other, Dyn]) if is_number(other) => (Dyn, 1),
        ("!_", [Bool | Dyn]) => (Bool, 1),
        ("-_", [Int]) => (Int, 1),
        ("-_", [Double]) => (Double, 1),
        ("-_", [Dyn]) => (Dyn, 1),
        ("size", [String(_) | Bytes(_) | List(..) | Map(..) | Dyn]) => (Int, 1),
        ("int", [Int | Uint | Double | String(_) | Timestamp | Dyn]) => (Int, 1),
        ("uint", [Int | Uint | Double | String(_) | Dyn]) => (Uint, 1),
        ("double", [Int | Uint | Double | String(_) | Dyn]) => (Double, 1),
        ("bool", [Bool | String(_) | Dyn]) => (Bool, 1),
        ("string", [String(most) | Bytes(most)]) => (String(*most), text(*most)),
        // How long such text is, Kubernetes does not estimate.
        ("string", [Int | Uint | Double | Bool | Timestamp | Duration]) => (String(u64::MAX), 1),
        ("string", [Dyn | Type::Library(_)]) => (string(), text(3 << 20)),
        ("bytes", [Bytes(most) | String(most)]) => (Bytes(*most), text(*most)),
        ("timestamp", [String(_) | Int | Timestamp | Dyn]) => (Timestamp, 1),
        ("duration", [String(_) | Int | Duration | Dyn]) => (Duration, 1),
        ("dyn", [_]) => (Dyn, 1),
        ("type", [_]) => (Type::Meta, 1),
        ("matches", [String(most), String(pattern)]) => (Bool, regex(*most, *pattern)),
        ("matches", [String(_) | Dyn, String(_) | Dyn]) => (Bool, regex(3 << 20, 3 << 20)),
        ("url", [String(most)]) => (Type::Library(URL), text(*most)),
        ("ip", [String(most)]) => (Type::Library(IP), text(*most)),
        ("cidr", [String(most)]) => (Type::Library(CIDR), text(*most)),
        ("quantity", [String(most)]) => (Type::Library(QUANTITY), text(*most)),
        ("url" | "ip" | "cidr" | "quantity", [Dyn]) => {
            let name = match function {
                "url" => URL,
                "ip" => IP,
                "cidr" => CIDR,
                _ => QUANTITY,
            };
            (Type::Library(name), text(3 << 20))
        }
        ("isURL" | "isIP" | "isCIDR" | "isQuantity" | "ip.isCanonical", [kind @ (String(_) | Dyn)]) => {
            (Bool, text(kind.size()))
        }
        ("sets.contains" | "sets.intersects" | "sets.equivalent", [List(one, most), List(other, more)])
            if one.fits(other) =>
        {
            (Bool, most.saturating_mul(*more).max(1))
        }
        ("optional.of" | "optional.ofNonZeroValue", [kind]) => (optional(kind.clone()), 1),
        ("optional.none", []) => (optional(Dyn), 1),
        ("@optMap", [List(inner, _)]) => (optional((**inner).clone()), 0),
        ("@optFlatMap", [List(inner, _)]) => match &**inner {
            Type::Optional(_) => ((**inner).clone(), 0),
            Dyn => (optional(Dyn), 0),
            _ => return None,
        },
        ("format.named", [String(_)]) => (optional(Type::Library(FORMAT)), 1),
        (name, []) if name.starts_with("format.") && is_known(name, Checked::Function) => {
            (Type::Library(FORMAT), 1)
        }
        ("strings.quote", [String(most)]) => (String(most.saturating_mul(2)), text(*most)),
        ("math.abs", [Int]) => (Int, 1),
        ("math.abs", [Double]) => (Double, 1),
        ("math.greatest" | "math.least", [first, rest @ ..])
            if is_number(first) && rest.iter().all(is_number) =>
        {
            let same =
                rest.iter().all(|other| std::mem::discriminant(other) == std::mem::discriminant(first));
            (if same { first.clone() } else { Dyn }, 1)
        }
        ("math.greatest" | "math.least", [List(element, most)]) if is_number(element) => {
            ((**element).clone(), *most)
        }
        _ => return None,
    })
}

/// Text against a pattern: the product of a tenth of the one and a quarter of the other.
fn regex(size: u64, pattern: u64) -> u64 {
    ((size + 1) / 10).max(1).saturating_mul((pattern / 4).max(1))
}

fn method_result<'s>(function: &str, kinds: &[Type<'s>]) -> Option<(Type<'s>, u64)> {
    use Type::{Bool, Bytes, Double, Duration, Dyn, Int, Library, List, Map, Optional, String, Timestamp};
    let (target, arguments) = kinds.split_first()?;
    // What is not known is taken for text where text is usual.
    let size = target.size();
    let is_text = matches!(target, String(_) | Dyn);
    let texts = arguments.iter().all(|argument| matches!(argument, String(_) | Dyn));
    Some(match (function, target, arguments) {
        ("size", String(_) | Bytes(_) | List(..) | Map(..) | Dyn, []) => (Int, 1),
        ("contains", _, [argument]) if is_text && texts => {
            (Bool, text(size).saturating_mul(text(argument.size())))
        }
        ("startsWith" | "endsWith", _, [argument]) if is_text && texts => (Bool, text(argument.size())),
        ("matches", _, [argument]) if is_text && texts => (Bool, regex(size, argument.size())),
        ("find", _, [argument]) if is_text && texts => (String(size), regex(size, argument.size())),
        ("findAll", _, [argument] | [argument, Int]) if is_text && argument.fits(&string()) => {
            (list(String(size), size), regex(size, argument.size()))
        }
        ("charAt", _, [Int | Dyn]) if is_text => (String(4), text(size)),
        ("indexOf" | "lastIndexOf", List(element, most), [argument]) if element.fits(argument) => {
            (Int, *most)
        }
        ("indexOf" | "lastIndexOf", _, [argument] | [argument, Int])
            if is_text && argument.fits(&string()) =>
        {
            (Int, text(size).saturating_mul(text(argument.size())))
        }
        ("lowerAscii" | "upperAscii" | "trim" | "reverse", _, []) if is_text => (String(size), text(size)),
        ("replace", _, [from, to] | [from, to, Int])
            if is_text && from.fits(&string()) && to.fits(&string()) =>
        {
            (String(size.saturating_mul(to.size().max(1))), text(size))
        }
        ("split", _, [argument] | [argument, Int]) if is_text && argument.fits(&string()) => {
            (list(String(size), size), text(size))
        }
        ("substring", _, [Int | Dyn] | [Int | Dyn, Int | Dyn]) if is_text => (String(size), text(size)),
        ("join", List(element, most), []) if element.fits(&string()) => {
            let sum = most.saturating_mul(element.size());
            (String(sum), text(sum))
        }
        ("join", List(element, most), [String(_) | Dyn]) if element.fits(&string()) => {
            let sum = most.saturating_mul(element.size());
            (String(sum), text(sum))
        }
        ("format", String(_), [List(..)]) => (string(), text(size)),
        ("isSorted", List(..), []) => (Bool, size),
        ("sum", List(element, _), []) if is_number(element) || matches!(**element, Duration) => {
            ((**element).clone(), size)
        }
        ("min" | "max", List(element, _), []) => ((**element).clone(), size),
        ("slice", List(..), [Int, Int]) | ("distinct" | "reverse" | "sort", List(..), []) => {
            (target.clone(), size)
        }
        ("flatten", List(..), []) => (list(Dyn, size), size),
        ("first" | "last", List(element, _), []) => (optional((**element).clone()), 1),
        ("hasValue", Optional(_), []) => (Bool, 1),
        ("value", Optional(inner), []) => ((**inner).clone(), 1),
        ("orValue", Optional(inner), [other]) if inner.fits(other) => {
            ((**inner).clone().join(other.clone()), 1)
        }
        ("or", Optional(inner), [Optional(other)]) if inner.fits(other) => (target.clone(), 1),
        ("hasValue", Dyn, []) => (Bool, 1),
        ("value", Dyn, []) | ("orValue" | "or", Dyn, [_]) => (Dyn, 1),
        ("getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath", Library(URL), []) => {
            (string(), 1)
        }
        ("getQuery", Library(URL), []) => {
            (Map(Rc::new(string()), Rc::new(list(string(), 1 << 20)), 1 << 20), 1)
        }
        ("isInteger", Library(QUANTITY), []) => (Bool, 1),
        ("asInteger" | "sign", Library(QUANTITY), []) => (Int, 1),
        ("asApproximateFloat", Library(QUANTITY), []) => (Double, 1),
        ("add" | "sub", Library(QUANTITY), [Library(QUANTITY) | Int]) => (target.clone(), 1),
        ("isLessThan" | "isGreaterThan", Library(QUANTITY), [Library(QUANTITY)]) => (Bool, 1),
        ("compareTo", Library(QUANTITY), [Library(QUANTITY)]) => (Int, 1),
        ("family", Library(IP), []) => (Int, 1),
        (
            "isLoopback"
            | "isGlobalUnicast"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isUnspecified",
            Library(IP),
            [],
        ) => (Bool, 1),
        ("containsIP", Library(CIDR), [String(_) | Library(IP)]) => (Bool, 1),
        ("containsCIDR", Library(CIDR), [String(_) | Library(CIDR)]) => (Bool, 1),
        ("ip", Library(CIDR), []) => (Library(IP), 1),
        ("masked", Library(CIDR), []) => (target.clone(), 1),
        ("prefixLength", Library(CIDR), []) => (Int, 1),
        ("validate", Library(FORMAT), [argument @ (String(_) | Dyn)]) => {
            (optional(list(string(), 16)), text(argument.size()))
        }
        (name, Timestamp, [] | [String(_)]) if TIME_PARTS.contains(&name) => (Int, 1),
        ("getHours" | "getMinutes" | "getSeconds" | "getMilliseconds", Duration, []) => (Int, 1),
        _ => return None,
    })
}
