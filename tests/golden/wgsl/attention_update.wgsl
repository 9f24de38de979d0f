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
fn keys_begin(batch: i32, m: i32) -> i32 {
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
  let t3 = unpack_float16_4(x1[(i1 * 4 + i2 * 16 + row * 8 + step)]);
  return round_float16_4(t3);
}
fn store_k(batch: i32, row: i32, step: i32, value: vec4<f32>) {
  let i1 = batch >> 1u;
  if (((((x0[i1] + i32(-1)) + row) >= 0) & (((x0[i1] + i32(-1)) + row) <= 1499))) {
    let i2 = max(min(((x0[i1] + i32(-1)) + row), 1499), 0);
    y1[(batch * 6000 + i2 * 4 + step)] = pack_float16_4(value);
  }
}
fn new_v(batch: i32, row: i32, step: i32) -> vec4<f32> {
  let i1 = batch & 1;
  let i2 = batch >> 1u;
  let t3 = unpack_float16_4(x2[(i1 * 4 + i2 * 16 + row * 8 + step)]);
  return round_float16_4(t3);
}
fn store_v(batch: i32, row: i32, step: i32, value: vec4<f32>) {
  let i1 = batch >> 1u;
  if (((((x0[i1] + i32(-1)) + row) >= 0) & (((x0[i1] + i32(-1)) + row) <= 1499))) {
    let i2 = max(min(((x0[i1] + i32(-1)) + row), 1499), 0);
    y2[(batch * 6000 + i2 * 4 + step)] = pack_float16_4(value);
  }
}
fn new_begin(batch: i32) -> i32 {
  let i1 = batch >> 1u;
  return (x0[i1] + i32(-1));
}
fn load_q(batch: i32, m: i32, step: i32) -> vec4<f32> {
  let i1 = batch & 1;
  let i2 = batch >> 1u;
  let i3 = m & 1;
  let i4 = m >> 1u;
  let t5 = unpack_float16_4(x3[(i1 * 8 + i2 * 32 + i3 * 16 + i4 * 4 + step)]);
  return (t5 * vec4<f32>(0.25f));
}
fn load_k(batch: i32, n: i32, step: i32) -> vec2<u32> {
  return y1[(batch * 6000 + n * 4 + step)];
}
fn score(batch: i32, m: i32, n: i32, product: f32) -> f32 {
  return product;
}
fn load_v(batch: i32, n: i32, step: i32) -> vec2<u32> {
  return y2[(batch * 6000 + n * 4 + step)];
}
fn store(batch: i32, m: i32, step: i32, value: vec4<f32>) {
  let i1 = batch & 1;
  let i2 = batch >> 1u;
  let i3 = m & 1;
  let i4 = m >> 1u;
  y[(i1 * 8 + i2 * 32 + i3 * 16 + i4 * 4 + step)] = pack_float16_4(value);
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
  let begin0 = keys_begin(batch, m0);
  let end0 = keys_end(batch, m0);
  let lane = local % 2;
  let team = local / 2;
  let vector = local % 4;
  let slice = local / 4;
  let new_first = new_begin(batch);
  let is_first = group.x == 0 && group.z == 0;
  for (var place = local; place < 2 * 4; place += 256) {
    let row = place / 4;
    let step = place % 4;
    let value = new_k(batch, row, step);
    new_keys[place] = value;
    if (is_first) { store_k(batch, row, step, value); }
  }
  for (var place = local; place < 2 * 4; place += 256) {
    let row = place / 4;
    let step = place % 4;
    let value = new_v(batch, row, step);
    new_values[place] = value;
    if (is_first) { store_v(batch, row, step, value); }
  }
  for (var step = local; step < 4; step += 256) {
    queries[0 + step] = load_q(batch, m0, step);
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
  let stop = keys.y;
  for (var start = keys.x; start < stop; start += 512) {
    let n0 = min(start + team, stop - 1);
    var key0_0: vec2<u32>;
    if (n0 < new_first || n0 >= new_first + 2) { key0_0 = load_k(batch, n0, lane + 0); }
    var key0_1: vec2<u32>;
    if (n0 < new_first || n0 >= new_first + 2) { key0_1 = load_k(batch, n0, lane + 2); }
    let n1 = min(start + team + 128, stop - 1);
    var key1_0: vec2<u32>;
    if (n1 < new_first || n1 >= new_first + 2) { key1_0 = load_k(batch, n1, lane + 0); }
    var key1_1: vec2<u32>;
    if (n1 < new_first || n1 >= new_first + 2) { key1_1 = load_k(batch, n1, lane + 2); }
    let n2 = min(start + team + 256, stop - 1);
    var key2_0: vec2<u32>;
    if (n2 < new_first || n2 >= new_first + 2) { key2_0 = load_k(batch, n2, lane + 0); }
    var key2_1: vec2<u32>;
    if (n2 < new_first || n2 >= new_first + 2) { key2_1 = load_k(batch, n2, lane + 2); }
    let n3 = min(start + team + 384, stop - 1);
    var key3_0: vec2<u32>;
    if (n3 < new_first || n3 >= new_first + 2) { key3_0 = load_k(batch, n3, lane + 0); }
    var key3_1: vec2<u32>;
    if (n3 < new_first || n3 >= new_first + 2) { key3_1 = load_k(batch, n3, lane + 2); }
    let v0 = min(start + slice + 0, stop - 1);
    var value0: vec2<u32>;
    if (v0 < new_first || v0 >= new_first + 2) { value0 = load_v(batch, v0, vector); }
    let v1 = min(start + slice + 64, stop - 1);
    var value1: vec2<u32>;
    if (v1 < new_first || v1 >= new_first + 2) { value1 = load_v(batch, v1, vector); }
    let v2 = min(start + slice + 128, stop - 1);
    var value2: vec2<u32>;
    if (v2 < new_first || v2 >= new_first + 2) { value2 = load_v(batch, v2, vector); }
    let v3 = min(start + slice + 192, stop - 1);
    var value3: vec2<u32>;
    if (v3 < new_first || v3 >= new_first + 2) { value3 = load_v(batch, v3, vector); }
    let v4 = min(start + slice + 256, stop - 1);
    var value4: vec2<u32>;
    if (v4 < new_first || v4 >= new_first + 2) { value4 = load_v(batch, v4, vector); }
    let v5 = min(start + slice + 320, stop - 1);
    var value5: vec2<u32>;
    if (v5 < new_first || v5 >= new_first + 2) { value5 = load_v(batch, v5, vector); }
    let v6 = min(start + slice + 384, stop - 1);
    var value6: vec2<u32>;
    if (v6 < new_first || v6 >= new_first + 2) { value6 = load_v(batch, v6, vector); }
    let v7 = min(start + slice + 448, stop - 1);
    var value7: vec2<u32>;
    if (v7 < new_first || v7 >= new_first + 2) { value7 = load_v(batch, v7, vector); }
    {
      var part0 = unpack_float16_4(key0_0);
      if (!(n0 < new_first || n0 >= new_first + 2)) { part0 = new_keys[(n0 - new_first) * 4 + lane + 0]; }
      var part1 = unpack_float16_4(key0_1);
      if (!(n0 < new_first || n0 >= new_first + 2)) { part1 = new_keys[(n0 - new_first) * 4 + lane + 2]; }
      var product0 = vec4<f32>();
      product0 = fma(query0_0, part0, product0);
      product0 = fma(query0_1, part1, product0);
      partials[(0 + lane) * 144 + team] = (product0.x + product0.y) + (product0.z + product0.w);
    }
    {
      var part0 = unpack_float16_4(key1_0);
      if (!(n1 < new_first || n1 >= new_first + 2)) { part0 = new_keys[(n1 - new_first) * 4 + lane + 0]; }
      var part1 = unpack_float16_4(key1_1);
      if (!(n1 < new_first || n1 >= new_first + 2)) { part1 = new_keys[(n1 - new_first) * 4 + lane + 2]; }
      var product0 = vec4<f32>();
      product0 = fma(query0_0, part0, product0);
      product0 = fma(query0_1, part1, product0);
      partials[(2 + lane) * 144 + team] = (product0.x + product0.y) + (product0.z + product0.w);
    }
    {
      var part0 = unpack_float16_4(key2_0);
      if (!(n2 < new_first || n2 >= new_first + 2)) { part0 = new_keys[(n2 - new_first) * 4 + lane + 0]; }
      var part1 = unpack_float16_4(key2_1);
      if (!(n2 < new_first || n2 >= new_first + 2)) { part1 = new_keys[(n2 - new_first) * 4 + lane + 2]; }
      var product0 = vec4<f32>();
      product0 = fma(query0_0, part0, product0);
      product0 = fma(query0_1, part1, product0);
      partials[(4 + lane) * 144 + team] = (product0.x + product0.y) + (product0.z + product0.w);
    }
    {
      var part0 = unpack_float16_4(key3_0);
      if (!(n3 < new_first || n3 >= new_first + 2)) { part0 = new_keys[(n3 - new_first) * 4 + lane + 0]; }
      var part1 = unpack_float16_4(key3_1);
      if (!(n3 < new_first || n3 >= new_first + 2)) { part1 = new_keys[(n3 - new_first) * 4 + lane + 2]; }
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
      powers[0 + key] = select(-3.4028234e38, score(batch, m0, n, product0), n >= begin0 && n < end0);
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
      if (!(v0 < new_first || v0 >= new_first + 2)) { value = new_values[(v0 - new_first) * 4 + vector]; }
        let weight0 = powers[0 + slice + 0];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 64 < count) {
        var value = unpack_float16_4(value1);
      if (!(v1 < new_first || v1 >= new_first + 2)) { value = new_values[(v1 - new_first) * 4 + vector]; }
        let weight0 = powers[0 + slice + 64];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 128 < count) {
        var value = unpack_float16_4(value2);
      if (!(v2 < new_first || v2 >= new_first + 2)) { value = new_values[(v2 - new_first) * 4 + vector]; }
        let weight0 = powers[0 + slice + 128];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 192 < count) {
        var value = unpack_float16_4(value3);
      if (!(v3 < new_first || v3 >= new_first + 2)) { value = new_values[(v3 - new_first) * 4 + vector]; }
        let weight0 = powers[0 + slice + 192];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 256 < count) {
        var value = unpack_float16_4(value4);
      if (!(v4 < new_first || v4 >= new_first + 2)) { value = new_values[(v4 - new_first) * 4 + vector]; }
        let weight0 = powers[0 + slice + 256];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 320 < count) {
        var value = unpack_float16_4(value5);
      if (!(v5 < new_first || v5 >= new_first + 2)) { value = new_values[(v5 - new_first) * 4 + vector]; }
        let weight0 = powers[0 + slice + 320];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 384 < count) {
        var value = unpack_float16_4(value6);
      if (!(v6 < new_first || v6 >= new_first + 2)) { value = new_values[(v6 - new_first) * 4 + vector]; }
        let weight0 = powers[0 + slice + 384];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 448 < count) {
        var value = unpack_float16_4(value7);
      if (!(v7 < new_first || v7 >= new_first + 2)) { value = new_values[(v7 - new_first) * 4 + vector]; }
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
