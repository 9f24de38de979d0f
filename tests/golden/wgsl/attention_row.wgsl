@group(0) @binding(0) var<storage, read> x0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> x1: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> x2: array<f32>;
@group(0) @binding(3) var<storage, read> x3: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;
fn load_q(batch: i32, m: i32, step: i32) -> vec4<f32> {
  return x0[(batch * 8 + step)];
}
fn load_k(batch: i32, n: i32, step: i32) -> vec4<f32> {
  return x1[(batch * 8 + n * 16 + step)];
}
fn score(batch: i32, m: i32, n: i32, product: f32) -> f32 {
  return ((product * 0.1767766922712326f) + x2[n]);
}
fn load_v(batch: i32, n: i32, step: i32) -> vec4<f32> {
  return x3[(batch * 8 + n * 16 + step)];
}
fn store(batch: i32, m: i32, step: i32, value: vec4<f32>) {
  y[(batch * 8 + step)] = value;
}

var<workgroup> queries: array<vec4<f32>, 8>;
var<workgroup> partials: array<f32, 96>;
var<workgroup> powers: array<f32, 16>;
var<workgroup> totals: array<f32, 64>;
var<workgroup> sums: array<vec4<f32>, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let local = i32(index);
  let batch = i32(group.y);
  let m0 = i32(group.x);
  let lane = local % 4;
  let team = local / 4;
  let vector = local % 8;
  let slice = local / 8;
  for (var step = local; step < 8; step += 64) {
    queries[0 + step] = load_q(batch, m0, step);
  }
  workgroupBarrier();
  let query0_0 = queries[0 + lane + 0];
  let query0_1 = queries[0 + lane + 4];
  var highest0 = -3.4028234e38;
  var total0 = 0.0;
  var sum0 = vec4<f32>();
  let stop = 40;
  for (var start = 0; start < stop; start += 16) {
    let n0 = min(start + team, stop - 1);
    let key0_0 = load_k(batch, n0, lane + 0);
    let key0_1 = load_k(batch, n0, lane + 4);
    {
      var product0 = vec4<f32>();
      product0 = fma(query0_0, key0_0, product0);
      product0 = fma(query0_1, key0_1, product0);
      partials[(0 + lane) * 24 + team] = (product0.x + product0.y) + (product0.z + product0.w);
    }
    workgroupBarrier();
    if (local < 16) { let key = local;
      let n = min(start + key, stop - 1);
      var product0 = 0.0;
      product0 += partials[(0 + key / 16) * 96 + 0 + key % 16];
      product0 += partials[(0 + key / 16) * 96 + 24 + key % 16];
      product0 += partials[(0 + key / 16) * 96 + 48 + key % 16];
      product0 += partials[(0 + key / 16) * 96 + 72 + key % 16];
      powers[0 + key] = score(batch, m0, n, product0);
    }
    workgroupBarrier();
    let before0 = highest0;
    for (var key = 0; key < 16; key++) {
      highest0 = max(highest0, powers[0 + key]);
    }
    let factor0 = exp(before0 - highest0);
    total0 *= factor0;
    sum0 *= factor0;
    workgroupBarrier();
    if (local < 16) { let key = local;
      let n = start + key;
      let power0 = powers[0 + key];
      powers[0 + key] = select(0.0, select(exp(power0 - highest0), power0, (bitcast<u32>(power0) & 0x7fffffffu) > 0x7f800000u), n < stop);
    }
    workgroupBarrier();
    if (slice < 8) {
      let count = min(16, stop - start);
      for (var key = slice; key < count; key += 8) {
        let value = load_v(batch, start + key, vector);
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
    for (var other = 1; other < 8; other++) {
      total0 += totals[local + other * 8];
      sum0 += sums[local + other * 8];
    }
    store(batch, m0, vector, sum0 / total0);
  }
}
