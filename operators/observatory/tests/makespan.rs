//! How long whole workflows take, in a time in which nothing else takes any.

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use steersman_observatory::Phase;
use support::*;

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }
}

/// Any list schedule takes at most W/m + (1 - 1/m) · C: W the work of all tasks, m how many may
/// run at once, C the longest way through the graph. A schedule with idle slots while a task could
/// run breaks that sooner or later.
#[tokio::test(start_paused = true)]
async fn a_workflow_takes_no_longer_than_grahams_bound() {
    for seed in 0..6 {
        let mut numbers = Numbers(seed);
        let (count, at_once) = (10 + numbers.below(30), 1 + numbers.below(6));
        let cluster = cluster().await;
        let _operator = operator(&cluster);
        let mut tasks: Vec<Value> = Vec::new();
        let (mut longest, mut work): (Vec<f64>, f64) = (Vec::new(), 0.0);
        for number in 0..count {
            // Names of equal length: none begins like another.
            let (name, seconds) = (format!("t{number:03}"), 1 + numbers.below(30));
            cluster.pods().succeed(&format!("w-{name}"), Duration::from_secs(seconds as u64));
            let mut above: Vec<usize> =
                (0..numbers.below(4).min(number)).map(|_| numbers.below(number)).collect();
            above.sort_unstable();
            above.dedup();
            let before = above.iter().map(|&other| longest[other]).fold(0.0, f64::max);
            longest.push(before + seconds as f64);
            work += seconds as f64;
            let names: Vec<String> = above.iter().map(|other| format!("t{other:03}")).collect();
            tasks.push(json!({"name": name, "image": "i", "dependencies": names}));
        }
        submit(&cluster, "w", json!({"tasks": tasks, "maxConcurrent": at_once})).await;
        let status = finish(&cluster, "w").await;
        assert_eq!(status.phase(), Phase::Succeeded);
        let ends = status.completion_time.as_ref().zip(status.start_time.as_ref());
        let took = ends.map(|(end, start)| end.0.duration_since(start.0).as_secs_f64()).expect("it ended");
        let (critical, machines) = (longest.iter().copied().fold(0.0, f64::max), at_once as f64);
        let bound = work / machines + (1.0 - 1.0 / machines) * critical;
        // Times in a status are whole seconds.
        assert!(took <= bound + 1.0, "seed {seed}: {count} tasks, {at_once} at once: {took} s of {bound} s");
        assert!(took + 1.0 >= critical.max(work / machines), "seed {seed}: faster than can be");
    }
}

#[tokio::test(start_paused = true)]
async fn the_longest_way_goes_first_where_not_all_can_run() {
    let cluster = cluster().await;
    let _operator = operator(&cluster);
    // Three short tasks stand before a chain of three: in their order, the chain would end last.
    let tasks = json!([
        task("s1", &[]),
        task("s2", &[]),
        task("s3", &[]),
        task("c1", &[]),
        task("c2", &["c1"]),
        task("c3", &["c2"]),
    ]);
    submit(&cluster, "w", json!({"tasks": tasks, "maxConcurrent": 2})).await;
    let status = finish(&cluster, "w").await;
    let took = ended(&status, "c3").duration_since(started(&status, "c1")).as_secs();
    assert!(took <= 4, "the chain waits for nothing: {took} s");
    assert!(started(&status, "c1") <= started(&status, "s2"));
}
