@group(0) @binding(0) var<storage, read> x0: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<private> infinity_bits: u32 = 0x7f800000u;
fn infinity_1() -> f32 { return bitcast<f32>(infinity_bits); }
fn isnan_1(x: f32) -> bool {
  return (bitcast<u32>(x) << u32(1u)) > u32(0xff000000u);
}
fn max_f32_1(a: f32, b: f32) -> f32 {
  return select(select(max(a, b), b, isnan_1(b)), a, isnan_1(a));
}
fn element(channel: i32, input_0: i32, input_1: i32) -> f32 {
  return x0[channel * 72 + input_0 * 8 + input_1];
}
fn initial() -> f32 {
  return -infinity_1();
}
fn combine(left: f32, right: f32) -> f32 {
  return max_f32_1(left, right);
}
fn store(channel: i32, output_0: i32, output_1: i32, value: f32) {
  y[channel * 16 + output_0 * 4 + output_1] = value;
}
fn find_channel(element: i32) -> i32 {
  return element >> 4u;
}
fn find_output_0(element: i32) -> i32 {
  let i1 = element >> 2u;
  return i1 & 3;
}
fn find_output_1(element: i32) -> i32 {
  return element & 3;
}

fn pool(channel: i32, output_0: i32, output_1: i32) -> f32 {
  var count = 1;
  let origin_0 = output_0 * 2 - 0;
  let first_0 = 0;
  let stop_0 = min(2, (9 - origin_0));
  let origin_1 = output_1 * 2 - 0;
  let first_1 = 0;
  let stop_1 = min(2, (8 - origin_1));
  var value = f32(initial());
  for (var k_0 = first_0; k_0 < stop_0; k_0++) {
  let input_0 = origin_0 + k_0;
  for (var k_1 = first_1; k_1 < stop_1; k_1++) {
  let input_1 = origin_1 + k_1;
  value = combine(value, element(channel, input_0, input_1));
  }
  }
  return value;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let thread = i32(id.x + id.y * groups.x * 64u);
  if (thread < 64) {
    let channel = find_channel(thread);
    let output_0 = find_output_0(thread);
    let output_1 = find_output_1(thread);
    let value = pool(channel, output_0, output_1);
    store(channel, output_0, output_1, value);
  }
}
