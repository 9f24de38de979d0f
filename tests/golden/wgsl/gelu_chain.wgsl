@group(0) @binding(0) var<storage, read> x0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> x1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;
fn erf_4(x: vec4<f32>) -> vec4<f32> {
  let magnitude = abs(x);
  let square = x * x;
  let near = magnitude * (1.12837917 + square * (-0.376126389 + square * (0.112837917 + square * (-0.0268661706
      + square * (0.00522397763 + square * (-0.000854832702 + square * (0.00012055333 + square * (-1.49256504e-05
      + square * (1.64621144e-06 + square * -1.63658447e-07)))))))));
  let p = 1.0 / (1.0 + 0.3275911 * magnitude);
  let far = 1.0 - p * (0.254829592 + p * (-0.284496736 + p * (1.421413741 + p * (-1.453152027 + p * 1.061405429))))
      * exp(-square);
  let result = select(far, near, magnitude < vec4<f32>(1.0));
  return select(result, -result, x < vec4<f32>(0.0));
}
fn store(q: i32) {
  let t1 = x0[q];
  let t2 = ((vec4<f32>(0.5f) * t1) * (vec4<f32>(1.0f) + erf_4((t1 * vec4<f32>(0.7071067690849304f)))));
  let i3 = q & 1;
  let t4 = x1[i3];
  y[q] = (t2 * t4);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let q = i32(id.x + id.y * groups.x * 64u);
  if (q < 8) {
    store(q);
  }
}
