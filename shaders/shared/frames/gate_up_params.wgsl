struct Params {
    n_tokens: u32,
    k: u32,
    dim: u32,
    digits: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
