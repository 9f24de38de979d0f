@group(0) @binding(0) var<storage, read> x0: array<i32>;
@group(0) @binding(1) var<storage, read> x1: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read> x2: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> x3: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> y1: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> y2: array<vec2<u32>>;
@group(0) @binding(6) var<storage, read_write> y: array<vec2<u32>>;
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
  return min(max(0, 0), 1500);
}
fn keys_end(batch: i32, m: i32) -> i32 {
  let i1 = batch >> 1u;
  let i2 = m & 1;
  return max(min(1500, (((x0[i1] + i32(-1)) + i2) + 1)), 0);
}
fn new_k(batch: i32, row: i32, step: i32) -> vec4<f32> {
  let i1 = batch & 1;
  let i2 = batch >> 1u;
  let t3 = unpack_float16_4(x1[i1 * 4 + i2 * 16 + row * 8 + step]);
  return round_float16_4(t3);
}
fn store_k(batch: i32, row: i32, step: i32, value: vec4<f32>) {
  let i1 = batch >> 1u;
  if ((((x0[i1] + i32(-1)) + row) >= 0) & (((x0[i1] + i32(-1)) + row) <= 1499)) {
    let i2 = max(min(((x0[i1] + i32(-1)) + row), 1499), 0);
    y1[batch * 6000 + i2 * 4 + step] = pack_float16_4(value);
  }
}
fn new_v(batch: i32, row: i32, step: i32) -> vec4<f32> {
  let i1 = batch & 1;
  let i2 = batch >> 1u;
  let t3 = unpack_float16_4(x2[i1 * 4 + i2 * 16 + row * 8 + step]);
  return round_float16_4(t3);
}
fn store_v(batch: i32, row: i32, step: i32, value: vec4<f32>) {
  let i1 = batch >> 1u;
  if ((((x0[i1] + i32(-1)) + row) >= 0) & (((x0[i1] + i32(-1)) + row) <= 1499)) {
    let i2 = max(min(((x0[i1] + i32(-1)) + row), 1499), 0);
    y2[batch * 6000 + i2 * 4 + step] = pack_float16_4(value);
  }
}
fn new_begin(batch: i32) -> i32 {
  let i1 = batch >> 1u;
  return x0[i1] + i32(-1);
}
fn load_q(batch: i32, m: i32, step: i32) -> vec4<f32> {
  let i1 = batch & 1;
  let i2 = batch >> 1u;
  let i3 = m & 1;
  let i4 = m >> 1u;
  let t5 = unpack_float16_4(x3[i1 * 8 + i2 * 32 + i3 * 16 + i4 * 4 + step]);
  return t5 * 0.25f;
}
fn load_k(batch: i32, n: i32, step: i32) -> vec2<u32> {
  return y1[batch * 6000 + n * 4 + step];
}
fn load_v(batch: i32, n: i32, step: i32) -> vec2<u32> {
  return y2[batch * 6000 + n * 4 + step];
}
fn store(batch: i32, m: i32, step: i32, value: vec4<f32>) {
  let i1 = batch & 1;
  let i2 = batch >> 1u;
  let i3 = m & 1;
  let i4 = m >> 1u;
  y[i1 * 8 + i2 * 32 + i3 * 16 + i4 * 4 + step] = pack_float16_4(value);
}

var<workgroup> new_keys: array<vec4<f32>, 8>;
var<workgroup> new_values: array<vec4<f32>, 8>;
var<workgroup> queries: array<vec4<f32>, 4>;
var<workgroup> partials: array<f32, 1152>;
var<workgroup> powers: array<f32, 512>;
var<workgroup> tops: array<f32, 8>;
var<workgroup> totals: array<f32, 256>;
var<workgroup> sums: array<vec4<f32>, 256>;
var<workgroup> span: vec2<i32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let local = i32(index);
  let batch = i32(group.y);
  let m0 = i32(group.x);
  let begin0 = keys_begin();
  let end0 = keys_end(batch, m0);
  let lane = local % 2;
  let team = local / 2;
  let vector = local % 4;
  let slice = local / 4;
  let new_first = new_begin(batch);
  let new_count = 2;
  let cached = select(new_first - 1, new_count, new_first < 1);
  let is_first = group.x == 0 && group.z == 0;
  for (var place = local; place < 4 + new_count * 8; place += 256) {
    if (place < 4) {
      queries[place] = load_q(batch, m0, place % 4);
    } else if (place < 4 + new_count * 4) {
      let key = place - 4;
      let value = new_k(batch, key / 4, key % 4);
      new_keys[key] = value;
      if (is_first) { store_k(batch, key / 4, key % 4, value); }
    } else {
      let element = place - 4 - new_count * 4;
      let value = new_v(batch, element / 4, element % 4);
      new_values[element] = value;
      if (is_first) { store_v(batch, element / 4, element % 4, value); }
    }
  }
  if (local == 0) {
    span = vec2<i32>(begin0, end0);
  }
  let keys = workgroupUniformLoad(&span);
  let query0_0 = queries[0 + lane + 0];
  let query0_1 = queries[0 + lane + 2];
  var highest0 = -3.4028234e38;
  var total0 = 0.0;
  var sum0 = vec4<f32>();
  let first = keys.x;
  let stop = keys.y;
  for (var start = first; start < stop; start += 512) {
    let n0 = min(start + team, stop - 1);
    let is_new_key0 = n0 >= new_first && n0 < new_first + new_count;
    let at_key0 = select(n0, cached, is_new_key0);
    let key0_0 = load_k(batch, at_key0, lane + 0);
    let key0_1 = load_k(batch, at_key0, lane + 2);
    let n1 = min(start + team + 128, stop - 1);
    let is_new_key1 = n1 >= new_first && n1 < new_first + new_count;
    let at_key1 = select(n1, cached, is_new_key1);
    let key1_0 = load_k(batch, at_key1, lane + 0);
    let key1_1 = load_k(batch, at_key1, lane + 2);
    let n2 = min(start + team + 256, stop - 1);
    let is_new_key2 = n2 >= new_first && n2 < new_first + new_count;
    let at_key2 = select(n2, cached, is_new_key2);
    let key2_0 = load_k(batch, at_key2, lane + 0);
    let key2_1 = load_k(batch, at_key2, lane + 2);
    let n3 = min(start + team + 384, stop - 1);
    let is_new_key3 = n3 >= new_first && n3 < new_first + new_count;
    let at_key3 = select(n3, cached, is_new_key3);
    let key3_0 = load_k(batch, at_key3, lane + 0);
    let key3_1 = load_k(batch, at_key3, lane + 2);
    let v0 = min(start + slice + 0, stop - 1);
    let is_new_value0 = v0 >= new_first && v0 < new_first + new_count;
    let at_value0 = select(v0, cached, is_new_value0);
let value0 = load_v(batch, at_value0, vector);
    let v1 = min(start + slice + 64, stop - 1);
    let is_new_value1 = v1 >= new_first && v1 < new_first + new_count;
    let at_value1 = select(v1, cached, is_new_value1);
let value1 = load_v(batch, at_value1, vector);
    let v2 = min(start + slice + 128, stop - 1);
    let is_new_value2 = v2 >= new_first && v2 < new_first + new_count;
    let at_value2 = select(v2, cached, is_new_value2);
let value2 = load_v(batch, at_value2, vector);
    let v3 = min(start + slice + 192, stop - 1);
    let is_new_value3 = v3 >= new_first && v3 < new_first + new_count;
    let at_value3 = select(v3, cached, is_new_value3);
let value3 = load_v(batch, at_value3, vector);
    let v4 = min(start + slice + 256, stop - 1);
    let is_new_value4 = v4 >= new_first && v4 < new_first + new_count;
    let at_value4 = select(v4, cached, is_new_value4);
let value4 = load_v(batch, at_value4, vector);
    let v5 = min(start + slice + 320, stop - 1);
    let is_new_value5 = v5 >= new_first && v5 < new_first + new_count;
    let at_value5 = select(v5, cached, is_new_value5);
let value5 = load_v(batch, at_value5, vector);
    let v6 = min(start + slice + 384, stop - 1);
    let is_new_value6 = v6 >= new_first && v6 < new_first + new_count;
    let at_value6 = select(v6, cached, is_new_value6);
let value6 = load_v(batch, at_value6, vector);
    let v7 = min(start + slice + 448, stop - 1);
    let is_new_value7 = v7 >= new_first && v7 < new_first + new_count;
    let at_value7 = select(v7, cached, is_new_value7);
let value7 = load_v(batch, at_value7, vector);
    {
      var part0 = unpack_float16_4(key0_0);
      if (is_new_key0) { part0 = new_keys[(n0 - new_first) * 4 + lane + 0]; }
      var part1 = unpack_float16_4(key0_1);
      if (is_new_key0) { part1 = new_keys[(n0 - new_first) * 4 + lane + 2]; }
      var product0 = vec4<f32>();
      product0 = fma(query0_0, part0, product0);
      product0 = fma(query0_1, part1, product0);
      partials[(0 + lane) * 144 + team] = (product0.x + product0.y) + (product0.z + product0.w);
    }
    {
      var part0 = unpack_float16_4(key1_0);
      if (is_new_key1) { part0 = new_keys[(n1 - new_first) * 4 + lane + 0]; }
      var part1 = unpack_float16_4(key1_1);
      if (is_new_key1) { part1 = new_keys[(n1 - new_first) * 4 + lane + 2]; }
      var product0 = vec4<f32>();
      product0 = fma(query0_0, part0, product0);
      product0 = fma(query0_1, part1, product0);
      partials[(2 + lane) * 144 + team] = (product0.x + product0.y) + (product0.z + product0.w);
    }
    {
      var part0 = unpack_float16_4(key2_0);
      if (is_new_key2) { part0 = new_keys[(n2 - new_first) * 4 + lane + 0]; }
      var part1 = unpack_float16_4(key2_1);
      if (is_new_key2) { part1 = new_keys[(n2 - new_first) * 4 + lane + 2]; }
      var product0 = vec4<f32>();
      product0 = fma(query0_0, part0, product0);
      product0 = fma(query0_1, part1, product0);
      partials[(4 + lane) * 144 + team] = (product0.x + product0.y) + (product0.z + product0.w);
    }
    {
      var part0 = unpack_float16_4(key3_0);
      if (is_new_key3) { part0 = new_keys[(n3 - new_first) * 4 + lane + 0]; }
      var part1 = unpack_float16_4(key3_1);
      if (is_new_key3) { part1 = new_keys[(n3 - new_first) * 4 + lane + 2]; }
      var product0 = vec4<f32>();
      product0 = fma(query0_0, part0, product0);
      product0 = fma(query0_1, part1, product0);
      partials[(6 + lane) * 144 + team] = (product0.x + product0.y) + (product0.z + product0.w);
    }
    workgroupBarrier();
    for (var key = local; key < 512; key += 256) {
      let n = min(start + key, stop - 1);
      var product0 = 0.0;
      product0 += partials[(0 + key / 128) * 288 + 0 + key % 128];
      product0 += partials[(0 + key / 128) * 288 + 144 + key % 128];
      powers[0 + key] = select(-3.4028234e38, product0, n >= begin0 && n < end0);
    }
    workgroupBarrier();
    for (var place = local; place < 8; place += 256) {
      var top = -3.4028234e38;
      for (var key = 0; key < 64; key++) {
        top = max(top, powers[place * 64 + key]);
      }
      tops[place] = top;
    }
    workgroupBarrier();
    let before0 = highest0;
    highest0 = max(highest0, tops[0]);
    highest0 = max(highest0, tops[1]);
    highest0 = max(highest0, tops[2]);
    highest0 = max(highest0, tops[3]);
    highest0 = max(highest0, tops[4]);
    highest0 = max(highest0, tops[5]);
    highest0 = max(highest0, tops[6]);
    highest0 = max(highest0, tops[7]);
    let factor0 = exp(before0 - highest0);
    total0 *= factor0;
    sum0 *= factor0;
    for (var key = local; key < 512; key += 256) {
      let n = start + key;
      let power0 = powers[0 + key];
      powers[0 + key] = select(0.0, select(exp(power0 - highest0), power0, (bitcast<u32>(power0) & 0x7fffffffu) > 0x7f800000u), n < stop && n >= begin0 && n < end0);
    }
    workgroupBarrier();
    if (slice < 64) {
      let count = min(512, stop - start);
      if (slice + 0 < count) {
        var value = unpack_float16_4(value0);
      if (is_new_value0) { value = new_values[(v0 - new_first) * 4 + vector]; }
        let weight0 = powers[0 + slice + 0];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 64 < count) {
        var value = unpack_float16_4(value1);
      if (is_new_value1) { value = new_values[(v1 - new_first) * 4 + vector]; }
        let weight0 = powers[0 + slice + 64];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 128 < count) {
        var value = unpack_float16_4(value2);
      if (is_new_value2) { value = new_values[(v2 - new_first) * 4 + vector]; }
        let weight0 = powers[0 + slice + 128];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 192 < count) {
        var value = unpack_float16_4(value3);
      if (is_new_value3) { value = new_values[(v3 - new_first) * 4 + vector]; }
        let weight0 = powers[0 + slice + 192];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 256 < count) {
        var value = unpack_float16_4(value4);
      if (is_new_value4) { value = new_values[(v4 - new_first) * 4 + vector]; }
        let weight0 = powers[0 + slice + 256];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 320 < count) {
        var value = unpack_float16_4(value5);
      if (is_new_value5) { value = new_values[(v5 - new_first) * 4 + vector]; }
        let weight0 = powers[0 + slice + 320];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 384 < count) {
        var value = unpack_float16_4(value6);
      if (is_new_value6) { value = new_values[(v6 - new_first) * 4 + vector]; }
        let weight0 = powers[0 + slice + 384];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 448 < count) {
        var value = unpack_float16_4(value7);
      if (is_new_value7) { value = new_values[(v7 - new_first) * 4 + vector]; }
        let weight0 = powers[0 + slice + 448];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
    }
    workgroupBarrier();
  }
  totals[local] = total0;
  sums[local] = sum0;
  workgroupBarrier();
  if (slice == 0) {
    for (var other = 1; other < 64; other++) {
      total0 += totals[local + other * 4];
      sum0 += sums[local + other * 4];
    }
    store(batch, m0, vector, sum0 / select(total0, 1.0, total0 == 0.0));
  }
}
