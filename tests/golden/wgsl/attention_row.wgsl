@group(0) @binding(0) var<storage, read> x0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> x1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> x2: array<f32>;
@group(0) @binding(3) var<storage, read> x3: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;
fn load_q(batch: i32, step: i32) -> vec4<f32> {
  return x0[batch * 8 + step];
}
fn load_k(batch: i32, n: i32, step: i32) -> vec4<f32> {
  return x1[batch * 8 + n * 16 + step];
}
fn score(n: i32, product: f32) -> f32 {
  return (product * 0.1767766922712326f) + x2[n];
}
fn load_v(batch: i32, n: i32, step: i32) -> vec4<f32> {
  return x3[batch * 8 + n * 16 + step];
}
fn store(batch: i32, step: i32, value: vec4<f32>) {
  y[batch * 8 + step] = value;
}

var<workgroup> queries: array<vec4<f32>, 8>;
var<workgroup> partials: array<f32, 384>;
var<workgroup> powers: array<f32, 64>;
var<workgroup> tops: array<f32, 8>;
var<workgroup> totals: array<f32, 64>;
var<workgroup> sums: array<vec4<f32>, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let local = i32(index);
  let batch = i32(group.y);
  let lane = local % 4;
  let team = local / 4;
  let vector = local % 8;
  let slice = local / 8;
  for (var place = local; place < 8; place += 64) {
    queries[place] = load_q(batch, place);
  }
  workgroupBarrier();
  let query0_0 = queries[0 + lane + 0];
  let query0_1 = queries[0 + lane + 4];
  var highest0 = -3.4028234e38;
  var total0 = 0.0;
  var sum0 = vec4<f32>();
  let first = 0;
  let stop = 40;
  for (var start = first; start < stop; start += 64) {
    let n0 = min(start + team, stop - 1);
    let key0_0 = load_k(batch, n0, lane + 0);
    let key0_1 = load_k(batch, n0, lane + 4);
    let n1 = min(start + team + 16, stop - 1);
    let key1_0 = load_k(batch, n1, lane + 0);
    let key1_1 = load_k(batch, n1, lane + 4);
    let n2 = min(start + team + 32, stop - 1);
    let key2_0 = load_k(batch, n2, lane + 0);
    let key2_1 = load_k(batch, n2, lane + 4);
    let n3 = min(start + team + 48, stop - 1);
    let key3_0 = load_k(batch, n3, lane + 0);
    let key3_1 = load_k(batch, n3, lane + 4);
    let v0 = min(start + slice + 0, stop - 1);
let value0 = load_v(batch, v0, vector);
    let v1 = min(start + slice + 8, stop - 1);
let value1 = load_v(batch, v1, vector);
    let v2 = min(start + slice + 16, stop - 1);
let value2 = load_v(batch, v2, vector);
    let v3 = min(start + slice + 24, stop - 1);
let value3 = load_v(batch, v3, vector);
    let v4 = min(start + slice + 32, stop - 1);
let value4 = load_v(batch, v4, vector);
    let v5 = min(start + slice + 40, stop - 1);
let value5 = load_v(batch, v5, vector);
    let v6 = min(start + slice + 48, stop - 1);
let value6 = load_v(batch, v6, vector);
    let v7 = min(start + slice + 56, stop - 1);
let value7 = load_v(batch, v7, vector);
    {
      let part0 = key0_0;
      let part1 = key0_1;
      var product0 = vec4<f32>();
      product0 = fma(query0_0, part0, product0);
      product0 = fma(query0_1, part1, product0);
      partials[(0 + lane) * 24 + team] = (product0.x + product0.y) + (product0.z + product0.w);
    }
    {
      let part0 = key1_0;
      let part1 = key1_1;
      var product0 = vec4<f32>();
      product0 = fma(query0_0, part0, product0);
      product0 = fma(query0_1, part1, product0);
      partials[(4 + lane) * 24 + team] = (product0.x + product0.y) + (product0.z + product0.w);
    }
    {
      let part0 = key2_0;
      let part1 = key2_1;
      var product0 = vec4<f32>();
      product0 = fma(query0_0, part0, product0);
      product0 = fma(query0_1, part1, product0);
      partials[(8 + lane) * 24 + team] = (product0.x + product0.y) + (product0.z + product0.w);
    }
    {
      let part0 = key3_0;
      let part1 = key3_1;
      var product0 = vec4<f32>();
      product0 = fma(query0_0, part0, product0);
      product0 = fma(query0_1, part1, product0);
      partials[(12 + lane) * 24 + team] = (product0.x + product0.y) + (product0.z + product0.w);
    }
    workgroupBarrier();
    { let key = local;
      let n = min(start + key, stop - 1);
      var product0 = 0.0;
      product0 += partials[(0 + key / 16) * 96 + 0 + key % 16];
      product0 += partials[(0 + key / 16) * 96 + 24 + key % 16];
      product0 += partials[(0 + key / 16) * 96 + 48 + key % 16];
      product0 += partials[(0 + key / 16) * 96 + 72 + key % 16];
      powers[0 + key] = score(n, product0);
    }
    workgroupBarrier();
    for (var place = local; place < 8; place += 64) {
      var top = -3.4028234e38;
      for (var key = 0; key < 8; key++) {
        top = max(top, powers[place * 8 + key]);
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
    { let key = local;
      let n = start + key;
      let power0 = powers[0 + key];
      powers[0 + key] = select(0.0, select(exp(power0 - highest0), power0, (bitcast<u32>(power0) & 0x7fffffffu) > 0x7f800000u), n < stop);
    }
    workgroupBarrier();
    if (slice < 8) {
      let count = min(64, stop - start);
      if (slice + 0 < count) {
        let value = value0;
        let weight0 = powers[0 + slice + 0];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 8 < count) {
        let value = value1;
        let weight0 = powers[0 + slice + 8];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 16 < count) {
        let value = value2;
        let weight0 = powers[0 + slice + 16];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 24 < count) {
        let value = value3;
        let weight0 = powers[0 + slice + 24];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 32 < count) {
        let value = value4;
        let weight0 = powers[0 + slice + 32];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 40 < count) {
        let value = value5;
        let weight0 = powers[0 + slice + 40];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 48 < count) {
        let value = value6;
        let weight0 = powers[0 + slice + 48];
        total0 += weight0;
        sum0 = fma(vec4<f32>(weight0), value, sum0);
}
      if (slice + 56 < count) {
        let value = value7;
        let weight0 = powers[0 + slice + 56];
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
    for (var other = 1; other < 8; other++) {
      total0 += totals[local + other * 8];
      sum0 += sums[local + other * 8];
    }
    store(batch, vector, sum0 / total0);
  }
}
