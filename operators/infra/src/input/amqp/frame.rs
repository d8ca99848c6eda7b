//! Frames of AMQP 0-9-1: what is on the wire, without any input or output.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The largest frame that is read or written, unless the server wants smaller ones.
pub(super) const LARGEST: usize = 128 << 10;
const END: u8 = 0xCE;

/// One frame.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) channel: u16,
    pub(super) payload: Bytes,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Method,
    Header,
    Body,
    Heartbeat,
}

/// Why bytes are no frames.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::input) enum FrameError {
    #[error("the server does not speak AMQP 0-9-1")]
    Protocol,
    #[error("the server sent a frame of {0} bytes")]
    TooLarge(usize),
    #[error("the server sent a frame that is cut off")]
    Short,
}

impl Frame {
    pub(super) fn method(channel: u16, payload: Bytes) -> Self {
        Self { kind: Kind::Method, channel, payload }
    }

    pub(super) fn heartbeat() -> Self {
        Self { kind: Kind::Heartbeat, channel: 0, payload: Bytes::new() }
    }

    pub(super) fn write(&self, to: &mut BytesMut) {
        to.put_u8(match self.kind {
            Kind::Method => 1,
            Kind::Header => 2,
            Kind::Body => 3,
            Kind::Heartbeat => 8,
        });
        to.put_u16(self.channel);
        to.put_u32(u32::try_from(self.payload.len()).unwrap_or(u32::MAX));
        to.put_slice(&self.payload);
        to.put_u8(END);
    }

    /// The next frame, if all of it is there.
    pub(super) fn read(from: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        if from.len() < 7 {
            return Ok(None);
        }
        let kind = match from[0] {
            1 => Kind::Method,
            2 => Kind::Header,
            3 => Kind::Body,
            8 => Kind::Heartbeat,
            _ => return Err(FrameError::Protocol),
        };
        let channel = u16::from_be_bytes([from[1], from[2]]);
        let size = u32::from_be_bytes([from[3], from[4], from[5], from[6]]) as usize;
        if size > LARGEST {
            return Err(FrameError::TooLarge(size));
        }
        if from.len() < size + 8 {
            return Ok(None);
        }
        from.advance(7);
        let payload = from.split_to(size).freeze();
        match from.get_u8() {
            END => Ok(Some(Self { kind, channel, payload })),
            _ => Err(FrameError::Protocol),
        }
    }
}

/// Writes the arguments of a method.
pub(super) struct Writer(BytesMut);

impl Writer {
    /// A method, by its class and number.
    pub(super) fn method(class: u16, method: u16) -> Self {
        let mut bytes = BytesMut::new();
        bytes.put_u16(class);
        bytes.put_u16(method);
        Self(bytes)
    }

    pub(super) fn u8(mut self, value: u8) -> Self {
        self.0.put_u8(value);
        self
    }

    pub(super) fn u16(mut self, value: u16) -> Self {
        self.0.put_u16(value);
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.put_u32(value);
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.put_u64(value);
        self
    }

    /// A text of at most 255 bytes.
    pub(super) fn short(mut self, text: &str) -> Self {
        let mut end = text.len().min(255);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.0.put_u8(u8::try_from(end).unwrap_or(u8::MAX));
        self.0.put_slice(&text.as_bytes()[..end]);
        self
    }

    pub(super) fn long(mut self, bytes: &[u8]) -> Self {
        self.0.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.0.put_slice(bytes);
        self
    }

    /// A table of texts.
    pub(super) fn table(self, fields: &BTreeMap<&str, String>) -> Self {
        let mut table = BytesMut::new();
        for (name, value) in fields {
            let field = Self(BytesMut::new()).short(name).u8(b'S').long(value.as_bytes());
            table.put_slice(&field.0);
        }
        self.long(&table)
    }

    pub(super) fn end(self) -> Bytes {
        self.0.freeze()
    }
}

/// Reads the arguments of a method.
pub(super) struct Reader(Bytes);

impl Reader {
    pub(super) fn new(payload: Bytes) -> Self {
        Self(payload)
    }

    fn need(&self, bytes: usize) -> Result<(), FrameError> {
        if self.0.remaining() < bytes { Err(FrameError::Short) } else { Ok(()) }
    }

    pub(super) fn u8(&mut self) -> Result<u8, FrameError> {
        self.need(1)?;
        Ok(self.0.get_u8())
    }

    pub(super) fn u16(&mut self) -> Result<u16, FrameError> {
        self.need(2)?;
        Ok(self.0.get_u16())
    }

    pub(super) fn u32(&mut self) -> Result<u32, FrameError> {
        self.need(4)?;
        Ok(self.0.get_u32())
    }

    pub(super) fn u64(&mut self) -> Result<u64, FrameError> {
        self.need(8)?;
        Ok(self.0.get_u64())
    }

    pub(super) fn short(&mut self) -> Result<String, FrameError> {
        let length = usize::from(self.u8()?);
        self.need(length)?;
        Ok(String::from_utf8_lossy(&self.0.split_to(length)).into_owned())
    }

    /// Bytes with their length before them, as texts and tables are.
    pub(super) fn long(&mut self) -> Result<Bytes, FrameError> {
        let length = self.u32()? as usize;
        self.need(length)?;
        Ok(self.0.split_to(length))
    }
}

/// What a content header says: the size of the body and the message's id.
pub(super) fn header(payload: Bytes) -> Result<(u64, Option<String>), FrameError> {
    let mut reader = Reader::new(payload);
    let (_class, _weight, size, flags) = (reader.u16()?, reader.u16()?, reader.u64()?, reader.u16()?);
    let is_set = |bit: u16| flags & (1 << bit) != 0;
    // content-type, content-encoding; then headers; delivery-mode, priority; then three texts.
    for bit in [15, 14] {
        if is_set(bit) {
            reader.short()?;
        }
    }
    if is_set(13) {
        reader.long()?;
    }
    for bit in [12, 11] {
        if is_set(bit) {
            reader.u8()?;
        }
    }
    for bit in [10, 9, 8] {
        if is_set(bit) {
            reader.short()?;
        }
    }
    let id = if is_set(7) { Some(reader.short()?) } else { None };
    Ok((size, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_are_written_however_they_are_cut() {
        let frame = Frame::method(1, Writer::method(60, 80).u64(7).u8(0).end());
        let mut bytes = BytesMut::new();
        frame.write(&mut bytes);
        Frame::heartbeat().write(&mut bytes);
        let mut arrived = BytesMut::new();
        let mut read = Vec::new();
        for byte in bytes {
            arrived.put_u8(byte);
            read.extend(Frame::read(&mut arrived).expect("frames"));
        }
        assert_eq!(read, [frame, Frame::heartbeat()]);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let read = |bytes: &[u8]| Frame::read(&mut BytesMut::from(bytes));
        assert_eq!(read(b"HTTP/1.1 400 Bad Request"), Err(FrameError::Protocol));
        assert_eq!(read(&[1, 0, 0, 0xFF, 0, 0, 0, 0]), Err(FrameError::TooLarge(0xFF00_0000)));
        assert_eq!(read(&[8, 0, 0, 0, 0, 0, 0, 0]), Err(FrameError::Protocol));
        assert_eq!(Reader::new(Bytes::from_static(&[200, 1])).short(), Err(FrameError::Short));
        assert_eq!(header(Bytes::from_static(&[0, 60])), Err(FrameError::Short));
    }
}
