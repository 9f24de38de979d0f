@group(0) @binding(0) var<storage, read> x0: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec2<u32>>;
fn exp_4(x: vec4<f32>) -> vec4<f32> {
  return select(exp(x), x, (bitcast<vec4<u32>>(x) << vec4<u32>(1u)) > vec4<u32>(0xff000000u));
}
fn pack_float16_4(x: vec4<f32>) -> vec2<u32> {
  let bits = bitcast<vec4<u32>>(x);
  let magnitude = bits & vec4<u32>(0x7fffffffu);
  if (max(max(magnitude.x, magnitude.y), max(magnitude.z, magnitude.w)) < 0x477ff000u) {
    return vec2<u32>(pack2x16float(x.xy), pack2x16float(x.zw));
  }
  let beyond = magnitude >= vec4<u32>(0x477ff000u);
  let inside = select(x, vec4<f32>(0.0), beyond);
  let limit = select(vec4<u32>(0x7c00u), vec4<u32>(0x7e00u), magnitude > vec4<u32>(0x7f800000u));
  let special = select(vec4<u32>(0u), limit | ((bits >> vec4<u32>(16u)) & vec4<u32>(0x8000u)), beyond);
  let low = vec2<u32>(pack2x16float(inside.xy), pack2x16float(inside.zw));
  return low | vec2<u32>(special.x | (special.y << 16u), special.z | (special.w << 16u));
}
fn unpack_float16_4(words: vec2<u32>) -> vec4<f32> { return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y)); }
fn store(q: i32) {
  let t1 = unpack_float16_4(x0[q]);
  y[q] = pack_float16_4(1.0f / (1.0f + exp_4(-t1)));
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let q = i32(id.x + id.y * groups.x * 64u);
  if (q < 6) {
    store(q);
  }
}
