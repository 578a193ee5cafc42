//! Templates of formats that many models share, for files that bring none. Written for this program in Jinja; each gives
//! what models of its name were trained on.

/// What can be chosen by name.
pub const BUILTIN: &[&str] = &[
    "chatml", "llama2", "llama3", "mistral", "phi3", "phi4", "gemma", "zephyr", "vicuna", "chatglm", "deepseek",
    "alpaca",
];

/// A template by its name, one of [`BUILTIN`].
pub fn builtin(name: &str) -> Option<&'static str> {
    Some(match name {
        "chatml" => CHATML,
        "llama2" => LLAMA2,
        "llama3" => LLAMA3,
        "mistral" => MISTRAL,
        "phi3" => PHI3,
        "phi4" => PHI4,
        "gemma" => GEMMA,
        "zephyr" => ZEPHYR,
        "vicuna" => VICUNA,
        "chatglm" => CHATGLM,
        "deepseek" => DEEPSEEK,
        "alpaca" => ALPACA,
        _ => return None,
    })
}

/// Qwen and many others; tools as Hermes has them.
const CHATML: &str = r#"{%- set ns = namespace(system='') -%}
{%- for m in messages if m.role in ['system', 'developer'] -%}
    {%- set ns.system = ns.system + ('\n\n' if ns.system else '') + m.content -%}
{%- endfor -%}
{%- if tools -%}
    {%- set about -%}
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{% for tool in tools %}
{{ tool | tojson }}
{% endfor %}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>
    {%- endset -%}
    {%- set ns.system = ns.system + ('\n\n' if ns.system else '') + about -%}
{%- endif -%}
{%- if ns.system -%}
    {{- '<|im_start|>system\n' + ns.system + '<|im_end|>\n' -}}
{%- endif -%}
{%- for m in messages -%}
    {%- if m.role == 'user' -%}
        {{- '<|im_start|>user\n' + m.content + '<|im_end|>\n' -}}
    {%- elif m.role == 'assistant' -%}
        {{- '<|im_start|>assistant\n' + (m.content or '') -}}
        {%- for call in m.tool_calls or [] -%}
            {%- set f = call.function or call -%}
            {{- '\n' if m.content or not loop.first else '' -}}
            {{- '<tool_call>\n{"name": ' + (f.name | tojson) + ', "arguments": ' -}}
            {{- (f.arguments if f.arguments is string else f.arguments | tojson) + '}\n</tool_call>' -}}
        {%- endfor -%}
        {{- '<|im_end|>\n' -}}
    {%- elif m.role == 'tool' -%}
        {{- '<|im_start|>user' if loop.first or loop.previtem.role != 'tool' else '' -}}
        {{- '\n<tool_response>\n' + m.content + '\n</tool_response>' -}}
        {{- '<|im_end|>\n' if loop.last or loop.nextitem.role != 'tool' else '' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\n' -}}
{%- endif -%}
"#;

/// Llama 2: the system message within the first user message.
const LLAMA2: &str = r#"{%- set ns = namespace(system='') -%}
{%- for m in messages -%}
    {%- if m.role in ['system', 'developer'] -%}
        {%- set ns.system = '<<SYS>>\n' + m.content + '\n<</SYS>>\n\n' -%}
    {%- elif m.role == 'assistant' -%}
        {{- ' ' + m.content | trim + ' ' ~ eos_token -}}
    {%- else -%}
        {{- bos_token ~ '[INST] ' + ns.system + m.content | trim + ' [/INST]' -}}
        {%- set ns.system = '' -%}
    {%- endif -%}
{%- endfor -%}
"#;

/// Llama 3 and its tools as JSON.
const LLAMA3: &str = r#"{{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for m in messages if m.role in ['system', 'developer'] -%}
    {%- set ns.system = ns.system + ('\n\n' if ns.system else '') + m.content | trim -%}
{%- endfor -%}
{%- if tools -%}
    {%- set about -%}
You have access to the following functions. To call a function, respond with JSON for the call in the format {"name": function name, "parameters": dictionary of argument name and its value}. Do not use variables.

{% for tool in tools %}
{{ tool | tojson(indent=4) }}

{% endfor %}
    {%- endset -%}
    {%- set ns.system = about | trim + ('\n\n' + ns.system if ns.system else '') -%}
{%- endif -%}
{%- if ns.system -%}
    {{- '<|start_header_id|>system<|end_header_id|>\n\n' + ns.system + '<|eot_id|>' -}}
{%- endif -%}
{%- for m in messages if m.role not in ['system', 'developer'] -%}
    {%- if m.tool_calls -%}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {%- for call in m.tool_calls -%}
            {%- set f = call.function or call -%}
            {{- '; ' if not loop.first else '' -}}
            {{- '{"name": ' + (f.name | tojson) + ', "parameters": ' -}}
            {{- (f.arguments if f.arguments is string else f.arguments | tojson) + '}' -}}
        {%- endfor -%}
        {{- '<|eot_id|>' -}}
    {%- else -%}
        {%- set role = 'ipython' if m.role == 'tool' else m.role -%}
        {{- '<|start_header_id|>' + role + '<|end_header_id|>\n\n' + (m.content or '') | trim + '<|eot_id|>' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
{%- endif -%}
"#;

/// Mistral 7B v0.3 and Nemo: tools before the last user message.
const MISTRAL: &str = r#"{{- bos_token -}}
{%- set ns = namespace(system='', last=-1) -%}
{%- for m in messages -%}
    {%- if m.role in ['system', 'developer'] -%}
        {%- set ns.system = ns.system + m.content + '\n\n' -%}
    {%- elif m.role == 'user' -%}
        {%- set ns.last = loop.index0 -%}
    {%- endif -%}
{%- endfor -%}
{%- for m in messages -%}
    {%- if m.role == 'user' -%}
        {%- if loop.index0 == ns.last and tools -%}
            {{- '[AVAILABLE_TOOLS]' + tools | tojson + '[/AVAILABLE_TOOLS]' -}}
        {%- endif -%}
        {{- '[INST]' + (ns.system if loop.index0 == ns.last else '') + m.content + '[/INST]' -}}
    {%- elif m.role == 'tool' -%}
        {{- '[TOOL_RESULTS]' + {'content': m.content, 'call_id': m.tool_call_id} | tojson + '[/TOOL_RESULTS]' -}}
    {%- elif m.tool_calls -%}
        {{- '[TOOL_CALLS][' -}}
        {%- for call in m.tool_calls -%}
            {%- set f = call.function or call -%}
            {{- ', ' if not loop.first else '' -}}
            {{- '{"name": ' + (f.name | tojson) + ', "arguments": ' -}}
            {{- (f.arguments if f.arguments is string else f.arguments | tojson) -}}
            {{- (', "id": ' + (call.id | tojson) if call.id else '') + '}' -}}
        {%- endfor -%}
        {{- ']' ~ eos_token -}}
    {%- elif m.role == 'assistant' -%}
        {{- m.content ~ eos_token -}}
    {%- endif -%}
{%- endfor -%}
"#;

const PHI3: &str = r#"{%- for m in messages -%}
    {{- '<|' + ('system' if m.role == 'developer' else m.role) + '|>\n' + (m.content or '') + '<|end|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|assistant|>\n' -}}
{%- endif -%}
"#;

/// Phi-4-mini, with its tools in the system message.
const PHI4: &str = r#"{%- set ns = namespace(done=false) -%}
{%- if tools and not (messages and messages[0].role in ['system', 'developer']) -%}
    {{- '<|system|><|tool|>' + tools | map(attribute='function') | list | tojson + '<|/tool|><|end|>' -}}
    {%- set ns.done = true -%}
{%- endif -%}
{%- for m in messages -%}
    {%- if m.role in ['system', 'developer'] -%}
        {{- '<|system|>' + m.content -}}
        {%- if tools and not ns.done -%}
            {{- '<|tool|>' + tools | map(attribute='function') | list | tojson + '<|/tool|>' -}}
            {%- set ns.done = true -%}
        {%- endif -%}
        {{- '<|end|>' -}}
    {%- elif m.tool_calls -%}
        {{- '<|assistant|>' + (m.content or '') + '<|tool_call|>[' -}}
        {%- for call in m.tool_calls -%}
            {%- set f = call.function or call -%}
            {{- ', ' if not loop.first else '' -}}
            {{- '{"name": ' + (f.name | tojson) + ', "arguments": ' -}}
            {{- (f.arguments if f.arguments is string else f.arguments | tojson) + '}' -}}
        {%- endfor -%}
        {{- ']<|/tool_call|><|end|>' -}}
    {%- elif m.role == 'tool' -%}
        {{- '<|tool_response|>' + m.content + '<|end|>' -}}
    {%- else -%}
        {{- '<|' + m.role + '|>' + m.content + '<|end|>' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|assistant|>' -}}
{%- endif -%}
"#;

/// Gemma: no system role, so that message goes before the first of the user.
const GEMMA: &str = r#"{{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- for m in messages -%}
    {%- if m.role in ['system', 'developer'] -%}
        {%- set ns.system = ns.system + m.content | trim + '\n\n' -%}
    {%- elif m.role == 'assistant' -%}
        {{- '<start_of_turn>model\n' + (m.content or '') | trim + '<end_of_turn>\n' -}}
    {%- else -%}
        {{- '<start_of_turn>user\n' + ns.system + m.content | trim + '<end_of_turn>\n' -}}
        {%- set ns.system = '' -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<start_of_turn>model\n' -}}
{%- endif -%}
"#;

const ZEPHYR: &str = r#"{%- for m in messages -%}
    {{- '<|' + ('system' if m.role == 'developer' else m.role) + '|>\n' + (m.content or '') ~ eos_token + '\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|assistant|>\n' -}}
{%- endif -%}
"#;

const VICUNA: &str = r#"{{- bos_token -}}
{%- for m in messages -%}
    {%- if m.role in ['system', 'developer'] -%}
        {{- m.content + '\n\n' -}}
    {%- elif m.role == 'assistant' -%}
        {{- 'ASSISTANT: ' + (m.content or '') ~ eos_token + '\n' -}}
    {%- else -%}
        {{- 'USER: ' + m.content + '\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- 'ASSISTANT:' -}}
{%- endif -%}
"#;

/// ChatGLM3 and GLM-4.
const CHATGLM: &str = r#"{{- '[gMASK]<sop>' -}}
{%- for m in messages -%}
    {%- set role = 'observation' if m.role == 'tool' else 'system' if m.role == 'developer' else m.role -%}
    {{- '<|' + role + '|>\n' + (m.content or '') -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|assistant|>\n' -}}
{%- endif -%}
"#;

/// DeepSeek V3 and R1.
const DEEPSEEK: &str = r#"{{- bos_token -}}
{%- for m in messages if m.role in ['system', 'developer'] -%}
    {{- ('\n\n' if not loop.first else '') + m.content -}}
{%- endfor -%}
{%- for m in messages -%}
    {%- if m.role == 'user' -%}
        {{- '<｜User｜>' + m.content -}}
    {%- elif m.role == 'assistant' -%}
        {%- set said = m.content or '' -%}
        {{- '<｜Assistant｜>' + said.split('</think>')[-1].lstrip('\n') + '<｜end▁of▁sentence｜>' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<｜Assistant｜>' -}}
{%- endif -%}
"#;

const ALPACA: &str = r#"{%- for m in messages -%}
    {%- if m.role in ['system', 'developer'] -%}
        {{- m.content + '\n\n' -}}
    {%- elif m.role == 'assistant' -%}
        {{- '### Response:\n' + (m.content or '') ~ eos_token + '\n\n' -}}
    {%- else -%}
        {{- '### Instruction:\n' + m.content + '\n\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '### Response:\n' -}}
{%- endif -%}
"#;
