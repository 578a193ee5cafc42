//! Models by name: found without a request, fetched from a server that speaks as the hub does, and faults of every kind.

mod server;

use crate::program;
use serde_json::Value;
use server::{COMMIT, Fault, Server, TOKEN, etag};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/tiny-stories-Q4_K_M.gguf");
const HF: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiny/hf");

fn model() -> Vec<u8> {
    std::fs::read(MODEL).unwrap()
}

/// isobit with a home of its own and this hub.
fn command(home: &Path, hub: &str, args: &[&str]) -> Command {
    let mut c = program::isobit(args);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["HF_", "HUGGINGFACE_", "XDG_", "OLLAMA_", "TRANSFORMERS_"].iter().any(|p| name.starts_with(p))
            || name.to_lowercase().ends_with("_proxy")
        {
            c.env_remove(name);
        }
    }
    c.env("HOME", home).env("HF_ENDPOINT", hub).stdout(Stdio::piped()).stderr(Stdio::piped());
    c
}

fn isobit(home: &Path, hub: &str, args: &[&str]) -> Output {
    command(home, hub, args).output().unwrap()
}

fn ok(home: &Path, hub: &str, args: &[&str]) -> String {
    let o = isobit(home, hub, args);
    assert!(o.status.success(), "{args:?}: {}", err(&o));
    String::from_utf8(o.stdout).unwrap()
}

fn err(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

/// Demands exit code 2, nothing on stdout and a last line `error: ` that holds these words.
fn refused(home: &Path, hub: &str, args: &[&str], words: &[&str]) {
    let o = isobit(home, hub, args);
    let err = err(&o);
    assert_eq!((o.status.code(), o.stdout.len()), (Some(2), 0), "{args:?}: {err}");
    let line = err.lines().last().filter(|l| l.starts_with("error: ")).unwrap_or_else(|| panic!("{args:?}: {err}"));
    for w in words {
        assert!(line.contains(w), "no {w:?} in {line:?}");
    }
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn repository(home: &Path) -> PathBuf {
    home.join(".cache/huggingface/hub/models--u--m")
}

fn names(dir: PathBuf) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Nobody answers there.
const NOBODY: &str = "http://127.0.0.1:9";

#[test]
fn a_model_is_laid_as_pythons_hub_lays_it_and_found_without_a_request() {
    let (home, bytes) = (home(), model());
    let hub = Server::start(&[("README.md", b"x"), ("tiny-Q4_K_M.gguf", &bytes), ("tiny-Q8_0.gguf", b"none")]);
    let path = ok(home.path(), &hub.hub, &["pull", "u/m"]);
    let repo = repository(home.path());
    let pointer = repo.join("snapshots").join(COMMIT).join("tiny-Q4_K_M.gguf");
    assert_eq!(path, format!("{}\n", pointer.display()));
    assert_eq!(names(repo.join("blobs")), [etag(&bytes)]);
    assert_eq!(std::fs::read_to_string(repo.join("refs/main")).unwrap(), COMMIT);
    #[cfg(unix)]
    assert_eq!(std::fs::read_link(&pointer).unwrap(), PathBuf::from(format!("../../blobs/{}", etag(&bytes))));
    assert_eq!(std::fs::read(&pointer).unwrap(), bytes);
    let locks = home.path().join(".cache/huggingface/hub/.locks/models--u--m");
    assert_eq!(names(locks), [format!("{}.lock", etag(&bytes))]);
    // again: the hub is asked, no bytes come
    hub.take();
    let again: Value = serde_json::from_str(&ok(home.path(), &hub.hub, &["pull", "u/m", "--json"])).unwrap();
    assert_eq!((&again["commit"], &again["files"][0]["fetched_bytes"]), (&COMMIT.into(), &0.into()));
    assert!(hub.take().iter().all(|s| !s.contents));
    // by every name that means it, without a request
    let want = ok(home.path(), NOBODY, &["run", MODEL, "-p", "The king", "-n", "4", "-d", "cpu"]);
    for name in [
        &["u/m"][..],
        &["U/M:q4_k_m"],
        &["hf:u/m:tiny-Q4"],
        &["-hf", "u/m"],
        &["-hf", "u/m:Q4_K_M"],
        &["-m", "u/m"],
        &["-hf", "u/m", "-hff", "tiny-Q4_K_M.gguf"],
    ] {
        let args = [&["run", "-p", "The king", "-n", "4", "-d", "cpu"], name].concat();
        assert_eq!(ok(home.path(), NOBODY, &args), want, "{name:?}");
    }
    assert!(ok(home.path(), NOBODY, &["inspect", "u/m"]).contains("[gguf]"));
    let o = isobit(home.path(), NOBODY, &["run", "u/m:Q4_K_M", "-p", "a", "-n", "1", "-d", "cpu"]);
    assert!(err(&o).contains("u/m:Q4_K_M: ") && err(&o).contains("(hf)"), "{}", err(&o));
    assert!(hub.take().is_empty());
    let list: Value = serde_json::from_str(&ok(home.path(), NOBODY, &["models", "--json"])).unwrap();
    let m = &list["models"][0];
    assert_eq!(
        (m["name"].as_str(), m["runs"].as_bool(), m["type"].as_str()),
        (Some("u/m:Q4_K_M"), Some(true), Some("Q4_K_M"))
    );
    assert_eq!((m["architecture"].as_str(), m["bytes"].as_u64()), (Some("llama"), Some(bytes.len() as u64)));
}

#[test]
fn llama_cpps_flag_fetches_what_is_not_there_and_plain_names_say_how() {
    let (home, bytes) = (home(), model());
    let hub = Server::start(&[("tiny-Q4_K_M.gguf", &bytes)]);
    let run = ["run", "-p", "The king", "-n", "2", "-d", "cpu"];
    let with = |more: &[&'static str]| [&run[..], more].concat();
    refused(home.path(), &hub.hub, &with(&["-m", "u/m"]), &["u/m: no file or folder", "`isobit pull u/m`"]);
    refused(home.path(), &hub.hub, &with(&["-m", "llama3.2:1b"]), &["`ollama pull llama3.2:1b`"]);
    refused(home.path(), &hub.hub, &with(&["-m", "../u/m"]), &["../u/m"]);
    refused(home.path(), &hub.hub, &with(&["-m", "hf:../m"]), &["no name of a model"]);
    refused(home.path(), &hub.hub, &with(&["-hf", "u/m", "--offline"]), &["offline"]);
    let o = command(home.path(), &hub.hub, &with(&["-hf", "u/m"])).env("HF_HUB_OFFLINE", "1").output().unwrap();
    assert!(o.status.code() == Some(2) && err(&o).contains("offline"), "{}", err(&o));
    assert!(hub.take().is_empty(), "nothing was asked");
    refused(home.path(), &hub.hub, &with(&["-hf", "u/m:Q8_0"]), &["no file for Q8_0", "it has Q4_K_M"]);
    refused(home.path(), &hub.hub, &with(&["-hf", "u/other"]), &["u/other is not on the hub"]);
    refused(home.path(), &hub.hub, &with(&["-hf", "u/m", MODEL]), &["two models"]);
    assert!(ok(home.path(), &hub.hub, &with(&["-hf", "u/m"])).starts_with("The king"));
    refused(home.path(), &hub.hub, &with(&["-m", "u/m:Q6_K"]), &["tiny-Q4_K_M.gguf", "`isobit pull u/m:Q6_K`"]);
    refused(home.path(), &hub.hub, &["pull", "llama3.2:1b"], &["no model of the hub"]);
    refused(home.path(), &hub.hub, &["pull", "u/m", "--file", "../x"], &["../x"]);
    refused(home.path(), &hub.hub, &["pull", "u/m", "--revision", "../x"], &["no revision"]);
}

#[test]
fn a_directory_of_safetensors_is_fetched_whole_and_runs() {
    let home = home();
    let files: Vec<(String, Vec<u8>)> =
        names(HF.into()).into_iter().map(|n| (n.clone(), std::fs::read(format!("{HF}/{n}")).unwrap())).collect();
    let mut all: Vec<(&str, &[u8])> = files.iter().map(|(n, b)| (n.as_str(), b.as_slice())).collect();
    all.push(("pytorch_model.bin", b"pickle"));
    let hub = Server::start(&all);
    let path = ok(home.path(), &hub.hub, &["pull", "u/m"]);
    assert_eq!(names(path.trim().into()), files.iter().map(|f| f.0.clone()).collect::<Vec<_>>());
    assert!(ok(home.path(), NOBODY, &["run", "u/m", "-p", "The king", "-n", "2", "-d", "cpu"]).starts_with("The king"));
    // a file of the hub that is no model
    let json: Value =
        serde_json::from_str(&ok(home.path(), &hub.hub, &["pull", "u/m", "--file", "pytorch_model.bin", "--json"]))
            .unwrap();
    assert_eq!(json["files"][0]["digest_checked"], true, "git's digest of a small file");
}

#[test]
fn the_token_reaches_the_hub_and_no_other_server() {
    let (home, bytes) = (home(), model());
    let hub = Server::start(&[("tiny.gguf", &bytes)]);
    hub.state().private = true;
    refused(home.path(), &hub.hub, &["pull", "u/m"], &["401", "HF_TOKEN"]);
    refused(home.path(), &hub.hub, &["pull", "u/m", "-hft", "wrong"], &["401", "not for this token"]);
    hub.take();
    let o = command(home.path(), &hub.hub, &["pull", "u/m"]).env("HF_TOKEN", TOKEN).output().unwrap();
    assert!(o.status.success(), "{}", err(&o));
    assert!(!err(&o).contains(TOKEN));
    let seen = hub.take();
    let (contents, own): (Vec<_>, Vec<_>) = seen.iter().partition(|s| s.contents);
    assert!(!contents.is_empty() && contents.iter().all(|s| s.token.is_none()), "{seen:?}");
    assert!(own.iter().all(|s| s.token.as_deref() == Some(&format!("Bearer {TOKEN}"))), "{seen:?}");
}

#[test]
fn a_connection_that_ends_is_taken_up_where_it_ended() {
    let (home, bytes) = (home(), model());
    let hub = Server::start(&[("tiny.gguf", &bytes)]);
    hub.state().faults = vec![Fault::Cut(100_000), Fault::Cut(0), Fault::Cut(300_000), Fault::Whole];
    let path = ok(home.path(), &hub.hub, &["pull", "u/m"]);
    assert_eq!(std::fs::read(path.trim()).unwrap(), bytes);
    let ranges: Vec<_> = hub.take().into_iter().filter(|s| s.contents).map(|s| s.range).collect();
    let at = |n: usize| Some(format!("bytes={n}-"));
    assert_eq!(ranges, [None, at(100_000), at(100_000), at(400_000)]);
}

#[cfg(unix)]
#[test]
fn what_is_interrupted_leaves_a_file_from_which_the_next_goes_on() {
    let (home, bytes) = (home(), model());
    let hub = Server::start(&[("tiny.gguf", &bytes)]);
    hub.state().faults = vec![Fault::Slow(Duration::from_millis(5))];
    let child = command(home.path(), &hub.hub, &["pull", "u/m"]).spawn().unwrap();
    let incomplete = repository(home.path()).join("blobs").join(format!("{}.incomplete", etag(&bytes)));
    let begun = Instant::now();
    while std::fs::metadata(&incomplete).map_or(0, |m| m.len()) < 20_000 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing came");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let pressed = Instant::now();
    let o = child.wait_with_output().unwrap();
    assert_eq!((o.status.code(), o.stdout.len()), (Some(130), 0), "{}", err(&o));
    assert!(pressed.elapsed() < Duration::from_millis(250), "{:?}", pressed.elapsed());
    assert_eq!(names(repository(home.path()).join("blobs")).len(), 1);
    assert!(!repository(home.path()).join("refs/main").exists() && !repository(home.path()).join("snapshots").exists());
    let list = ok(home.path(), NOBODY, &["models"]);
    assert!(list.contains("passed over: u/m (hf): a download that was not finished"), "{list}");
    refused(home.path(), NOBODY, &["inspect", "u/m"], &["not finished", "isobit pull u/m"]);
    let have = std::fs::metadata(&incomplete).unwrap().len();
    hub.take();
    let path = ok(home.path(), &hub.hub, &["pull", "u/m"]);
    assert_eq!(std::fs::read(path.trim()).unwrap(), bytes);
    let seen: Vec<_> = hub.take().into_iter().filter(|s| s.contents).collect();
    assert_eq!((seen.len(), seen[0].range.clone()), (1, Some(format!("bytes={have}-"))));
    assert_eq!(names(repository(home.path()).join("blobs")), [etag(&bytes)]);
}

#[test]
fn what_is_not_what_was_announced_is_thrown_away() {
    let bytes = model();
    for (fault, words) in [
        (Fault::Flip, &["not what the hub announced", "its digest is"][..]),
        (Fault::Longer(5), &["not what the hub announced", "more bytes"]),
        (Fault::Longer(1 << 20), &["not what the hub announced", "more bytes"]),
        (Fault::Shorter, &["not what the hub announced", "bytes, not"]),
        (Fault::Elsewhere, &["it sends"]),
    ] {
        let home = home();
        let hub = Server::start(&[("tiny.gguf", &bytes)]);
        hub.state().faults = vec![fault];
        refused(home.path(), &hub.hub, &["pull", "u/m"], words);
        let blobs = names(repository(home.path()).join("blobs"));
        assert!(blobs.iter().all(|b| b.ends_with(".incomplete")), "{blobs:?}");
        assert!(!repository(home.path()).join("snapshots").exists());
        ok(home.path(), &hub.hub, &["pull", "u/m"]);
    }
    // a part that was there and is of something else
    let home = home();
    let hub = Server::start(&[("tiny.gguf", &bytes)]);
    let blobs = repository(home.path()).join("blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    std::fs::write(blobs.join(format!("{}.incomplete", etag(&bytes))), b"something else").unwrap();
    refused(home.path(), &hub.hub, &["pull", "u/m"], &["its digest is"]);
    ok(home.path(), &hub.hub, &["pull", "u/m"]);
    // a small file, by git's digest
    let hub = Server::start(&[("tiny.gguf", b"GGUF small")]);
    hub.state().faults = vec![Fault::Flip];
    refused(home.path(), &hub.hub, &["pull", "u/m"], &["its digest is"]);
}

#[test]
fn a_busy_hub_is_waited_for_and_others_errors_are_said() {
    let (home, bytes) = (home(), model());
    let hub = Server::start(&[("tiny.gguf", &bytes)]);
    hub.state().statuses = vec![(429, "Retry-After: 1"), (500, "")];
    hub.state().faults = vec![Fault::Status(503, "Retry-After: 1")];
    let begun = Instant::now();
    let o = isobit(home.path(), &hub.hub, &["pull", "u/m"]);
    assert!(o.status.success() && err(&o).contains("busy (429)"), "{}", err(&o));
    assert!(begun.elapsed() > Duration::from_secs(2));
    let fresh = self::home();
    for (status, header, words) in [
        (404, "X-Error-Message: Repository not found", &["u/m is not on the hub: Repository not found"][..]),
        (403, "X-Error-Code: GatedRepo", &["403", "licence"]),
        (429, "Retry-After: 86400", &["busy (429)", "86400 s"]),
        (418, "X-A: b", &["status 418"]),
        (302, "Location: file:///etc/passwd", &["not followed"]),
        (302, "Location: /api/models/u/m/revision/main\r\nX: y", &[]),
        (302, "X-No: location", &["not followed"]),
    ] {
        hub.state().statuses = vec![(status, header)];
        match words {
            [] => drop(ok(fresh.path(), &hub.hub, &["pull", "u/m"])),
            words => refused(fresh.path(), &hub.hub, &["pull", "u/m"], words),
        }
    }
    hub.state().statuses = vec![(302, "Location: /api/models/u/m/revision/main"); 20];
    refused(fresh.path(), &hub.hub, &["pull", "u/m"], &["too many"]);
    refused(fresh.path(), NOBODY, &["pull", "u/m"], &["does not answer"]);
    refused(fresh.path(), "nonsense", &["pull", "u/m"], &["HF_ENDPOINT"]);
}

#[test]
fn what_a_hostile_hub_says_leads_nowhere() {
    let (home, bytes) = (home(), model());
    let hub = Server::start(&[("tiny.gguf", &bytes)]);
    let of = |sha: &str, file: &str| serde_json::json!({"sha": sha, "siblings": [{"rfilename": file}]}).to_string();
    for (json, word) in [
        (of("../../../../x", "tiny.gguf"), "its commit is none"),
        (of(COMMIT, "../../../../../x.gguf"), "a file is named"),
        (of(COMMIT, "/etc/x.gguf"), "a file is named"),
        (of(COMMIT, "a\\..\\x.gguf"), "a file is named"),
        (of(COMMIT, "a\u{0}.gguf"), "a file is named"),
        (of(COMMIT, "c:x.gguf"), "a file is named"),
        ("[".repeat(1 << 20), "not the JSON"),
        (format!("{{\"sha\":\"{COMMIT}\",\"x\":\"{}\"}}", "y".repeat(20 << 20)), "more than"),
        ("<html>".into(), "not the JSON"),
        (of(COMMIT, "x-00001-of-99999.gguf"), "no file for x-00002-of-99999.gguf"),
        (of(COMMIT, "x.bin"), "no model"),
    ] {
        hub.state().json = Some(json);
        refused(home.path(), &hub.hub, &["pull", "u/m"], &[word]);
    }
    hub.state().json = None;
    for (name, value, word) in [
        ("X-Linked-ETag", "\"../../../x\"", "no ETag"),
        ("X-Linked-Size", "-1", "its length is not told"),
        ("X-Repo-Commit", "ffff", "of commit ffff"),
        ("X-Linked-Size", "1000000000000000000", "are free"),
    ] {
        hub.state().headers = [(name.to_owned(), value.to_owned())].into();
        refused(home.path(), &hub.hub, &["pull", "u/m"], &[word]);
    }
    hub.state().headers.clear();
    hub.state().location = Some("file:///etc/passwd".into());
    refused(home.path(), &hub.hub, &["pull", "u/m"], &["not followed"]);
    assert!(!repository(home.path()).join("snapshots").exists() && !home.path().join("x").exists());
    hub.state().location = None;
    ok(home.path(), &hub.hub, &["pull", "u/m"]);
}

#[test]
fn two_at_once_fetch_once() {
    let (home, bytes) = (home(), model());
    let hub = Server::start(&[("tiny.gguf", &bytes)]);
    hub.state().faults = vec![Fault::Slow(Duration::from_micros(500))];
    let begin = || command(home.path(), &hub.hub, &["pull", "u/m"]).spawn().unwrap();
    let all: Vec<Output> = [begin(), begin(), begin()].map(|c| c.wait_with_output().unwrap()).into();
    assert!(all.iter().all(|o| o.status.success()), "{:?}", all.iter().map(err).collect::<Vec<_>>());
    assert_eq!(hub.take().iter().filter(|s| s.contents && s.line.starts_with("GET")).count(), 1);
}

#[test]
fn models_of_all_folders_are_listed_with_what_does_not_run() {
    let (home, bytes) = (home(), model());
    let put = |path: &str, bytes: &[u8]| {
        let path = home.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let digest = server::hex(&<sha2::Sha256 as sha2::Digest>::digest(&bytes));
    put(&format!(".ollama/models/blobs/sha256-{digest}"), &bytes);
    let layer = serde_json::json!({"mediaType": "application/vnd.ollama.image.model", "digest": format!("sha256:{digest}"), "size": bytes.len()});
    put(
        ".ollama/models/manifests/registry.ollama.ai/library/tiny/1b",
        serde_json::json!({"layers": [layer]}).to_string().as_bytes(),
    );
    put(".ollama/models/manifests/registry.ollama.ai/library/half/1b", b"{\"layers\": [");
    put(".lmstudio/models/u/m-GGUF/m-Q4_K_M.gguf", &bytes);
    put(".cache/lm-studio/models/u/bad-GGUF/bad-Q8_0.gguf", b"GGUF but no more");
    let run = |name: &str| ok(home.path(), NOBODY, &["run", name, "-p", "The king", "-n", "2", "-d", "cpu"]);
    assert_eq!(run("tiny:1b"), run("u/m-GGUF"));
    let text = ok(home.path(), NOBODY, &["models"]);
    let line =
        |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}")).to_owned();
    for (name, words) in [
        ("tiny:1b", &["2.28 MiB", "llama", "yes", "ollama"][..]),
        ("u/m-GGUF:Q4_K_M", &["Q4_K_M", "yes", "lmstudio"]),
        ("u/bad-GGUF:Q8_0", &["no: ", "lmstudio"]),
        ("passed over: half:1b (ollama)", &["not a manifest"]),
    ] {
        let line = line(name);
        assert!(words.iter().all(|w| line.contains(w)), "{line}");
    }
    let o = isobit(home.path(), NOBODY, &["models"]);
    assert!(err(&o).contains(".lmstudio/models (lmstudio)") && err(&o).contains("hub (hf): not there"), "{}", err(&o));
    let json: Value = serde_json::from_str(&ok(home.path(), NOBODY, &["models", "tiny", "--json"])).unwrap();
    assert_eq!((json["models"].as_array().unwrap().len(), json["models"][0]["type"].as_str()), (1, Some("Q4_K")));
    assert_eq!(json["passed_over"].as_array().unwrap().len(), 1);
}

/// What Python's hub fetches is found here, and what is fetched here Python finds. Needs a Python with `huggingface_hub`,
/// which `.ci/hub` installs.
#[test]
#[ignore = "needs huggingface_hub: .ci/hub"]
fn python_finds_what_is_fetched_here_and_the_other_way_round() {
    let python = std::env::var("ISOBIT_PYTHON").expect("ISOBIT_PYTHON names an interpreter that has huggingface_hub");
    let bytes = model();
    let config = std::fs::read(format!("{HF}/config.json")).unwrap();
    let hub = Server::start(&[("config.json", &config), ("sub/tiny-Q4_K_M.gguf", &bytes)]);
    let py = |home: &Path, offline: bool, script: &str| {
        let c = command(home, &hub.hub, &[]);
        let mut p = Command::new(&python);
        for (name, value) in c.get_envs() {
            match value {
                Some(value) => p.env(name, value),
                None => p.env_remove(name),
            };
        }
        p.env("HF_HUB_DISABLE_XET", "1").env("HF_HUB_DISABLE_TELEMETRY", "1");
        if offline {
            p.env("HF_HUB_OFFLINE", "1");
        }
        let o = p.args(["-c", script]).output().unwrap();
        assert!(o.status.success(), "{script}: {}", err(&o));
        String::from_utf8(o.stdout).unwrap().trim().to_owned()
    };
    // (a) Python's cache, of one file and of all
    for script in [
        "from huggingface_hub import hf_hub_download as d; print(d('u/m', 'sub/tiny-Q4_K_M.gguf'))",
        "from huggingface_hub import snapshot_download as d; print(d('u/m') + '/sub/tiny-Q4_K_M.gguf')",
    ] {
        let home = home();
        let path = py(home.path(), false, script);
        hub.take();
        let o = isobit(home.path(), &hub.hub, &["run", "-hf", "u/m", "-p", "The king", "-n", "2", "-d", "cpu"]);
        assert!(o.status.success() && err(&o).contains(&path), "{path}: {}", err(&o));
        assert!(hub.take().is_empty(), "found without a request");
        let json: Value = serde_json::from_str(&ok(home.path(), &hub.hub, &["pull", "u/m", "--json"])).unwrap();
        assert_eq!((&json["files"][0]["fetched_bytes"], json["path"].as_str()), (&0.into(), Some(path.as_str())));
    }
    // (b) ours
    let home = home();
    let path = ok(home.path(), &hub.hub, &["pull", "u/m"]).trim().to_owned();
    hub.take();
    for script in [
        "from huggingface_hub import try_to_load_from_cache as d; print(d('u/m', 'sub/tiny-Q4_K_M.gguf'))",
        "from huggingface_hub import hf_hub_download as d; print(d('u/m', 'sub/tiny-Q4_K_M.gguf', local_files_only=True))",
        "from huggingface_hub import snapshot_download as d; print(d('u/m', local_files_only=True) + '/sub/tiny-Q4_K_M.gguf')",
        "from huggingface_hub import scan_cache_dir as d; s = d(); assert not s.warnings, s.warnings; r, = s.repos; v, = r.revisions; f, = v.files; assert v.refs == {'main'} and r.repo_id == 'u/m'; print(f.file_path)",
    ] {
        assert_eq!(py(home.path(), true, script), path, "{script}");
    }
    assert!(hub.take().is_empty());
    // and with the hub there Python fetches no byte of it again
    py(home.path(), false, "from huggingface_hub import hf_hub_download as d; print(d('u/m', 'sub/tiny-Q4_K_M.gguf'))");
    assert!(hub.take().iter().all(|s| !s.contents || s.line.starts_with("HEAD")));
    assert_eq!(names(repository(home.path()).join("blobs")), [etag(&bytes)]);
}
