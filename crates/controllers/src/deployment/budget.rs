//! How many pods a rollout may have too many, and how many too few.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The limits of a rolling update, resolved to numbers of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Budget {
    /// The size the deployment wants to have.
    pub(super) desired: i32,
    /// Pods there may be beyond `desired`.
    pub(super) surge: i32,
    /// Pods that may be missing from `desired`.
    pub(super) unavailable: i32,
}

/// How a deployment replaces its pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// A few at a time, within the budget.
    Rolling,
    /// All old ones go before the first new one comes.
    Recreate,
}

impl Strategy {
    /// The deployment's strategy; rolling is the default.
    pub(super) fn of(deployment: &Deployment) -> Self {
        let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
        match strategy.and_then(|strategy| strategy.type_.as_deref()) {
            Some("Recreate") => Self::Recreate,
            _ => Self::Rolling,
        }
    }
}

impl Budget {
    /// The budget of a deployment: nothing but the size when it recreates.
    pub(super) fn of(deployment: &Deployment) -> Self {
        let spec = deployment.spec.as_ref();
        let desired = spec.and_then(|spec| spec.replicas).unwrap_or(1);
        if Strategy::of(deployment) == Strategy::Recreate {
            return Self { desired, ..Self::default() };
        }
        let rolling = spec.and_then(|spec| spec.strategy.as_ref()?.rolling_update.as_ref());
        let quarter = IntOrString::String("25%".into());
        let surge = rolling.and_then(|rolling| rolling.max_surge.as_ref()).unwrap_or(&quarter);
        let unavailable = rolling.and_then(|rolling| rolling.max_unavailable.as_ref()).unwrap_or(&quarter);
        Self::resolve(desired, surge, unavailable)
    }

    /// Surge rounds up and unavailability down; when both come out as none, one pod may be
    /// missing, or the rollout could never move.
    fn resolve(desired: i32, surge: &IntOrString, unavailable: &IntOrString) -> Self {
        let surge = scaled(surge, desired, Rounding::Up);
        let mut unavailable = scaled(unavailable, desired, Rounding::Down);
        if surge == 0 && unavailable == 0 {
            unavailable = 1;
        }
        Self { desired, surge, unavailable: unavailable.min(desired) }
    }

    /// The most pods there may be.
    pub(super) fn ceiling(self) -> i32 {
        self.desired.saturating_add(self.surge)
    }

    /// The fewest pods that must be available.
    pub(super) fn floor(self) -> i32 {
        self.desired - self.unavailable
    }
}

#[derive(Clone, Copy)]
enum Rounding {
    Up,
    Down,
}

fn scaled(value: &IntOrString, of: i32, rounding: Rounding) -> i32 {
    match value {
        IntOrString::Int(number) => (*number).max(0),
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let product = i64::from(of) * percent.clamp(0, 1_000_000);
            let rounded = match rounding {
                Rounding::Up => (product + 99) / 100,
                Rounding::Down => product / 100,
            };
            i32::try_from(rounded).unwrap_or(i32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(text: &str) -> IntOrString {
        IntOrString::String(text.into())
    }

    #[test]
    fn surge_rounds_up_and_unavailability_down() {
        let cases = [
            (10, percent("25%"), percent("25%"), (3, 2)),
            (3, percent("25%"), percent("25%"), (1, 0)),
            (1, percent("0%"), percent("1%"), (0, 1)),
            (2, percent("1%"), percent("25%"), (1, 0)),
            (4, IntOrString::Int(2), IntOrString::Int(0), (2, 0)),
            (4, IntOrString::Int(0), IntOrString::Int(9), (0, 4)),
            (0, percent("25%"), percent("25%"), (0, 0)),
        ];
        for (desired, surge, unavailable, expected) in cases {
            let budget = Budget::resolve(desired, &surge, &unavailable);
            assert_eq!((budget.surge, budget.unavailable), expected, "{desired} {surge:?} {unavailable:?}");
        }
    }
}
