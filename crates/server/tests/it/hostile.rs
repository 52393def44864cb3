//! Hostile clients: each gets a clear response or a closed connection, and other clients are served meanwhile.

use holdoff_testbed::CONDITION_TIMEOUT;
use std::time::Duration;

use holdoff_server::StoreUrl;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Daemon, options};

/// Returns the system's limit on open files of a process, at most a hundred thousand.
fn most_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(100_000).min(100_000);
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum }).unwrap();
    most
}

async fn daemon() -> (tempfile::TempDir, Daemon) {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(StoreUrl::in_directory(folder.path())).await;
    (folder, daemon)
}

/// Sends these bytes on a new connection. Returns everything that the daemon sends until it closes the connection.
async fn raw(daemon: &Daemon, sent: &[u8]) -> String {
    let mut stream = connect(daemon).await;
    // The daemon may close the connection before everything is sent.
    let _ = stream.write_all(sent).await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(CONDITION_TIMEOUT, stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "neither answered nor closed");
    String::from_utf8_lossy(&answer).into_owned()
}

async fn connect(daemon: &Daemon) -> TcpStream {
    TcpStream::connect(daemon.server.address()).await.unwrap()
}

/// Checks that a new client is served and its task accepted.
async fn assert_serves_others(daemon: &Daemon) {
    let client = reqwest::Client::new();
    let sent =
        client.post(format!("{}/v1/tasks", daemon.url)).json(&json!({ "operation": "a", "delay": "1h" }));
    let answer = tokio::time::timeout(CONDITION_TIMEOUT, sent.send()).await.unwrap().unwrap();
    assert_eq!(answer.status(), 201);
}

fn post(path: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").into_bytes()
}

/// Returns the status of a response; 0 if the connection was closed without one.
fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn malformed_bodies_are_rejected() {
    let (_folder, daemon) = daemon().await;
    let deep = "[".repeat(100_000);
    let bodies: [&[u8]; 9] = [
        b"",
        b"{",
        b"nonsense",
        b"{\"operation\": \"a\"",
        b"{\"operation\": \"a\"} {}",
        b"{\"operation\": \"\xff\xfe\"}",
        b"{\"operation\": \"\\ud800\"}",
        b"{\"operation\": \"a\\u0000\"}",
        deep.as_bytes(),
    ];
    let paths =
        ["/v1/tasks", "/v1/signals", "/v1/locks/acquire", "/v1/workers/claim", "/v1/steps/retry", "/v1/sim"];
    for path in paths {
        for body in bodies {
            let answer = raw(&daemon, &post(path, body)).await;
            assert_eq!(status(&answer), 400, "{path}: {answer}");
            assert!(answer.contains("/problems/invalid-"), "{path}: {answer}");
        }
    }
    assert_serves_others(&daemon).await;
}

#[tokio::test]
async fn huge_bodies_are_rejected() {
    let (_folder, daemon) = daemon().await;
    for path in ["/v1/tasks", "/v1/locks/acquire", "/v1/policies/lint"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: 99999999999\r\n\r\n"
        );
        let answer = raw(&daemon, &[head.as_bytes(), &vec![b' '; 20_000_000]].concat()).await;
        // If bytes are still in flight when the connection is closed, the reset may discard the response.
        assert!([413, 0].contains(&status(&answer)), "{path}: {answer}");
    }
    let chunked = "POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
                   transfer-encoding: chunked\r\n\r\nfffffff\r\n";
    let answer = raw(&daemon, &[chunked.as_bytes(), &vec![b' '; 20_000_000]].concat()).await;
    assert!([413, 0].contains(&status(&answer)), "{answer}");
    let announced = daemon.client.post(format!("{}/v1/tasks", daemon.url));
    let answer =
        announced.header("content-type", "application/json").body(vec![b' '; 5_000_000]).send().await;
    assert!(answer.is_err() || answer.is_ok_and(|answer| answer.status() == 413));
    assert_serves_others(&daemon).await;
}

#[tokio::test]
async fn malicious_paths_are_rejected() {
    let (_folder, daemon) = daemon().await;
    let long = format!("/v1/tasks/{}", "a".repeat(30_000));
    let tricks = [
        ("/../../etc/passwd", 404),
        ("/%2e%2e/%2e%2e/etc/passwd", 404),
        ("/v1/tasks/%2e%2e%2f%2e%2e", 400),
        ("/v1/tasks/%00", 400),
        ("/v1/tasks/%ff%fe", 400),
        ("/v1/steps/%00/%00", 400),
        ("/v1/policies/%00", 404),
        ("/v1/policies/%ff", 400),
        ("/v1/policies/..%2f..%2fetc", 404),
        ("/v1/tasks?cursor=%00", 400),
        ("/v1/steps?text=%00", 400),
        ("/v1/steps?text=%ff%fe", 200),
        ("/v1/locks?prefix=%00", 200),
        ("/v1/locks/show?key=%00", 404),
        ("//v1//tasks", 404),
        ("/v1/tasks/", 404),
        ("/V1/TASKS", 404),
        ("/assets/style.css/../v1/tasks", 404),
        (&long, 400),
    ];
    for (path, expected) in tricks {
        let answer = raw(&daemon, &get(path)).await;
        let path: String = path.chars().take(60).collect();
        assert_eq!(status(&answer), expected, "{path}: {answer}");
        assert!(!answer.contains("root:"), "{path}");
    }
    let longer = raw(&daemon, &get(&format!("/{}", "a".repeat(200_000)))).await;
    assert!([414, 431, 0].contains(&status(&longer)), "{longer}");
    assert_serves_others(&daemon).await;
}

#[tokio::test]
async fn non_http_input_is_rejected() {
    let (_folder, daemon) = daemon().await;
    let mut flood = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n".to_vec();
    for number in 0..5000 {
        flood.extend(format!("x-{number}: {number}\r\n").into_bytes());
    }
    flood.extend(b"\r\n");
    let large = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "a".repeat(1_000_000));
    let both =
        b"POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\
                 connection: close\r\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n";
    let sent: [&[u8]; 8] = [
        &flood,
        large.as_bytes(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00\x00\x00\x00\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET /healthz\r\n\r\n",
        b"POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        both,
    ];
    for bytes in sent {
        let answer = raw(&daemon, bytes).await;
        assert!(matches!(status(&answer), 0 | 400..=499 | 505), "{answer}");
    }
    // A host name that is not accepted, without any header of a browser.
    let answer = raw(&daemon, b"GET / HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n").await;
    assert_eq!(status(&answer), 421);
    assert_serves_others(&daemon).await;
}

#[tokio::test]
async fn slow_clients_delay_no_other_client() {
    most_files();
    let (_folder, daemon) = daemon().await;
    let mut dawdlers = Vec::new();
    for number in 0..500 {
        let mut stream = connect(&daemon).await;
        let begun: &[u8] = match number % 3 {
            0 => b"GET /healthz HTTP/1.1\r\nhost: loc",
            1 => b"POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 50\r\n\r\n{",
            _ => b"P",
        };
        stream.write_all(begun).await.unwrap();
        dawdlers.push(stream);
    }
    for _ in 0..20 {
        assert_serves_others(&daemon).await;
    }
    // The first of the slow clients gets an error or a closed connection at last, and its request is not accepted.
    let mut dawdler = dawdlers.swap_remove(0);
    let mut answer = Vec::new();
    let ends = async {
        loop {
            let wrote = dawdler.write_all(b"a").await;
            let mut part = [0; 1000];
            match tokio::time::timeout(Duration::from_millis(500), dawdler.read(&mut part)).await {
                Ok(Ok(0) | Err(_)) => return,
                Ok(Ok(count)) => answer.extend_from_slice(&part[..count]),
                Err(_) if wrote.is_err() => return,
                Err(_) => {}
            }
        }
    };
    tokio::time::timeout(CONDITION_TIMEOUT, ends).await.unwrap();
    assert!([408, 400, 0].contains(&status(&String::from_utf8_lossy(&answer))));
}

/// Starts a daemon that accepts about this many connections.
async fn small_daemon(connections: u64, requires_tokens: bool) -> (tempfile::TempDir, Daemon) {
    let most = most_files();
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(StoreUrl::in_directory(folder.path()));
    options.server.require_tokens = requires_tokens;
    let limit =
        |files| setrlimit(Resource::Nofile, Rlimit { current: Some(files), ..getrlimit(Resource::Nofile) });
    limit(connections * 4 / 3).unwrap();
    let daemon = Daemon::start_with(options).await;
    // The daemon reads the limit before it accepts the first connection.
    assert_eq!(daemon.get("/healthz").await.status(), 200);
    limit(most).unwrap();
    (folder, daemon)
}

/// Checks that the probes and a login page are answered while none of these connections has got a response by timeout.
async fn assert_answers_before(daemon: &Daemon, stalled: Vec<TcpStream>) {
    for path in ["/healthz", "/readyz"] {
        assert_eq!(status(&raw(daemon, &get(path)).await), 200, "{path}");
    }
    for stream in stalled {
        let mut part = [0; 4096];
        let read = stream.try_read(&mut part).unwrap_or(0);
        let answer = String::from_utf8_lossy(&part[..read]).into_owned();
        assert_ne!(status(&answer), 504, "the probes waited for the timeout of other requests: {answer}");
    }
}

/// A stranger may send the form of a login, and any client the body of a request. A connection whose body does not come
/// counts as idle.
#[tokio::test]
async fn bodies_that_never_arrive_block_no_client() {
    for (requires_tokens, path, kind) in
        [(true, "/login", "application/x-www-form-urlencoded"), (false, "/v1/tasks", "application/json")]
    {
        let (_folder, daemon) = small_daemon(150, requires_tokens).await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nsec-fetch-site: same-origin\r\ncontent-type: {kind}\r\n\
             content-length: 1000\r\n\r\n"
        );
        let mut stalled = Vec::new();
        for _ in 0..250 {
            let mut stream = connect(&daemon).await;
            stream.write_all(head.as_bytes()).await.unwrap();
            stalled.push(stream);
        }
        assert_answers_before(&daemon, stalled).await;
    }
}

#[tokio::test]
async fn a_login_has_a_small_body_and_few_places() {
    let (_folder, daemon) = small_daemon(150, true).await;
    let login = |length: usize| {
        format!(
            "POST /login HTTP/1.1\r\nhost: localhost\r\nsec-fetch-site: same-origin\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let large = [login(5000).as_bytes(), &[b'x'; 5000]].concat();
    let answer = raw(&daemon, &large).await;
    assert_eq!(status(&answer), 413, "{answer}");
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let mut stream = connect(&daemon).await;
        stream.write_all(login(10).as_bytes()).await.unwrap();
        waiting.push(stream);
    }
    // The place of a login is taken when its head has arrived.
    let refused = async {
        loop {
            let answer = raw(&daemon, &[login(7).as_bytes(), b"token=x"].concat()).await;
            if answer.contains("too many logins") {
                return status(&answer);
            }
        }
    };
    assert_eq!(tokio::time::timeout(CONDITION_TIMEOUT, refused).await.unwrap(), 429);
    for mut stream in waiting {
        let mut answer = String::new();
        tokio::time::timeout(CONDITION_TIMEOUT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        assert_eq!(status(&answer), 400, "the form must arrive soon: {answer}");
    }
}

/// If all connections are busy, the daemon still answers its probes, and refuses other requests at once.
#[tokio::test]
async fn probes_always_get_a_place() {
    let (_folder, daemon) = small_daemon(150, false).await;
    let claim = json!({ "worker": "w", "operations": ["a"], "wait": "20s" }).to_string();
    let mut stalled = Vec::new();
    // A connection whose claim the daemon has not read yet is idle and gives way to the next, so their number is not known.
    let refused = async {
        while stalled.len() < 100 || status(&raw(&daemon, &get("/v1/tasks")).await) != 503 {
            let mut stream = connect(&daemon).await;
            stream.write_all(&post("/v1/workers/claim", claim.as_bytes())).await.unwrap();
            stalled.push(stream);
        }
    };
    tokio::time::timeout(CONDITION_TIMEOUT, refused).await.unwrap();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(status(&raw(&daemon, &get(path)).await), 200, "{path}");
    }
}

/// Only the daemon's own pages and programs that are no browsers may change anything on a daemon without tokens.
#[tokio::test]
async fn an_open_daemon_refuses_other_origins_and_hosts() {
    let (_folder, daemon) = daemon().await;
    let id = daemon.submit(&json!({ "operation": "a", "delay": "1h" })).await;
    let own = daemon.server.address();
    let cancel = async |headers: &str| {
        let request = format!(
            "POST /v1/tasks/{id}/cancel HTTP/1.1\r\n{headers}connection: close\r\ncontent-type: application/json\r\n\
             content-length: 2\r\n\r\n{{}}"
        );
        status(&raw(&daemon, request.as_bytes()).await)
    };
    for (headers, expected) in [
        (format!("host: {own}\r\norigin: http://localhost:3000\r\n"), 403),
        (format!("host: {own}\r\nsec-fetch-site: same-site\r\n"), 403),
        (format!("host: {own}\r\norigin: https://evil.example\r\n"), 421),
        (String::new(), 421),
        (format!("host: {own}\r\nhost: evil.example\r\n"), 421),
        (format!("host: {own}\r\nhost: {own}\r\n"), 421),
        (format!("host: {own}\r\norigin: http://{own}\r\n"), 200),
    ] {
        assert_eq!(cancel(&headers).await, expected, "{headers}");
    }
    let absolute =
        b"GET http://evil.example/v1/tasks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    assert_eq!(status(&raw(&daemon, absolute).await), 421);
    let form = [("name", "me"), ("scope", "admin")];
    let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let minting = daemon.client.post(format!("{}/settings/tokens", daemon.url)).body(form);
    let refused = minting.header("sec-fetch-site", "same-origin").send().await.unwrap();
    assert_eq!(refused.status(), 403);
    assert!(refused.text().await.unwrap().contains("holdoff token create"));
    assert!(daemon.server.token_store().tokens().await.unwrap().is_empty());
}

/// Opens as many idle connections as the limit on open files permits, ten thousand at most.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_idle_connections_block_no_client() {
    let count = usize::try_from(most_files().saturating_sub(6000).min(10_000)).unwrap();
    let (_folder, daemon) = daemon().await;
    let mut idle = Vec::new();
    let mut longest_idle = connect(&daemon).await;
    for number in 1..=count {
        idle.push(connect(&daemon).await);
        if number % 2000 == 0 {
            assert_serves_others(&daemon).await;
        }
    }
    eprintln!("{count} connections are idle");
    assert_serves_others(&daemon).await;
    let listed: Value = daemon.get("/v1/tasks").await.json().await.unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), count / 2000 + 1);
    if count > 5000 {
        let closed = tokio::time::timeout(CONDITION_TIMEOUT, longest_idle.read(&mut [0])).await.unwrap();
        assert!(
            matches!(closed, Ok(0) | Err(_)),
            "the server closes the connection that was idle for longest"
        );
    }
}
