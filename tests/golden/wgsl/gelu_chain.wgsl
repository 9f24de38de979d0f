@group(0) @binding(0) var<storage, read> x0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> x1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
fn erfc_tail_4(m: vec4<f32>) -> vec4<f32> {
  let p = 1.0 / (1.0 + 0.3 * m);
  return exp(-m * m) * (p * (0.16918783 + p * (0.17071779 + p * (0.1483234 + p * (0.21497995 + p * (-0.09476284
      + p * (0.5478656 + p * (-0.51239353 + p * (0.48561436 + p * -0.12953262)))))))));
}
fn isnan_4(x: vec4<f32>) -> vec4<bool> {
  return (bitcast<vec4<u32>>(x) << vec4<u32>(1u)) > vec4<u32>(0xff000000u);
}
fn erfc_4(x: vec4<f32>) -> vec4<f32> {
  let tail = erfc_tail_4(abs(x));
  return select(select(tail, 2.0 - tail, x < vec4<f32>(0.0)), x, isnan_4(x));
}
fn store(q: i32) {
  let t1 = x0[q];
  let i2 = q & 1;
  let t3 = x1[i2];
  y[q] = ((0.5f * t1) * erfc_4(t1 * (-0.7071067690849304f))) * t3;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let q = i32(id.x + id.y * groups.x * 64u);
  if (q < 8) {
    store(q);
  }
}
