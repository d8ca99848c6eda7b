//! What should be, given how the world looks. Nothing here reads or writes anything.

use crate::trigger::Verdict;
use crate::types::Mode;
use jiff::Timestamp;
use std::time::Duration;

/// How the world looks.
#[derive(Clone, Debug)]
pub struct World {
    /// The time.
    pub now: Timestamp,
    /// How many replicas the target should have.
    pub replicas: i32,
    /// How many endpoints of the Service's own are ready.
    pub ready: usize,
    /// How many resolvers are ready.
    pub resolvers: usize,
    /// What the triggers say.
    pub verdict: Verdict,
    /// Since when the resolver has been in the path of a target that is about to sleep.
    pub switched: Option<Timestamp>,
    /// When somebody last needed the service, as far as is known.
    pub needed: Timestamp,
}

/// What stays the same from look to look.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// To how many replicas the target is woken.
    pub min_replicas: i32,
    /// For how long nobody must have needed it.
    pub cooldown: Duration,
    /// For how long the resolver is in the path before the pods go.
    pub switch_delay: Duration,
    /// Whether the resolver stays in the path while the target is awake.
    pub watching: Watching,
    /// Whether sleeping is allowed now.
    pub sleep: Sleep,
}

/// Whether the resolver stays in the path while the target is awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watching {
    /// It does: its counters decide.
    Always,
    /// It leaves.
    Never,
}

/// Whether sleeping is allowed now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// It is.
    Allowed,
    /// The target has to be awake.
    Forbidden,
}

/// What should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which way requests go.
    pub mode: Mode,
    /// To scale the target to this.
    pub scale: Option<i32>,
    /// Since when the resolver has been in the path of a target that is about to sleep.
    pub switched: Option<Timestamp>,
    /// To look again after this long at the latest.
    pub again: Option<Duration>,
}

/// Decides what should be.
pub fn plan(world: &World, rules: Rules) -> Plan {
    let stay = |mode| Plan { mode, scale: None, switched: None, again: None };
    let needed = world.verdict == Verdict::Busy || rules.sleep == Sleep::Forbidden;
    if world.replicas == 0 {
        let scale = needed.then_some(rules.min_replicas);
        return Plan { scale, ..stay(Mode::Proxy) };
    }
    // Awake on paper only: whoever comes now is held.
    if world.ready == 0 {
        return stay(Mode::Proxy);
    }
    let awake = match rules.watching {
        // Without a resolver its way would lead nowhere.
        Watching::Always if world.resolvers > 0 => Mode::Proxy,
        _ => Mode::Serve,
    };
    let may_sleep = world.verdict == Verdict::Idle && rules.sleep == Sleep::Allowed && world.resolvers > 0;
    if !may_sleep {
        return stay(awake);
    }
    let idle = since(world.needed, world.now);
    if idle < rules.cooldown {
        return Plan { again: Some(rules.cooldown - idle), ..stay(awake) };
    }
    // The resolver comes into the path first; the pods go when everybody has seen that.
    let switched = world.switched.unwrap_or(world.now);
    let passed = since(switched, world.now);
    let asleep = world.switched.is_some() && passed >= rules.switch_delay;
    Plan {
        mode: Mode::Proxy,
        scale: asleep.then_some(0),
        switched: Some(switched),
        again: (!asleep).then(|| rules.switch_delay.saturating_sub(passed).max(Duration::from_millis(1))),
    }
}

fn since(earlier: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(earlier)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world() -> World {
        World {
            now: at(1000),
            replicas: 1,
            ready: 1,
            resolvers: 1,
            verdict: Verdict::Idle,
            switched: None,
            needed: at(0),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn rules() -> Rules {
        Rules {
            min_replicas: 2,
            cooldown: Duration::from_secs(900),
            switch_delay: Duration::from_secs(5),
            watching: Watching::Never,
            sleep: Sleep::Allowed,
        }
    }

    fn decide(world: &World) -> (Mode, Option<i32>) {
        let plan = plan(world, rules());
        (plan.mode, plan.scale)
    }

    #[test]
    fn requests_go_to_pods_exactly_while_endpoints_are_ready() {
        let busy = || World { verdict: Verdict::Busy, ..world() };
        assert_eq!(decide(&busy()), (Mode::Serve, None));
        assert_eq!(decide(&World { ready: 0, ..busy() }), (Mode::Proxy, None));
        assert_eq!(decide(&World { replicas: 0, ready: 0, ..world() }), (Mode::Proxy, None));
        assert_eq!(decide(&World { replicas: 0, ready: 1, ..world() }), (Mode::Proxy, None));
    }

    #[test]
    fn the_resolver_comes_first_and_the_pods_go_later() {
        let first = plan(&world(), rules());
        assert_eq!((first.mode, first.scale), (Mode::Proxy, None));
        assert_eq!((first.switched, first.again), (Some(at(1000)), Some(Duration::from_secs(5))));
        let early = plan(&World { now: at(1003), switched: Some(at(1000)), ..world() }, rules());
        assert_eq!((early.scale, early.again), (None, Some(Duration::from_secs(2))));
        let due = plan(&World { now: at(1005), switched: Some(at(1000)), ..world() }, rules());
        assert_eq!((due.mode, due.scale), (Mode::Proxy, Some(0)));
    }

    #[test]
    fn somebody_who_comes_in_between_stops_it() {
        let switched = World { now: at(1005), switched: Some(at(1000)), ..world() };
        for verdict in [Verdict::Busy, Verdict::Recent, Verdict::Unknown("why".into())] {
            let plan = plan(&World { verdict, ..switched.clone() }, rules());
            assert_eq!((plan.mode, plan.scale, plan.switched), (Mode::Serve, None, None));
        }
    }

    #[test]
    fn it_stays_awake_in_the_cooldown_in_doubt_and_without_a_resolver() {
        assert_eq!(decide(&World { needed: at(500), ..world() }), (Mode::Serve, None));
        let plan = plan(&World { needed: at(500), ..world() }, rules());
        assert_eq!(plan.again, Some(Duration::from_secs(400)));
        assert_eq!(
            decide(&World { verdict: Verdict::Unknown("NaN".into()), ..world() }),
            (Mode::Serve, None)
        );
        assert_eq!(decide(&World { resolvers: 0, ..world() }), (Mode::Serve, None));
    }

    #[test]
    fn no_cooldown_means_no_cooldown() {
        let rules = Rules { cooldown: Duration::ZERO, switch_delay: Duration::ZERO, ..rules() };
        let world = World { needed: at(1000), switched: Some(at(1000)), ..world() };
        assert_eq!(plan(&world, rules).scale, Some(0));
    }

    #[test]
    fn a_trigger_or_the_hour_can_wake_it_doubt_cannot() {
        let asleep = World { replicas: 0, ready: 0, ..world() };
        assert_eq!(decide(&World { verdict: Verdict::Busy, ..asleep }), (Mode::Proxy, Some(2)));
        for verdict in [Verdict::Idle, Verdict::Recent, Verdict::Unknown("NaN".into())] {
            assert_eq!(decide(&World { verdict, ..asleep.clone() }), (Mode::Proxy, None));
        }
        let forbidden = Rules { sleep: Sleep::Forbidden, ..rules() };
        assert_eq!(plan(&asleep, forbidden).scale, Some(2));
    }

    #[test]
    fn a_resolver_that_watches_stays() {
        let watching = Rules { watching: Watching::Always, ..rules() };
        let busy = World { verdict: Verdict::Busy, ..world() };
        assert_eq!(plan(&busy, watching).mode, Mode::Proxy);
        assert_eq!(plan(&World { resolvers: 0, ..busy }, watching).mode, Mode::Serve);
    }
}
