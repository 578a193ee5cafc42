//! How a family of models writes calls of tools and reasoning, found in its template.

/// How calls are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// `<tool_call>{"name": .., "arguments": {..}}</tool_call>`: Hermes, Qwen and their kin. Within the tags what Qwen3-Coder
    /// (`<function=NAME><parameter=KEY>`) and GLM-4.5 (`NAME`, `<arg_key>`, `<arg_value>`) write is read too
    Hermes,
    /// `{"name": .., "parameters": {..}}` as the whole answer, several with `;` between them, `<|python_tag|>` in front or
    /// not: Llama 3
    Llama3,
    /// `[TOOL_CALLS][{"name": .., "arguments": {..}}]`: Mistral
    Mistral,
    /// `[TOOL_CALLS]NAME[ARGS]{..}`, once for each call: Mistral since 2025
    MistralArgs,
    /// `<|tool_call|>[{"name": .., "arguments": {..}}]<|/tool_call|>`: Phi-4-mini
    Phi4,
    /// `functools[{"name": .., "arguments": {..}}]`: Phi-4-mini in other texts, firefunction
    Functools,
    /// `<|channel|>commentary to=functions.NAME <|message|>{..}<|call|>`: gpt-oss
    Harmony,
    /// `<|tool_call>call:NAME{key:<|"|>text<|"|>}<tool_call|>`: Gemma 4
    Gemma,
    /// an object or a list of objects with `name` and `arguments` as the whole answer: nothing says how
    Generic,
}

/// How reasoning is set apart from the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    /// it is not
    None,
    /// `<think>..</think>`
    Think,
    /// `[THINK]..[/THINK]`: Mistral
    Brackets,
    /// `<seed:think>..</seed:think>`
    Seed,
    /// `<|channel|>analysis<|message|>..<|end|>`: gpt-oss
    Harmony,
    /// `<|channel>thought..<channel|>`: Gemma 4
    Channel,
}

/// How far a call has come.
pub(super) enum Found {
    /// not to its end
    More,
    /// calls, as name and arguments, and the bytes they take
    Calls(Vec<(String, String)>, usize),
    /// it is none
    Nothing,
}

impl Thinking {
    /// What opens and what closes it.
    pub(super) fn tags(self) -> Option<(&'static str, &'static str)> {
        match self {
            Thinking::None | Thinking::Harmony => None,
            Thinking::Think => Some(("<think>", "</think>")),
            Thinking::Brackets => Some(("[THINK]", "[/THINK]")),
            Thinking::Seed => Some(("<seed:think>", "</seed:think>")),
            Thinking::Channel => Some(("<|channel>thought", "<channel|>")),
        }
    }
}

impl Calls {
    /// What begins a call in the midst of text.
    pub(super) fn openers(self) -> &'static [&'static str] {
        match self {
            Calls::Hermes => &["<tool_call>"],
            Calls::Llama3 => &["<|python_tag|>"],
            Calls::Mistral | Calls::MistralArgs => &["[TOOL_CALLS]"],
            Calls::Phi4 | Calls::Functools => &["<|tool_call|>", "functools["],
            Calls::Gemma => &["<|tool_call>"],
            Calls::Harmony | Calls::Generic => &[],
        }
    }

    /// Whether an answer that begins with JSON may be a call.
    pub(super) fn bare(self) -> bool {
        matches!(self, Calls::Llama3 | Calls::Generic)
    }
}

/// What a model's answers look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// how it calls tools
    pub calls: Calls,
    /// how it reasons
    pub thinking: Thinking,
}

impl Format {
    /// The format that a template's source speaks of.
    pub fn of(source: &str) -> Format {
        let has = |text: &str| source.contains(text);
        if has("<|channel|>") && has("<|message|>") {
            return Format { calls: Calls::Harmony, thinking: Thinking::Harmony };
        }
        let calls = match () {
            () if has("[TOOL_CALLS]") && has("[ARGS]") => Calls::MistralArgs,
            () if has("[TOOL_CALLS]") => Calls::Mistral,
            () if has("<|tool_call>") && has("<|turn>") => Calls::Gemma,
            () if has("<tool_call>") => Calls::Hermes,
            () if has("<|tool_call|>") => Calls::Phi4,
            () if has("functools") => Calls::Functools,
            () if has("<|python_tag|>") || has("<|start_header_id|>") => Calls::Llama3,
            () => Calls::Generic,
        };
        let thinking = match () {
            () if has("<seed:think>") => Thinking::Seed,
            () if has("<|channel>") && has("<|turn>") => Thinking::Channel,
            () if has("<think>") || has("</think>") => Thinking::Think,
            () if has("[THINK]") => Thinking::Brackets,
            () => Thinking::None,
        };
        Format { calls, thinking }
    }

    /// Whether a rendered prompt ends within reasoning, so that the answer goes on with it.
    pub fn opened(&self, prompt: &str) -> bool {
        self.thinking.tags().is_some_and(|(open, _)| prompt.trim_end().ends_with(open))
    }

    /// Whether the parser must see this text of a control token, which does not show in a decoded text otherwise.
    pub fn wants(&self, control: &str) -> bool {
        const HARMONY: [&str; 6] = ["<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|constrain|>"];
        const MISTRAL: [&str; 2] = ["[ARGS]", "[CALL_ID]"];
        const GEMMA: [&str; 2] = ["<tool_call|>", "<|\"|>"];

        let tag = self.thinking.tags().is_some_and(|(open, close)| control == open || control == close)
            || self.thinking == Thinking::Channel && control == "<|channel>";
        let call = self.calls.openers().contains(&control)
            || match self.calls {
                Calls::Hermes => control == "</tool_call>",
                Calls::Phi4 => control == "<|/tool_call|>",
                Calls::Mistral | Calls::MistralArgs => MISTRAL.contains(&control),
                Calls::Harmony => HARMONY.contains(&control),
                Calls::Gemma => GEMMA.contains(&control),
                Calls::Llama3 | Calls::Functools | Calls::Generic => false,
            };
        tag || call
    }
}
