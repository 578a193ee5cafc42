//! A server that speaks as the hub does, and misbehaves when asked to.

use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The commit that `main` is.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
/// What has a token.
pub const TOKEN: &str = "hf_secret";

/// What happens to one request for a file's bytes.
#[derive(Clone, Debug)]
pub enum Fault {
    /// the connection ends after so many bytes of the answer
    Cut(usize),
    /// one bit of the first byte is another
    Flip,
    /// so many bytes follow the last, no length being told
    Longer(usize),
    /// the answer says that it has fewer bytes, and has
    Shorter,
    /// the whole is sent, whatever was asked for
    Whole,
    /// another part is sent
    Elsewhere,
    /// a kilobyte in a while
    Slow(Duration),
    /// this status, with this header
    Status(u16, &'static str),
}

/// What a request was.
#[derive(Clone, Debug)]
pub struct Seen {
    pub line: String,
    pub range: Option<String>,
    pub token: Option<String>,
    /// it came to the server of contents
    pub contents: bool,
}

#[derive(Default)]
pub struct State {
    pub files: BTreeMap<String, Vec<u8>>,
    /// the next requests for bytes
    pub faults: Vec<Fault>,
    /// the next requests to the hub: status and a header
    pub statuses: Vec<(u16, &'static str)>,
    pub seen: Vec<Seen>,
    /// in place of the JSON of the repository
    pub json: Option<String>,
    /// in place of a file's own headers
    pub headers: BTreeMap<String, String>,
    /// where contents are, in place of the server of contents
    pub location: Option<String>,
    /// requests without a token are refused
    pub private: bool,
}

/// Two ports: the hub, and the contents of large files.
pub struct Server {
    pub hub: String,
    contents: String,
    state: Mutex<State>,
}

/// Bytes from which on contents lie on the other server, under their SHA-256.
const LARGE: usize = 10_000;

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// What the hub calls these bytes.
pub fn etag(bytes: &[u8]) -> String {
    if bytes.len() >= LARGE {
        return hex(&Sha256::digest(bytes));
    }
    let mut git = Sha1::new();
    git.update(format!("blob {}\0", bytes.len()));
    git.update(bytes);
    hex(&git.finalize())
}

impl Server {
    pub fn start(files: &[(&str, &[u8])]) -> Arc<Server> {
        let (hub, contents) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let address = |l: &TcpListener| format!("http://{}", l.local_addr().unwrap());
        let files = files.iter().map(|(name, bytes)| (name.to_string(), bytes.to_vec())).collect();
        let state = Mutex::new(State { files, ..State::default() });
        let server = Arc::new(Server { hub: address(&hub), contents: address(&contents), state });
        for (listener, is_contents) in [(hub, false), (contents, true)] {
            let server = server.clone();
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let server = server.clone();
                    // whoever hangs up early is none of this side's business
                    std::thread::spawn(move || drop(server.answer(stream, is_contents)));
                }
            });
        }
        server
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Requests so far, which are forgotten.
    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state().seen)
    }

    fn answer(&self, stream: TcpStream, contents: bool) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if line == "\r\n" {
                break;
            }
            head.push(line.trim_end().to_owned());
        }
        let field = |name: &str| {
            let of = |l: &String| {
                l.split_once(':').filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.trim().to_owned())
            };
            head.iter().find_map(of)
        };
        let line = head[0].clone();
        let token = field("authorization");
        self.state().seen.push(Seen { line: line.clone(), range: field("range"), token: token.clone(), contents });
        let mut words = line.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let path = path.split('?').next().unwrap_or_default();
        let mut out = Out { stream, is_head: method == "HEAD" };
        if contents {
            let name = path.trim_start_matches('/');
            let bytes = self.state().files.values().find(|b| etag(b) == name).cloned();
            return match bytes {
                Some(bytes) => self.bytes(&mut out, &bytes, field("range"), ""),
                None => out.short(404, "", ""),
            };
        }
        let mut state = self.state();
        if !state.statuses.is_empty() {
            let (status, header) = state.statuses.remove(0);
            return out.short(status, header, "");
        }
        if state.private && token != Some(format!("Bearer {TOKEN}")) {
            return out.short(401, "X-Error-Code: RepoNotFound", "");
        }
        let files = state.files.clone();
        if path == "/api/models/u/m/revision/main" || path == format!("/api/models/u/m/revision/{COMMIT}") {
            let own = || {
                let siblings: Vec<_> = files.keys().map(|f| serde_json::json!({"rfilename": f})).collect();
                serde_json::json!({"id": "u/m", "sha": COMMIT, "siblings": siblings}).to_string()
            };
            let text = state.json.clone().unwrap_or_else(own);
            return out.short(200, "Content-Type: application/json", &text);
        }
        if path == format!("/api/models/u/m/tree/{COMMIT}") {
            let entry = |(name, bytes): (&String, &Vec<u8>)| {
                let oid = etag(bytes);
                serde_json::json!({"type": "file", "path": name, "size": bytes.len(), "oid": oid})
            };
            let text = serde_json::Value::from(files.iter().map(entry).collect::<Vec<_>>()).to_string();
            return out.short(200, "Content-Type: application/json", &text);
        }
        let file = [COMMIT, "main"].iter().find_map(|r| path.strip_prefix(&format!("/u/m/resolve/{r}/")));
        let Some((_, bytes)) = file.and_then(|f| files.get_key_value(&f.replace("%20", " "))) else {
            return out.short(404, "X-Error-Message: no such thing", "");
        };
        let mut headers = BTreeMap::from([("X-Repo-Commit".to_owned(), COMMIT.to_owned())]);
        if bytes.len() < LARGE {
            headers.insert("ETag".into(), format!("\"{}\"", etag(bytes)));
        } else {
            let location = state.location.clone().unwrap_or_else(|| format!("{}/{}", self.contents, etag(bytes)));
            headers.insert("X-Linked-ETag".into(), format!("\"{}\"", etag(bytes)));
            headers.insert("X-Linked-Size".into(), bytes.len().to_string());
            headers.insert("Location".into(), location);
        }
        headers.extend(state.headers.clone());
        let is_redirect = headers.contains_key("Location");
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        drop(state);
        match is_redirect {
            true => out.short(302, headers.trim_end(), ""),
            false => self.bytes(&mut out, bytes, field("range"), &headers),
        }
    }

    /// A file's bytes, or those of a range.
    fn bytes(&self, out: &mut Out, bytes: &[u8], range: Option<String>, headers: &str) -> std::io::Result<()> {
        let fault = match (&mut self.state().faults, out.is_head) {
            (faults, false) if !faults.is_empty() => Some(faults.remove(0)),
            _ => None,
        };
        let from = range.and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok()).unwrap_or(0);
        let mut body = bytes[from.min(bytes.len())..].to_vec();
        let part = format!("Content-Range: bytes {from}-{}/{}\r\n", bytes.len() - 1, bytes.len());
        let (status, place) = if from > 0 { (206, part.as_str()) } else { (200, "") };
        let length = |n: usize| format!("Content-Length: {n}\r\n");
        match fault {
            Some(Fault::Status(status, header)) => out.short(status, header, ""),
            Some(Fault::Cut(n)) => {
                out.head(status, &format!("{headers}{place}{}", length(body.len())))?;
                out.body(&body[..n.min(body.len())])
            }
            Some(Fault::Flip) => {
                body[0] ^= 1;
                out.head(status, &format!("{headers}{place}{}", length(body.len())))?;
                out.body(&body)
            }
            Some(Fault::Longer(n)) => {
                body.extend(vec![0; n]);
                out.head(status, &format!("{headers}{place}"))?;
                out.body(&body)
            }
            Some(Fault::Shorter) => {
                body.truncate(body.len() / 2);
                out.head(200, &format!("{headers}{}", length(body.len())))?;
                out.body(&body)
            }
            Some(Fault::Whole) => {
                out.head(200, &format!("{headers}{}", length(bytes.len())))?;
                out.body(bytes)
            }
            Some(Fault::Elsewhere) => {
                out.head(206, &format!("Content-Range: bytes 1-5/{}\r\n{}", bytes.len(), length(5)))?;
                out.body(&bytes[1..6])
            }
            Some(Fault::Slow(pause)) => {
                out.head(status, &format!("{headers}{place}{}", length(body.len())))?;
                for piece in body.chunks(1024) {
                    out.body(piece)?;
                    std::thread::sleep(pause);
                }
                Ok(())
            }
            None => {
                out.head(status, &format!("{headers}{place}{}", length(body.len())))?;
                out.body(&body)
            }
        }
    }
}

struct Out {
    stream: TcpStream,
    is_head: bool,
}

impl Out {
    fn head(&mut self, status: u16, headers: &str) -> std::io::Result<()> {
        write!(self.stream, "HTTP/1.1 {status} x\r\nConnection: close\r\n{headers}\r\n")
    }

    fn body(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if self.is_head { Ok(()) } else { self.stream.write_all(bytes) }
    }

    fn short(&mut self, status: u16, header: &str, text: &str) -> std::io::Result<()> {
        let header = if header.is_empty() { String::new() } else { format!("{header}\r\n") };
        self.head(status, &format!("{header}Content-Length: {}\r\n", text.len()))?;
        self.body(text.as_bytes())
    }
}
