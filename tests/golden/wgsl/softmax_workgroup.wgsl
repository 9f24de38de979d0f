@group(0) @binding(0) var<storage, read> x0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
fn exp_4(x: vec4<f32>) -> vec4<f32> {
  return select(exp(x), x, (bitcast<vec4<u32>>(x) << vec4<u32>(1u)) > vec4<u32>(0xff000000u));
}
var<private> infinity_bits: u32 = 0x7f800000u;
fn infinity_1() -> f32 { return bitcast<f32>(infinity_bits); }
fn phase_r0(row_0: i32, column: i32) -> vec4<f32> {
  return x0[column + row_0 * 75];
}
fn initial_r0() -> f32 {
  return -infinity_1();
}
fn combine_r0(left: vec4<f32>, right: vec4<f32>) -> vec4<f32> {
  return max(left, right);
}
fn join_r0(left: f32, right: f32) -> f32 {
  return max(left, right);
}
fn phase_r1(row_0: i32, column: i32, r0: f32) -> vec4<f32> {
  let t1 = x0[column + row_0 * 75];
  return exp_4(t1 - r0);
}
fn combine_r1(left: vec4<f32>, right: vec4<f32>) -> vec4<f32> {
  return left + right;
}
fn join_r1(left: f32, right: f32) -> f32 {
  return left + right;
}
fn store(row_0: i32, column: i32, r0: f32, r1: f32) {
  let t1 = x0[column + row_0 * 75];
  y[column + row_0 * 75] = exp_4(t1 - r0) * (1.0f / r1);
}

var<workgroup> shared_f32: array<f32, 64>;

fn halve_r0(local: u32, strip: i32, half: i32) {
  workgroupBarrier();
  if (strip < half) {
    shared_f32[local] = join_r0(shared_f32[local], shared_f32[local + u32(half)]);
  }
}
fn halve_r1(local: u32, strip: i32, half: i32) {
  workgroupBarrier();
  if (strip < half) {
    shared_f32[local] = join_r1(shared_f32[local], shared_f32[local + u32(half)]);
  }
}

@compute @workgroup_size(64)
fn main(
  @builtin(local_invocation_index) local: u32,
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
) {
  let strip = i32(local % 32u);
  let local_row = i32(local / 32u);
  let wanted = i32(group.x + group.y * groups.x) * 2 + local_row;
  let row = min(wanted, 5 - 1);
  let columns = 75;
  let row_0 = row;
  {
  var r0_0 = vec4<f32>(initial_r0());
  var r0_1 = vec4<f32>(initial_r0());
  var r0_2 = vec4<f32>(initial_r0());
  var r0_3 = vec4<f32>(initial_r0());
  var column = strip;
  for (; column < columns - 96; column += 128) {
    r0_0 = combine_r0(r0_0, phase_r0(row_0, column));
    r0_1 = combine_r0(r0_1, phase_r0(row_0, column + 32));
    r0_2 = combine_r0(r0_2, phase_r0(row_0, column + 64));
    r0_3 = combine_r0(r0_3, phase_r0(row_0, column + 96));
  }
  for (; column < columns; column += 32) {
    r0_0 = combine_r0(r0_0, phase_r0(row_0, column));
  }
  r0_0 = combine_r0(combine_r0(r0_0, r0_1), combine_r0(r0_2, r0_3));
let part = r0_0;
shared_f32[local] = join_r0(join_r0(part.x, part.y), join_r0(part.z, part.w));
  }
  halve_r0(local, strip, 16);
  halve_r0(local, strip, 8);
  halve_r0(local, strip, 4);
  halve_r0(local, strip, 2);
  halve_r0(local, strip, 1);
  workgroupBarrier();
  let r0 = shared_f32[local - u32(strip)];
  workgroupBarrier();
  {
  var r1_0 = vec4<f32>(0.0f);
  var r1_1 = vec4<f32>(0.0f);
  var r1_2 = vec4<f32>(0.0f);
  var r1_3 = vec4<f32>(0.0f);
  var column = strip;
  for (; column < columns - 96; column += 128) {
    r1_0 = combine_r1(r1_0, phase_r1(row_0, column, r0));
    r1_1 = combine_r1(r1_1, phase_r1(row_0, column + 32, r0));
    r1_2 = combine_r1(r1_2, phase_r1(row_0, column + 64, r0));
    r1_3 = combine_r1(r1_3, phase_r1(row_0, column + 96, r0));
  }
  for (; column < columns; column += 32) {
    r1_0 = combine_r1(r1_0, phase_r1(row_0, column, r0));
  }
  r1_0 = combine_r1(combine_r1(r1_0, r1_1), combine_r1(r1_2, r1_3));
let part = r1_0;
shared_f32[local] = join_r1(join_r1(part.x, part.y), join_r1(part.z, part.w));
  }
  halve_r1(local, strip, 16);
  halve_r1(local, strip, 8);
  halve_r1(local, strip, 4);
  halve_r1(local, strip, 2);
  halve_r1(local, strip, 1);
  workgroupBarrier();
  let r1 = shared_f32[local - u32(strip)];
  if (wanted < 5) {
    for (var column = strip; column < columns; column += 32) {
      store(row_0, column, r0, r1);
    }
  }
}
