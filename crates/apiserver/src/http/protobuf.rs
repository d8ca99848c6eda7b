//! Bodies in protobuf, which newer clients send for built-in types.
//!
//! The JSON that comes out still holds zero values, which are dropped when the object is brought into its
//! canonical form.

use serde_json::Value;

use crate::{
    status::Failure,
    types::protobuf::{self, ProtobufError},
};

/// Reads a body: an envelope that names the type, and the object.
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, Failure> {
    protobuf::decode(bytes).map_err(|error| match error {
        ProtobufError::UnknownKind { .. } => Failure::unsupported_media_type(error.to_string()),
        ProtobufError::Magic | ProtobufError::Broken { .. } => Failure::bad_request(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_messages_are_bad_requests_and_unknown_types_unsupported() {
        let envelope =
            |kind: &str| [b"k8s\0\x0a\x09\x0a\x02v1\x12\x03", kind.as_bytes(), b"\x12\x00"].concat();
        for bytes in [&b"nope"[..], b"k8s\0", b"k8s\0\xff\xff\xff"] {
            assert_eq!(decode(bytes).map_err(|failure| failure.code), Err(400));
        }
        assert_eq!(decode(&envelope("Odd")).map_err(|failure| failure.code), Err(415));
        assert!(decode(&envelope("Pod")).is_ok());
    }
}
