@group(0) @binding(0) var<storage, read> x0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> x1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> x2: array<f32>;
@group(0) @binding(3) var<storage, read> x3: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;
fn load_q(batch: i32, m: i32, step: i32) -> vec4<f32> {
  return x0[batch * 8 + m * 16 + step];
}
fn load_k(batch: i32, n: i32, step: i32) -> vec4<f32> {
  return x1[batch * 8 + n * 16 + step];
}
fn score(m: i32, n: i32, product: f32) -> f32 {
  return (product * 0.1767766922712326f) + x2[m * 40 + n];
}
fn load_v(batch: i32, n: i32, step: i32) -> vec4<f32> {
  return x3[batch * 8 + n * 16 + step];
}
fn store(batch: i32, m: i32, step: i32, value: vec4<f32>) {
  y[batch * 8 + m * 16 + step] = value;
}

var<workgroup> queries: array<vec4<f32>, 128>;
var<workgroup> tile: array<vec4<f32>, 288>;
var<workgroup> powers: array<f32, 528>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let local = i32(index);
  let batch = i32(group.y);
  let first = i32(group.x) * 16;
  let column = local % 16;
  let row = local / 16 * 2;
  let last = 20 - 1;
  for (var place = local; place < 128; place += 128) {
    queries[place] = load_q(batch, min(first + place / 8, last), place % 8);
  }
  let m0 = min(first + row + 0, last);
  var highest0 = -3.4028234e38;
  var total0 = 0.0;
  var sum0_0 = vec4<f32>();
  let m1 = min(first + row + 1, last);
  var highest1 = -3.4028234e38;
  var total1 = 0.0;
  var sum1_0 = vec4<f32>();
  for (var start = 0; start < 40; start += 32) {
    let count = min(32, 40 - start);
    workgroupBarrier();
    for (var place = local; place < 256; place += 128) {
      let key = place / 8;
      let step = place % 8;
      tile[key * 9 + step] = load_k(batch, start + min(key, count - 1), step);
    }
    workgroupBarrier();
    var product0_0 = vec4<f32>();
    var product0_1 = vec4<f32>();
    var product1_0 = vec4<f32>();
    var product1_1 = vec4<f32>();
    for (var step = 0; step < 8; step++) {
      let key0 = tile[(column + 0) * 9 + step];
      let key1 = tile[(column + 16) * 9 + step];
      let query0 = queries[(row + 0) * 8 + step];
      product0_0 = fma(query0, key0, product0_0);
      product0_1 = fma(query0, key1, product0_1);
      let query1 = queries[(row + 1) * 8 + step];
      product1_0 = fma(query1, key0, product1_0);
      product1_1 = fma(query1, key1, product1_1);
    }
    let n0 = start + min(column + 0, count - 1);
    let inside0 = column + 0 < count;
    let n1 = start + min(column + 16, count - 1);
    let inside1 = column + 16 < count;
    let score0_0 = score(m0, n0, (product0_0.x + product0_0.y) + (product0_0.z + product0_0.w));
    powers[(row + 0) * 33 + column + 0] = score0_0;
    let score0_1 = score(m0, n1, (product0_1.x + product0_1.y) + (product0_1.z + product0_1.w));
    powers[(row + 0) * 33 + column + 16] = score0_1;
    let score1_0 = score(m1, n0, (product1_0.x + product1_0.y) + (product1_0.z + product1_0.w));
    powers[(row + 1) * 33 + column + 0] = score1_0;
    let score1_1 = score(m1, n1, (product1_1.x + product1_1.y) + (product1_1.z + product1_1.w));
    powers[(row + 1) * 33 + column + 16] = score1_1;
    workgroupBarrier();
    for (var place = local; place < 256; place += 128) {
      let key = place / 8;
      let step = place % 8;
      tile[key * 9 + step] = load_v(batch, start + min(key, count - 1), step);
    }
    let before0 = highest0;
    let before1 = highest1;
    for (var key = 0; key < count; key++) {
      highest0 = max(highest0, powers[(row + 0) * 33 + key]);
      highest1 = max(highest1, powers[(row + 1) * 33 + key]);
    }
    workgroupBarrier();
    powers[(row + 0) * 33 + column + 0] = select(0.0, select(exp(score0_0 - highest0), score0_0, (bitcast<u32>(score0_0) & 0x7fffffffu) > 0x7f800000u), inside0);
    powers[(row + 0) * 33 + column + 16] = select(0.0, select(exp(score0_1 - highest0), score0_1, (bitcast<u32>(score0_1) & 0x7fffffffu) > 0x7f800000u), inside1);
    let factor0 = exp(before0 - highest0);
    total0 *= factor0;
    sum0_0 *= factor0;
    powers[(row + 1) * 33 + column + 0] = select(0.0, select(exp(score1_0 - highest1), score1_0, (bitcast<u32>(score1_0) & 0x7fffffffu) > 0x7f800000u), inside0);
    powers[(row + 1) * 33 + column + 16] = select(0.0, select(exp(score1_1 - highest1), score1_1, (bitcast<u32>(score1_1) & 0x7fffffffu) > 0x7f800000u), inside1);
    let factor1 = exp(before1 - highest1);
    total1 *= factor1;
    sum1_0 *= factor1;
    workgroupBarrier();
    for (var key = 0; key < count; key++) {
      let value0 = tile[key * 9 + min(column + 0, 7)];
      let power0 = powers[(row + 0) * 33 + key];
      total0 += power0;
      sum0_0 = fma(vec4<f32>(power0), value0, sum0_0);
      let power1 = powers[(row + 1) * 33 + key];
      total1 += power1;
      sum1_0 = fma(vec4<f32>(power1), value0, sum1_0);
    }
  }
  if (first + row + 0 <= last) {
if (column + 0 < 8) { store(batch, m0, column + 0, sum0_0 / total0); }
  }
  if (first + row + 1 <= last) {
if (column + 0 < 8) { store(batch, m1, column + 0, sum1_0 / total1); }
  }
}
