@group(0) @binding(0) var<storage, read> x0: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
fn store(q: i32) {
  let i1 = (q * 4) % 3;
  let i2 = (q * 4) / 3;
  let i3 = (1 + q * 4) % 3;
  let i4 = (1 + q * 4) / 3;
  let i5 = (2 + q * 4) % 3;
  let i6 = (2 + q * 4) / 3;
  let t7 = vec4<f32>(x0[i1 * 5 + i2], x0[i3 * 5 + i4], x0[i5 * 5 + i6], x0[1 + i1 * 5 + i2]);
  y[q] = t7;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let q = i32(id.x + id.y * groups.x * 64u);
  if (q < 4) {
    store(q);
  }
}
