//! Making good things bad, the same way for the same seed.

use serde_json::{Value, json};

/// Numbers that look random and are those of the seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        let mix = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 where there is none.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { usize::try_from(self.next() % end as u64).unwrap_or(0) }
    }

    /// One of several.
    pub(crate) fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}

/// Pieces that parsers are known to stumble over.
const PIECES: &[&[u8]] = &[
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98\x80",
    b"\xef\xbb\xbf",
    b"\\u0000",
    b"\\ud800",
    b"\"",
    b"'",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"---\n",
    b"&a [*a]",
    b"<<: *a",
    b"!!binary x",
    b"? ",
    b"|\n",
    b"\t",
    b"%",
    b"1e999999999",
    b"-0",
    b"9223372036854775808",
    b"0x7fffffffffffffff",
    b"NaN",
    b"null",
    b"~1",
    b"~2",
    b"/-/",
    b"$patch",
    b"$deleteFromPrimitiveList/x",
    b"$setElementOrder/x",
    b"$retainKeys",
    b"f:x",
    b"k:{\"a\":1}",
    b"i:0",
    b"!=",
    b"==",
    b" notin (",
    b"in ()",
    b"!",
    b"(((((((((",
    b")",
    b"&&",
    b"||",
    b"?:",
    b".map(x,",
    b"[0]",
    b"'''",
    b".*.*.*.*",
    b"(a+)+$",
    b"\\\\",
    b"k8s\0",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
    b"\xff\xff\xff\xff\x0f",
];

/// Changes bytes here and there: flipped, cut, doubled, moved, mixed with pieces.
pub(crate) fn bytes(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + 1 + random.below(16)).min(bytes.len());
        match random.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.byte(),
            2 => drop(bytes.drain(at.min(end)..end)),
            3 => bytes.truncate(at),
            4 => {
                let again = bytes[at.min(end)..end].to_vec();
                let times = [1, 2, 200][random.below(3)];
                let many: Vec<u8> = again.iter().copied().cycle().take(again.len() * times).collect();
                bytes.splice(at..at, many);
            }
            5 => {
                let deep =
                    *random.pick(&[&b"["[..], b"{\"a\":", b"(", b"- ", b"!", b"-", b"\x0a\xff\x7f", b"a."]);
                bytes.splice(at..at, deep.repeat([5, 300, 20_000][random.below(3)]));
            }
            _ => {
                bytes.splice(at..at, random.pick(PIECES).iter().copied());
            }
        }
    }
    bytes
}

/// Puts something else at some place of a tree, or takes it away.
pub(crate) fn tree(random: &mut Random, value: &mut Value) {
    let mut places = Vec::new();
    find(value, String::new(), &mut places);
    for _ in 0..=random.below(3) {
        let place = random.pick(&places).clone();
        let odd = odd(random);
        // A place may be gone by now.
        if let Some(found) = value.pointer_mut(&place) {
            *found = odd;
        }
    }
}

fn find(value: &Value, at: String, places: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map {
                find(inner, format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), places);
            }
        }
        Value::Array(list) => {
            for (index, inner) in list.iter().enumerate() {
                find(inner, format!("{at}/{index}"), places);
            }
        }
        _ => {}
    }
    places.push(at);
}

/// A value that hardly any field wants.
fn odd(random: &mut Random) -> Value {
    match random.below(14) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(i64::MAX),
        4 => json!(u64::MAX),
        5 => json!(1e300),
        6 => json!(""),
        7 => json!({}),
        8 => json!([]),
        9 => json!([null, {"name": null}, [[]]]),
        10 => json!({"": {"": ""}, "a/b~c": 1}),
        11 => json!("x".repeat([64, 254, 70_000][random.below(3)])),
        12 => json!(String::from_utf8_lossy(random.pick::<&[u8]>(PIECES))),
        _ => {
            let mut deep = json!(1);
            for _ in 0..[3, 60, 110][random.below(3)] {
                deep = if random.once_in(2) { json!([deep]) } else { json!({"a": deep}) };
            }
            deep
        }
    }
}

/// A message of protobuf without any sense: numbers, texts, messages in messages.
pub(crate) fn message(random: &mut Random, depth: usize) -> Vec<u8> {
    let mut message = Vec::new();
    for _ in 0..random.below(5) {
        let field = (random.below(24) + 1) << 3;
        match random.below(if depth == 0 { 4 } else { 6 }) {
            0 => {
                varint(&mut message, field);
                varint(&mut message, [0, 1, 300, usize::MAX][random.below(4)]);
            }
            1 => {
                varint(&mut message, field | 1);
                message.extend([random.byte(); 8]);
            }
            2 => {
                varint(&mut message, field | 5);
                message.extend([random.byte(); 4]);
            }
            3 => {
                varint(&mut message, field | 2);
                let text = *random.pick(PIECES);
                varint(&mut message, text.len());
                message.extend(text);
            }
            _ => {
                let inner = self::message(random, depth - 1);
                varint(&mut message, field | 2);
                varint(&mut message, inner.len());
                message.extend(inner);
            }
        }
    }
    message
}

/// Appends a number as protobuf writes it.
pub(crate) fn varint(bytes: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap_or(0));
}
