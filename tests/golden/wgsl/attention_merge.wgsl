@group(0) @binding(0) var<storage, read> x0: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
fn load_part(row: i32, part: i32, step: i32) -> vec4<f32> {
  return x0[part * 9 + row * 297 + step];
}
fn store(row: i32, step: i32, value: vec4<f32>) {
  y[row * 8 + step] = value;
}

var<workgroup> tops: array<vec2<f32>, 128>;
var<workgroup> sums: array<vec4<f32>, 128>;

@compute @workgroup_size(128)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) index: u32) {
  let local = i32(index);
  let row = min(i32(group.x + group.y * groups.x), 2 - 1);
  let vector = local % 8;
  var highest = -3.4028234e38;
  var total = 0.0;
  var sum = vec4<f32>();
  for (var part = local / 8; part < 33; part += 16) {
    let end = load_part(row, part, 8);
    let most = max(highest, end.x);
    let before = exp(highest - most);
    let factor = exp(end.x - most);
    total = total * before + factor * end.y;
    sum = sum * before + factor * load_part(row, part, vector);
    highest = most;
  }
  tops[local] = vec2<f32>(highest, total);
  sums[local] = sum;
  workgroupBarrier();
  if (local < 8 && i32(group.x + group.y * groups.x) < 2) {
    for (var other = local + 8; other < 128; other += 8) {
      let end = tops[other];
      let most = max(highest, end.x);
      let before = exp(highest - most);
      let factor = exp(end.x - most);
      total = total * before + factor * end.y;
      sum = sum * before + factor * sums[other];
      highest = most;
    }
    store(row, vector, sum / total);
  }
}
