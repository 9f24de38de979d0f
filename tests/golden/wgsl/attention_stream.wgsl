@group(0) @binding(0) var<storage, read> x0: array<i32>;
@group(0) @binding(1) var<storage, read> x1: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> x2: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> x3: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> y1: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> y2: array<vec2<u32>>;
@group(0) @binding(6) var<storage, read_write> y: array<vec4<f32>>;
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
fn round_float16_4(x: vec4<f32>) -> vec4<f32> {
  let bits = bitcast<vec4<u32>>(x);
  let magnitude = bits & vec4<u32>(0x7fffffffu);
  let beyond = magnitude >= vec4<u32>(0x477ff000u);
  let inside = select(x, vec4<f32>(0.0), beyond);
  let rounded = vec4<f32>(unpack2x16float(pack2x16float(inside.xy)), unpack2x16float(pack2x16float(inside.zw)));
  let infinite = bitcast<vec4<f32>>((bits & vec4<u32>(0x80000000u)) | vec4<u32>(0x7f800000u));
  return select(rounded, select(infinite, x, magnitude > vec4<u32>(0x7f800000u)), beyond);
}
fn unpack_float16_4(words: vec2<u32>) -> vec4<f32> { return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y)); }
fn keys_begin() -> i32 {
  return min(max(0, 0), 70000);
}
fn keys_end() -> i32 {
  return max(min(70000, (x0[0] + 1)), 0);
}
fn new_k(step: i32) -> vec4<f32> {
  let t1 = unpack_float16_4(x1[step]);
  return round_float16_4(t1);
}
fn store_k(step: i32, value: vec4<f32>) {
  if ((x0[0] >= 0) & (x0[0] <= 69999)) {
    let i1 = max(min(x0[0], 69999), 0);
    y1[i1 * 4 + step] = pack_float16_4(value);
  }
}
fn new_v(step: i32) -> vec4<f32> {
  let t1 = unpack_float16_4(x2[step]);
  return round_float16_4(t1);
}
fn store_v(step: i32, value: vec4<f32>) {
  if ((x0[0] >= 0) & (x0[0] <= 69999)) {
    let i1 = max(min(x0[0], 69999), 0);
    y2[i1 * 4 + step] = pack_float16_4(value);
  }
}
fn new_begin() -> i32 {
  return x0[0];
}
fn load_q(m: i32, step: i32) -> vec4<f32> {
  let t1 = unpack_float16_4(x3[m * 4 + step]);
  return t1 * 0.25f;
}
fn load_k(n: i32, step: i32) -> vec2<u32> {
  return y1[n * 4 + step];
}
fn load_v(n: i32, step: i32) -> vec2<u32> {
  return y2[n * 4 + step];
}
fn store_part(m: i32, part: i32, step: i32, value: vec4<f32>) {
  y[m * 325 + part * 5 + step] = value;
}

fn skip_new(place: i32, span: vec2<i32>) -> i32 {
  return place + select(0, span.y - span.x, place >= span.x);
}
var<workgroup> new_keys: array<vec4<f32>, 4>;
var<workgroup> new_values: array<vec4<f32>, 4>;
var<workgroup> queries: array<vec4<f32>, 16>;
var<workgroup> ends: array<vec2<f32>, 4>;
var<workgroup> sums: array<vec4<f32>, 16>;
var<workgroup> shares: array<vec4<f32>, 128>;
var<workgroup> span: vec2<i32>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let local = i32(index);
  let m0 = i32(group.x) * 4 + 0;
  let begin0 = keys_begin();
  let end0 = keys_end();
  let m1 = i32(group.x) * 4 + 1;
  let m2 = i32(group.x) * 4 + 2;
  let m3 = i32(group.x) * 4 + 3;
let lane = local % 4;
  let team = local / 4;
  let new_first = new_begin();
  let new_count = 1;
  let is_first = group.x == 0 && group.z == 0;
  for (var place = local; place < 16 + new_count * 8; place += 128) {
    if (place < 16) {
      queries[place] = load_q(m0 + place / 4, place % 4);
    } else if (place < 16 + new_count * 4) {
      let key = place - 16;
      let value = new_k(key % 4);
      new_keys[key] = value;
      if (is_first) { store_k(key % 4, value); }
    } else {
      let element = place - 16 - new_count * 4;
      let value = new_v(element % 4);
      new_values[element] = value;
      if (is_first) { store_v(element % 4, value); }
    }
  }
  if (local == 0) {
    span = vec2<i32>(begin0, end0);
  }
  let keys = workgroupUniformLoad(&span);
  let query0_0 = queries[0 + lane];
  var highest0 = -3.4028234e38;
  var total0 = 0.0;
  var sum0_0 = vec4<f32>();
  let query1_0 = queries[4 + lane];
  var highest1 = -3.4028234e38;
  var total1 = 0.0;
  var sum1_0 = vec4<f32>();
  let query2_0 = queries[8 + lane];
  var highest2 = -3.4028234e38;
  var total2 = 0.0;
  var sum2_0 = vec4<f32>();
  let query3_0 = queries[12 + lane];
  var highest3 = -3.4028234e38;
  var total3 = 0.0;
  var sum3_0 = vec4<f32>();
  let new_span = clamp(vec2<i32>(new_first, new_first + new_count), vec2<i32>(keys.x), vec2<i32>(max(keys.x, keys.y)));
  let part = i32(group.z);
  let chunk = (max(keys.y - (new_span.y - new_span.x) - keys.x, 0) + 64) / 65;
  let first = keys.x + part * chunk;
  let stop = min(first + chunk, keys.y - (new_span.y - new_span.x));
  var at0 = 0;
  var key0_0 = load_k(0, lane + 0);
  var value0_0 = load_v(0, lane + 0);
  var at1 = 0;
  var key1_0 = load_k(0, lane + 0);
  var value1_0 = load_v(0, lane + 0);
  if (first < stop) {
    at0 = skip_new(min(first + team, stop - 1), new_span);
    key0_0 = load_k(at0, lane + 0);
    value0_0 = load_v(at0, lane + 0);
    at1 = skip_new(min(first + team + 32, stop - 1), new_span);
    key1_0 = load_k(at1, lane + 0);
    value1_0 = load_v(at1, lane + 0);
}
  for (var start = first; start < stop; start += 64) {
    let is_key0 = start + team < stop;
    let row0 = at0;
    let part0_0 = unpack_float16_4(key0_0);
    let number0_0 = unpack_float16_4(value0_0);
    let is_key1 = start + team + 32 < stop;
    let part1_0 = unpack_float16_4(key1_0);
    let number1_0 = unpack_float16_4(value1_0);
    at0 = skip_new(min(start + 64 + team, stop - 1), new_span);
    key0_0 = load_k(at0, lane + 0);
    value0_0 = load_v(at0, lane + 0);
    at1 = skip_new(min(start + 64 + team + 32, stop - 1), new_span);
    key1_0 = load_k(at1, lane + 0);
    value1_0 = load_v(at1, lane + 0);
    var product0_0 = dot(query0_0, part0_0);
    var product1_0 = dot(query1_0, part0_0);
    var product2_0 = dot(query2_0, part0_0);
    var product3_0 = dot(query3_0, part0_0);
    var product0_1 = dot(query0_0, part1_0);
    var product1_1 = dot(query1_0, part1_0);
    var product2_1 = dot(query2_0, part1_0);
    var product3_1 = dot(query3_0, part1_0);
    product0_0 += subgroupShuffleXor(product0_0, 1u);
    product1_0 += subgroupShuffleXor(product1_0, 1u);
    product2_0 += subgroupShuffleXor(product2_0, 1u);
    product3_0 += subgroupShuffleXor(product3_0, 1u);
    product0_1 += subgroupShuffleXor(product0_1, 1u);
    product1_1 += subgroupShuffleXor(product1_1, 1u);
    product2_1 += subgroupShuffleXor(product2_1, 1u);
    product3_1 += subgroupShuffleXor(product3_1, 1u);
    product0_0 += subgroupShuffleXor(product0_0, 2u);
    product1_0 += subgroupShuffleXor(product1_0, 2u);
    product2_0 += subgroupShuffleXor(product2_0, 2u);
    product3_0 += subgroupShuffleXor(product3_0, 2u);
    product0_1 += subgroupShuffleXor(product0_1, 2u);
    product1_1 += subgroupShuffleXor(product1_1, 2u);
    product2_1 += subgroupShuffleXor(product2_1, 2u);
    product3_1 += subgroupShuffleXor(product3_1, 2u);
    let inside0_0 = is_key0;
    let score0_0 = select(-3.4028234e38, product0_0, inside0_0);
    let inside0_1 = is_key1;
    let score0_1 = select(-3.4028234e38, product0_1, inside0_1);
    let most0 = max(max(highest0, score0_0), score0_1);
    let factor0 = exp(highest0 - most0);
    highest0 = most0;
    total0 *= factor0;
    sum0_0 *= factor0;
    let power0_0 = select(0.0, select(exp(score0_0 - most0), score0_0, (bitcast<u32>(score0_0) & 0x7fffffffu) > 0x7f800000u), inside0_0);
    total0 += power0_0;
    let power0_1 = select(0.0, select(exp(score0_1 - most0), score0_1, (bitcast<u32>(score0_1) & 0x7fffffffu) > 0x7f800000u), inside0_1);
    total0 += power0_1;
    let inside1_0 = is_key0;
    let score1_0 = select(-3.4028234e38, product1_0, inside1_0);
    let inside1_1 = is_key1;
    let score1_1 = select(-3.4028234e38, product1_1, inside1_1);
    let most1 = max(max(highest1, score1_0), score1_1);
    let factor1 = exp(highest1 - most1);
    highest1 = most1;
    total1 *= factor1;
    sum1_0 *= factor1;
    let power1_0 = select(0.0, select(exp(score1_0 - most1), score1_0, (bitcast<u32>(score1_0) & 0x7fffffffu) > 0x7f800000u), inside1_0);
    total1 += power1_0;
    let power1_1 = select(0.0, select(exp(score1_1 - most1), score1_1, (bitcast<u32>(score1_1) & 0x7fffffffu) > 0x7f800000u), inside1_1);
    total1 += power1_1;
    let inside2_0 = is_key0;
    let score2_0 = select(-3.4028234e38, product2_0, inside2_0);
    let inside2_1 = is_key1;
    let score2_1 = select(-3.4028234e38, product2_1, inside2_1);
    let most2 = max(max(highest2, score2_0), score2_1);
    let factor2 = exp(highest2 - most2);
    highest2 = most2;
    total2 *= factor2;
    sum2_0 *= factor2;
    let power2_0 = select(0.0, select(exp(score2_0 - most2), score2_0, (bitcast<u32>(score2_0) & 0x7fffffffu) > 0x7f800000u), inside2_0);
    total2 += power2_0;
    let power2_1 = select(0.0, select(exp(score2_1 - most2), score2_1, (bitcast<u32>(score2_1) & 0x7fffffffu) > 0x7f800000u), inside2_1);
    total2 += power2_1;
    let inside3_0 = is_key0;
    let score3_0 = select(-3.4028234e38, product3_0, inside3_0);
    let inside3_1 = is_key1;
    let score3_1 = select(-3.4028234e38, product3_1, inside3_1);
    let most3 = max(max(highest3, score3_0), score3_1);
    let factor3 = exp(highest3 - most3);
    highest3 = most3;
    total3 *= factor3;
    sum3_0 *= factor3;
    let power3_0 = select(0.0, select(exp(score3_0 - most3), score3_0, (bitcast<u32>(score3_0) & 0x7fffffffu) > 0x7f800000u), inside3_0);
    total3 += power3_0;
    let power3_1 = select(0.0, select(exp(score3_1 - most3), score3_1, (bitcast<u32>(score3_1) & 0x7fffffffu) > 0x7f800000u), inside3_1);
    total3 += power3_1;
    sum0_0 = fma(vec4<f32>(power0_0), number0_0, sum0_0);
    sum1_0 = fma(vec4<f32>(power1_0), number0_0, sum1_0);
    sum2_0 = fma(vec4<f32>(power2_0), number0_0, sum2_0);
    sum3_0 = fma(vec4<f32>(power3_0), number0_0, sum3_0);
    sum0_0 = fma(vec4<f32>(power0_1), number1_0, sum0_0);
    sum1_0 = fma(vec4<f32>(power1_1), number1_0, sum1_0);
    sum2_0 = fma(vec4<f32>(power2_1), number1_0, sum2_0);
    sum3_0 = fma(vec4<f32>(power3_1), number1_0, sum3_0);
}
  if (part == 64) {
    for (var next = 0; next < new_count; next += 32) {
      let new_row = min(next + team, new_count - 1);
      let row0 = new_first + new_row;
      let is_key0 = next + team < new_count && row0 >= new_span.x && row0 < new_span.y;
      let part0_0 = new_keys[new_row * 4 + lane + 0];
      let number0_0 = new_values[new_row * 4 + lane + 0];
    var product0_0 = dot(query0_0, part0_0);
    var product1_0 = dot(query1_0, part0_0);
    var product2_0 = dot(query2_0, part0_0);
    var product3_0 = dot(query3_0, part0_0);
    product0_0 += subgroupShuffleXor(product0_0, 1u);
    product1_0 += subgroupShuffleXor(product1_0, 1u);
    product2_0 += subgroupShuffleXor(product2_0, 1u);
    product3_0 += subgroupShuffleXor(product3_0, 1u);
    product0_0 += subgroupShuffleXor(product0_0, 2u);
    product1_0 += subgroupShuffleXor(product1_0, 2u);
    product2_0 += subgroupShuffleXor(product2_0, 2u);
    product3_0 += subgroupShuffleXor(product3_0, 2u);
    let inside0_0 = is_key0;
    let score0_0 = select(-3.4028234e38, product0_0, inside0_0);
    let most0 = max(highest0, score0_0);
    let factor0 = exp(highest0 - most0);
    highest0 = most0;
    total0 *= factor0;
    sum0_0 *= factor0;
    let power0_0 = select(0.0, select(exp(score0_0 - most0), score0_0, (bitcast<u32>(score0_0) & 0x7fffffffu) > 0x7f800000u), inside0_0);
    total0 += power0_0;
    let inside1_0 = is_key0;
    let score1_0 = select(-3.4028234e38, product1_0, inside1_0);
    let most1 = max(highest1, score1_0);
    let factor1 = exp(highest1 - most1);
    highest1 = most1;
    total1 *= factor1;
    sum1_0 *= factor1;
    let power1_0 = select(0.0, select(exp(score1_0 - most1), score1_0, (bitcast<u32>(score1_0) & 0x7fffffffu) > 0x7f800000u), inside1_0);
    total1 += power1_0;
    let inside2_0 = is_key0;
    let score2_0 = select(-3.4028234e38, product2_0, inside2_0);
    let most2 = max(highest2, score2_0);
    let factor2 = exp(highest2 - most2);
    highest2 = most2;
    total2 *= factor2;
    sum2_0 *= factor2;
    let power2_0 = select(0.0, select(exp(score2_0 - most2), score2_0, (bitcast<u32>(score2_0) & 0x7fffffffu) > 0x7f800000u), inside2_0);
    total2 += power2_0;
    let inside3_0 = is_key0;
    let score3_0 = select(-3.4028234e38, product3_0, inside3_0);
    let most3 = max(highest3, score3_0);
    let factor3 = exp(highest3 - most3);
    highest3 = most3;
    total3 *= factor3;
    sum3_0 *= factor3;
    let power3_0 = select(0.0, select(exp(score3_0 - most3), score3_0, (bitcast<u32>(score3_0) & 0x7fffffffu) > 0x7f800000u), inside3_0);
    total3 += power3_0;
    sum0_0 = fma(vec4<f32>(power0_0), number0_0, sum0_0);
    sum1_0 = fma(vec4<f32>(power1_0), number0_0, sum1_0);
    sum2_0 = fma(vec4<f32>(power2_0), number0_0, sum2_0);
    sum3_0 = fma(vec4<f32>(power3_0), number0_0, sum3_0);
}
  }
  {
    let other = subgroupShuffleXor(highest0, 4u);
    let most = max(highest0, other);
    let own = exp(highest0 - most);
    let theirs = exp(other - most);
    highest0 = most;
    total0 = total0 * own + subgroupShuffleXor(total0, 4u) * theirs;
    sum0_0 = sum0_0 * own + subgroupShuffleXor(sum0_0, 4u) * theirs;
  }
  {
    let other = subgroupShuffleXor(highest1, 4u);
    let most = max(highest1, other);
    let own = exp(highest1 - most);
    let theirs = exp(other - most);
    highest1 = most;
    total1 = total1 * own + subgroupShuffleXor(total1, 4u) * theirs;
    sum1_0 = sum1_0 * own + subgroupShuffleXor(sum1_0, 4u) * theirs;
  }
  {
    let other = subgroupShuffleXor(highest2, 4u);
    let most = max(highest2, other);
    let own = exp(highest2 - most);
    let theirs = exp(other - most);
    highest2 = most;
    total2 = total2 * own + subgroupShuffleXor(total2, 4u) * theirs;
    sum2_0 = sum2_0 * own + subgroupShuffleXor(sum2_0, 4u) * theirs;
  }
  {
    let other = subgroupShuffleXor(highest3, 4u);
    let most = max(highest3, other);
    let own = exp(highest3 - most);
    let theirs = exp(other - most);
    highest3 = most;
    total3 = total3 * own + subgroupShuffleXor(total3, 4u) * theirs;
    sum3_0 = sum3_0 * own + subgroupShuffleXor(sum3_0, 4u) * theirs;
  }
  {
    let other = subgroupShuffleXor(highest0, 8u);
    let most = max(highest0, other);
    let own = exp(highest0 - most);
    let theirs = exp(other - most);
    highest0 = most;
    total0 = total0 * own + subgroupShuffleXor(total0, 8u) * theirs;
    sum0_0 = sum0_0 * own + subgroupShuffleXor(sum0_0, 8u) * theirs;
  }
  {
    let other = subgroupShuffleXor(highest1, 8u);
    let most = max(highest1, other);
    let own = exp(highest1 - most);
    let theirs = exp(other - most);
    highest1 = most;
    total1 = total1 * own + subgroupShuffleXor(total1, 8u) * theirs;
    sum1_0 = sum1_0 * own + subgroupShuffleXor(sum1_0, 8u) * theirs;
  }
  {
    let other = subgroupShuffleXor(highest2, 8u);
    let most = max(highest2, other);
    let own = exp(highest2 - most);
    let theirs = exp(other - most);
    highest2 = most;
    total2 = total2 * own + subgroupShuffleXor(total2, 8u) * theirs;
    sum2_0 = sum2_0 * own + subgroupShuffleXor(sum2_0, 8u) * theirs;
  }
  {
    let other = subgroupShuffleXor(highest3, 8u);
    let most = max(highest3, other);
    let own = exp(highest3 - most);
    let theirs = exp(other - most);
    highest3 = most;
    total3 = total3 * own + subgroupShuffleXor(total3, 8u) * theirs;
    sum3_0 = sum3_0 * own + subgroupShuffleXor(sum3_0, 8u) * theirs;
  }
  {
    let other = subgroupShuffleXor(highest0, 16u);
    let most = max(highest0, other);
    let own = exp(highest0 - most);
    let theirs = exp(other - most);
    highest0 = most;
    total0 = total0 * own + subgroupShuffleXor(total0, 16u) * theirs;
    sum0_0 = sum0_0 * own + subgroupShuffleXor(sum0_0, 16u) * theirs;
  }
  {
    let other = subgroupShuffleXor(highest1, 16u);
    let most = max(highest1, other);
    let own = exp(highest1 - most);
    let theirs = exp(other - most);
    highest1 = most;
    total1 = total1 * own + subgroupShuffleXor(total1, 16u) * theirs;
    sum1_0 = sum1_0 * own + subgroupShuffleXor(sum1_0, 16u) * theirs;
  }
  {
    let other = subgroupShuffleXor(highest2, 16u);
    let most = max(highest2, other);
    let own = exp(highest2 - most);
    let theirs = exp(other - most);
    highest2 = most;
    total2 = total2 * own + subgroupShuffleXor(total2, 16u) * theirs;
    sum2_0 = sum2_0 * own + subgroupShuffleXor(sum2_0, 16u) * theirs;
  }
  {
    let other = subgroupShuffleXor(highest3, 16u);
    let most = max(highest3, other);
    let own = exp(highest3 - most);
    let theirs = exp(other - most);
    highest3 = most;
    total3 = total3 * own + subgroupShuffleXor(total3, 16u) * theirs;
    sum3_0 = sum3_0 * own + subgroupShuffleXor(sum3_0, 16u) * theirs;
  }
  let place = local % 32;
  let vector = local % 4;
  let slice = local / 4;
  if (place < 4) {
    ends[local / 32] = vec2<f32>(highest0, total0);
    sums[local / 32 * 4 + lane + 0] = sum0_0;
  }
  workgroupBarrier();
  var top0 = -3.4028234e38;
  for (var other = 0; other < 4; other++) {
    top0 = max(top0, ends[other].x);
  }
  var share0 = vec4<f32>();
  for (var other = slice; other < 4; other += 32) {
    share0 = fma(vec4<f32>(exp(ends[other].x - top0)), sums[other * 4 + vector], share0);
  }
  shares[local] = share0;
  workgroupBarrier();
  if (slice == 0) {
    var all = 0.0;
    for (var other = 0; other < 4; other++) {
      all = fma(exp(ends[other].x - top0), ends[other].y, all);
    }
    for (var other = 1; other < 32; other++) {
      share0 += shares[local + other * 4];
    }
    store_part(m0, part, vector, share0);
    if (vector == 0) {
      store_part(m0, part, 4, vec4<f32>(top0, all, 0.0, 0.0));
    }
  }
  workgroupBarrier();
  if (place < 4) {
    ends[local / 32] = vec2<f32>(highest1, total1);
    sums[local / 32 * 4 + lane + 0] = sum1_0;
  }
  workgroupBarrier();
  var top1 = -3.4028234e38;
  for (var other = 0; other < 4; other++) {
    top1 = max(top1, ends[other].x);
  }
  var share1 = vec4<f32>();
  for (var other = slice; other < 4; other += 32) {
    share1 = fma(vec4<f32>(exp(ends[other].x - top1)), sums[other * 4 + vector], share1);
  }
  shares[local] = share1;
  workgroupBarrier();
  if (slice == 0) {
    var all = 0.0;
    for (var other = 0; other < 4; other++) {
      all = fma(exp(ends[other].x - top1), ends[other].y, all);
    }
    for (var other = 1; other < 32; other++) {
      share1 += shares[local + other * 4];
    }
    store_part(m1, part, vector, share1);
    if (vector == 0) {
      store_part(m1, part, 4, vec4<f32>(top1, all, 0.0, 0.0));
    }
  }
  workgroupBarrier();
  if (place < 4) {
    ends[local / 32] = vec2<f32>(highest2, total2);
    sums[local / 32 * 4 + lane + 0] = sum2_0;
  }
  workgroupBarrier();
  var top2 = -3.4028234e38;
  for (var other = 0; other < 4; other++) {
    top2 = max(top2, ends[other].x);
  }
  var share2 = vec4<f32>();
  for (var other = slice; other < 4; other += 32) {
    share2 = fma(vec4<f32>(exp(ends[other].x - top2)), sums[other * 4 + vector], share2);
  }
  shares[local] = share2;
  workgroupBarrier();
  if (slice == 0) {
    var all = 0.0;
    for (var other = 0; other < 4; other++) {
      all = fma(exp(ends[other].x - top2), ends[other].y, all);
    }
    for (var other = 1; other < 32; other++) {
      share2 += shares[local + other * 4];
    }
    store_part(m2, part, vector, share2);
    if (vector == 0) {
      store_part(m2, part, 4, vec4<f32>(top2, all, 0.0, 0.0));
    }
  }
  workgroupBarrier();
  if (place < 4) {
    ends[local / 32] = vec2<f32>(highest3, total3);
    sums[local / 32 * 4 + lane + 0] = sum3_0;
  }
  workgroupBarrier();
  var top3 = -3.4028234e38;
  for (var other = 0; other < 4; other++) {
    top3 = max(top3, ends[other].x);
  }
  var share3 = vec4<f32>();
  for (var other = slice; other < 4; other += 32) {
    share3 = fma(vec4<f32>(exp(ends[other].x - top3)), sums[other * 4 + vector], share3);
  }
  shares[local] = share3;
  workgroupBarrier();
  if (slice == 0) {
    var all = 0.0;
    for (var other = 0; other < 4; other++) {
      all = fma(exp(ends[other].x - top3), ends[other].y, all);
    }
    for (var other = 1; other < 32; other++) {
      share3 += shares[local + other * 4];
    }
    store_part(m3, part, vector, share3);
    if (vector == 0) {
      store_part(m3, part, 4, vec4<f32>(top3, all, 0.0, 0.0));
    }
  }
}
