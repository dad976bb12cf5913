// Control flow that depends on values and on tensors, scalars in and out, several functions.

func.func @choose(%which: i1, %a: tensor<5xf32>, %b: tensor<5xf32>) -> tensor<5xf32> {
  %r = scf.if %which -> (tensor<5xf32>) {
    %s = arith.addf %a, %b : tensor<5xf32>
    scf.yield %s : tensor<5xf32>
  } else {
    %s = arith.mulf %a, %b : tensor<5xf32>
    scf.yield %s : tensor<5xf32>
  }
  return %r : tensor<5xf32>
}

// Doubles until the first element reaches the limit: a loop whose condition is read from a tensor.
func.func @grow(%x: tensor<3xf32>, %limit: f32) -> (tensor<3xf32>, i32) {
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
  return %r#0, %r#1 : tensor<3xf32>, i32
}

func.func @repeat(%x: tensor<?xf32>, %times: index) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %times step %c1 iter_args(%t = %x) -> (tensor<?xf32>) {
    %f = arith.index_cast %i : index to i32
    %g = arith.sitofp %f : i32 to f32
    %n = tensor.dim %t, %c0 : tensor<?xf32>
    %e = tensor.empty(%n) : tensor<?xf32>
    %s = linalg.fill ins(%g : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
    %u = arith.addf %t, %s : tensor<?xf32>
    scf.yield %u : tensor<?xf32>
  }
  return %r : tensor<?xf32>
}

func.func @scalars(%a: i32, %b: i64, %c: f32, %d: f64) -> (i32, i64, f32, f64) {
  %0 = arith.muli %a, %a : i32
  %1 = arith.shli %b, %b : i64
  %2 = arith.divf %c, %c : f32
  %3 = math.sqrt %d : f64
  return %0, %1, %2, %3 : i32, i64, f32, f64
}

func.func @jump(%k: i32, %x: tensor<4xi32>) -> tensor<4xi32> {
  cf.switch %k : i32, [
    default: ^other,
    1: ^one,
    7: ^seven
  ]
^one:
  %a = arith.addi %x, %x : tensor<4xi32>
  return %a : tensor<4xi32>
^seven:
  %b = arith.muli %x, %x : tensor<4xi32>
  return %b : tensor<4xi32>
^other:
  return %x : tensor<4xi32>
}

func.func @nothing() {
  return
}
