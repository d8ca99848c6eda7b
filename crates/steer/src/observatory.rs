//! What only the Observatory operator is told.

use clap::Args;
use steersman_observatory::Limits;

/// Limits over all workflows.
#[derive(Args, Debug, Clone)]
pub(crate) struct ObservatoryArgs {
    /// How many tasks of all workflows may run at the same time; any number by default
    #[arg(long, env = "STEER_MAX_TASKS", value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    max_tasks: Option<u32>,
    /// How many tasks of the workflows of one namespace may run at the same time; any number by default
    #[arg(
        long,
        env = "STEER_MAX_TASKS_PER_NAMESPACE",
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    max_tasks_per_namespace: Option<u32>,
}

impl ObservatoryArgs {
    /// The limits as the operator takes them.
    pub(crate) fn limits(&self) -> Limits {
        let count = |count: Option<u32>| count.and_then(|count| usize::try_from(count).ok());
        Limits { tasks: count(self.max_tasks), tasks_per_namespace: count(self.max_tasks_per_namespace) }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        args: ObservatoryArgs,
    }

    #[test]
    fn limits_are_at_least_one_task() {
        let parse =
            |args: &[&str]| Only::try_parse_from([&["steer"], args].concat()).map(|only| only.args.limits());
        assert_eq!(parse(&[]).ok(), Some(Limits::default()));
        let given = parse(&["--max-tasks", "200", "--max-tasks-per-namespace=50"]).ok();
        assert_eq!(given, Some(Limits { tasks: Some(200), tasks_per_namespace: Some(50) }));
        assert!(parse(&["--max-tasks", "0"]).is_err());
    }
}
