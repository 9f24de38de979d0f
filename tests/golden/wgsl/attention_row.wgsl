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

var<workgroup> query: array<vec4<f32>, 8>;
var<workgroup> powers: array<f32, 64>;
var<workgroup> sums: array<vec4<f32>, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let local = i32(index);
  let m = i32(group.x);
  let batch = i32(group.y);
  let vector = local % 8;
  let slice = local / 8;
  for (var step = local; step < 8; step += 64) {
    query[step] = load_q(batch, m, step);
  }
  workgroupBarrier();
  var highest = -3.4028234e38;
  var total = 0.0;
  var sum = vec4<f32>();
  let stop = 40;
  for (var start = 0; start < stop; start += 64) {
    let n = start + local;
    var power = -3.4028234e38;
    if (n < stop) {
      var product = vec4<f32>();
      for (var step = 0; step < 8; step++) {
        product = fma(query[step], load_k(batch, n, step), product);
      }
      power = score(batch, m, n, (product.x + product.y) + (product.z + product.w));
    }
    powers[local] = power;
    workgroupBarrier();
    for (var half = 32; half > 0; half /= 2) {
      if (local < half) {
        powers[local] = max(powers[local], powers[local + half]);
      }
      workgroupBarrier();
    }
    let before = highest;
    highest = max(highest, powers[0]);
    workgroupBarrier();
    powers[local] = select(0.0, select(exp(power - highest), power, (bitcast<u32>(power) & 0x7fffffffu) > 0x7f800000u), n < stop);
    workgroupBarrier();
    let factor = exp(before - highest);
    total *= factor;
    sum *= factor;
    if (slice < 8) {
      let count = min(64, stop - start);
      for (var key = slice; key < count; key += 8) {
        let weight = powers[key];
        total += weight;
        sum = fma(vec4<f32>(weight), load_v(batch, start + key, vector), sum);
      }
    }
    workgroupBarrier();
  }
  powers[local] = total;
  sums[local] = sum;
  workgroupBarrier();
  if (slice == 0) {
    for (var other = 1; other < 8; other++) {
      total += powers[local + other * 8];
      sum += sums[local + other * 8];
    }
    store(batch, m, vector, sum / total);
  }
}
