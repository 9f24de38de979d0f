@group(0) @binding(0) var<storage, read> x0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> x1: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
fn isnan_4(x: vec4<f32>) -> vec4<bool> {
  return (bitcast<vec4<u32>>(x) << vec4<u32>(1u)) > vec4<u32>(0xff000000u);
}
fn store(q: i32) {
  let t1 = x0[q];
  y[q] = select(t1, vec4<f32>(x1[0]), isnan_4(t1));
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let q = i32(id.x + id.y * groups.x * 64u);
  if (q < 2) {
    store(q);
  }
}
