//! The runtimes with real processes. The helper program is the example `node` of this crate,
//! which `cargo test` builds.

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// The example that knows `pod-init`.
pub(crate) fn helper_program() -> PathBuf {
    let me = std::env::current_exe().expect("a running program");
    let folder = me.parent().and_then(Path::parent).expect("target/debug/deps");
    let program = folder.join("examples").join("node");
    assert!(program.is_file(), "build it first: cargo build -p steersman-node --example node");
    program
}

async fn runtime(choice: RuntimeChoice, folder: &Path) -> Arc<Runtime> {
    let options = NodeOptions {
        data_dir: folder.to_path_buf(),
        runtime: choice,
        program: helper_program(),
        ..NodeOptions::default()
    };
    Runtime::start(&options).await.expect("the runtime works here")
}

fn plan(folder: &Path, uid: &str, network: PodNetwork) -> PodPlan {
    let folder = PodFolder::new(folder, uid).expect("plain name");
    folder.create().expect("created");
    PodPlan {
        title: format!("default/{uid}"),
        uid: uid.to_string(),
        hostname: uid.to_string(),
        folder: folder.path().to_path_buf(),
        network,
        user: (0, 0),
        wanted: None,
    }
}

fn shell(script: &str) -> Program {
    Program {
        argv: ["sh", "-c", script].map(String::from).to_vec(),
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into())],
        working_dir: PathBuf::from("/"),
        place: Place::Own(Vec::new()),
    }
}

/// Runs a program and returns its output and how it ended.
async fn output(pod: &mut Pod, program: &Program) -> (String, Exit) {
    let (mut read, write) = pipe().expect("pipe");
    let errors = write.try_clone().expect("copied");
    let id = pod.run(program, write, errors).await.expect("sent");
    let exit = loop {
        match next(pod).await {
            Happening::Exited { id: ended, exit } if ended == id => break exit,
            Happening::Started { .. } | Happening::Exited { .. } => {}
            other => panic!("unexpected: {other:?}"),
        }
    };
    let mut text = String::new();
    read.read_to_string(&mut text).await.expect("output");
    (text, exit)
}

async fn next(pod: &mut Pod) -> Happening {
    tokio::time::timeout(Duration::from_secs(20), pod.next()).await.expect("something happens")
}

async fn start(pod: &mut Pod, program: &Program) -> u64 {
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null").expect("null");
    let errors = null.try_clone().expect("copied");
    let id = pod.run(program, null.into(), errors.into()).await.expect("sent");
    assert_eq!(next(pod).await, Happening::Started { id });
    id
}

async fn get(network: &Network, address: SocketAddr) -> String {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        if let Ok(mut stream) = network.connect(address).await {
            let request = "GET / HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).await.expect("written");
            let mut text = String::new();
            stream.read_to_string(&mut text).await.expect("answered");
            return text;
        }
        assert!(tokio::time::Instant::now() < deadline, "nothing listens on {address}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn exit_codes_and_signals_arrive_in_every_runtime() {
    for choice in [RuntimeChoice::Process, RuntimeChoice::Sandbox] {
        let folder = tempfile::tempdir().expect("folder");
        let runtime = runtime(choice, folder.path()).await;
        let plan = plan(folder.path(), "exits", PodNetwork::Host);
        let mut pod = runtime.create(&plan).await.expect("created");
        let (text, exit) = output(&mut pod, &shell("echo out; echo err >&2; exit 7")).await;
        assert_eq!((text.as_str(), exit), ("out\nerr\n", Exit::Code(7)));
        let (_, exit) = output(&mut pod, &shell("kill -TERM $$")).await;
        assert_eq!((exit, exit.code()), (Exit::Signal(15), 143));
        pod.destroy().await;
    }
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_refused_by_name() {
    for choice in [RuntimeChoice::Process, RuntimeChoice::Sandbox] {
        let folder = tempfile::tempdir().expect("folder");
        let runtime = runtime(choice, folder.path()).await;
        let plan = plan(folder.path(), "missing", PodNetwork::Host);
        let mut pod = runtime.create(&plan).await.expect("created");
        let program = Program { argv: vec!["no-such-program".into()], ..shell("") };
        let (_read, write) = pipe().expect("pipe");
        let errors = write.try_clone().expect("copied");
        let id = pod.run(&program, write, errors).await.expect("sent");
        let Happening::Refused { id: refused, message } = next(&mut pod).await else { panic!("not refused") };
        assert_eq!(refused, id);
        assert_eq!(message, "exec: \"no-such-program\": executable file not found in $PATH");
        pod.destroy().await;
    }
}

#[tokio::test]
async fn three_sandboxes_all_listen_on_port_80_and_reach_each_other() {
    let folder = tempfile::tempdir().expect("folder");
    let runtime = runtime(RuntimeChoice::Sandbox, folder.path()).await;
    let mut pods = Vec::new();
    for uid in ["one", "two", "three"] {
        let plan = plan(folder.path(), uid, PodNetwork::Own);
        let mut pod = runtime.create(&plan).await.expect("created");
        // Where the checkout may be (below /tmp, say) a container has a folder of its own.
        let helper = Mount {
            source: helper_program(),
            target: PathBuf::from("/dev/helper"),
            access: Access::ReadOnly,
        };
        let program = Program {
            argv: vec!["/dev/helper".into(), "serve-echo".into()],
            env: vec![("POD_NAME".into(), uid.into())],
            place: Place::Own(vec![helper]),
            ..shell("")
        };
        start(&mut pod, &program).await;
        pods.push((uid, pod));
    }
    for (uid, pod) in &pods {
        let answer = get(runtime.network(), SocketAddr::new(pod.address(), 80)).await;
        assert!(answer.contains(uid), "{answer}");
    }
    let other = pods[1].1.address();
    let script = format!("exec 3<>/dev/tcp/{other}/80; printf 'GET /x HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3");
    let program = Program { argv: ["bash", "-c", &script].map(String::from).to_vec(), ..shell("") };
    let (text, exit) = output(&mut pods[0].1, &program).await;
    assert!(text.contains("two\nGET /x"), "{text} {exit:?}");
    for (_, pod) in pods {
        pod.destroy().await;
    }
}

#[tokio::test]
async fn a_service_address_is_answered_inside_a_sandbox() {
    let folder = tempfile::tempdir().expect("folder");
    let runtime = runtime(RuntimeChoice::Sandbox, folder.path()).await;
    let address: SocketAddr = "10.96.0.10:80".parse().expect("address");
    let listener = runtime.network().listen(address).await.expect("listening");
    let plan = plan(folder.path(), "client", PodNetwork::Own);
    let mut pod = runtime.create(&plan).await.expect("created");
    let program = Program {
        argv: ["bash", "-c", "exec 3<>/dev/tcp/10.96.0.10/80; cat <&3"].map(String::from).to_vec(),
        ..shell("")
    };
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        stream.write_all(b"from the service").await.expect("written");
    };
    let ((text, _), ()) = tokio::join!(output(&mut pod, &program), serve);
    assert_eq!(text, "from the service");
    pod.destroy().await;
}

#[tokio::test]
async fn volumes_appear_at_their_paths_and_the_host_cannot_be_written() {
    let folder = tempfile::tempdir().expect("folder");
    let runtime = runtime(RuntimeChoice::Sandbox, folder.path()).await;
    let plan = plan(folder.path(), "volumes", PodNetwork::Host);
    let source = folder.path().join("pods/volumes/volumes");
    std::fs::write(source.join("key"), "value").expect("written");
    let mut pod = runtime.create(&plan).await.expect("created");
    let mount =
        |target: &str, access| Mount { source: source.clone(), target: PathBuf::from(target), access };
    let program = Program {
        place: Place::Own(vec![
            mount("/etc/steersman-test/config", Access::ReadOnly),
            mount("/data", Access::ReadWrite),
            mount("/var/run/secrets/kubernetes.io/serviceaccount", Access::ReadOnly),
            Mount {
                source: source.join("key"),
                target: PathBuf::from("/dev/termination-log"),
                access: Access::ReadWrite,
            },
        ]),
        ..shell(
            "cat /etc/steersman-test/config/key /run/secrets/kubernetes.io/serviceaccount/key; \
             touch /usr/bin/x 2>/dev/null || echo; echo new > /data/file; \
             cat /etc/passwd > /dev/null && echo ok > /tmp/x && cat /tmp/x; \
             touch /etc/steersman-test/config/no 2>/dev/null && echo bad; \
             echo done > /dev/termination-log; echo > /dev/null; hostname; id -u",
        )
    };
    let (text, _) = output(&mut pod, &program).await;
    assert_eq!(text, "valuevalue\nok\nvolumes\n0\n");
    assert_eq!(std::fs::read_to_string(source.join("file")).expect("file"), "new\n");
    assert_eq!(std::fs::read_to_string(source.join("key")).expect("key"), "done\n");
    pod.destroy().await;
}

#[tokio::test]
async fn a_program_beside_a_container_sees_its_files() {
    let folder = tempfile::tempdir().expect("folder");
    let runtime = runtime(RuntimeChoice::Sandbox, folder.path()).await;
    let plan = plan(folder.path(), "beside", PodNetwork::Host);
    let mut pod = runtime.create(&plan).await.expect("created");
    let id = start(&mut pod, &shell("echo here > /tmp/mark; sleep 60")).await;
    let wait = "while ! cat /tmp/mark 2>/dev/null; do sleep 0.01; done";
    let program = Program { place: Place::Beside(id), ..shell(wait) };
    let (text, exit) = output(&mut pod, &program).await;
    assert_eq!((text.as_str(), exit), ("here\n", Exit::Code(0)));
    pod.destroy().await;
}

/// How many processes carry the variable.
fn marked(value: &str) -> usize {
    let wanted = format!("MARK={value}");
    std::fs::read_dir("/proc")
        .expect("proc")
        .flatten()
        .filter(|entry| {
            let mut text = Vec::new();
            std::fs::File::open(entry.path().join("environ"))
                .and_then(|mut file| file.read_to_end(&mut text))
                .is_ok_and(|_| text.split(|b| *b == 0).any(|one| one == wanted.as_bytes()))
        })
        .count()
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_killed_first_process_takes_everything_with_it() {
    for choice in [RuntimeChoice::Process, RuntimeChoice::Sandbox] {
        let folder = tempfile::tempdir().expect("folder");
        let runtime = runtime(choice, folder.path()).await;
        let mark = format!("{choice}-{}", std::process::id());
        let plan = plan(folder.path(), "killed", PodNetwork::Host);
        let mut pod = runtime.create(&plan).await.expect("created");
        let mut program = shell("exec sleep 600");
        program.env.push(("MARK".into(), mark.clone()));
        start(&mut pod, &program).await;
        until("the program runs", || marked(&mark) > 0).await;
        let Made::Init(init) = &mut pod.made else { panic!("a real pod") };
        init.kill_for_test();
        assert_eq!(next(&mut pod).await, Happening::Lost);
        until("nothing is left", || marked(&mark) == 0).await;
    }
}

#[tokio::test]
async fn a_destroyed_pod_leaves_no_grandchild_behind() {
    for choice in [RuntimeChoice::Process, RuntimeChoice::Sandbox] {
        let folder = tempfile::tempdir().expect("folder");
        let runtime = runtime(choice, folder.path()).await;
        let mark = format!("grand-{choice}-{}", std::process::id());
        let plan = plan(folder.path(), "grandchildren", PodNetwork::Host);
        let mut pod = runtime.create(&plan).await.expect("created");
        let mut program = shell("sleep 600 & setsid sleep 600 & sleep 600");
        program.env.push(("MARK".into(), mark.clone()));
        start(&mut pod, &program).await;
        until("four processes run", || marked(&mark) == 4).await;
        pod.destroy().await;
        until("nothing is left", || marked(&mark) == 0).await;
    }
}
