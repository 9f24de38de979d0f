@group(0) @binding(0) var<storage, read> x0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> x1: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
fn store(q: i32) {
  let t1 = x0[q];
  let i2 = (q * 4) % 5;
  let i3 = (1 + q * 4) % 5;
  let i4 = (2 + q * 4) % 5;
  let i5 = (3 + q * 4) % 5;
  let t6 = vec4<f32>(x1[i2], x1[i3], x1[i4], x1[i5]);
  y[q] = t1 + t6;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let q = i32(id.x + id.y * groups.x * 64u);
  if (q < 4) {
    store(q);
  }
}
