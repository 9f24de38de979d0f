@group(0) @binding(0) var<storage, read> x0: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<vec2<u32>>;
fn i32_to_i64_1(x: i32) -> vec2<u32> { return vec2<u32>(u32(x), u32(x >> 31u)); }
fn isnan_1(x: f32) -> bool {
  return (bitcast<u32>(x) << u32(1u)) > u32(0xff000000u);
}
fn element(row_0: i32, column: i32) -> f32 {
  return x0[column + row_0 * 300];
}
fn replaces(later: f32, earlier: f32) -> bool {
  return (!isnan_1(earlier)) & (isnan_1(later) | (later > earlier));
}
fn store(row_0: i32, place: i32) {
  y[row_0] = i32_to_i64_1(place);
}

var<workgroup> shared_best: array<f32, 128>;
var<workgroup> shared_place: array<i32, 128>;

@compute @workgroup_size(128)
fn main(
  @builtin(local_invocation_index) local: u32,
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
) {
  let strip = i32(local % 128u);
  let local_row = i32(local / 128u);
  let wanted = i32(group.x + group.y * groups.x) * 1 + local_row;
  // Threads past the last row repeat it, and strips past the last column repeat that.
  let row = min(wanted, 4 - 1);
  let columns = 300;
  let row_0 = row;
  var place = min(strip, columns - 1);
  var best = element(row_0, place);
  for (var column = strip + 128; column < columns; column += 128) {
    let found = element(row_0, column);
    if (replaces(found, best)) {
      best = found;
      place = column;
    }
  }
  shared_best[local] = best;
  shared_place[local] = place;
  workgroupBarrier();
  if (strip < 64) {
    let other = local + 64u;
    let other_best = shared_best[other];
    let other_place = shared_place[other];
    var wins = false;
    if (other_place > place) { wins = replaces(other_best, best); } else { wins = !replaces(best, other_best); }
    if (wins) {
      best = other_best;
      place = other_place;
      shared_best[local] = best;
      shared_place[local] = place;
    }
  }
  workgroupBarrier();
  if (strip < 32) {
    let other = local + 32u;
    let other_best = shared_best[other];
    let other_place = shared_place[other];
    var wins = false;
    if (other_place > place) { wins = replaces(other_best, best); } else { wins = !replaces(best, other_best); }
    if (wins) {
      best = other_best;
      place = other_place;
      shared_best[local] = best;
      shared_place[local] = place;
    }
  }
  workgroupBarrier();
  if (strip < 16) {
    let other = local + 16u;
    let other_best = shared_best[other];
    let other_place = shared_place[other];
    var wins = false;
    if (other_place > place) { wins = replaces(other_best, best); } else { wins = !replaces(best, other_best); }
    if (wins) {
      best = other_best;
      place = other_place;
      shared_best[local] = best;
      shared_place[local] = place;
    }
  }
  workgroupBarrier();
  if (strip < 8) {
    let other = local + 8u;
    let other_best = shared_best[other];
    let other_place = shared_place[other];
    var wins = false;
    if (other_place > place) { wins = replaces(other_best, best); } else { wins = !replaces(best, other_best); }
    if (wins) {
      best = other_best;
      place = other_place;
      shared_best[local] = best;
      shared_place[local] = place;
    }
  }
  workgroupBarrier();
  if (strip < 4) {
    let other = local + 4u;
    let other_best = shared_best[other];
    let other_place = shared_place[other];
    var wins = false;
    if (other_place > place) { wins = replaces(other_best, best); } else { wins = !replaces(best, other_best); }
    if (wins) {
      best = other_best;
      place = other_place;
      shared_best[local] = best;
      shared_place[local] = place;
    }
  }
  workgroupBarrier();
  if (strip < 2) {
    let other = local + 2u;
    let other_best = shared_best[other];
    let other_place = shared_place[other];
    var wins = false;
    if (other_place > place) { wins = replaces(other_best, best); } else { wins = !replaces(best, other_best); }
    if (wins) {
      best = other_best;
      place = other_place;
      shared_best[local] = best;
      shared_place[local] = place;
    }
  }
  workgroupBarrier();
  if (strip < 1) {
    let other = local + 1u;
    let other_best = shared_best[other];
    let other_place = shared_place[other];
    var wins = false;
    if (other_place > place) { wins = replaces(other_best, best); } else { wins = !replaces(best, other_best); }
    if (wins) {
      best = other_best;
      place = other_place;
      shared_best[local] = best;
      shared_place[local] = place;
    }
  }
  if (wanted < 4 && strip == 0) {
    store(row_0, place);
  }
}
