@group(0) @binding(0) var<storage, read> x0: array<i32>;
@group(0) @binding(1) var<storage, read> x1: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> x2: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> x3: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec2<u32>>;
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
fn keys_begin() -> i32 {
  return min(max(0, 0), 70);
}
fn keys_end(m: i32) -> i32 {
  return max(min(70, (((x0[0] + i32(-32)) + m) + 1)), 0);
}
fn load_q(batch: i32, m: i32, step: i32) -> vec4<f32> {
  let t1 = unpack_float16_4(x1[batch * 4 + m * 16 + step]);
  return t1 * 0.25f;
}
fn load_k(batch: i32, n: i32, step: i32) -> vec2<u32> {
  let i1 = batch >> 1u;
  return x2[i1 * 280 + n * 4 + step];
}
fn load_v(batch: i32, n: i32, step: i32) -> vec2<u32> {
  let i1 = batch >> 1u;
  return x3[i1 * 280 + n * 4 + step];
}
fn store(batch: i32, m: i32, step: i32, value: vec4<f32>) {
  y[batch * 4 + m * 16 + step] = pack_float16_4(value);
}

var<workgroup> span: vec2<i32>;
var<workgroup> queries: array<vec4<f32>, 32>;
var<workgroup> tile: array<vec2<u32>, 80>;
var<workgroup> powers: array<vec4<f32>, 40>;

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let local = i32(index);
  let batch = i32(group.y);
  let first = (5 - 1 - i32(group.x)) * 8;  // those with most keys begin first
  let column = local % 4;
  let row = local / 4 * 1;
  let last = 33 - 1;
  for (var place = local; place < 32; place += 32) {
    queries[place] = load_q(batch, min(first + place / 4, last), place % 4);
  }
  if (local == 0) {  // ranges of later queries do not end before those of earlier ones, nor begin before them
    span = vec2<i32>(keys_begin(), keys_end(min(first + 7, last)));
  }
  let keys = workgroupUniformLoad(&span);
  let m0 = min(first + row + 0, last);
  let begin0 = keys_begin();
  let end0 = keys_end(m0);
  var highest0 = -3.4028234e38;
  var total0 = 0.0;
  var sum0_0 = vec4<f32>();
  for (var start = keys.x; start < keys.y; start += 16) {
    let count = min(16, keys.y - start);
    workgroupBarrier();
    {
      let place1 = local;
      let slot1 = place1 / 4;
      let key1 = slot1 % 4 * 4 + slot1 / 4;
      let step1 = place1 % 4;
      let fetched1 = load_k(batch, start + min(key1, count - 1), step1);
      let place2 = local + 32;
      let slot2 = place2 / 4;
      let key2 = slot2 % 4 * 4 + slot2 / 4;
      let step2 = place2 % 4;
      let fetched2 = load_k(batch, start + min(key2, count - 1), step2);
      tile[slot1 * 5 + step1] = fetched1;
      tile[slot2 * 5 + step2] = fetched2;
    }
workgroupBarrier();
    var product0_0 = 0.0;
    var product0_1 = 0.0;
    var product0_2 = 0.0;
    var product0_3 = 0.0;
    for (var step = 0; step < 4; step++) {
      let key0 = unpack_float16_4(tile[(column + 0) * 5 + step]);
      let key1 = unpack_float16_4(tile[(column + 4) * 5 + step]);
      let key2 = unpack_float16_4(tile[(column + 8) * 5 + step]);
      let key3 = unpack_float16_4(tile[(column + 12) * 5 + step]);
      let query0 = queries[(row + 0) * 4 + step];
      product0_0 = fma(query0.x, key0.x, fma(query0.y, key0.y, fma(query0.z, key0.z, fma(query0.w, key0.w, product0_0))));
      product0_1 = fma(query0.x, key1.x, fma(query0.y, key1.y, fma(query0.z, key1.z, fma(query0.w, key1.w, product0_1))));
      product0_2 = fma(query0.x, key2.x, fma(query0.y, key2.y, fma(query0.z, key2.z, fma(query0.w, key2.w, product0_2))));
      product0_3 = fma(query0.x, key3.x, fma(query0.y, key3.y, fma(query0.z, key3.z, fma(query0.w, key3.w, product0_3))));
    }
    let n0 = start + min(column * 4 + 0, count - 1);
    let inside0 = column * 4 + 0 < count;
    let n1 = start + min(column * 4 + 1, count - 1);
    let inside1 = column * 4 + 1 < count;
    let n2 = start + min(column * 4 + 2, count - 1);
    let inside2 = column * 4 + 2 < count;
    let n3 = start + min(column * 4 + 3, count - 1);
    let inside3 = column * 4 + 3 < count;
    let score0_0 = select(-3.4028234e38, product0_0, inside0 && n0 >= begin0 && n0 < end0);
    let score0_1 = select(-3.4028234e38, product0_1, inside1 && n1 >= begin0 && n1 < end0);
    let score0_2 = select(-3.4028234e38, product0_2, inside2 && n2 >= begin0 && n2 < end0);
    let score0_3 = select(-3.4028234e38, product0_3, inside3 && n3 >= begin0 && n3 < end0);
    var most0 = max(max(score0_0, score0_1), max(score0_2, score0_3));
    most0 = max(most0, subgroupShuffleXor(most0, 1u));
    most0 = max(most0, subgroupShuffleXor(most0, 2u));
    most0 = max(most0, highest0);
    let factor0 = exp(highest0 - most0);
    highest0 = most0;
    let power0_0 = select(0.0, select(exp(score0_0 - most0), score0_0, (bitcast<u32>(score0_0) & 0x7fffffffu) > 0x7f800000u), inside0 && n0 >= begin0 && n0 < end0);
    let power0_1 = select(0.0, select(exp(score0_1 - most0), score0_1, (bitcast<u32>(score0_1) & 0x7fffffffu) > 0x7f800000u), inside1 && n1 >= begin0 && n1 < end0);
    let power0_2 = select(0.0, select(exp(score0_2 - most0), score0_2, (bitcast<u32>(score0_2) & 0x7fffffffu) > 0x7f800000u), inside2 && n2 >= begin0 && n2 < end0);
    let power0_3 = select(0.0, select(exp(score0_3 - most0), score0_3, (bitcast<u32>(score0_3) & 0x7fffffffu) > 0x7f800000u), inside3 && n3 >= begin0 && n3 < end0);
    powers[(row + 0) * 5 + column] = vec4<f32>(power0_0, power0_1, power0_2, power0_3);
    total0 = fma(total0, factor0, (power0_0 + power0_1) + (power0_2 + power0_3));
    sum0_0 *= factor0;
    workgroupBarrier();
    {
      let place1 = local;
      let slot1 = place1 / 4;
      let key1 = slot1;
      let step1 = place1 % 4;
      let fetched1 = load_v(batch, start + min(key1, count - 1), step1);
      let place2 = local + 32;
      let slot2 = place2 / 4;
      let key2 = slot2;
      let step2 = place2 % 4;
      let fetched2 = load_v(batch, start + min(key2, count - 1), step2);
      tile[slot1 * 5 + step1] = fetched1;
      tile[slot2 * 5 + step2] = fetched2;
    }
workgroupBarrier();
    for (var key = 0; key < count; key += 4) {
      let value0_0 = unpack_float16_4(tile[(key + 0) * 5 + column + 0]);
      let value1_0 = unpack_float16_4(tile[(key + 1) * 5 + column + 0]);
      let value2_0 = unpack_float16_4(tile[(key + 2) * 5 + column + 0]);
      let value3_0 = unpack_float16_4(tile[(key + 3) * 5 + column + 0]);
      let power0 = powers[(row + 0) * 5 + key / 4];
      sum0_0 = fma(vec4<f32>(power0.x), value0_0, sum0_0);
      sum0_0 = fma(vec4<f32>(power0.y), value1_0, sum0_0);
      sum0_0 = fma(vec4<f32>(power0.z), value2_0, sum0_0);
      sum0_0 = fma(vec4<f32>(power0.w), value3_0, sum0_0);
    }
  }
  total0 += subgroupShuffleXor(total0, 1u);
  total0 += subgroupShuffleXor(total0, 2u);
  if (first + row + 0 <= last) {
{ store(batch, m0, column + 0, sum0_0 / select(total0, 1.0, total0 == 0.0)); }
  }
}
