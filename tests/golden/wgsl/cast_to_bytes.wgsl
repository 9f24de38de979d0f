@group(0) @binding(0) var<storage, read> x0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
fn pack_int8_4(x: vec4<i32>) -> u32 {
  let low = bitcast<vec4<u32>>(x) & vec4<u32>(255u);
  return low.x | (low.y << 8u) | (low.z << 16u) | (low.w << 24u);
}
fn store(q: i32) {
  let t1 = x0[q];
  y[q] = pack_int8_4(((vec4<i32>(t1) & vec4<i32>(255)) ^ vec4<i32>(128)) - 128);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let q = i32(id.x + id.y * groups.x * 64u);
  if (q < 3) {
    store(q);
  }
}
