//! Named answers to "are you well?".

use std::fmt;
use std::sync::Arc;

/// Says whether something is well, or what is not.
pub(crate) type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;
/// Checks whose names are known only when they are asked.
pub(crate) type CheckList = Arc<dyn Fn() -> Vec<(String, Result<(), String>)> + Send + Sync>;

/// The checks behind one path.
#[derive(Clone, Default)]
pub(crate) struct Checks {
    lists: Vec<CheckList>,
}

impl Checks {
    pub(crate) fn add(&mut self, name: &str, check: Check) {
        let name = name.to_owned();
        self.add_list(Arc::new(move || vec![(name.clone(), check())]));
    }

    pub(crate) fn add_list(&mut self, list: CheckList) {
        self.lists.push(list);
    }

    /// Asks the check of this name, or all of them, but for those to be left out; nothing when
    /// there is no such check.
    pub(crate) fn ask(&self, name: Option<&str>, left_out: &[&str]) -> Option<Answers> {
        let all = self.lists.iter().flat_map(|list| list());
        let asked: Vec<_> = match name {
            Some(name) => all.filter(|(known, _)| known == name).collect(),
            None => all.filter(|(known, _)| !left_out.contains(&known.as_str())).collect(),
        };
        (name.is_none() || !asked.is_empty()).then_some(Answers(asked))
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} checks", self.lists.len())
    }
}

/// What the checks said. Prints as Kubernetes' own health endpoints do.
pub(crate) struct Answers(Vec<(String, Result<(), String>)>);

impl Answers {
    pub(crate) fn are_good(&self) -> bool {
        self.0.iter().all(|(_, answer)| answer.is_ok())
    }
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, answer) in &self.0 {
            match answer {
                Ok(()) => writeln!(f, "[+]{name} ok")?,
                Err(problem) => writeln!(f, "[-]{name} failed: {problem}")?,
            }
        }
        f.write_str(match self.are_good() {
            true => "check passed",
            false => "check failed",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_asked_by_name_or_together() {
        let mut checks = Checks::default();
        checks.add("ping", Arc::new(|| Ok(())));
        checks.add("database", Arc::new(|| Err("away".to_owned())));
        let all = checks.ask(None, &[]).expect("all");
        assert!(!all.are_good());
        assert_eq!(all.to_string(), "[+]ping ok\n[-]database failed: away\ncheck failed");
        assert!(checks.ask(None, &["database"]).expect("the rest").are_good());
        assert!(checks.ask(Some("ping"), &[]).expect("one").are_good());
        assert!(checks.ask(Some("nothing"), &[]).is_none());
    }
}
