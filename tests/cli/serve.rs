//! `isobit serve` as a process: what it refuses to be started with, sockets that misbehave, and how it ends.

use crate::asked::refused;
use crate::program;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A server of the story model, killed when the test ends.
struct Server {
    child: Child,
    port: u16,
    err: BufReader<std::process::ChildStderr>,
}

impl Server {
    fn start(more: &[&str]) -> Server {
        Server::start_logging(more, "")
    }

    /// With what is logged, as `RUST_LOG` says it; empty: as it is.
    fn start_logging(more: &[&str], log: &str) -> Server {
        let args = ["serve", "--port", "0", "-t", "1"];
        let mut command = program::isobit(args.iter().chain(more));
        if !log.is_empty() {
            command.env("RUST_LOG", log);
        }
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let port = loop {
            let mut line = String::new();
            assert!(err.read_line(&mut line).unwrap() > 0, "it ended: {said}");
            said += &line;
            if let Some((_, port)) =
                line.trim().rsplit_once(':').filter(|_| line.contains("listening on http://127.0.0.1:"))
            {
                break port.parse().unwrap();
            }
        };
        let server = Server { child, port, err };
        let begun = Instant::now();
        while server.ask("GET", "/health", "").0 != 200 {
            assert!(begun.elapsed().as_secs() < 60, "it is not ready");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends a request, and leaves its answer to be read.
    fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = self.connect();
        let n = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {n}\r\n\r\n");
        stream.write_all((head + body).as_bytes()).unwrap();
        stream
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut text = String::new();
        self.send(method, path, body).read_to_string(&mut text).unwrap();
        (status(&text), text.split_once("\r\n\r\n").map_or(String::new(), |(_, b)| b.to_string()))
    }

    #[cfg(unix)]
    fn signal(&self, name: &str) {
        let sent = std::process::Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Its exit code, and how long that took.
    fn ended(&mut self) -> (Option<i32>, Duration) {
        let begun = Instant::now();
        while begun.elapsed().as_secs() < 30 {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (status.code(), begun.elapsed());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it does not end");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn status(text: &str) -> u16 {
    text.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0)
}

#[test]
fn what_would_let_strangers_in_is_refused_and_so_is_what_is_not_there() {
    refused(&["serve", "--host", "0.0.0.0", "--port", "0"], &["--api-key-file", "--insecure"]);
    refused(&["serve", "--host", "::", "--port", "0"], &["--insecure"]);
    refused(&["serve", "--api-key", "", "--port", "0"], &["key"]);
    refused(&["serve", "--api-key-file", "/nowhere/key", "--port", "0"], &["/nowhere/key"]);
    refused(&["serve", "--chat-template", "no-such", "--port", "0"], &["--chat-template no-such", "chatml"]);
    refused(&["serve", "/nowhere/model.gguf", "--port", "0"], &["/nowhere/model.gguf"]);
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    refused(&["serve", "--port", &port], &["--port", &port]);
}

#[test]
fn an_answer_comes_over_a_socket_and_a_key_is_asked_for() {
    let server = Server::start(&["-d", "cpu", "--api-key", "secret"]);
    let body = json!({ "prompt": "Once upon a time", "max_tokens": 8 }).to_string();
    let (code, text) = server.ask("POST", "/v1/completions", &body);
    assert_eq!((code, text.contains("secret")), (401, false), "{text}");
    let mut stream = server.connect();
    let head =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\nConnection: close\r\n";
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let answer: Value = serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!((status(&text), &answer["usage"]["completion_tokens"]), (200, &json!(8)));
}

#[test]
fn half_a_request_is_waited_for_ten_seconds_and_too_many_headers_not_at_all() {
    let server = Server::start(&["-d", "cpu"]);
    let mut large = server.connect();
    let head = format!("GET /health HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    // the server may close before it has read all
    let _ = large.write_all(head.as_bytes());
    let mut text = String::new();
    let _ = large.read_to_string(&mut text);
    assert!(status(&text) == 431 || text.is_empty(), "{text}");
    let begun = Instant::now();
    let mut half: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
    for stream in &mut half {
        stream.write_all(b"GET /health HTTP/1.1\r\nHo").unwrap();
    }
    assert_eq!(server.ask("GET", "/health", "").0, 200, "others are served");
    for stream in &mut half {
        // closed, or told that it took too long
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let took = begun.elapsed().as_secs_f64();
    assert!((8.0..16.0).contains(&took), "{took}");
}

/// Ends a server while an answer streams; what of the answer came, and how it ended.
#[cfg(unix)]
fn end_by(signals: &[&str]) -> (String, Option<i32>, Duration) {
    let mut server = Server::start(&["-c", "4096", "-d", "cpu:scalar"]);
    let body =
        json!({ "prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": true, "stream": true }).to_string();
    let mut stream = server.send("POST", "/v1/completions", &body);
    let mut first = [0; 400];
    stream.read_exact(&mut first).unwrap();
    for signal in signals {
        server.signal(signal);
        std::thread::sleep(Duration::from_millis(300));
    }
    let mut rest = String::new();
    let _ = stream.read_to_string(&mut rest);
    let (code, took) = server.ended();
    let mut said = String::new();
    server.err.read_to_string(&mut said).unwrap();
    assert!(!said.contains("panicked"), "{said}");
    (rest, code, took)
}

#[cfg(unix)]
#[test]
fn a_server_that_is_told_to_end_lets_answers_end_and_a_second_signal_does_not_wait() {
    let (rest, code, took) = end_by(&["TERM"]);
    assert_eq!(code, Some(0), "{rest}");
    assert!(took.as_secs() < 12 && rest.contains("the server is ending"), "{took:?} {rest}");
    let (_, code, took) = end_by(&["TERM", "TERM"]);
    assert!(code == Some(130) && took.as_secs() < 2, "{code:?} {took:?}");
    let (_, code, took) = end_by(&["INT", "INT"]);
    assert!(code == Some(130) && took.as_secs() < 2, "{code:?} {took:?}");
}

/// Clients that come all at once, before any of them is taken: the system keeps them all, and each is answered. Of more than
/// its queue holds Linux lets a client believe that it is connected, and forgets it.
#[cfg(target_os = "linux")]
#[test]
fn hundreds_of_connections_wait_to_be_taken() {
    use std::net::SocketAddr;
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").expect("there");
    let n = 600.min(most.trim().parse::<usize>().expect("a number"));
    let server = Server::start(&["-d", "cpu"]);
    server.signal("STOP");
    let address = SocketAddr::from(([127, 0, 0, 1], server.port));
    let begun = Instant::now();
    let all: Vec<_> = (0..n).map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(800))).collect();
    let took = begun.elapsed();
    server.signal("CONT");
    let kept = all.iter().filter(|c| c.is_ok()).count();
    assert_eq!(kept, n, "in {took:?}");
    for mut stream in all.into_iter().flatten() {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(status(&text), 200, "{text}");
    }
}

#[test]
fn what_strangers_send_makes_no_line_of_the_log_and_no_prompt_is_in_it() {
    let mut server = Server::start_logging(&[], "trace,wgpu_hal=off,wgpu_core=off,naga=off");
    let evil = "x\u{1b}[31m\n[ERROR isobit] INJECTED\r\u{7}\u{9b}";
    let secret = "a prompt nobody may read: zqxj";
    let body =
        json!({ "prompt": format!("{secret} {evil}"), "max_tokens": 2, "stop": evil, "model": evil, "user": evil });
    assert_eq!(server.ask("POST", "/v1/completions", &body.to_string()).0, 200);
    assert_eq!(
        server.ask("POST", "/v1/completions", &json!({ "prompt": secret, evil: 1, "seed": evil }).to_string()).0,
        400
    );
    for path in ["/%0a[ERROR]%20INJECTED%1b[31m", "/v1/models/x%0d%0aINJECTED", "/isobit/runs/%1b%0aINJECTED"] {
        assert!(matches!(server.ask("GET", path, "").0, 400 | 404), "{path}");
    }
    // what is no HTTP at all, and headers with bytes of their own
    for head in [
        "GET /\x1b[31m\nINJECTED HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Evil: \x1b[31mINJECTED\x07\r\nConnection: close\r\n\r\n",
        "GET /health HTTP/1.1\r\nHost: \x1b\u{9b}INJECTED\r\nConnection: close\r\n\r\n",
        "\x1b[2J\nINJECTED\r\n\r\n",
    ] {
        let mut stream = server.connect();
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // it may be closed without one
        let _ = stream.read_to_end(&mut answer);
    }
    server.child.kill().unwrap();
    let mut log = Vec::new();
    server.err.read_to_end(&mut log).unwrap();
    let log = String::from_utf8_lossy(&log);
    assert!(log.contains("texts at once"), "it says nothing: {log}");
    let control = log.chars().find(|c| c.is_control() && *c != '\n');
    assert!(control.is_none(), "{control:?} in {log}");
    for line in log.lines() {
        assert!(!line.starts_with("INJECTED") && !line.starts_with("[ERROR"), "{line:?}");
        assert!(!line.contains("zqxj"), "{line:?}");
    }
}
