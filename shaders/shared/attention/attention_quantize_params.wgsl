struct Params {
    n_tokens: u32,
    chunk0: u32,
    chunks: u32,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    page_first: u32,
    page_len: u32,
    scale: f32,
    scope: u32,
    window: u32,
    table: u32,
    softcap: f32,
    inv_softcap: f32,
    sinks: u32,
    digits: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
