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
fn keys_begin(batch: i32, m: i32) -> i32 {
  return min(max(0, 0), 2048);
}
fn keys_end(batch: i32, m: i32) -> i32 {
  return max(min(min(2048, ((((x0[0] + 1) * 0) + m) + 1)), (x0[0] + 1)), 0);
}
fn load_q(batch: i32, m: i32, step: i32) -> vec4<f32> {
  let t1 = unpack_float16_4(x1[(batch * 4 + m * 16 + step)]);
  return (t1 * vec4<f32>(0.25f));
}
fn load_k(batch: i32, n: i32, step: i32) -> vec2<u32> {
  let i1 = batch >> 1u;
  return x2[(i1 * 8192 + n * 4 + step)];
}
fn score(batch: i32, m: i32, n: i32, product: f32) -> f32 {
  return product;
}
fn load_v(batch: i32, n: i32, step: i32) -> vec2<u32> {
  let i1 = batch >> 1u;
  return x3[(i1 * 8192 + n * 4 + step)];
}
fn store(batch: i32, m: i32, step: i32, value: vec4<f32>) {
  y[(batch * 4 + m * 16 + step)] = pack_float16_4(value);
}

var<workgroup> span: vec2<i32>;
var<workgroup> queries: array<vec4<f32>, 256>;
var<workgroup> tile: array<vec2<u32>, 80>;
var<workgroup> powers: array<vec4<f32>, 320>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let local = i32(index);
  let batch = i32(group.y);
  let first = (32 - 1 - i32(group.x)) * 64;  // those with most keys begin first
  let column = local % 4;
  let row = local / 4 * 4;
  let last = 2048 - 1;
  for (var place = local; place < 256; place += 64) {
    queries[place] = load_q(batch, min(first + place / 4, last), place % 4);
  }
  if (local == 0) {  // ranges of later queries do not end before those of earlier ones, nor begin before them
    span = vec2<i32>(keys_begin(batch, first), keys_end(batch, min(first + 63, last)));
  }
  let keys = workgroupUniformLoad(&span);
  let m0 = min(first + row + 0, last);
  let begin0 = keys_begin(batch, m0);
  let end0 = keys_end(batch, m0);
  var highest0 = -3.4028234e38;
  var total0 = 0.0;
  var sum0_0 = vec4<f32>();
  let m1 = min(first + row + 1, last);
  let begin1 = keys_begin(batch, m1);
  let end1 = keys_end(batch, m1);
  var highest1 = -3.4028234e38;
  var total1 = 0.0;
  var sum1_0 = vec4<f32>();
  let m2 = min(first + row + 2, last);
  let begin2 = keys_begin(batch, m2);
  let end2 = keys_end(batch, m2);
  var highest2 = -3.4028234e38;
  var total2 = 0.0;
  var sum2_0 = vec4<f32>();
  let m3 = min(first + row + 3, last);
  let begin3 = keys_begin(batch, m3);
  let end3 = keys_end(batch, m3);
  var highest3 = -3.4028234e38;
  var total3 = 0.0;
  var sum3_0 = vec4<f32>();
  for (var start = keys.x; start < keys.y; start += 16) {
    let count = min(16, keys.y - start);
    workgroupBarrier();
    {
      let place1 = local;
      let slot1 = place1 / 4;
      let key1 = slot1 % 4 * 4 + slot1 / 4;
      let step1 = place1 % 4;
      let fetched1 = load_k(batch, start + min(key1, count - 1), step1);
      tile[slot1 * 5 + step1] = fetched1;
    }
workgroupBarrier();
    var product0_0 = 0.0;
    var product0_1 = 0.0;
    var product0_2 = 0.0;
    var product0_3 = 0.0;
    var product1_0 = 0.0;
    var product1_1 = 0.0;
    var product1_2 = 0.0;
    var product1_3 = 0.0;
    var product2_0 = 0.0;
    var product2_1 = 0.0;
    var product2_2 = 0.0;
    var product2_3 = 0.0;
    var product3_0 = 0.0;
    var product3_1 = 0.0;
    var product3_2 = 0.0;
    var product3_3 = 0.0;
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
      let query1 = queries[(row + 1) * 4 + step];
      product1_0 = fma(query1.x, key0.x, fma(query1.y, key0.y, fma(query1.z, key0.z, fma(query1.w, key0.w, product1_0))));
      product1_1 = fma(query1.x, key1.x, fma(query1.y, key1.y, fma(query1.z, key1.z, fma(query1.w, key1.w, product1_1))));
      product1_2 = fma(query1.x, key2.x, fma(query1.y, key2.y, fma(query1.z, key2.z, fma(query1.w, key2.w, product1_2))));
      product1_3 = fma(query1.x, key3.x, fma(query1.y, key3.y, fma(query1.z, key3.z, fma(query1.w, key3.w, product1_3))));
      let query2 = queries[(row + 2) * 4 + step];
      product2_0 = fma(query2.x, key0.x, fma(query2.y, key0.y, fma(query2.z, key0.z, fma(query2.w, key0.w, product2_0))));
      product2_1 = fma(query2.x, key1.x, fma(query2.y, key1.y, fma(query2.z, key1.z, fma(query2.w, key1.w, product2_1))));
      product2_2 = fma(query2.x, key2.x, fma(query2.y, key2.y, fma(query2.z, key2.z, fma(query2.w, key2.w, product2_2))));
      product2_3 = fma(query2.x, key3.x, fma(query2.y, key3.y, fma(query2.z, key3.z, fma(query2.w, key3.w, product2_3))));
      let query3 = queries[(row + 3) * 4 + step];
      product3_0 = fma(query3.x, key0.x, fma(query3.y, key0.y, fma(query3.z, key0.z, fma(query3.w, key0.w, product3_0))));
      product3_1 = fma(query3.x, key1.x, fma(query3.y, key1.y, fma(query3.z, key1.z, fma(query3.w, key1.w, product3_1))));
      product3_2 = fma(query3.x, key2.x, fma(query3.y, key2.y, fma(query3.z, key2.z, fma(query3.w, key2.w, product3_2))));
      product3_3 = fma(query3.x, key3.x, fma(query3.y, key3.y, fma(query3.z, key3.z, fma(query3.w, key3.w, product3_3))));
    }
    let n0 = start + min(column * 4 + 0, count - 1);
    let inside0 = column * 4 + 0 < count;
    let n1 = start + min(column * 4 + 1, count - 1);
    let inside1 = column * 4 + 1 < count;
    let n2 = start + min(column * 4 + 2, count - 1);
    let inside2 = column * 4 + 2 < count;
    let n3 = start + min(column * 4 + 3, count - 1);
    let inside3 = column * 4 + 3 < count;
    let score0_0 = select(-3.4028234e38, score(batch, m0, n0, product0_0), inside0 && n0 >= begin0 && n0 < end0);
    let score0_1 = select(-3.4028234e38, score(batch, m0, n1, product0_1), inside1 && n1 >= begin0 && n1 < end0);
    let score0_2 = select(-3.4028234e38, score(batch, m0, n2, product0_2), inside2 && n2 >= begin0 && n2 < end0);
    let score0_3 = select(-3.4028234e38, score(batch, m0, n3, product0_3), inside3 && n3 >= begin0 && n3 < end0);
    var most0 = max(max(score0_0, score0_1), max(score0_2, score0_3));
    let score1_0 = select(-3.4028234e38, score(batch, m1, n0, product1_0), inside0 && n0 >= begin1 && n0 < end1);
    let score1_1 = select(-3.4028234e38, score(batch, m1, n1, product1_1), inside1 && n1 >= begin1 && n1 < end1);
    let score1_2 = select(-3.4028234e38, score(batch, m1, n2, product1_2), inside2 && n2 >= begin1 && n2 < end1);
    let score1_3 = select(-3.4028234e38, score(batch, m1, n3, product1_3), inside3 && n3 >= begin1 && n3 < end1);
    var most1 = max(max(score1_0, score1_1), max(score1_2, score1_3));
    let score2_0 = select(-3.4028234e38, score(batch, m2, n0, product2_0), inside0 && n0 >= begin2 && n0 < end2);
    let score2_1 = select(-3.4028234e38, score(batch, m2, n1, product2_1), inside1 && n1 >= begin2 && n1 < end2);
    let score2_2 = select(-3.4028234e38, score(batch, m2, n2, product2_2), inside2 && n2 >= begin2 && n2 < end2);
    let score2_3 = select(-3.4028234e38, score(batch, m2, n3, product2_3), inside3 && n3 >= begin2 && n3 < end2);
    var most2 = max(max(score2_0, score2_1), max(score2_2, score2_3));
    let score3_0 = select(-3.4028234e38, score(batch, m3, n0, product3_0), inside0 && n0 >= begin3 && n0 < end3);
    let score3_1 = select(-3.4028234e38, score(batch, m3, n1, product3_1), inside1 && n1 >= begin3 && n1 < end3);
    let score3_2 = select(-3.4028234e38, score(batch, m3, n2, product3_2), inside2 && n2 >= begin3 && n2 < end3);
    let score3_3 = select(-3.4028234e38, score(batch, m3, n3, product3_3), inside3 && n3 >= begin3 && n3 < end3);
    var most3 = max(max(score3_0, score3_1), max(score3_2, score3_3));
    most0 = max(most0, subgroupShuffleXor(most0, 1u));
    most1 = max(most1, subgroupShuffleXor(most1, 1u));
    most2 = max(most2, subgroupShuffleXor(most2, 1u));
    most3 = max(most3, subgroupShuffleXor(most3, 1u));
    most0 = max(most0, subgroupShuffleXor(most0, 2u));
    most1 = max(most1, subgroupShuffleXor(most1, 2u));
    most2 = max(most2, subgroupShuffleXor(most2, 2u));
    most3 = max(most3, subgroupShuffleXor(most3, 2u));
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
    most1 = max(most1, highest1);
    let factor1 = exp(highest1 - most1);
    highest1 = most1;
    let power1_0 = select(0.0, select(exp(score1_0 - most1), score1_0, (bitcast<u32>(score1_0) & 0x7fffffffu) > 0x7f800000u), inside0 && n0 >= begin1 && n0 < end1);
    let power1_1 = select(0.0, select(exp(score1_1 - most1), score1_1, (bitcast<u32>(score1_1) & 0x7fffffffu) > 0x7f800000u), inside1 && n1 >= begin1 && n1 < end1);
    let power1_2 = select(0.0, select(exp(score1_2 - most1), score1_2, (bitcast<u32>(score1_2) & 0x7fffffffu) > 0x7f800000u), inside2 && n2 >= begin1 && n2 < end1);
    let power1_3 = select(0.0, select(exp(score1_3 - most1), score1_3, (bitcast<u32>(score1_3) & 0x7fffffffu) > 0x7f800000u), inside3 && n3 >= begin1 && n3 < end1);
    powers[(row + 1) * 5 + column] = vec4<f32>(power1_0, power1_1, power1_2, power1_3);
    total1 = fma(total1, factor1, (power1_0 + power1_1) + (power1_2 + power1_3));
    sum1_0 *= factor1;
    most2 = max(most2, highest2);
    let factor2 = exp(highest2 - most2);
    highest2 = most2;
    let power2_0 = select(0.0, select(exp(score2_0 - most2), score2_0, (bitcast<u32>(score2_0) & 0x7fffffffu) > 0x7f800000u), inside0 && n0 >= begin2 && n0 < end2);
    let power2_1 = select(0.0, select(exp(score2_1 - most2), score2_1, (bitcast<u32>(score2_1) & 0x7fffffffu) > 0x7f800000u), inside1 && n1 >= begin2 && n1 < end2);
    let power2_2 = select(0.0, select(exp(score2_2 - most2), score2_2, (bitcast<u32>(score2_2) & 0x7fffffffu) > 0x7f800000u), inside2 && n2 >= begin2 && n2 < end2);
    let power2_3 = select(0.0, select(exp(score2_3 - most2), score2_3, (bitcast<u32>(score2_3) & 0x7fffffffu) > 0x7f800000u), inside3 && n3 >= begin2 && n3 < end2);
    powers[(row + 2) * 5 + column] = vec4<f32>(power2_0, power2_1, power2_2, power2_3);
    total2 = fma(total2, factor2, (power2_0 + power2_1) + (power2_2 + power2_3));
    sum2_0 *= factor2;
    most3 = max(most3, highest3);
    let factor3 = exp(highest3 - most3);
    highest3 = most3;
    let power3_0 = select(0.0, select(exp(score3_0 - most3), score3_0, (bitcast<u32>(score3_0) & 0x7fffffffu) > 0x7f800000u), inside0 && n0 >= begin3 && n0 < end3);
    let power3_1 = select(0.0, select(exp(score3_1 - most3), score3_1, (bitcast<u32>(score3_1) & 0x7fffffffu) > 0x7f800000u), inside1 && n1 >= begin3 && n1 < end3);
    let power3_2 = select(0.0, select(exp(score3_2 - most3), score3_2, (bitcast<u32>(score3_2) & 0x7fffffffu) > 0x7f800000u), inside2 && n2 >= begin3 && n2 < end3);
    let power3_3 = select(0.0, select(exp(score3_3 - most3), score3_3, (bitcast<u32>(score3_3) & 0x7fffffffu) > 0x7f800000u), inside3 && n3 >= begin3 && n3 < end3);
    powers[(row + 3) * 5 + column] = vec4<f32>(power3_0, power3_1, power3_2, power3_3);
    total3 = fma(total3, factor3, (power3_0 + power3_1) + (power3_2 + power3_3));
    sum3_0 *= factor3;
    workgroupBarrier();
    {
      let place1 = local;
      let slot1 = place1 / 4;
      let key1 = slot1;
      let step1 = place1 % 4;
      let fetched1 = load_v(batch, start + min(key1, count - 1), step1);
      tile[slot1 * 5 + step1] = fetched1;
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
      let power1 = powers[(row + 1) * 5 + key / 4];
      sum1_0 = fma(vec4<f32>(power1.x), value0_0, sum1_0);
      sum1_0 = fma(vec4<f32>(power1.y), value1_0, sum1_0);
      sum1_0 = fma(vec4<f32>(power1.z), value2_0, sum1_0);
      sum1_0 = fma(vec4<f32>(power1.w), value3_0, sum1_0);
      let power2 = powers[(row + 2) * 5 + key / 4];
      sum2_0 = fma(vec4<f32>(power2.x), value0_0, sum2_0);
      sum2_0 = fma(vec4<f32>(power2.y), value1_0, sum2_0);
      sum2_0 = fma(vec4<f32>(power2.z), value2_0, sum2_0);
      sum2_0 = fma(vec4<f32>(power2.w), value3_0, sum2_0);
      let power3 = powers[(row + 3) * 5 + key / 4];
      sum3_0 = fma(vec4<f32>(power3.x), value0_0, sum3_0);
      sum3_0 = fma(vec4<f32>(power3.y), value1_0, sum3_0);
      sum3_0 = fma(vec4<f32>(power3.z), value2_0, sum3_0);
      sum3_0 = fma(vec4<f32>(power3.w), value3_0, sum3_0);
    }
  }
  total0 += subgroupShuffleXor(total0, 1u);
  total1 += subgroupShuffleXor(total1, 1u);
  total2 += subgroupShuffleXor(total2, 1u);
  total3 += subgroupShuffleXor(total3, 1u);
  total0 += subgroupShuffleXor(total0, 2u);
  total1 += subgroupShuffleXor(total1, 2u);
  total2 += subgroupShuffleXor(total2, 2u);
  total3 += subgroupShuffleXor(total3, 2u);
  if (first + row + 0 <= last) {
{ store(batch, m0, column + 0, sum0_0 / select(total0, 1.0, total0 == 0.0)); }
  }
  if (first + row + 1 <= last) {
{ store(batch, m1, column + 0, sum1_0 / select(total1, 1.0, total1 == 0.0)); }
  }
  if (first + row + 2 <= last) {
{ store(batch, m2, column + 0, sum2_0 / select(total2, 1.0, total2 == 0.0)); }
  }
  if (first + row + 3 <= last) {
{ store(batch, m3, column + 0, sum3_0 / select(total3, 1.0, total3 == 0.0)); }
  }
}
