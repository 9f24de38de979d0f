// every kind of declaration that the guard reads, in a shader that naga and Tint accept
/* and a comment /* in a comment */ */
override scale: f32 = 2.0;
const COUNT = 4u;
const HEX: u32 = 0x8u;
alias Row = array<vec4<f32>, COUNT>;
struct Inner { @align(16) a: f32, @size(16) b: vec3<u32>, }
struct Outer { row: Row, inner: Inner, m: mat2x3<f32>, }
var<private> kept: array<i32, HEX>;
var<workgroup> tile: array<atomic<u32>, 64>;
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<uniform> sizes: vec4<u32>;

fn first(p: ptr<function, Row>, at: u32) -> vec4<f32> {
    return (*p)[at % COUNT];
}

fn make(x: f32) -> Outer {
    let inner = Inner(x, vec3<u32>(1u, 2u, 3u));
    return Outer(Row(vec4f(x), vec4f(x), vec4f(x), vec4f(x)), inner, mat2x3f(1.0, 2.0, 3.0, 4.0, 5.0, 6.0));
}

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    var outer = make(y[id.x] * scale);
    let table = array<f32, 3>(1.0, 2.0, 3.0);
    var row = outer.row;
    atomicAdd(&tile[index], 1u);
    workgroupBarrier();
    for (var i = 0u; i < sizes.x; i++) {
        kept[i % HEX] += i32(atomicLoad(&tile[i % 64u]));
    }
    y[id.x] = first(&row, id.y).x + table[id.x % 3u] + outer.m[1].y + f32(kept[id.y % HEX]);
}
