//! Percent-encoding, as addresses use it.

/// Everything but letters, digits and `-._~`, as addresses write it.
pub(crate) fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Undoes percent-encoding; what is none stays.
pub(crate) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let hex = text.get(index + 1..index + 3).filter(|_| bytes[index] == b'%');
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                index += 3;
            }
            None => {
                decoded.push(bytes[index]);
                index += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_comes_back_as_it_was() {
        for text in ["", "plain-name", "a/b c?&=#%", "'; drop table--", "ü\u{0}", "100%"] {
            assert_eq!(decode(&encode(text)), text);
        }
        assert_eq!(decode("100%"), "100%", "what is no encoding stays");
        assert_eq!(decode("%zz%2"), "%zz%2");
    }
}
