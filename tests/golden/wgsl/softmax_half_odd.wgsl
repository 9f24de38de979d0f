@group(0) @binding(0) var<storage, read> x0: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec2<u32>>;
fn exp_1(x: f32) -> f32 {
  return select(exp(x), x, (bitcast<u32>(x) << u32(1u)) > u32(0xff000000u));
}
fn exp_4(x: vec4<f32>) -> vec4<f32> {
  return select(exp(x), x, (bitcast<vec4<u32>>(x) << vec4<u32>(1u)) > vec4<u32>(0xff000000u));
}
var<private> infinity_bits: u32 = 0x7f800000u;
fn infinity_1() -> f32 { return bitcast<f32>(infinity_bits); }
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
fn unpack_float16_1(word: u32, element: i32) -> f32 { return unpack2x16float(word >> (16u * u32(element))).x; }
fn unpack_float16_4(words: vec2<u32>) -> vec4<f32> { return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y)); }
fn phase_r0(row_0: i32, column: i32) -> f32 {
  let i1 = (column + row_0 * 7) >> 2u;
  let i2 = (column + row_0 * 7) >> 1u;
  let i3 = i2 & 1;
  let i4 = (column + row_0 * 7) & 1;
  return unpack_float16_1(x0[i1][i3], i4);
}
fn initial_r0() -> f32 {
  return -infinity_1();
}
fn combine_r0(left: f32, right: f32) -> f32 {
  return max(left, right);
}
fn phase_r1(row_0: i32, column: i32, r0: f32) -> f32 {
  let i1 = (column + row_0 * 7) >> 2u;
  let i2 = (column + row_0 * 7) >> 1u;
  let i3 = i2 & 1;
  let i4 = (column + row_0 * 7) & 1;
  return exp_1(unpack_float16_1(x0[i1][i3], i4) - r0);
}
fn combine_r1(left: f32, right: f32) -> f32 {
  return left + right;
}
fn find_row_0(element: i32) -> i32 {
  return element / 7;
}
fn store(word: i32, r0: vec4<f32>, r1: vec4<f32>) {
  let t1 = unpack_float16_4(x0[word]);
  y[word] = pack_float16_4(exp_4(t1 - r0) * (1.0f / r1));
}

struct Registers {
  r0: f32,
  r1: f32,
}

fn reduce_row(row_0: i32, columns: i32) -> Registers {
  var r0: f32;
  var r1: f32;
  {
  var r0_0 = f32(initial_r0());
  var r0_1 = f32(initial_r0());
  var r0_2 = f32(initial_r0());
  var r0_3 = f32(initial_r0());
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
r0 = part;
  }
  {
  var r1_0 = f32(0.0f);
  var r1_1 = f32(0.0f);
  var r1_2 = f32(0.0f);
  var r1_3 = f32(0.0f);
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
r1 = part;
  }
  return Registers(r0, r1);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let word = i32(id.x + id.y * groups.x * 64u);
  if (word < 6) {
    let columns = 7;
    let element_0 = min(4 * word + 0, 21 - 1);
    let row_0_0 = find_row_0(element_0);
    var lane_0: Registers;
    lane_0 = reduce_row(row_0_0, columns);
    let element_1 = min(4 * word + 1, 21 - 1);
    let row_0_1 = find_row_0(element_1);
    var lane_1: Registers;
    if (row_0_1 == row_0_0) {
      lane_1 = lane_0;
    } else {
      lane_1 = reduce_row(row_0_1, columns);
    }
    let element_2 = min(4 * word + 2, 21 - 1);
    let row_0_2 = find_row_0(element_2);
    var lane_2: Registers;
    if (row_0_2 == row_0_1) {
      lane_2 = lane_1;
    } else {
      lane_2 = reduce_row(row_0_2, columns);
    }
    let element_3 = min(4 * word + 3, 21 - 1);
    let row_0_3 = find_row_0(element_3);
    var lane_3: Registers;
    if (row_0_3 == row_0_2) {
      lane_3 = lane_2;
    } else {
      lane_3 = reduce_row(row_0_3, columns);
    }
    store(word, vec4<f32>(lane_0.r0, lane_1.r0, lane_2.r0, lane_3.r0), vec4<f32>(lane_0.r1, lane_1.r1, lane_2.r1, lane_3.r1));
  }
}
