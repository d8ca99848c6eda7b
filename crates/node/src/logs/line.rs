//! One line of a log file: `2026-01-02T03:04:05.678901234Z stdout F text`.

use jiff::Timestamp;

/// Which of the two outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    Stdout,
    Stderr,
}

/// Appends a line; `complete` lines end where the program ended them.
pub(super) fn append(target: &mut Vec<u8>, at: Timestamp, output: Output, end: End, text: &[u8]) {
    let name = match output {
        Output::Stdout => "stdout",
        Output::Stderr => "stderr",
    };
    let tag = match end {
        End::Full => "F",
        End::Part => "P",
    };
    target.extend_from_slice(format!("{at:.9} {name} {tag} ").as_bytes());
    target.extend_from_slice(text);
    target.push(b'\n');
}

/// Whether the program ended the line there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It did.
    Full,
    /// The line goes on in the next entry.
    Part,
}

/// A line of a file, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// As it is written.
    pub(super) at: &'a str,
    pub(super) end: End,
    pub(super) text: &'a [u8],
}

impl<'a> Line<'a> {
    /// Takes a line without its line feed apart; `None` when it is not one of ours.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut parts = bytes.splitn(4, |byte| *byte == b' ');
        let at = std::str::from_utf8(parts.next()?).ok()?;
        let _output = parts.next()?;
        let end = match parts.next()? {
            b"P" => End::Part,
            b"F" => End::Full,
            _ => return None,
        };
        Some(Line { at, end, text: parts.next()? })
    }

    /// When it was written.
    pub(super) fn time(&self) -> Option<Timestamp> {
        self.at.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let mut file = Vec::new();
        let at = Timestamp::new(5, 7).expect("a time");
        append(&mut file, at, Output::Stderr, End::Part, b"a b  c");
        assert_eq!(file, b"1970-01-01T00:00:05.000000007Z stderr P a b  c\n");
        let line = Line::parse(&file[..file.len() - 1]).expect("a line");
        assert_eq!((line.end, line.text, line.time()), (End::Part, &b"a b  c"[..], Some(at)));
        assert_eq!(Line::parse(b"garbage"), None);
    }
}
