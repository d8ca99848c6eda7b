//! What only the Observatory operator is told.

use anyhow::bail;
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

/// Flags that managers of this kind have and that change nothing here, so that manifests which set
/// them still work.
#[derive(Args, Debug, Clone)]
pub(crate) struct InheritedArgs {
    /// Whether metrics are served over HTTPS; they are not
    #[arg(
        long,
        hide = true,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    metrics_secure: bool,
    /// Whether metrics are also served over HTTP/2; HTTP/1.1 is what every scraper speaks
    #[arg(
        long,
        hide = true,
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    enable_http2: bool,
}

impl InheritedArgs {
    /// Refuses what would seem safer than it is.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.metrics_secure {
            bail!(
                "metrics are served over plain HTTP, so --metrics-secure cannot be honoured: leave it out, keep \
                 --metrics-bind-address on loopback and put a proxy such as kube-rbac-proxy in front"
            );
        }
        if self.enable_http2 {
            tracing::warn!("metrics and health are served over HTTP/1.1; --enable-http2 changes nothing");
        }
        Ok(())
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
        #[command(flatten)]
        inherited: InheritedArgs,
    }

    #[test]
    fn a_flag_that_asks_for_safety_is_never_taken_lightly() {
        let check = |args: &[&str]| Only::parse_from([&["steer"], args].concat()).inherited.check();
        assert!(check(&[]).is_ok());
        assert!(check(&["--metrics-secure=false", "--enable-http2"]).is_ok());
        let refused = check(&["--metrics-secure"]).expect_err("there is no HTTPS").to_string();
        assert!(refused.contains("kube-rbac-proxy"), "{refused}");
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
