// Writes the outputs of a unit of heads, as attend leaves them in row.
fn write_unit(lane: u32, unit: u32, token: u32) {
    let head0 = unit * unit_heads();
    let elements = heads_of(unit) * p.head_dim;
    for (var e = lane; e < elements; e += LANES) {
        out[(token * p.heads + head0) * p.head_dim + e] = canon(row[e]);
    }
}
