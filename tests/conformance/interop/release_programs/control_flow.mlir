// A loop whose condition is read back from a tensor, then a branch.
func.func @main(%x: tensor<3xf32>, %limit: f32, %which: i32) -> (tensor<3xf32>, i32) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %r:2 = scf.while (%t = %x, %n = %zero) : (tensor<3xf32>, i32) -> (tensor<3xf32>, i32) {
    %e = tensor.extract %t[%c0] : tensor<3xf32>
    %go = arith.cmpf olt, %e, %limit : f32
    scf.condition(%go) %t, %n : tensor<3xf32>, i32
  } do {
  ^bb0(%t: tensor<3xf32>, %n: i32):
    %d = arith.addf %t, %t : tensor<3xf32>
    %m = arith.addi %n, %one : i32
    scf.yield %d, %m : tensor<3xf32>, i32
  }
  %is = arith.cmpi eq, %which, %one : i32
  %s = scf.if %is -> (tensor<3xf32>) {
    %q = arith.mulf %r#0, %r#0 : tensor<3xf32>
    scf.yield %q : tensor<3xf32>
  } else {
    scf.yield %r#0 : tensor<3xf32>
  }
  return %s, %r#1 : tensor<3xf32>, i32
}
