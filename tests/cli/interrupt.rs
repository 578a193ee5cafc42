//! Ctrl-C: the program ends soon, says so, and tells what it has so far.
//!
//! The work that is interrupted would take minutes on the plain twins; `finish` waits for one.

use super::{Value, command, every_adapter, finish, folder, interrupt, isobit, put};
use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::Duration;

/// Text of about so many tokens.
fn text(dir: &tempfile::TempDir, tokens: usize) -> String {
    put(dir.path(), "long.txt", "The king had three sons and a bird. ".repeat(tokens / 11 + 1).as_bytes())
}

/// Reads stderr until a line holds `what`.
fn heard(child: &mut Child, what: &str) -> String {
    let pipe = child.stderr.as_mut().unwrap();
    let (mut all, mut byte) = (Vec::new(), [0]);
    loop {
        assert_eq!(
            pipe.read(&mut byte).unwrap(),
            1,
            "stderr ended without {what:?}: {}",
            String::from_utf8_lossy(&all)
        );
        all.push(byte[0]);
        let text = String::from_utf8_lossy(&all);
        if byte == *b"\n" && text.contains(what) {
            return text.into_owned();
        }
    }
}

#[test]
fn importances_that_are_not_all_there_are_not_written() {
    let dir = folder();
    let (text, out) = (text(&dir, 9000), dir.path().join("i.gguf"));
    let args = ["imatrix", "-f", &text, "-o", out.to_str().unwrap(), "-c", "512", "--device", "cpu:scalar"];
    let mut child = command(&args).spawn().unwrap();
    heard(&mut child, "windows of 512");
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    assert_eq!(finish(child).code, Some(130));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "the text alone");
}

#[test]
fn a_window_of_minutes_is_left_in_the_middle() {
    let dir = folder();
    let text = text(&dir, 9000);
    let mut child = command(&["perplexity", "-f", &text, "-c", "8192", "--device", "cpu:scalar"]).spawn().unwrap();
    heard(&mut child, "windows of 8192");
    // well into the first step
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    let ran = finish(child);
    assert_eq!((ran.code, ran.out.as_str()), (Some(130), ""), "{ran:?}");
    assert!(ran.err.contains("stopping; press Ctrl-C again to end at once"), "{ran:?}");
    assert!(ran.err.contains("interrupted after 0 of"), "{ran:?}");
}

#[test]
fn windows_that_are_done_are_told_and_are_those_of_a_shorter_run() {
    let dir = folder();
    let text = text(&dir, 400_000);
    let args = ["perplexity", "-f", &text, "-c", "64", "--device", "cpu", "--json"];
    for wait in [300, 1000, 3000, 9000, 20_000] {
        let mut child = command(&args).spawn().unwrap();
        heard(&mut child, "windows of 64");
        std::thread::sleep(Duration::from_millis(wait));
        interrupt(&child);
        let ran = finish(child);
        assert_eq!(ran.code, Some(130), "{ran:?}");
        if ran.out.is_empty() {
            continue;
        }
        let v: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(v["complete"], false, "{v}");
        assert!(ran.err.contains(&format!("interrupted after {} of", v["chunks"])), "{ran:?}");
        let whole = isobit(&[&args[..], &["--chunks", &v["chunks"].to_string()]].concat()).json();
        assert_eq!((&whole["ppl"], &whole["complete"]), (&v["ppl"], &Value::Bool(true)));
        return;
    }
    panic!("no window was done in twenty seconds");
}

#[test]
fn two_models_are_left_in_the_middle_of_a_window() {
    let dir = folder();
    let text = text(&dir, 9000);
    let model = super::MODEL;
    let mut child =
        command(&["compare", model, model, "-f", &text, "-c", "8192", "--device", "cpu:scalar"]).spawn().unwrap();
    heard(&mut child, "windows of 8192");
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    let ran = finish(child);
    assert_eq!((ran.code, ran.out.as_str()), (Some(130), ""), "{ran:?}");
    assert!(ran.err.contains("nothing is known"), "{ran:?}");
}

#[test]
fn a_benchmark_that_is_interrupted_ends_its_list() {
    let args =
        ["bench", "--device", "cpu:scalar", "-p", "8192", "--ubatch", "8192", "-n", "0", "--no-limits", "-o", "json"];
    let mut child = command(&args).spawn().unwrap();
    let mut start = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut start).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    interrupt(&child);
    let ran = finish(child);
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.err.contains("interrupted after 0 rows"), "{ran:?}");
    let rows: Value = serde_json::from_str(&format!("{}{}", char::from(start[0]), ran.out)).unwrap();
    assert_eq!(rows.as_array().map(Vec::len), Some(0));
}

#[test]
fn a_long_prompt_is_left_in_the_middle_on_every_device() {
    let dir = folder();
    let text = text(&dir, 12_000);
    for device in ["cpu:scalar".to_string()].into_iter().chain(every_adapter()) {
        let args = ["run", "-f", &text, "-c", "16384", "--ubatch", "16384", "--tune", "off", "--device", &device];
        let mut child = command(&args).spawn().unwrap();
        // said when all is loaded; the prompt is shown only after it is read
        heard(&mut child, " on ");
        std::thread::sleep(Duration::from_millis(300));
        interrupt(&child);
        let ran = finish(child);
        assert_eq!(ran.code, Some(130), "{device}: {ran:?}");
        assert!(ran.err.lines().last().unwrap().starts_with("[interrupted;"), "{device}: {ran:?}");
        assert!(ran.err.contains("generated 0 tokens"), "{device}: {ran:?}");
    }
}

#[test]
fn where_nothing_would_be_lost_the_first_one_ends_the_program() {
    let args = ["verify", "--devices", "cpu:scalar,cpu", "--tokens", "300"];
    let mut child = command(&args).spawn().unwrap();
    heard(&mut child, "tokens of prompt");
    interrupt(&child);
    let ran = finish(child);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(130), "", "interrupted\n"));
}

#[test]
fn the_second_one_ends_at_once() {
    let dir = folder();
    let text = text(&dir, 12_000);
    // a pipe that is full: the program waits for a reader that does not come
    let (_reader, writer) = std::io::pipe().unwrap();
    let mut filler = writer.try_clone().unwrap();
    std::thread::spawn(move || filler.write_all(&vec![0; 1 << 24]));
    std::thread::sleep(Duration::from_millis(300));
    let args = ["run", "-f", &text, "-c", "16384", "--ubatch", "16384", "--device", "cpu:scalar"];
    let mut child = command(&args).stdout(Stdio::from(writer)).spawn().unwrap();
    heard(&mut child, " on ");
    std::thread::sleep(Duration::from_millis(300));
    interrupt(&child);
    heard(&mut child, "stopping");
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "the pipe was read");
    interrupt(&child);
    heard(&mut child, "interrupted");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
