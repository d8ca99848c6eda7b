//! What Terraform says, read.

use crate::action::{ActionError, Changes};

/// How much of Terraform's output is kept.
const KEPT: usize = 16 << 10;

/// The numbers in Terraform's summary: `Plan: 1 to add, …` or `Resources: 1 added, …`.
pub(super) fn counts(text: &str) -> Changes {
    let mut changes = Changes::default();
    let summary = |line: &&str| line.starts_with("Plan: ") || line.contains(" complete! Resources: ");
    let Some(line) = text.lines().rev().find(summary) else {
        return changes;
    };
    let rest = line.rsplit_once(": ").map_or(line, |(_, rest)| rest);
    for part in rest.trim_end_matches('.').split(", ") {
        let Some((number, what)) = part.split_once(' ') else {
            continue;
        };
        let number = number.parse().unwrap_or(0);
        match what.trim_start_matches("to ") {
            "add" | "added" => changes.created = number,
            "change" | "changed" => changes.updated = number,
            "destroy" | "destroyed" => changes.deleted = number,
            _ => {}
        }
    }
    changes
}

pub(super) fn failure(verb: &str, code: Option<i32>, text: &str) -> ActionError {
    let how = code.map_or_else(|| "was killed".to_owned(), |code| format!("ended with code {code}"));
    let said = text.find("Error: ").map_or_else(|| tail(text), |at| tail(&text[at..]));
    ActionError::transient(format!("terraform {verb} {how}: {}", said.trim()))
}

/// The end of a text, where the news are.
pub(super) fn tail(text: &str) -> String {
    let mut start = text.len().saturating_sub(KEPT);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_understood() {
        let changes = |created, updated, deleted| Changes { created, updated, deleted };
        assert_eq!(counts("x\nPlan: 1 to add, 2 to change, 3 to destroy.\ny"), changes(1, 2, 3));
        assert_eq!(counts("Plan: 4 to import, 1 to add, 0 to change, 0 to destroy."), changes(1, 0, 0));
        assert_eq!(counts("Apply complete! Resources: 5 added, 0 changed, 1 destroyed."), changes(5, 0, 1));
        assert_eq!(counts("Destroy complete! Resources: 2 destroyed."), changes(0, 0, 2));
        assert_eq!(counts("No changes."), changes(0, 0, 0));
    }
}
