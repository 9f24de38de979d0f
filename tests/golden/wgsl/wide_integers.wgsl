@group(0) @binding(0) var<storage, read> x0: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read> x1: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec2<u32>>;
fn lt_i64_1(a: vec2<u32>, b: vec2<u32>) -> bool { return select(i32(a.y) < i32(b.y), a.x < b.x, a.y == b.y); }
fn max_i64_1(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> { return select(a, b, lt_i64_1(a, b)); }
fn mul_i64_1(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
  let a0 = a.x & 65535u;
  let a1 = a.x >> 16u;
  let b0 = b.x & 65535u;
  let b1 = b.x >> 16u;
  let low = a0 * b0;
  let middle = a1 * b0 + (low >> 16u);
  let middle2 = a0 * b1 + (middle & 65535u);
  let high = a1 * b1 + (middle >> 16u) + (middle2 >> 16u);
  return vec2<u32>((middle2 << 16u) | (low & 65535u), high + a.x * b.y + a.y * b.x);
}
fn store(q: i32) {
  y[q] = max_i64_1(mul_i64_1(x0[q], x1[q]), x0[q]);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let q = i32(id.x + id.y * groups.x * 64u);
  if (q < 6) {
    store(q);
  }
}
