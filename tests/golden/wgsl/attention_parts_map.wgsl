@group(0) @binding(0) var<storage, read> x0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
fn isnan_1(x: f32) -> bool {
  return (bitcast<u32>(x) & u32(0x7fffffffu)) > u32(0x7f800000u);
}
fn exp_1(x: f32) -> f32 { return select(exp(x), x, isnan_1(x)); }
fn max_f32_1(a: f32, b: f32) -> f32 {
  return select(select(max(a, b), b, isnan_1(b)), a, isnan_1(a));
}
fn store(q: i32) {
  let i1 = q >> 3u;
  let t2 = max_f32_1(max_f32_1(max_f32_1(x0[(8 + i1 * 36)][0], x0[(17 + i1 * 36)][0]), x0[(26 + i1 * 36)][0]), x0[(35 + i1 * 36)][0]);
  let i3 = q & 7;
  let t4 = x0[(i3 + i1 * 36)];
  let t5 = x0[(9 + i3 + i1 * 36)];
  let t6 = ((vec4<f32>(0.0f) + (vec4<f32>(exp_1((x0[(8 + i1 * 36)][0] - t2))) * t4)) + (vec4<f32>(exp_1((x0[(17 + i1 * 36)][0] - t2))) * t5));
  let t7 = x0[(18 + i3 + i1 * 36)];
  let t8 = x0[(27 + i3 + i1 * 36)];
  let t9 = ((t6 + (vec4<f32>(exp_1((x0[(26 + i1 * 36)][0] - t2))) * t7)) + (vec4<f32>(exp_1((x0[(35 + i1 * 36)][0] - t2))) * t8));
  let t10 = ((0.0f + (exp_1((x0[(8 + i1 * 36)][0] - t2)) * x0[(8 + i1 * 36)][1])) + (exp_1((x0[(17 + i1 * 36)][0] - t2)) * x0[(17 + i1 * 36)][1]));
  let t11 = ((t10 + (exp_1((x0[(26 + i1 * 36)][0] - t2)) * x0[(26 + i1 * 36)][1])) + (exp_1((x0[(35 + i1 * 36)][0] - t2)) * x0[(35 + i1 * 36)][1]));
  y[q] = (t9 / vec4<f32>(t11));
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let q = i32(id.x + id.y * groups.x * 64u);
  if (q < 16) {
    store(q);
  }
}
