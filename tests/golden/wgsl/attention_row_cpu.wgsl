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
var<workgroup> powers: array<f32, 8>;
var<workgroup> totals: array<f32, 8>;
var<workgroup> sums: array<vec4<f32>, 8>;

@compute @workgroup_size(8)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let local = i32(index);
  let batch = i32(group.y);
  let team = local;
  let vector = local % 8;
  let slice = local / 8;
  for (var place = local; place < 8; place += 8) {
    queries[place] = load_q(batch, place);
  }
  workgroupBarrier();
  let query0_0 = queries[0 + 0];
  let query0_1 = queries[0 + 1];
  let query0_2 = queries[0 + 2];
  let query0_3 = queries[0 + 3];
  let query0_4 = queries[0 + 4];
  let query0_5 = queries[0 + 5];
  let query0_6 = queries[0 + 6];
  let query0_7 = queries[0 + 7];
  var highest0 = -3.4028234e38;
  var total0 = 0.0;
  var sum0 = vec4<f32>();
  let first = 0;
  let stop = 40;
  for (var start = first; start < stop; start += 8) {
    let n0 = min(start + team, stop - 1);
    let key0_0 = load_k(batch, n0, 0);
    let key0_1 = load_k(batch, n0, 1);
    let key0_2 = load_k(batch, n0, 2);
    let key0_3 = load_k(batch, n0, 3);
    let key0_4 = load_k(batch, n0, 4);
    let key0_5 = load_k(batch, n0, 5);
    let key0_6 = load_k(batch, n0, 6);
    let key0_7 = load_k(batch, n0, 7);
    {
      let part0 = key0_0;
      let part1 = key0_1;
      let part2 = key0_2;
      let part3 = key0_3;
      let part4 = key0_4;
      let part5 = key0_5;
      let part6 = key0_6;
      let part7 = key0_7;
      var product0 = vec4<f32>();
      product0 = fma(query0_0, part0, product0);
      product0 = fma(query0_1, part1, product0);
      product0 = fma(query0_2, part2, product0);
      product0 = fma(query0_3, part3, product0);
      product0 = fma(query0_4, part4, product0);
      product0 = fma(query0_5, part5, product0);
      product0 = fma(query0_6, part6, product0);
      product0 = fma(query0_7, part7, product0);
      powers[0 + team] = score(n0, (product0.x + product0.y) + (product0.z + product0.w));
    }
    workgroupBarrier();
    let before0 = highest0;
    for (var key = 0; key < 8; key++) {
      highest0 = max(highest0, powers[0 + key]);
    }
    let factor0 = exp(before0 - highest0);
    total0 *= factor0;
    sum0 *= factor0;
    workgroupBarrier();
    { let key = local;
      let n = start + key;
      let power0 = powers[0 + key];
      powers[0 + key] = select(0.0, select(exp(power0 - highest0), power0, (bitcast<u32>(power0) & 0x7fffffffu) > 0x7f800000u), n < stop);
    }
    workgroupBarrier();
    if (slice < 1) {
      let count = min(8, stop - start);
      for (var key = slice; key < count; key += 1) {
        let n = start + key;
let fetched = load_v(batch, n, vector);
        let value = fetched;
        let weight0 = powers[0 + key];
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
    for (var other = 1; other < 1; other++) {
      total0 += totals[local + other * 8];
      sum0 += sums[local + other * 8];
    }
    store(batch, vector, sum0 / total0);
  }
}
