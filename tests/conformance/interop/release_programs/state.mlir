// Globals that an initialiser sets and calls change.
util.global private mutable @total = dense<0.0> : tensor<4xf32>
util.global private mutable @calls = 0 : i32
util.global private @scale : tensor<4xf32>
util.initializer {
  %c = arith.constant dense<[1.0, 0.5, 0.25, 3.0]> : tensor<4xf32>
  %s = math.sqrt %c : tensor<4xf32>
  util.global.store %s, @scale : tensor<4xf32>
  util.return
}
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, i32) {
  %t = util.global.load @total : tensor<4xf32>
  %s = util.global.load @scale : tensor<4xf32>
  %m = arith.mulf %x, %s : tensor<4xf32>
  %u = arith.addf %t, %m : tensor<4xf32>
  util.global.store %u, @total : tensor<4xf32>
  %n = util.global.load @calls : i32
  %one = arith.constant 1 : i32
  %k = arith.addi %n, %one : i32
  util.global.store %k, @calls : i32
  return %u, %k : tensor<4xf32>, i32
}
