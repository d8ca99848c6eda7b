//! Splits the body of a watch into its lines.

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

/// No object that a server accepts comes near this; a longer line is a broken stream.
const LONGEST: usize = 64 << 20;

/// The lines of a streaming body.
pub(super) struct Lines<B> {
    body: B,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line end.
    searched: usize,
}

impl<B: Body<Data = Bytes, Error = kube::Error> + Unpin> Lines<B> {
    pub(super) fn new(body: B) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0 }
    }

    /// The next line without its end; nothing when the body is over.
    ///
    /// What follows the last line end is the beginning of a line that was cut off, and is
    /// left away. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> kube::Result<Option<Bytes>> {
        loop {
            if let Some(line) = self.take_line() {
                return Ok(Some(line));
            }
            if self.buffer.len() > LONGEST {
                return Err(kube::Error::LinesCodecMaxLineLengthExceeded);
            }
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                None => return Ok(None),
            }
        }
    }

    fn take_line(&mut self) -> Option<Bytes> {
        let found = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
        let Some(end) = found else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + end);
        self.buffer.advance(1);
        self.searched = 0;
        Some(line.freeze())
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    async fn lines(chunks: &'static [&'static str]) -> Vec<String> {
        let frames = chunks
            .iter()
            .map(|chunk| Ok::<_, kube::Error>(Frame::data(Bytes::from_static(chunk.as_bytes()))));
        let mut lines = Lines::new(StreamBody::new(stream::iter(frames)));
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.expect("a line") {
            found.push(String::from_utf8_lossy(&line).into_owned());
        }
        found
    }

    #[tokio::test]
    async fn lines_come_out_whole_however_they_arrive() {
        assert_eq!(lines(&["ab", "c\nd", "ef\n", "g\nh\n"]).await, ["abc", "def", "g", "h"]);
        assert_eq!(lines(&["", "\n", "x\ncut o"]).await, ["", "x"]);
    }
}
