@group(0) @binding(0) var<storage, read> x0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
fn exp_4(x: vec4<f32>) -> vec4<f32> {
  return select(exp(x), x, (bitcast<vec4<u32>>(x) << vec4<u32>(1u)) > vec4<u32>(0xff000000u));
}
var<private> infinity_bits: u32 = 0x7f800000u;
fn infinity_1() -> f32 { return bitcast<f32>(infinity_bits); }
fn phase_r0(row_0: i32, column: i32) -> vec4<f32> {
  return x0[column + row_0 * 8];
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
  let t1 = x0[column + row_0 * 8];
  return exp_4(t1 - r0);
}
fn combine_r1(left: vec4<f32>, right: vec4<f32>) -> vec4<f32> {
  return left + right;
}
fn join_r1(left: f32, right: f32) -> f32 {
  return left + right;
}
fn store(row_0: i32, column: i32, r0: f32, r1: f32) {
  let t1 = x0[column + row_0 * 8];
  y[column + row_0 * 8] = exp_4(t1 - r0) * (1.0f / r1);
}

struct Registers {
  r0: f32,
  r1: f32,
}

fn reduce_row(row_0: i32, columns: i32) -> Registers {
  var r0: f32;
  var r1: f32;
  {
  var r0_0 = vec4<f32>(initial_r0());
  var r0_1 = vec4<f32>(initial_r0());
  var r0_2 = vec4<f32>(initial_r0());
  var r0_3 = vec4<f32>(initial_r0());
  var column = 0;
  for (; column < columns - 3; column += 4) {
    r0_0 = combine_r0(r0_0, phase_r0(row_0, column));
    r0_1 = combine_r0(r0_1, phase_r0(row_0, column + 1));
    r0_2 = combine_r0(r0_2, phase_r0(row_0, column + 2));
    r0_3 = combine_r0(r0_3, phase_r0(row_0, column + 3));
  }
  for (; column < columns; column += 1) {
    r0_0 = combine_r0(r0_0, phase_r0(row_0, column));
  }
  r0_0 = combine_r0(combine_r0(r0_0, r0_1), combine_r0(r0_2, r0_3));
let part = r0_0;
r0 = join_r0(join_r0(part.x, part.y), join_r0(part.z, part.w));
  }
  {
  var r1_0 = vec4<f32>(0.0f);
  var r1_1 = vec4<f32>(0.0f);
  var r1_2 = vec4<f32>(0.0f);
  var r1_3 = vec4<f32>(0.0f);
  var column = 0;
  for (; column < columns - 3; column += 4) {
    r1_0 = combine_r1(r1_0, phase_r1(row_0, column, r0));
    r1_1 = combine_r1(r1_1, phase_r1(row_0, column + 1, r0));
    r1_2 = combine_r1(r1_2, phase_r1(row_0, column + 2, r0));
    r1_3 = combine_r1(r1_3, phase_r1(row_0, column + 3, r0));
  }
  for (; column < columns; column += 1) {
    r1_0 = combine_r1(r1_0, phase_r1(row_0, column, r0));
  }
  r1_0 = combine_r1(combine_r1(r1_0, r1_1), combine_r1(r1_2, r1_3));
let part = r1_0;
r1 = join_r1(join_r1(part.x, part.y), join_r1(part.z, part.w));
  }
  return Registers(r0, r1);
}

@compute @workgroup_size(16)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let row = i32(id.x + id.y * groups.x * 16u);
  if (row < 64) {
    let row_0 = row;
    let columns = 8;
    let registers = reduce_row(row_0, columns);
    let r0 = registers.r0;
    let r1 = registers.r1;
    for (var column = 0; column < columns; column++) {
      store(row_0, column, r0, r1);
    }
  }
}
