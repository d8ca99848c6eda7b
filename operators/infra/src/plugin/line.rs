//! Reading lines of bounded length.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// Why there is no line.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    /// Nobody writes any more.
    #[error("it closed its output")]
    End,
    /// It goes on and on.
    #[error("it wrote a line longer than {0} bytes")]
    TooLong(usize),
    /// The pipe broke.
    #[error("its output cannot be read: {0}")]
    Broken(#[from] io::Error),
}

/// The next line without its end, at most `longest` bytes. What comes after the last newline is
/// no line: its writer died while writing it.
pub(super) async fn read(
    from: &mut (impl AsyncBufRead + Unpin),
    longest: usize,
) -> Result<Vec<u8>, LineError> {
    let mut line = Vec::new();
    loop {
        let (found, used) = {
            let available = from.fill_buf().await?;
            if available.is_empty() {
                return Err(LineError::End);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            if line.len() + part.len() > longest {
                return Err(LineError::TooLong(longest));
            }
            line.extend_from_slice(part);
            (end.is_some(), end.map_or(available.len(), |end| end + 1))
        };
        from.consume(used);
        if found {
            return Ok(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_end_with_a_newline_and_are_no_longer_than_allowed() {
        let mut from = tokio::io::BufReader::with_capacity(3, &b"one\n\nlonger\nhalf"[..]);
        assert_eq!(read(&mut from, 6).await.expect("a line"), b"one");
        assert_eq!(read(&mut from, 6).await.expect("a line"), b"");
        assert_eq!(read(&mut from, 6).await.expect("a line"), b"longer");
        assert!(matches!(read(&mut from, 6).await, Err(LineError::End)));
        let mut from = tokio::io::BufReader::with_capacity(3, &b"too long\n"[..]);
        assert!(matches!(read(&mut from, 6).await, Err(LineError::TooLong(6))));
    }
}
