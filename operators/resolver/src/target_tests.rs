use super::*;
use std::sync::atomic::AtomicBool;

fn limits(per_service: usize, total: usize, per_backend: usize) -> Arc<Limits> {
    Arc::new(Limits { per_service, total, per_backend, pending: AtomicUsize::new(0) })
}

fn target() -> Arc<Target> {
    Arc::new(Target::new(ServiceKey::new("shop", "web")))
}

fn route(last_octets: &[u8]) -> Route {
    let backend = |octet: &u8| Backend {
        address: IpAddr::from([10, 0, 0, *octet]),
        ports: BTreeMap::from([(80, 8080)]),
    };
    Route {
        ports: vec![ServicePort { number: 80, name: String::new() }],
        backends: last_octets.iter().map(backend).collect(),
        mode: Mode::Proxy,
        ..Route::default()
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_go_in_order_as_pods_have_room() {
    let (target, limits) = (target(), limits(10, 10, 2));
    let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..5 {
        let (target, limits, done) = (Arc::clone(&target), Arc::clone(&limits), done.clone());
        tokio::spawn(async move {
            let permit = target.acquire(80, soon(), &limits, || {}).await.expect("a pod");
            done.send((number, permit)).expect("the test listens");
        });
        settle().await;
    }
    assert_eq!(target.pending(), 5);
    target.set(route(&[1, 2]));
    settle().await;
    let mut held = Vec::new();
    while let Ok((number, permit)) = order.try_recv() {
        held.push((number, permit));
    }
    assert_eq!(held.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let on_first =
        held.iter().filter(|(_, permit)| permit.address.ip() == IpAddr::from([10, 0, 0, 1])).count();
    assert_eq!((on_first, held[0].1.address.port()), (2, 8080), "spread evenly, on the pod's own port");
    drop(held.pop());
    settle().await;
    assert_eq!(order.try_recv().expect("the fifth").0, 4);
    assert_eq!(limits.pending.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_and_one_service_cannot_take_all_places() {
    let (one, two, limits) = (target(), target(), limits(2, 3, 1));
    let mut waiting = Vec::new();
    for target in [&one, &one, &two] {
        let (target, limits) = (Arc::clone(target), Arc::clone(&limits));
        waiting.push(tokio::spawn(async move { target.acquire(80, soon(), &limits, || {}).await.map(drop) }));
    }
    settle().await;
    for target in [&one, &two] {
        let refused = target.acquire(80, soon(), &limits, || {}).await.map(drop);
        assert_eq!(refused, Err(Refused::Full));
    }
    one.set(route(&[1]));
    settle().await;
    assert!(two.acquire(80, Instant::now(), &limits, || {}).await.is_err_and(|why| why == Refused::TimedOut));
    two.close();
    for task in waiting.drain(..2) {
        assert_eq!(task.await.expect("no panic"), Ok(()));
    }
    assert_eq!(waiting.remove(0).await.expect("no panic"), Err(Refused::Gone));
    assert_eq!(limits.pending.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_gives_its_place_up() {
    let (target, limits) = (target(), limits(1, 1, 1));
    for _ in 0..1000 {
        let waiting = target.acquire(80, soon(), &limits, || {});
        assert!(tokio::time::timeout(Duration::from_millis(1), waiting).await.is_err());
        assert_eq!((target.pending(), limits.pending.load(Ordering::Relaxed)), (0, 0));
    }
    target.set(route(&[1]));
    for _ in 0..3 {
        drop(target.acquire(80, soon(), &limits, || {}).await.expect("a pod"));
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_first_who_waits_asks_for_pods() {
    let (target, limits) = (target(), limits(10, 10, 1));
    let mut asked = Vec::new();
    for _ in 0..3 {
        let flag = Arc::new(AtomicBool::new(false));
        asked.push(Arc::clone(&flag));
        let (target, limits) = (Arc::clone(&target), Arc::clone(&limits));
        tokio::spawn(async move {
            target.acquire(80, soon(), &limits, || flag.store(true, Ordering::Relaxed)).await.map(drop)
        });
        settle().await;
    }
    let asked: Vec<bool> = asked.iter().map(|flag| flag.load(Ordering::Relaxed)).collect();
    assert_eq!(asked, [true, false, false]);
    assert!(target.keep_waking(Duration::from_secs(1)).await);
    target.set(route(&[1]));
    assert!(!target.keep_waking(Duration::from_secs(1)).await);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_reached_is_tried_again_later_and_others_first() {
    let (target, limits) = (target(), limits(10, 10, 5));
    target.set(route(&[1, 2]));
    let first = target.acquire(80, soon(), &limits, || {}).await.expect("a pod");
    let bad = first.address;
    first.unreachable();
    let mut kept = Vec::new();
    for _ in 0..5 {
        let permit = target.acquire(80, soon(), &limits, || {}).await.expect("a pod");
        assert_ne!(permit.address, bad);
        kept.push(permit);
    }
    let began = Instant::now();
    let permit = target.acquire(80, soon(), &limits, || {}).await.expect("the bad one again");
    assert_eq!(permit.address, bad);
    assert!(began.elapsed() < Duration::from_millis(50));
    permit.reached();
}

#[tokio::test]
async fn the_port_is_the_one_that_was_named_or_the_only_one() {
    let target = target();
    assert_eq!(target.port(None), None);
    let port = |number: u16| ServicePort { number, name: number.to_string() };
    target.set(Route { ports: vec![port(8080)], ..Route::default() });
    assert_eq!((target.port(None), target.port(Some(31_000))), (Some(8080), Some(8080)));
    target.set(Route { ports: vec![port(9090), port(80)], ..Route::default() });
    assert_eq!((target.port(None), target.port(Some(9090))), (Some(80), Some(9090)));
    assert_eq!(target.port(Some(31_000)), None);
}
