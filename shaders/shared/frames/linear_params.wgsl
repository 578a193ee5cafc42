struct Params {
    n_tokens: u32,
    k: u32,
    rows: u32,
    digits: u32,
    y_stride: u32,
    y_offset: u32,
    residual: u32,
}

@group(0) @binding(0) var<uniform> p: Params;
