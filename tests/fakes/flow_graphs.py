"""Graphs with control flow, as text."""

INDEXING = """graph @g(%x: f32[5], %p: i64[3]) {
  %zero: i64[] = constant {value = i64[] [0]}
  %f: f32[] = constant {value = f32[] [0]}
  %t: i64[], %y: f32[] = while(%zero, %f, %x, %p) {carried = 2}
    graph @go(%i: i64[], %s: f32[], %u: f32[5], %v: i64[3]) {
      %three: i64[] = constant {value = i64[] [3]}
      %c: bool[] = less(%i, %three)
      return %c
    }
    graph @body(%i: i64[], %s: f32[], %u: f32[5], %v: i64[3]) {
      %one: i64[] = constant {value = i64[] [1]}
      %j: i64[] = add(%i, %one)
      %k: i64[] = gather(%v, %i) {axis = 0}
      %r: f32[] = gather(%u, %k) {axis = 0}
      %q: f32[] = add(%s, %r)
      return %j, %q
    }
  return %y
}"""
"""A loop of three trips: the sum of the elements of x at p, as a graph."""

GROWTH = """graph @g(%n: i64[], %x: f32[2]) {
  %zero: i64[] = constant {value = i64[] [0]}
  %t: i64[], %z: f32[E] = while(%zero, %x, %n, %x) {carried = 2, sizes = [E], trip_sizes = [S]}
    graph @go(%i: i64[], %p: f32[S], %m: i64[], %w: f32[2]) {
      %g: bool[] = less(%i, %m)
      return %g
    }
    graph @body(%i: i64[], %p: f32[S], %m: i64[], %w: f32[2]) {
      %one: i64[] = constant {value = i64[] [1]}
      %j: i64[] = add(%i, %one)
      %q: f32[S + 2] = concat(%p, %w) {axis = 0}
      return %j, %q
    }
  return %z
}"""
"""A loop whose carried tensor grows by two elements in each of n trips, as a graph."""
