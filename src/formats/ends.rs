//! The tokens that the post-processor of a `tokenizer.json` puts before a text and behind it, by their ids.

use serde_json::Value;

/// The one it puts before an empty text, if it puts one. Anything else it does is not asked for.
pub fn first(processor: &Value) -> Option<u64> {
    at(processor, "cls", |single| single.first())
}

/// The one it puts behind a text.
pub fn last(processor: &Value) -> Option<u64> {
    at(processor, "sep", |single| single.last())
}

/// `field`: its name where there is no template; `pick`: the place in one.
fn at(processor: &Value, field: &str, pick: fn(&[Value]) -> Option<&Value>) -> Option<u64> {
    match processor["type"].as_str()? {
        "TemplateProcessing" => {
            let text = pick(processor["single"].as_array()?)?["SpecialToken"]["id"].as_str()?;
            processor["special_tokens"].get(text)?["ids"].get(0)?.as_u64()
        }
        "RobertaProcessing" | "BertProcessing" => processor[field].get(1)?.as_u64(),
        // a list inside a list is not followed: the files have none, and depth would be theirs to choose
        "Sequence" => {
            let parts = processor["processors"].as_array()?;
            parts.iter().filter(|p| p["type"] != "Sequence").find_map(|p| at(p, field, pick))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_ends_are_those_of_every_form() {
        let template = json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]"}},
            {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "[SEP]"}}],
            "special_tokens": {"[CLS]": {"ids": [7]}, "[SEP]": {"ids": [8, 9]}}});
        let level = json!({"type": "ByteLevel"});
        let of = |v: &Value| (first(v), last(v));
        assert_eq!(of(&template), (Some(7), Some(8)));
        assert_eq!(
            of(&json!({"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 2]})),
            (Some(0), Some(2))
        );
        assert_eq!(of(&json!({"type": "Sequence", "processors": [level, template]})), (Some(7), Some(8)));
        let deep = json!({"type": "Sequence", "processors": [{"type": "Sequence", "processors": [template]}]});
        let bare = json!({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}], "special_tokens": {}});
        for none in [deep, bare, level, json!(null), json!([1]), json!({"type": "BertProcessing", "cls": 5, "sep": []})]
        {
            assert_eq!(of(&none), (None, None), "{none}");
        }
        let wrong = json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}}],
            "special_tokens": {"x": {"ids": [-1]}}});
        assert_eq!(of(&wrong), (None, None));
    }
}
