//! Expressions and what they give: on values without a schema, and against types.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

const BUDGET: u64 = 1_000_000;

fn evaluated(text: &str, object: &Json) -> Result<String, String> {
    let program = Program::parse(text).map_err(|error| error.to_string())?;
    program
        .check(&[Variable { name: "self".to_owned(), kind: Type::Dyn }])
        .map_err(|error| error.to_string())?;
    let mut scope = Scope::new(vec![("self".to_owned(), Value::of(object, None))], BUDGET);
    let value = program.evaluate(&mut scope).map_err(|error| error.to_string())?;
    Ok(functions::show(&value))
}

#[test]
fn expressions_give_what_the_language_says() {
    let object = json!({
        "a": 1, "b": "text", "list": [1, 2, 3], "names": ["x", "y"], "map": {"k": "v", "l": "w"},
        "f": 1.5, "none": null, "items": [{"name": "one", "size": 1}, {"name": "two", "size": 2}],
        "long": "Grüße",
    });
    for (text, expected) in [
        ("1 + 2 * 3 - 4 / 2", "5"),
        ("7 % 3 == 1 && !(2 > 3)", "true"),
        ("-self.a", "-1"),
        ("self.a < 2.5", "true"),
        ("self.b + '!' == 'text!'", "true"),
        ("'a' in self.names || 'x' in self.names", "true"),
        ("'k' in self.map", "true"),
        ("self.map['k'] + self.map.l", "vw"),
        ("self.list[1]", "2"),
        ("self.list + [4]", "[1, 2, 3, 4]"),
        ("size(self.list) == self.list.size()", "true"),
        ("has(self.a) && !has(self.zzz)", "true"),
        ("self.list.all(x, x > 0)", "true"),
        ("self.list.exists(x, x == 2) && self.list.exists_one(x, x == 2)", "true"),
        ("self.list.filter(x, x > 1).map(x, x * 10)", "[20, 30]"),
        ("self.list.map(x, x > 1, x * 10)", "[20, 30]"),
        ("self.map.all(k, self.map[k] != '')", "true"),
        ("self.map.exists(k, v, k == 'l' && v == 'w')", "true"),
        ("self.items.map(i, i.name).join(',')", "one,two"),
        ("self.a > 5 ? 'big' : 'small'", "small"),
        ("self.missing || true", "true"),
        ("true || self.missing", "true"),
        ("self.?missing.orValue('none')", "none"),
        ("self.?b.orValue('none')", "text"),
        ("self.?map.?k.hasValue()", "true"),
        ("self.list[?7].hasValue()", "false"),
        ("[1, ?self.?missing, 2]", "[1, 2]"),
        ("self.?a.optMap(x, x + 1).value()", "2"),
        ("type(self.a) == int && type(self.b) == string", "true"),
        ("string(self.a) + string(self.f)", "11.5"),
        ("int('42') + int(2.9)", "44"),
        ("self.long.size()", "5"),
        ("self.long.substring(2, 4)", "üß"),
        ("self.long.indexOf('ß')", "3"),
        ("'a-b-c'.split('-').size()", "3"),
        ("'a-b-c'.replace('-', '+')", "a+b+c"),
        ("'Abc'.lowerAscii() + 'Abc'.upperAscii()", "abcABC"),
        ("'abc'.matches('^a.c$')", "true"),
        ("'a1b22'.findAll('[0-9]+')", "[1, 22]"),
        ("'%s has %d and %.2f'.format(['x', 3, 1.5])", "x has 3 and 1.50"),
        ("[3, 1, 2].max() + [3, 1, 2].min() + [1, 2].sum()", "7"),
        ("[1, 2, 2].isSorted() && ![2, 1].isSorted()", "true"),
        ("sets.contains([1, 2, 3], [3, 1])", "true"),
        ("duration('1h30m') > duration('89m')", "true"),
        ("timestamp('2026-01-02T03:04:05Z').getFullYear()", "2026"),
        ("timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z') == duration('24h')", "true"),
        ("quantity('1Gi').isGreaterThan(quantity('1000M'))", "true"),
        ("quantity('50k').add(quantity('20k')).compareTo(quantity('70k'))", "0"),
        ("isQuantity('1.5Gi') && !isQuantity('lots')", "true"),
        ("ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.1.1')", "true"),
        ("isIP('::1') && !isIP('999.1.1.1') && isCIDR('10.0.0.0/8')", "true"),
        ("url('https://example.com:80/x').getHost()", "example.com:80"),
        ("isURL('https://example.com') && !isURL('../relative')", "true"),
        ("format.dns1123Label().validate('Bad_Name').hasValue()", "true"),
        ("!format.named('uuid').value().validate('not one').hasValue()", "false"),
        ("b'abc' == bytes('abc') && r'\\d' == '\\\\d'", "true"),
        ("0x10 + 1", "17"),
        ("self.none == null", "true"),
        ("dyn(1) == 1.0", "true"),
        ("'it\\'s' + \"\\u00e9\"", "it'sé"),
        ("math.greatest(1, 5, 3)", "5"),
    ] {
        assert_eq!(evaluated(text, &object).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn what_cannot_be_evaluated_says_why() {
    let object = json!({"list": [1], "map": {}});
    for (text, expected) in [
        ("self.missing", "no such key: missing"),
        ("self.map['k']", "no such key: k"),
        ("self.list[3]", "index out of bounds: 3"),
        ("1 / 0", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("'abc'.substring(5)", "index out of range: 5"),
        ("self.list.all(x, x > 0 && self.missing)", "no such key: missing"),
        ("optional.none().value()", "optional.none() dereference"),
    ] {
        assert_eq!(evaluated(text, &object), Err(expected.to_owned()), "{text}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_its_place() {
    for (text, expected) in [
        ("1 +", "ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting"),
        (
            "nobody > 1",
            "ERROR: <input>:1:1: undeclared reference to 'nobody' (in container '')\n | nobody > 1\n | ^",
        ),
        (
            "1 + 'a'",
            "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'\n | 1 + 'a'\n | ..^",
        ),
        ("'a'.nope()", "ERROR: <input>:1:9: undeclared reference to 'nope' (in container '')"),
        ("'a'.startsWith(1)", "found no matching overload for 'startsWith' applied to 'string.(int)'"),
        ("1 ? 2 : 3", "found no matching overload for '_?_:_'"),
        ("[1].all(x, x)", "found no matching overload for '_&&_' applied to '(bool, int)'"),
        ("'a'.matches('(')", "invalid matches argument"),
        ("'unfinished", "a string does not end"),
        ("has(1)", "invalid argument to has() macro"),
        (
            "true\n&& 1",
            "ERROR: <input>:2:1: found no matching overload for '_&&_' applied to '(bool, int)'\n | && 1\n | ^",
        ),
    ] {
        let error = evaluated(text, &Json::Null).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn an_expression_that_takes_too_long_is_stopped() {
    let list: Vec<u32> = (0..2000).collect();
    let object = json!({"list": list});
    let text = "self.list.all(x, self.list.all(y, x + y >= 0))";
    assert_eq!(evaluated(text, &object), Err("call cost exceeds limit".to_owned()));
    let deep = format!("{}1{}", "(".repeat(5000), ")".repeat(5000));
    assert!(evaluated(&deep, &object).expect_err("too deep").contains("recursion limit"));
    let minus = format!("{}1", "-".repeat(5000));
    assert!(evaluated(&minus, &object).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(text in "[a-z0-9 ()\\[\\]{}.,?:<>=!&|+*/%'\"\\\\_-]{0,60}") {
        let _ = evaluated(&text, &json!({"a": 1}));
    }

    #[test]
    fn no_words_make_it_panic(words in prop::collection::vec(prop::sample::select(vec![
        "self", ".a", ".list", "[", "]", "(", ")", "{", "}", "?", ":", "1", "-", "+", "'x'", ".all(x, ", "x", "&&",
        "||", "in", "has(", "==", ".size()", ".?b", ".map(y, ", "y", ",", "type(", "null", ".format(", "%",
    ]), 0..25)) {
        let _ = evaluated(&words.join(" "), &json!({"a": 1, "list": [1, 2]}));
    }
}
