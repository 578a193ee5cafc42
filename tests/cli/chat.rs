//! `isobit chat`: messages from a pipe, from arguments and from a terminal.

use super::{Ran, Value, command, finish, folder, isobit, put};
#[cfg(target_os = "linux")]
use std::io::Read;
use std::io::Write;
use std::process::Stdio;

/// A chat with a message on stdin.
fn piped(message: &str, args: &[&str]) -> Ran {
    let mut child = command(&[&["chat", "--device", "cpu"], args].concat()).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(message.as_bytes()).unwrap();
    finish(child)
}

/// A chat whose messages are arguments, as JSON objects of its answers.
fn turns(args: &[&str]) -> Vec<Value> {
    let ran = isobit(&[&["chat", "--device", "cpu", "--json", "-n", "24"], args].concat()).ok();
    ran.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// Demands an error in one line, the last, with these words.
fn declined(ran: &Ran, words: &[&str]) {
    let line = ran.err.lines().last().unwrap_or_default();
    assert!(ran.code == Some(2) && ran.out.is_empty() && line.starts_with("error: "), "{ran:?}");
    assert!(words.iter().all(|w| line.contains(w)), "{words:?}: {line}");
}

#[test]
fn the_embedded_model_tells_its_story_and_says_why() {
    let ran = piped("The king had three sons, and\n", &["-n", "12", "--temp", "0"]);
    assert!(ran.err.contains("knows stories and no chat"), "{ran:?}");
    let story = isobit(&[
        "run",
        "-p",
        "The king had three sons, and",
        "-n",
        "12",
        "--temp",
        "0",
        "--device",
        "cpu",
        "--no-display-prompt",
    ])
    .ok();
    assert_eq!(ran.out, story.out);
}

#[test]
fn answers_follow_each_other_and_what_was_said_is_not_read_again() {
    let long = "The king had three sons and a bird. ".repeat(12);
    let all = turns(&["-p", &long, "-p", " And then", "-p", "/stats"]);
    assert_eq!(all.len(), 2);
    let of = |i: usize, key: &str| all[i]["usage"][key].as_u64().unwrap();
    assert_eq!(of(0, "cached_tokens"), 0);
    assert!(of(1, "cached_tokens") >= 64 && of(1, "prompt_tokens") > of(0, "prompt_tokens") + 24, "{all:?}");
    assert_eq!(all[0]["message"]["role"], "assistant");
}

#[test]
fn a_template_by_name_or_file_makes_the_prompt() {
    let dir = folder();
    let file = put(dir.path(), "t.jinja", b"{% for m in messages %}{{ m.content }}{% endfor %}");
    let plain = turns(&["-p", "Once upon a time", "--chat-template", "none"]);
    // the same text, but for the token before it, which a template writes itself
    let own = turns(&["-p", "Once upon a time", "--chat-template", &file]);
    assert_eq!(
        plain[0]["usage"]["prompt_tokens"].as_u64().unwrap(),
        own[0]["usage"]["prompt_tokens"].as_u64().unwrap() + 1
    );
    let chatml = turns(&["-p", "Hi", "--system", "Be good.", "--chat-template", "chatml"]);
    assert!(chatml[0]["usage"]["prompt_tokens"].as_u64() > own[0]["usage"]["prompt_tokens"].as_u64());
    declined(&isobit(&["chat", "-p", "x", "--chat-template", "nonsense"]), &["nonsense", "chatml", "llama3"]);
    let broken = put(dir.path(), "broken.jinja", b"a\n{% if %}");
    declined(&isobit(&["chat", "-p", "x", "--chat-template", &broken]), &["broken.jinja", "line 2"]);
    let raises = put(dir.path(), "raises.jinja", b"{{ raise_exception('not with me') }}");
    declined(&isobit(&["chat", "-p", "x", "--chat-template", &raises]), &["not with me"]);
}

#[test]
fn commands_change_what_comes_next() {
    let dir = folder();
    let file = dir.path().join("talk.json");
    let (save, load) = (format!("/save {}", file.display()), format!("/load {}", file.display()));
    let all = turns(&["-p", "Once", "-p", "/regen", "-p", &save]);
    assert_eq!((all.len(), &all[0]["seed"], &all[1]["seed"]), (2, &0.into(), &1.into()));
    assert_ne!(all[0]["message"], all[1]["message"]);
    let kept: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(kept["messages"][1], all[1]["message"]);
    let on = turns(&["-p", &load, "-p", "/set seed 1", "-p", " and then"]);
    let whole = turns(&["-p", "Once", "-p", "/set seed 1", "-p", "/regen", "-p", " and then"]);
    assert_eq!(on.len(), 1);
    assert!(
        whole.len() == 3 && on[0]["usage"]["prompt_tokens"] == whole[2]["usage"]["prompt_tokens"],
        "{on:?} {whole:?}"
    );
    // what was forgotten is in no prompt
    let cleared = turns(&["-p", "Once", "-p", "/clear", "-p", "Once"]);
    assert_eq!(cleared[0]["message"], cleared[1]["message"]);
    assert!(turns(&["-p", "/bye", "-p", "Once"]).is_empty());
    declined(&isobit(&["chat", "-p", "/frobnicate"]), &["/frobnicate", "/help"]);
    declined(&isobit(&["chat", "-p", "/set temp x"]), &["temp", "a number"]);
    declined(&isobit(&["chat", "-p", "/set temp -1"]), &[]);
    declined(&isobit(&["chat", "-p", "/load /no/such/file"]), &["/no/such/file"]);
    let wrong = put(dir.path(), "wrong.json", b"[{\"role\": 1}]");
    declined(&isobit(&["chat", "-p", &format!("/load {wrong}")]), &["message 1"]);
}

#[test]
fn what_cannot_be_answered_is_said() {
    declined(&piped("", &[]), &["no message"]);
    declined(&piped("\n\n", &[]), &["no message"]);
    let ran = piped(&"The king had three sons. ".repeat(40), &["-c", "64"]);
    declined(&ran, &["the context holds 64", "/clear"]);
    let ran = piped("Once", &["-c", "64", "--json"]);
    let ended = if ran.err.contains("is full") { "context full" } else { "eos" };
    assert_eq!(ran.json()["stop"], ended);
}

/// A chat on a terminal that somebody types at.
#[cfg(target_os = "linux")]
struct Terminal {
    child: std::process::Child,
    keys: std::process::ChildStdin,
    screen: std::process::ChildStdout,
    said: String,
    /// how much of it was waited for
    seen: usize,
}

#[cfg(target_os = "linux")]
impl Terminal {
    /// `None`, with a printed reason, where there is no program to make a terminal.
    fn chat(args: &str) -> Option<Terminal> {
        let mut script = super::program::quiet("script");
        // in the shell's place: dash, which got the Ctrl-C too, would end with 130 whatever the program did
        script.args(["-qfec", &format!("exec {} chat {args}", env!("CARGO_BIN_EXE_isobit")), "/dev/null"]);
        script.env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = script.spawn().map_err(|e| println!("skipped: no terminal without script: {e}")).ok()?;
        let (keys, screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Some(Terminal { child, keys, screen, said: String::new(), seen: 0 })
    }

    /// Reads what is shown until it has these words, behind those that were waited for before.
    fn until(&mut self, words: &str) {
        let mut bytes = [0; 4096];
        while !self.said[self.seen..].contains(words) {
            let n = self.screen.read(&mut bytes).unwrap();
            assert!(n > 0, "it ended before {words:?}: {}", self.said);
            self.said.push_str(&String::from_utf8_lossy(&bytes[..n]));
        }
        self.seen += self.said[self.seen..].find(words).unwrap() + words.len();
    }

    /// Presses the keys once the words are there. Of keys that come between two prompts the terminal itself reads some: it
    /// takes Ctrl-D for the end of an empty line, and no prompt ever sees it.
    fn after(&mut self, words: &[&str], keys: &str) {
        words.iter().for_each(|w| self.until(w));
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// All that was said by a chat that ended well.
    fn ended(mut self) -> String {
        let mut errors = String::new();
        self.screen.read_to_string(&mut self.said).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}{errors}", self.said);
        self.said
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_is_asked_for_lines_and_ends_with_control_d() {
    let dir = folder();
    let Some(mut t) = Terminal::chat(&format!("--device cpu -n 8 --temp 0 --cache-dir {}", dir.path().display()))
    else {
        return;
    };
    t.after(&["/help lists commands", "> "], "Once upon\r");
    t.after(&["> "], "\"\"\"two\r");
    t.after(&[". "], "lines\"\"\"\r");
    t.after(&["> "], "/stats\r");
    t.after(&["answers: prompt", "> "], "\x03");
    t.after(&["Ctrl-C once more", "> "], "/help\r");
    t.after(&["/regen", "> "], "\x04");
    t.ended();
    let history = std::fs::read_to_string(dir.path().join("chat_history")).unwrap();
    assert!(history.contains("Once upon") && history.contains("two"), "{history}");
}

#[cfg(target_os = "linux")]
#[test]
fn control_c_stops_an_answer_and_the_chat_goes_on() {
    let dir = folder();
    // on the plain twins an answer of 400 tokens takes long
    let args = format!("--device cpu:scalar -t 1 -n 400 --temp 0 -l 0-inf --cache-dir {}", dir.path().display());
    let Some(mut t) = Terminal::chat(&args) else { return };
    t.after(&["/help lists commands", "> "], "Once upon a time\r");
    // the answer has begun
    t.after(&["there"], "\x03");
    t.after(&["> "], "/stats\r");
    t.after(&["; answer ", "> "], "\x04");
    let said = t.ended();
    let tokens = said.split("; answer ").nth(1).and_then(|s| s.split(' ').next()).and_then(|n| n.parse::<usize>().ok());
    assert!(tokens.is_some_and(|n| n > 0 && n < 400), "{tokens:?}: {said}");
    assert!(!said.contains("Ctrl-C once more"), "the answer was over before: {said}");
}
