//! Renders chat templates for `.ci/templates`: of each line of stdin, an object with `template`, `specials`, `messages`, `tools`,
//! `kwargs`, `add_generation_prompt` and `now`, a line with `text` or `error`.

use isobit::internals::chat::{Conversation, Template};
use serde_json::{Value, json};
use std::io::BufRead;
use std::time::{Duration, UNIX_EPOCH};

fn render(line: &str) -> Result<String, String> {
    let v: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let fields = v["specials"].as_object().into_iter().flatten();
    let specials: Vec<_> = fields.filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_string()))).collect();
    let template = Template::new(v["template"].as_str().unwrap_or_default(), &specials).map_err(|e| e.to_string())?;
    let conversation = Conversation {
        messages: v["messages"].as_array().cloned().unwrap_or_default(),
        tools: v["tools"].as_array().cloned(),
        add_generation_prompt: v["add_generation_prompt"] == true,
        kwargs: v["kwargs"].as_object().cloned().unwrap_or_default(),
        now: UNIX_EPOCH + Duration::from_secs(v["now"].as_u64().unwrap_or_default()),
    };
    template.render(&conversation).map_err(|e| e.to_string())
}

fn main() -> std::io::Result<()> {
    for line in std::io::stdin().lock().lines() {
        let row = render(&line?).map_or_else(|error| json!({"error": error}), |text| json!({"text": text}));
        println!("{row}");
    }
    Ok(())
}
