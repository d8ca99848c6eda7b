//! Sets of indexes as a Job's status writes them: `1,3-5,7`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Reads what a status says, but for indexes that are not below `end`.
pub(super) fn read(text: &str, end: i32) -> BTreeSet<i32> {
    let mut indexes = BTreeSet::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<i32>(), last.parse::<i32>()) {
            indexes.extend(first.max(0)..=last.min(end - 1));
        }
    }
    indexes
}

/// Writes a set: two in a row with a comma, more with a dash.
pub(super) fn write(indexes: &BTreeSet<i32>) -> String {
    let mut text = String::new();
    let mut left = indexes.iter().copied().peekable();
    while let Some(first) = left.next() {
        let mut last = first;
        while let Some(next) = left.next_if(|next| *next == last + 1) {
            last = next;
        }
        let comma = if text.is_empty() { "" } else { "," };
        let written = match last - first {
            0 => write!(text, "{comma}{first}"),
            1 => write!(text, "{comma}{first},{last}"),
            _ => write!(text, "{comma}{first}-{last}"),
        };
        debug_assert!(written.is_ok(), "writing to a String does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_short_and_read_again() {
        for (indexes, text) in [
            (vec![], ""),
            (vec![0], "0"),
            (vec![1, 2], "1,2"),
            (vec![1, 3, 4, 5, 7], "1,3-5,7"),
            (vec![0, 1, 2, 3], "0-3"),
        ] {
            let indexes: BTreeSet<i32> = indexes.into_iter().collect();
            assert_eq!(write(&indexes), text);
            assert_eq!(read(text, 8), indexes, "{text}");
        }
    }

    #[test]
    fn what_is_out_of_range_or_no_number_is_left_out() {
        assert_eq!(read("1,x,3-9,-4,7-2", 5), [1, 3, 4].into());
        assert_eq!(read("0-2147483647", 3), [0, 1, 2].into());
    }
}
